"""The locator over known timelines."""

from __future__ import annotations

import pytest

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.testing.log_builder import LogBuilder
from tests.read.bucket import plain_log

OTHER = Uuid(b"another topic id")


def known() -> tuple[KnownTimelines, Timeline]:
    log = plain_log()
    timeline = Timeline.of_listing(log.topic_id_partition, [s.metadata for s in log.segments()])
    others = [Timeline(TopicIdPartition(OTHER, "topic", 0), (), ()), Timeline(TopicIdPartition(OTHER, "a", 1), (), ())]
    return KnownTimelines([timeline, *others]), timeline


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
