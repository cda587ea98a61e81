"""Where segments are now, if metadata has a place for that: a signed URL expires (KIP-917, KIP-1254).

Rules of the file: only segments with custom metadata can move. The locator is asked once for all of a partition.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.locate.locator import Locator
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["relocated"]


def relocated(
    locator: Locator, partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]
) -> dict[RemoteLogSegmentId, RemoteLogSegmentMetadata]:
    """Those of a partition's segments that are elsewhere now, as they are now. Empty if none of them can move."""
    known = {segment.segment_id: segment for segment in segments if segment.custom_metadata is not None}
    if not known:
        return {}
    return {
        segment.segment_id: segment
        for segment in locator.refresh(partition).segments
        if segment.segment_id in known and segment.custom_metadata != known[segment.segment_id].custom_metadata
    }
