"""Timelines of segments that a test has at hand."""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import NO_EPOCH, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["timeline_of"]


def timeline_of(partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]) -> Timeline:
    """The timeline of readable segments of a partition. Their event timestamps tell which was finished later."""
    return Timeline.of_finished(partition, ((segment, segment.event_timestamp_ms, NO_EPOCH) for segment in segments))
