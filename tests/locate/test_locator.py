"""The locator over known timelines."""

from __future__ import annotations

import time
from typing import Any

import pytest

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.locator import KnownTimelines, PlannedLocator, SharedLocator
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.testing.log_builder import LogBuilder
from tests.at_once import at_once
from tests.locate.timelines import timeline_of
from tests.scan.bucket import plain_log

OTHER = Uuid(b"another topic id")


def known() -> tuple[KnownTimelines, Timeline]:
    log = plain_log()
    timeline = timeline_of(log.topic_id_partition, [s.metadata for s in log.segments()])
    more_timelines = [
        Timeline(TopicIdPartition(OTHER, "topic", 0), (), ()),
        Timeline(TopicIdPartition(OTHER, "a", 1), (), ()),
    ]
    return KnownTimelines([timeline, *more_timelines]), timeline


def test_partitions() -> None:
    locator, timeline = known()
    assert [(one.topic, one.partition) for one in locator.partitions(None)] == [("a", 1), ("topic", 0), ("topic", 0)]
    assert locator.partitions("a") == (TopicIdPartition(OTHER, "a", 1),)
    assert locator.partitions(f"topic:{timeline.partition.topic_id}") == (timeline.partition,)
    with pytest.raises(UnknownTopic, match="2 topic ids"):
        locator.partitions("topic")
    with pytest.raises(UnknownTopic, match="no segment of topic 'b'"):
        locator.partitions("b")


def test_nothing_newer_is_known() -> None:
    locator, timeline = known()
    assert locator.timeline(timeline.partition) is timeline
    assert locator.refresh(timeline.partition) is timeline
    assert locator.recheck(timeline.partition, 30) is timeline
    assert not locator.end_is_inferred(timeline.segments[0])


def test_a_later_timeline_replaces_an_earlier_one() -> None:
    partition = LogBuilder().topic_id_partition
    newer = Timeline(partition, (), (), 7)
    assert KnownTimelines([Timeline(partition, (), ()), newer]).timeline(partition) is newer


def test_a_shared_locator_answers_as_the_other_does() -> None:
    locator, timeline = known()
    shared = SharedLocator(locator)
    assert shared.partitions("a") == locator.partitions("a")
    assert shared.timeline(timeline.partition) is timeline
    assert shared.refresh(timeline.partition) is timeline
    assert shared.recheck(timeline.partition, 30) is timeline
    assert shared.measure(timeline.partition, timeline.segments) is timeline
    assert not shared.end_is_inferred(timeline.segments[0])


def test_a_shared_locator_lets_one_thread_through_at_a_time() -> None:
    _, timeline = known()
    inside: list[int] = []
    most: list[int] = []

    class Slow(KnownTimelines):
        def refresh(self, partition: TopicIdPartition) -> Timeline:
            inside.append(1)
            time.sleep(0.002)
            most.append(len(inside))
            inside.pop()
            return timeline

    shared: Any = SharedLocator(Slow([timeline]))
    at_once([lambda: [shared.refresh(timeline.partition) for _ in range(5)]] * 4)
    assert most == [1] * 20


def test_a_plan_is_believed_until_more_is_needed() -> None:
    locator, timeline = known()
    part = timeline.within(0, 25)
    opened: list[int] = []

    def open_rest() -> KnownTimelines:
        opened.append(1)
        return locator

    planned = PlannedLocator([part], {timeline.segments[0].segment_id}, open_rest)
    assert planned.partitions("topic") == (timeline.partition,)
    assert planned.timeline(timeline.partition) is part
    assert [planned.end_is_inferred(one) for one in timeline.segments[:2]] == [True, False]
    assert opened == []
    assert planned.refresh(timeline.partition) is timeline
    assert planned.recheck(timeline.partition, 30) is timeline
    assert planned.measure(timeline.partition, timeline.segments) is timeline
    assert opened == [1]
    assert [planned.end_is_inferred(one) for one in timeline.segments[:2]] == [True, False]
