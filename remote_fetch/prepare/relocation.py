"""Looks up the current location of segments whose custom metadata has a location (KIP-917, KIP-1254).

A location can change during a read: a signed URL, for example, expires.

Rules of the file:

- Only segments with custom metadata can move.
- One call of the locator serves all segments of a partition.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.locate.locator import Locator
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["relocated"]


def relocated(
    locator: Locator, partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]
) -> dict[RemoteLogSegmentId, RemoteLogSegmentMetadata]:
    """The new metadata of the segments whose custom metadata has changed. Empty if no segment can move."""
    known = {segment.segment_id: segment for segment in segments if segment.custom_metadata is not None}
    if not known:
        return {}
    return {
        segment.segment_id: segment
        for segment in locator.refresh(partition).segments
        if segment.segment_id in known and segment.custom_metadata != known[segment.segment_id].custom_metadata
    }
