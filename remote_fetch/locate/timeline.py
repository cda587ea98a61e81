"""The readable segments of a partition, built from the records of the remote log metadata topic or from a listing.

Rules of the file: pure; a builder never raises for what it reads, it counts; a segment is readable in state
COPY_SEGMENT_FINISHED and in no other; a timeline is a value. Events are those of KIP-405, and the keys and tombstones
of KIP-1266's drafts. A segment's state moves forward only, over gaps if need be: a compacted topic has lost the steps
in between. Identity is topic id, partition and segment id, all taken from the value; keys only tell what a tombstone
deletes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.metadata_records import (
    PartitionDeleteRecord,
    SegmentMetadataRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
    parse_metadata_record,
    topic_id_of,
)
from remote_fetch.locate.lineage import Lineage, epoch_at
from remote_fetch.model import (
    Buffer,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)

__all__ = ["Timeline", "TimelineBuilder"]

_UPDATE_KEY_SUFFIX = b":UPDATE"
_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Timeline:
    """The readable segments of one partition; they may overlap, and between them may be holes.

    `segments` ascend by start offset, end offset and finish. `finish_order` has a number for each of them: of two
    segments the one with the larger number was finished later. `next_metadata_offset` is one past the last metadata
    record that spoke of the partition. `orphan_updates` counts finished segments of which nothing else is known, so
    that no offset can be looked up in them; `malformed_records` counts what could not be read at all, in whichever
    partition. `partition_deleted`: the partition is being deleted, and nothing of it is readable any more.
    `unfinished` are copies that were started: not readable, but an update that is still to come may make them so.
    """

    partition: TopicIdPartition
    segments: tuple[RemoteLogSegmentMetadata, ...]
    finish_order: tuple[int, ...]
    next_metadata_offset: int = 0
    orphan_updates: int = 0
    malformed_records: int = 0
    partition_deleted: bool = False
    unfinished: tuple[RemoteLogSegmentMetadata, ...] = ()
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _reached: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # What the searches need: where segments start, and the largest end offset of each segment and all before it.
        object.__setattr__(self, "_starts", tuple(segment.start_offset for segment in self.segments))
        object.__setattr__(self, "_reached", tuple(accumulate((s.end_offset for s in self.segments), max)))

    @classmethod
    def of_listing(cls, partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]) -> Timeline:
        """The timeline of what a store's listing found; segments of other partitions and states are left out.

        A listing does not tell when segments were finished: their event timestamps stand in for it.
        """
        wanted = _identity(partition)
        found = [
            (segment, segment.event_timestamp_ms)
            for segment in segments
            if segment.state is _FINISHED and _identity(segment.topic_id_partition) == wanted
        ]
        return cls(partition, *_sorted_segments(found))

    @property
    def start_offset(self) -> int | None:
        """The first offset of the first segment, None without segments."""
        return self._starts[0] if self.segments else None

    @property
    def end_offset(self) -> int | None:
        """One past the last offset that a segment covers, None without segments."""
        return self._reached[-1] + 1 if self.segments else None

    @property
    def writes_txn_index_empty(self) -> bool:
        """Whether a writer of this partition says so when a segment has no transaction index (Kafka 4.0, KIP-1058)."""
        return any(segment.txn_index_empty for segment in self.segments)

    def covering(self, offset: int, lineage: Lineage) -> RemoteLogSegmentMetadata | None:
        """The segment to read `offset` from, None if no segment that `lineage` accepts covers it.

        Of several the one with the highest leader epoch at `offset`, then the one that reaches furthest, then the
        one finished last.
        """
        best: tuple[int, int, int] | None = None
        chosen: RemoteLogSegmentMetadata | None = None
        at = bisect_right(self._starts, offset) - 1
        while at >= 0 and self._reached[at] >= offset:
            segment = self.segments[at]
            if segment.end_offset >= offset and lineage.accepts(segment):
                epoch = epoch_at(segment.segment_leader_epochs, offset)
                rank = (-1 if epoch is None else epoch, segment.end_offset, self.finish_order[at])
                if best is None or rank > best:
                    best, chosen = rank, segment
            at -= 1
        return chosen

    def next_start(self, offset: int, lineage: Lineage) -> int | None:
        """The smallest start offset above `offset` of a segment that `lineage` accepts: where a hole ends."""
        for at in range(bisect_right(self._starts, offset), len(self.segments)):
            if lineage.accepts(self.segments[at]):
                return self._starts[at]
        return None


def _identity(partition: TopicIdPartition) -> tuple[Uuid, int]:
    return partition.topic_id, partition.partition


def _sorted_segments(
    found: list[tuple[RemoteLogSegmentMetadata, int]],
) -> tuple[tuple[RemoteLogSegmentMetadata, ...], tuple[int, ...]]:
    """Segments with their finish order, sorted; the segment id makes the order of equals certain."""
    found.sort(key=lambda pair: (pair[0].start_offset, pair[0].end_offset, pair[1], pair[0].segment_id.id))
    return tuple(segment for segment, _ in found), tuple(order for _, order in found)


class _Upload:
    """What is known of one segment id: its last state, its base record and the last update.

    Without `base` it is an orphan: an update whose base was lost or is still to come.
    """

    __slots__ = ("base", "finished_at", "state", "update")

    def __init__(self) -> None:
        self.state = _STARTED
        self.base: RemoteLogSegmentMetadata | None = None
        self.update: SegmentUpdateRecord | None = None
        self.finished_at = -1

    def take_base(self, metadata: RemoteLogSegmentMetadata, offset: int) -> None:
        """A full record: it replaces everything unless it steps back, and is what an orphan waits for."""
        if metadata.state >= self.state:
            self.update = None
            self._move(metadata.state, offset)
        elif self.base is not None:
            return
        if self.state is not _DELETED:
            self.base = metadata

    def take_update(self, update: SegmentUpdateRecord, offset: int) -> None:
        """A change of state, over gaps or to the same state again; a step back is ignored."""
        if update.state >= self.state:
            self.update = update
            self._move(update.state, offset)

    def _move(self, state: RemoteLogSegmentState, offset: int) -> None:
        self.state = state
        if state is _FINISHED:
            self.finished_at = offset
        elif state is _DELETED:
            self.delete()

    def delete(self) -> None:
        """Forget everything but that the upload is gone, so that a late record cannot bring it back."""
        self.state = _DELETED
        self.base = self.update = None

    def metadata(self) -> RemoteLogSegmentMetadata | None:
        """The segment as its records describe it together, None for an orphan."""
        if self.base is None or self.update is None:
            return self.base
        return replace(
            self.base,
            state=self.update.state,
            broker_id=self.update.broker_id,
            event_timestamp_ms=self.update.event_timestamp_ms,
            custom_metadata=self.update.custom_metadata,
        )


@dataclass(slots=True)
class _Partition:
    """All that has been read about one user partition."""

    id: TopicIdPartition
    uploads: dict[Uuid, _Upload] = field(default_factory=dict)
    next_offset: int = 0
    deleted: bool = False

    def upload(self, segment_id: Uuid) -> _Upload:
        found = self.uploads.get(segment_id)
        if found is None:
            found = self.uploads[segment_id] = _Upload()
        return found

    def saw(self, offset: int) -> None:
        self.next_offset = max(self.next_offset, offset + 1)


class TimelineBuilder:
    """Turns the records of the remote log metadata topic, in the order of their offsets, into timelines.

    A user partition's records all lie in one metadata partition; those of several metadata partitions may be fed
    to one builder in any mixture. `topic_ids` keeps only those topics; None keeps all.
    """

    def __init__(self, topic_ids: Collection[Uuid] | None = None) -> None:
        self._topic_ids = None if topic_ids is None else frozenset(topic_id.raw for topic_id in topic_ids)
        self._partitions: dict[tuple[Uuid, int], _Partition] = {}
        self._written_under: dict[bytes, dict[Uuid, _Partition]] = {}
        self._malformed_records = 0

    def restore(self, timeline: Timeline) -> None:
        """Begin with what an earlier builder knew, to go on from the timeline's `next_metadata_offset`.

        Keys are not part of a timeline, and tombstones may be gone when a compacted topic is read again: there a
        builder has to begin with the first record. The counters begin with 0.
        """
        partition = self._partition(timeline.partition)
        partition.next_offset = timeline.next_metadata_offset
        partition.deleted = timeline.partition_deleted
        for segment in timeline.unfinished:
            partition.upload(segment.segment_id.id).take_base(segment, -1)
        for segment, order in zip(timeline.segments, timeline.finish_order, strict=True):
            partition.upload(segment.segment_id.id).take_base(segment, order)

    def apply(self, value: Buffer | None, *, key: bytes | None = None, offset: int) -> None:
        """Take one record: its value (None for a tombstone), its key and its offset in the metadata partition.

        Never raises for a record that cannot be read; it is counted.
        """
        if value is None:
            self._bury(key, offset)
            return
        if self._topic_ids is not None:
            topic_id = topic_id_of(value)
            if topic_id is not None and topic_id not in self._topic_ids:
                return
        try:
            record = parse_metadata_record(value)
        except RemoteFetchError:
            self._malformed_records += 1
            return
        if isinstance(record, SegmentSnapshotRecord):
            return  # It does not say of which partition it speaks.
        if isinstance(record, PartitionDeleteRecord):
            self._delete_partition(record, offset)
            return
        segment_id = record.metadata.segment_id if isinstance(record, SegmentMetadataRecord) else record.segment_id
        partition = self._partition(segment_id.topic_id_partition)
        partition.saw(offset)
        if partition.deleted:
            return
        upload = partition.upload(segment_id.id)
        if isinstance(record, SegmentMetadataRecord):
            upload.take_base(record.metadata, offset)
        else:
            upload.take_update(record, offset)
        if key is not None:
            self._note_key(key.removesuffix(_UPDATE_KEY_SUFFIX), segment_id.id, partition)

    def _partition(self, partition_id: TopicIdPartition) -> _Partition:
        identity = _identity(partition_id)
        partition = self._partitions.get(identity)
        if partition is None:
            partition = self._partitions[identity] = _Partition(partition_id)
        return partition

    def _delete_partition(self, record: PartitionDeleteRecord, offset: int) -> None:
        """Whatever the state of the deletion: nothing of the partition may be read any more."""
        partition = self._partition(record.topic_id_partition)
        partition.saw(offset)
        partition.deleted = True
        partition.uploads.clear()

    def _note_key(self, key: bytes, segment_id: Uuid, partition: _Partition) -> None:
        """Remember what a tombstone of `key` would delete. A new upload supersedes unfinished ones under its key."""
        ids = self._written_under.setdefault(key, {})
        if segment_id in ids:
            return
        for other, owner in ids.items():
            upload = owner.uploads.get(other)
            if upload is not None and upload.state is _STARTED:
                upload.delete()
        ids[segment_id] = partition

    def _bury(self, key: bytes | None, offset: int) -> None:
        """A tombstone deletes every upload that was written under its key."""
        if key is None:
            return
        for segment_id, partition in self._written_under.pop(key.removesuffix(_UPDATE_KEY_SUFFIX), {}).items():
            partition.saw(offset)
            upload = partition.uploads.get(segment_id)
            if upload is not None:
                upload.delete()

    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """The user partitions of which records were seen, sorted."""
        return tuple(sorted(partition.id for partition in self._partitions.values()))

    def build(self, partition: TopicIdPartition) -> Timeline:
        """The timeline of `partition` as of the records applied so far; without segments if there were none."""
        known = self._partitions.get(_identity(partition)) or _Partition(partition)
        found: list[tuple[RemoteLogSegmentMetadata, int]] = []
        unfinished: list[tuple[RemoteLogSegmentMetadata, int]] = []
        orphans = 0
        for upload in known.uploads.values():
            metadata = upload.metadata()
            if metadata is None:
                orphans += upload.state is _FINISHED
            elif upload.state is _FINISHED:
                found.append((metadata, upload.finished_at))
            elif upload.state is _STARTED:
                unfinished.append((metadata, upload.finished_at))
        return Timeline(
            partition,
            *_sorted_segments(found),
            next_metadata_offset=known.next_offset,
            orphan_updates=orphans,
            malformed_records=self._malformed_records,
            partition_deleted=known.deleted,
            unfinished=_sorted_segments(unfinished)[0],
        )
