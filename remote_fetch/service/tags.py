"""Entity tags of answers about segments: a client that knows the whole timeline asks whether it has changed.

Rules of the file:

- A tag is of the whole timeline. So all pages of it have one tag, and pages of other tags do not belong together.
- Instances that have read the same metadata give the same tag.
- A timeline is hashed once. The locator gives the same object until something changes.
"""

from __future__ import annotations

import hashlib
import struct

from remote_fetch.recent import Recent
from remote_fetch.service.answers import SegmentsOf

__all__ = ["Tags"]

_MOST_TIMELINES = 10_000
_FIELDS = struct.Struct(">16sqqqqqqqq?i")


class Tags:
    """Makes HTTP entity tags, and remembers the hashes of the `most` timelines that were asked for last.

    Several threads may call it. At worst two threads hash the same timeline.
    """

    def __init__(self, most: int = _MOST_TIMELINES) -> None:
        self._known: Recent[object, tuple[SegmentsOf, str]] = Recent(most)

    def of(self, timeline: SegmentsOf) -> str:
        """The tag of any answer without URLs, with its quotation marks (RFC 9110, section 8.8.3)."""
        known = self._known.get(timeline.partition)
        if known is None or known[0] is not timeline:
            known = timeline, _digest(timeline)
        self._known[timeline.partition] = known
        return f'"{known[1]}"'


def _digest(timeline: SegmentsOf) -> str:
    """A hash of every field that an answer may have."""
    partition = timeline.partition
    head = (partition.topic, str(partition.topic_id), partition.partition)
    hashed = hashlib.sha256(repr((head, timeline.orphan_updates, timeline.malformed_records)).encode())
    for segment, order, epoch in timeline.found():
        custom = segment.custom_metadata
        hashed.update(
            _FIELDS.pack(
                segment.segment_id.id.raw, segment.start_offset, segment.end_offset, segment.segment_size_in_bytes,
                segment.max_timestamp_ms, segment.event_timestamp_ms, segment.broker_id, order, epoch,
                segment.txn_index_empty, -1 if custom is None else len(custom),
            )
        )  # fmt: skip
        hashed.update(custom or b"")
        for entry in segment.segment_leader_epochs:
            hashed.update(struct.pack(">qq", entry.epoch, entry.start_offset))
    return hashed.hexdigest()[:32]
