"""What is known of single segments: one upload as its records describe it together, and which were deleted last.

Rules of the file: pure; a segment's state moves forward only, over gaps if need be. Of deleted segments the ids of the
last 32,768 are kept, so that memory follows what there is and not what there ever was. That is enough, because a record
that comes after the deletion of its segment comes soon after it:

- A leader writes a segment's events one after the other, each when the one before it is acknowledged. Only a retried
  request, or a former leader that does not know of the next one yet, brings one again or too late, within minutes.
- Compaction drops records, and changes the order of none.
- What comes later still shows nothing that is not there. An update alone names no offsets, so no timeline has it. A
  segment that is described in full once more has no object: its reader looks again and goes to the broker. It lies
  before the log start besides, which a reader asks for.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TypeAlias

from remote_fetch.formats.metadata_usual import SegmentChange, build_usual_segment
from remote_fetch.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition

__all__ = ["DELETED", "FINISHED", "STARTED", "Gone", "Said", "Upload"]

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_GONE_KEPT = 1 << 15

Said: TypeAlias = SegmentChange | RemoteLogSegmentMetadata | bytes
"""What a record says of a segment: an update's change, or all there is to know, as bytes if it is of the usual form."""


class Upload:
    """What is known of one segment id: its last state, its base record and what the last update changed.

    Without `base` it is an orphan: an update whose base was lost or is still to come. A base of the usual form stays
    the bytes it was until somebody asks for the segment.
    """

    __slots__ = ("base", "change", "finished_at", "state")

    def __init__(self) -> None:
        self.state = STARTED
        self.base: bytes | RemoteLogSegmentMetadata | None = None
        self.change: SegmentChange | None = None
        self.finished_at = -1

    def take(self, said: Said, state: RemoteLogSegmentState, offset: int) -> None:
        """What a record says, over gaps or in the same state again. It is ignored where it steps back; but a base is
        what an orphan waits for in any case, and a base that does not step back replaces everything.
        """
        if state < self.state:
            if self.base is None and not isinstance(said, tuple):
                self.base = said
            return
        self.state = state
        if state is FINISHED:
            self.finished_at = offset
        if isinstance(said, tuple):
            self.change = said
        else:
            self.base = said
            self.change = None

    def metadata(self, partition: TopicIdPartition) -> RemoteLogSegmentMetadata | None:
        """The segment as its records describe it together, None for an orphan."""
        if isinstance(self.base, bytes):
            self.base = build_usual_segment(self.base, partition, self.change)
        elif self.base is not None and self.change is not None:
            state, broker_id, event_timestamp_ms, custom = self.change
            self.base = replace(
                self.base,
                state=state,
                broker_id=broker_id,
                event_timestamp_ms=event_timestamp_ms,
                custom_metadata=custom,
            )
        else:
            return self.base
        self.change = None
        return self.base


class Gone:
    """The ids of the segments that were deleted last: no late record brings these back."""

    def __init__(self) -> None:
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, segment_id: bytes) -> bool:
        return segment_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, segment_id: bytes) -> None:
        """Keep one more, and let go of the one that was added first if they become too many."""
        self._ids[segment_id] = None
        if len(self._ids) > _GONE_KEPT:
            self._ids.popitem(last=False)
