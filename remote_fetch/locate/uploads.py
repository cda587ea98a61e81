"""The records of single segments put together: `Upload` for one segment, `Gone` for those that were deleted last.

Rules of the file:

- Pure.
- The state of a segment only moves forward. It may skip steps.
- The ids of the last 32,768 deleted segments are kept. Memory then grows with the segments that exist, not with all
  that ever existed.

Why 32,768 are enough: a record that follows the deletion of its segment follows it soon.

- A leader writes each event of a segment after the previous one is acknowledged. Only a retried request, or a former
  leader that does not know its successor yet, writes an event twice or late, and within minutes.
- Compaction drops records. It never reorders them.
- A record that comes even later does no harm. An update without a base names no offsets, so no timeline shows it. A
  full record describes a segment without an object: its reader looks it up again and then goes to the broker. Its
  offsets also lie before the log start, which a reader looks up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from remote_fetch.formats.metadata_records import SegmentMetadataRecord, SegmentUpdateRecord
from remote_fetch.formats.metadata_usual import SegmentChange, build_usual_segment
from remote_fetch.model import (
    NO_EPOCH,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

__all__ = [
    "DELETED",
    "FINISHED",
    "STARTED",
    "Gone",
    "Keys",
    "LooseUpload",
    "Rest",
    "Said",
    "Upload",
    "key_of_segment",
    "said_by",
]

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
Owner = TypeVar("Owner")

_GONE_KEPT = 1 << 15
_UPDATE_KEY_SUFFIX = b":UPDATE"

Said: TypeAlias = SegmentChange | RemoteLogSegmentMetadata | bytes
"""The contents of a record: the change of an update, or a full description (as bytes, if it has the usual form)."""


def said_by(
    record: SegmentMetadataRecord | SegmentUpdateRecord,
) -> tuple[RemoteLogSegmentId, RemoteLogSegmentState, Said]:
    """The segment that a record is about, the state that it gives, and its contents."""
    if isinstance(record, SegmentMetadataRecord):
        return record.metadata.segment_id, record.metadata.state, record.metadata
    change = record.state, record.broker_id, record.event_timestamp_ms, record.custom_metadata
    return record.segment_id, record.state, change


def key_of_segment(key: bytes) -> bytes:
    """The key of a segment's own record, by the key of any of its records. That of an update may end with `:UPDATE`."""
    return key.removesuffix(_UPDATE_KEY_SUFFIX)


class Upload:
    """One segment id: its last state, its base record and the change of its last update.

    Without `base` it is an orphan: an update whose base record was lost or is still to come. A base record of the usual
    form stays bytes until `metadata` is called. `leader_epoch` is that of the uploading leader (KIP-1266's
    `brokerLeaderEpoch`).
    """

    __slots__ = ("base", "change", "finished_at", "leader_epoch", "state")

    def __init__(self) -> None:
        self.state = STARTED
        self.base: bytes | RemoteLogSegmentMetadata | None = None
        self.change: SegmentChange | None = None
        self.finished_at = -1
        self.leader_epoch = NO_EPOCH

    def take(self, said: Said, state: RemoteLogSegmentState, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Apply a record. The state may skip steps or repeat.

        - A record whose state is earlier is ignored, unless it is the missing base of an orphan.
        - Any other base record replaces the base and the change.
        """
        if leader_epoch != NO_EPOCH and state <= FINISHED:
            self.leader_epoch = leader_epoch
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
        """The segment that the records describe together, None for an orphan."""
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


@dataclass(frozen=True, slots=True)
class LooseUpload:
    """An upload that no timeline describes: an orphan, or a segment whose deletion has begun.

    `change` is that of its last update, None without one. `finished_at` and `leader_epoch` are those of `Upload`.
    """

    segment_id: bytes
    state: RemoteLogSegmentState
    finished_at: int
    leader_epoch: int
    change: SegmentChange | None


@dataclass(frozen=True, slots=True)
class Rest:
    """The facts about a partition beside its timeline that a builder needs to go on from there.

    - `loose` are the uploads that the timeline does not have.
    - `gone` are the raw ids of segments that were deleted, the oldest first.
    - `keys` are pairs of a key and a raw segment id that was written under it, for tombstones (KIP-1266).
    - `epochs` are pairs of the raw id of an unfinished segment and the leader epoch of its uploader.
    """

    loose: tuple[LooseUpload, ...] = ()
    gone: tuple[bytes, ...] = ()
    keys: tuple[tuple[bytes, bytes], ...] = ()
    epochs: tuple[tuple[bytes, int], ...] = ()


class Gone(OrderedDict[bytes, None]):
    """The ids of the segments that were deleted last, the oldest first. A late record does not bring them back."""

    def add(self, segment_id: bytes) -> None:
        """Keep another id, and drop the oldest if there are too many."""
        self[segment_id] = None
        if len(self) > _GONE_KEPT:
            self.popitem(last=False)


class Keys(Generic[Owner]):
    """Which segments were last written under which key, for tombstones (KIP-1266). Each has an owner, its partition."""

    def __init__(self) -> None:
        self._ids: dict[bytes, dict[bytes, Owner]] = {}

    def note(self, key: bytes, segment_id: bytes, owner: Owner) -> tuple[tuple[bytes, Owner], ...]:
        """Add a segment under a key. Returns the segments that the key had before, none if it had this one."""
        ids = self._ids.setdefault(key_of_segment(key), {})
        if segment_id in ids:
            return ()
        before = tuple(ids.items())
        ids[segment_id] = owner
        return before

    def take(self, key: bytes) -> tuple[tuple[bytes, Owner], ...]:
        """Remove a key and return its segments."""
        return tuple(self._ids.pop(key_of_segment(key), {}).items())

    def __iter__(self) -> Iterator[tuple[bytes, bytes, Owner]]:
        """Each key with each of its segments and the owner."""
        for key, ids in self._ids.items():
            for segment_id, owner in ids.items():
                yield key, segment_id, owner
