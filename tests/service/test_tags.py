"""Tags: the same for the same timeline, and another one for every change that an answer would show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import LeaderEpoch, RemoteLogSegmentMetadata
from remote_fetch.service.tags import Tags
from tests.cases import each_of
from tests.service.test_answers import PARTITION, segment

SEGMENTS = tuple(segment(number, number * 10, number * 10 + 9) for number in range(3))
TIMELINE = Timeline(PARTITION, SEGMENTS, (1, 2, 3))


def test_the_same_timeline_has_the_same_tag() -> None:
    tags = Tags()
    tag = tags.of(TIMELINE)
    assert tag == tags.of(TIMELINE) == Tags().of(replace(TIMELINE))
    assert tag[0] == tag[-1] == '"'


def changed(**fields: object) -> Callable[[Timeline], Timeline]:
    """A timeline whose last segment is another one."""

    def change(timeline: Timeline) -> Timeline:
        last: RemoteLogSegmentMetadata = replace(timeline.segments[-1], **fields)  # type: ignore[arg-type]
        return replace(timeline, segments=(*timeline.segments[:-1], last))

    return change


@each_of(
    "change",
    [
        lambda timeline: replace(timeline, segments=SEGMENTS[:-1], finish_order=(1, 2)),
        lambda timeline: replace(timeline, finish_order=(1, 2, 4)),
        lambda timeline: replace(timeline, upload_epochs=(1, 2, 3)),
        lambda timeline: replace(timeline, orphan_updates=1),
        lambda timeline: replace(timeline, malformed_records=1),
        changed(segment_id=SEGMENTS[0].segment_id),
        changed(start_offset=21),
        changed(end_offset=30),
        changed(segment_size_in_bytes=11),
        changed(max_timestamp_ms=1),
        changed(event_timestamp_ms=1),
        changed(broker_id=1),
        changed(segment_leader_epochs=(LeaderEpoch(0, 0),)),
        changed(custom_metadata=b""),
        changed(custom_metadata=b"x"),
        changed(txn_index_empty=True),
    ],
)
def test_a_change(change: Callable[[Timeline], Timeline]) -> None:
    tags = Tags()
    assert tags.of(change(TIMELINE)) != tags.of(TIMELINE)


def test_custom_metadata_of_the_same_length() -> None:
    one, other = (changed(custom_metadata=custom)(TIMELINE) for custom in (b"x", b"y"))
    assert Tags().of(one) != Tags().of(other)


def test_the_timelines_that_were_asked_for_last_are_kept() -> None:
    tags = Tags(most=2)
    first, second, third = (replace(PARTITION, partition=number) for number in range(3))
    for partition in (first, second, first, third):
        tags.of(Timeline(partition, (), ()))
    assert list(tags._known) == [first, third]


def test_tags_are_bounded() -> None:
    tags = Tags(most=2)
    for number in range(5):
        partition = replace(PARTITION, partition=number)
        tags.of(Timeline(partition, (), ()))
    assert len(tags._known) == 2
