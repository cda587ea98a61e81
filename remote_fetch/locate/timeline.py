"""The readable segments of a partition, built from the records of the remote log metadata topic or from a listing.

Rules of the file:

- Pure. A timeline is a value.
- A builder never raises for a record that it cannot read. It counts the record.
- A segment is readable in the state COPY_SEGMENT_FINISHED and in no other.
- Events are those of KIP-405. Keys and tombstones are those of KIP-1266's drafts.
- The state of a segment only moves forward. It may skip steps, because a compacted topic has lost them.
- The identity of a segment is its topic id, partition and segment id, all from the record's value. A key only tells
  which segments a tombstone deletes.
- Each record is checked when it is read. Segment values are made later, when a timeline is built, because most records
  describe segments that have been deleted since.
- A timeline that was built is kept until the next record of its partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.metadata_records import (
    PartitionDeleteRecord,
    SegmentMetadataRecord,
    SegmentSnapshotRecord,
    parse_metadata_record,
    topic_id_of,
)
from remote_fetch.formats.metadata_usual import head_of, is_usual_head, read_usual
from remote_fetch.locate.lineage import Lineage, epoch_at
from remote_fetch.locate.uploads import DELETED, FINISHED, STARTED, Gone, Said, Upload
from remote_fetch.model import (
    Buffer,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)

__all__ = ["Timeline", "TimelineBuilder"]

_UPDATE_KEY_SUFFIX = b":UPDATE"
_SHOWN = (STARTED, FINISHED)
_BEFORE_SEGMENT = itemgetter(slice(4))


@dataclass(frozen=True, slots=True)
class Timeline:
    """The readable segments of one partition. They may overlap, and there may be holes between them.

    - `segments` ascend by start offset, end offset and finish.
    - `finish_order` has a number for each segment. The segment with the larger number was finished later.
    - `next_metadata_offset` is one past the last metadata record about the partition.
    - `orphan_updates` counts finished segments whose base record is missing. Their offsets are unknown.
    - `malformed_records` counts the records of all partitions that could not be read.
    - `partition_deleted`: the partition is being deleted, and none of its segments is readable.
    - `unfinished` are copies that were started. They are not readable, but a later update may finish them.
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
        # For the searches: the start offset of each segment, and the largest end offset up to each segment.
        object.__setattr__(self, "_starts", tuple(segment.start_offset for segment in self.segments))
        object.__setattr__(self, "_reached", tuple(accumulate((s.end_offset for s in self.segments), max)))

    @classmethod
    def of_listing(cls, partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]) -> Timeline:
        """The timeline of the segments that a listing found. Segments of other partitions and states are left out.

        A listing does not tell when segments were finished, so their event timestamps give the order.
        """
        wanted = _identity(partition)
        return cls.of_finished(
            partition,
            (
                (segment, segment.event_timestamp_ms)
                for segment in segments
                if segment.state is FINISHED and _identity(segment.topic_id_partition) == wanted
            ),
        )

    @classmethod
    def of_finished(
        cls, partition: TopicIdPartition, found: Iterable[tuple[RemoteLogSegmentMetadata, int]]
    ) -> Timeline:
        """The timeline of readable segments of a partition, each with its number for `finish_order`."""
        return cls(partition, *_sorted_segments(list(found)))

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
        """Whether a broker has set `TxnIndexEmpty` on a segment of this partition (Kafka 4.0, KIP-1058)."""
        return any(segment.txn_index_empty for segment in self.segments)

    def covering(self, offset: int, lineage: Lineage) -> RemoteLogSegmentMetadata | None:
        """The segment to read `offset` from, None if no segment that `lineage` accepts covers it.

        If several cover it, the highest leader epoch at `offset` decides, then the largest end offset, then the
        latest finish.
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

    def within(self, first_offset: int, last_offset: int) -> Timeline:
        """This timeline with only the segments that have an offset in [first_offset, last_offset]."""
        stop = bisect_right(self._starts, last_offset)
        start = stop
        while start > 0 and self._reached[start - 1] >= first_offset:
            start -= 1
        kept = [at for at in range(start, stop) if self.segments[at].end_offset >= first_offset]
        segments, orders = tuple(self.segments[at] for at in kept), tuple(self.finish_order[at] for at in kept)
        return replace(self, segments=segments, finish_order=orders, unfinished=())

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
    """Segments with their finish order, sorted. The segment id decides between segments that are equal otherwise."""
    rows = [
        (segment.start_offset, segment.end_offset, order, segment.segment_id.id.raw, segment)
        for segment, order in found
    ]
    rows.sort(key=_BEFORE_SEGMENT)
    return tuple(row[-1] for row in rows), tuple(row[2] for row in rows)


@dataclass(slots=True)
class _Partition:
    """All that has been read about one user partition. `built` is its timeline, until the next record about it."""

    id: TopicIdPartition
    gone: Gone
    uploads: dict[bytes, Upload] = field(default_factory=dict)
    next_offset: int = 0
    deleted: bool = False
    built: Timeline | None = None
    identity: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.id.topic_id.raw + self.id.partition.to_bytes(4, "big")

    def saw(self, offset: int) -> None:
        self.built = None
        self.next_offset = max(self.next_offset, offset + 1)

    def hear(self, segment_id: bytes, state: RemoteLogSegmentState, said: Said, offset: int) -> None:
        """Apply the record at `offset` to one segment."""
        self.built = None
        if offset >= self.next_offset:
            self.next_offset = offset + 1
        if self.deleted:
            return
        upload = self.uploads.get(segment_id)
        if upload is None:
            if self.identity + segment_id in self.gone:
                return
            upload = self.uploads[segment_id] = Upload()
        upload.take(said, state, offset)
        if upload.state is DELETED:
            self.bury(segment_id)

    def bury(self, segment_id: bytes) -> None:
        """Forget a segment, and remember only that it was deleted."""
        self.built = None
        self.gone.add(self.identity + segment_id)
        self.uploads.pop(segment_id, None)


class TimelineBuilder:
    """Turns the records of the remote log metadata topic, in the order of their offsets, into timelines.

    All records of a user partition lie in one metadata partition. A builder takes the records of several metadata
    partitions in any mixture. `topic_ids` names the topics to keep, None keeps all.
    """

    def __init__(self, topic_ids: Collection[Uuid] | None = None) -> None:
        self._topic_ids = None if topic_ids is None else frozenset(topic_id.raw for topic_id in topic_ids)
        self._partitions: dict[tuple[Uuid, int], _Partition] = {}
        self._by_head: dict[bytes, _Partition] = {}
        self._written_under: dict[bytes, dict[bytes, _Partition]] = {}
        self._gone = Gone()
        self._malformed_records = 0

    def restore(self, timeline: Timeline) -> None:
        """Begin with the timeline of an earlier builder, and go on from its `next_metadata_offset`.

        Do not restore from a compacted topic. A timeline has no keys, and compaction may have dropped tombstones, so
        the builder has to begin with the first record. The counters begin with 0.
        """
        partition = self._partition(timeline.partition)
        partition.next_offset = timeline.next_metadata_offset
        partition.deleted = timeline.partition_deleted
        for segment in timeline.unfinished:
            partition.hear(segment.segment_id.id.raw, segment.state, segment, -1)
        for segment, order in zip(timeline.segments, timeline.finish_order, strict=True):
            partition.hear(segment.segment_id.id.raw, segment.state, segment, order)

    def apply(self, value: Buffer | None, *, key: bytes | None = None, offset: int) -> None:
        """Take one record: its value (None for a tombstone), its key and its offset in the metadata partition.

        A record that cannot be read is counted, not raised.
        """
        if value is None:
            self._bury(key, offset)
            return
        if self._topic_ids is not None:
            topic_id = topic_id_of(value)
            if topic_id is not None and topic_id not in self._topic_ids:
                return
        value = bytes(value)
        head = head_of(value)
        partition = self._by_head.get(head)
        usual = None if partition is None else read_usual(value, len(head))
        if partition is None or usual is None:
            self._apply_unusual(value, key, offset)
        else:
            partition.hear(*usual, offset)
            if key is not None:
                self._note_key(key, usual[0], partition)

    def _apply_unusual(self, value: bytes, key: bytes | None, offset: int) -> None:
        try:
            record = parse_metadata_record(value)
        except RemoteFetchError:
            self._malformed_records += 1
            return
        if isinstance(record, SegmentSnapshotRecord):
            return  # The record does not name its partition.
        if isinstance(record, PartitionDeleteRecord):
            self._delete_partition(record, offset)
            return
        said: Said
        if isinstance(record, SegmentMetadataRecord):
            said = record.metadata
            segment_id, state = said.segment_id, said.state
        else:
            segment_id, state = record.segment_id, record.state
            said = state, record.broker_id, record.event_timestamp_ms, record.custom_metadata
        partition = self._partition(segment_id.topic_id_partition)
        head = head_of(value)
        if is_usual_head(head) and partition.id == segment_id.topic_id_partition:
            self._by_head[head] = partition
        partition.hear(segment_id.id.raw, state, said, offset)
        if key is not None:
            self._note_key(key, segment_id.id.raw, partition)

    def _partition(self, partition_id: TopicIdPartition) -> _Partition:
        identity = _identity(partition_id)
        partition = self._partitions.get(identity)
        if partition is None:
            partition = self._partitions[identity] = _Partition(partition_id, self._gone)
        return partition

    def _delete_partition(self, record: PartitionDeleteRecord, offset: int) -> None:
        """In every state of the deletion the partition may no longer be read."""
        partition = self._partition(record.topic_id_partition)
        partition.saw(offset)
        partition.deleted = True
        partition.uploads.clear()

    def _note_key(self, key: bytes, segment_id: bytes, partition: _Partition) -> None:
        """Remember which segment a tombstone of `key` deletes. A new upload replaces unfinished ones with its key."""
        if partition.deleted:
            return
        ids = self._written_under.setdefault(key.removesuffix(_UPDATE_KEY_SUFFIX), {})
        if segment_id in ids:
            return
        for other, owner in ids.items():
            upload = owner.uploads.get(other)
            if upload is not None and upload.state is STARTED:
                owner.bury(other)
        ids[segment_id] = partition

    def _bury(self, key: bytes | None, offset: int) -> None:
        """Delete every upload that was written under the key of a tombstone."""
        if key is None:
            return
        for segment_id, partition in self._written_under.pop(key.removesuffix(_UPDATE_KEY_SUFFIX), {}).items():
            partition.saw(offset)
            if segment_id in partition.uploads:
                partition.bury(segment_id)

    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """The user partitions that have records, sorted."""
        return tuple(sorted(partition.id for partition in self._partitions.values()))

    def build(self, partition: TopicIdPartition) -> Timeline:
        """The timeline of `partition` by the records so far. Without records it has no segments."""
        known = self._partitions.get(_identity(partition)) or _Partition(partition, self._gone)
        if known.built is None or known.built.partition != partition:
            known.built = self._build(partition, known)
        elif known.built.malformed_records != self._malformed_records:
            known.built = replace(known.built, malformed_records=self._malformed_records)
        return known.built

    def _build(self, partition: TopicIdPartition, known: _Partition) -> Timeline:
        found: list[tuple[RemoteLogSegmentMetadata, int]] = []
        unfinished: list[tuple[RemoteLogSegmentMetadata, int]] = []
        orphans = 0
        for upload in known.uploads.values():
            if upload.state not in _SHOWN:
                continue
            metadata = upload.metadata(known.id)
            if metadata is None:
                orphans += upload.state is FINISHED
            else:
                (found if upload.state is FINISHED else unfinished).append((metadata, upload.finished_at))
        return Timeline(
            partition,
            *_sorted_segments(found),
            next_metadata_offset=known.next_offset,
            orphan_updates=orphans,
            malformed_records=self._malformed_records,
            partition_deleted=known.deleted,
            unfinished=_sorted_segments(unfinished)[0],
        )
