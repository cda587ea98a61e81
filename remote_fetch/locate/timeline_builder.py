"""Builds timelines from the records of the remote log metadata topic.

Rules of the file:

- Pure.
- A builder never raises for a record that it cannot read. It counts the record.
- Events are those of KIP-405. Keys and tombstones are those of KIP-1266's drafts.
- The state of a segment only moves forward. It may skip steps, because a compacted topic has lost them.
- The identity of a segment is its topic id, partition and segment id, all from the record's value. A key only tells
  which segments a tombstone deletes.
- Each record is checked when it is read. Segment values are made later, when a timeline is built, because most records
  describe segments that have been deleted since.
- A timeline that was built is kept until the next record of its partition.
- `rest` and `timeline` of a partition are all that a builder knows of it: another builder goes on from them and ends
  with the same timelines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.metadata_records import (
    PartitionDeleteRecord,
    SegmentSnapshotRecord,
    parse_metadata_record,
    topic_id_of,
)
from remote_fetch.formats.metadata_usual import head_of, is_usual_head, read_usual
from remote_fetch.locate.timeline import FoundSegment, Timeline, sorted_segments
from remote_fetch.locate.uploads import (
    DELETED,
    FINISHED,
    STARTED,
    Gone,
    Keys,
    LooseUpload,
    Rest,
    Said,
    Upload,
    said_by,
)
from remote_fetch.model import NO_EPOCH, Buffer, RemoteLogSegmentState, TopicIdPartition, Uuid

__all__ = ["TimelineBuilder"]

_IDENTITY_BYTES = 16 + 4
_SHOWN = (STARTED, FINISHED)


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
        self.identity = self.id.identity

    def saw(self, offset: int) -> None:
        self.built = None
        self.next_offset = max(self.next_offset, offset + 1)

    def hear(
        self, segment_id: bytes, state: RemoteLogSegmentState, said: Said, offset: int, leader_epoch: int = NO_EPOCH
    ) -> None:
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
        upload.take(said, state, offset, leader_epoch)
        if upload.state is DELETED:
            self.bury(segment_id)

    def rest(self, gone: Iterable[bytes], keys: Iterable[tuple[bytes, bytes]]) -> Rest:
        """The facts that the timeline does not have, with those that the builder keeps for all partitions."""
        loose = tuple(
            LooseUpload(segment_id, upload.state, upload.finished_at, upload.leader_epoch, upload.change)
            for segment_id, upload in self.uploads.items()
            if upload.state not in _SHOWN or upload.base is None
        )
        epochs = tuple(
            (segment_id, upload.leader_epoch)
            for segment_id, upload in self.uploads.items()
            if upload.state is STARTED and upload.base is not None and upload.leader_epoch != NO_EPOCH
        )
        return Rest(loose, tuple(gone), tuple(keys), epochs)

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
        self._partitions: dict[bytes, _Partition] = {}
        self._by_head: dict[bytes, _Partition] = {}
        self._keys: Keys[_Partition] = Keys()
        self._gone = Gone()
        self._malformed: dict[int, int] = {}
        self._malformed_records = 0

    def restore(self, timeline: Timeline, rest: Rest) -> None:
        """Begin with the timeline of an earlier builder and its `rest`, and go on from its `next_metadata_offset`.

        The caller makes sure that no tombstone was lost since (a compacted topic drops them). The count of malformed
        records is restored by `count_malformed`.
        """
        partition = self._partition(timeline.partition)
        for segment in timeline.unfinished:
            partition.hear(segment.segment_id.id.raw, segment.state, segment, -1)
        for segment, order, epoch in timeline.found():
            partition.hear(segment.segment_id.id.raw, segment.state, segment, order, epoch)
        for loose in rest.loose:
            upload = partition.uploads[loose.segment_id] = Upload()
            upload.state, upload.finished_at, upload.change = loose.state, loose.finished_at, loose.change
            upload.leader_epoch = loose.leader_epoch
        for segment_id in rest.gone:
            partition.bury(segment_id)
        for key, segment_id in rest.keys:
            self._keys.note(key, segment_id, partition)
        for segment_id, epoch in rest.epochs:
            if segment_id in partition.uploads:
                partition.uploads[segment_id].leader_epoch = epoch
        partition.next_offset = timeline.next_metadata_offset
        partition.deleted = timeline.partition_deleted

    def rest(self, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, Rest]:
        """The facts beside the timelines of these partitions, for `restore`. All of them have records."""
        known = [self._partitions[each.identity] for each in partitions]
        keys: dict[bytes, list[tuple[bytes, bytes]]] = {each.identity: [] for each in known}
        gone: dict[bytes, list[bytes]] = {each.identity: [] for each in known}
        for key, segment_id, owner in self._keys:
            if owner.identity in keys:
                keys[owner.identity].append((key, segment_id))
        for raw in self._gone:
            if raw[:_IDENTITY_BYTES] in gone:
                gone[raw[:_IDENTITY_BYTES]].append(raw[_IDENTITY_BYTES:])
        return {each.id: each.rest(gone[each.identity], keys[each.identity]) for each in known}

    def malformed_of(self, source: int) -> int:
        """How many records of one `source` could not be read."""
        return self._malformed.get(source, 0)

    def count_malformed(self, source: int, records: int = 1) -> None:
        """Count records of a `source` that could not be read."""
        self._malformed[source] = self._malformed.get(source, 0) + records
        self._malformed_records += records

    def apply(self, value: Buffer | None, *, key: bytes | None = None, offset: int, source: int = 0) -> None:
        """Take one record: its value (None for a tombstone), its key, its offset and its metadata partition, `source`.

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
            self._apply_unusual(value, key, offset, source)
        else:
            partition.hear(*usual, offset)
            if key is not None:
                self._note_key(key, usual[0], partition)

    def _apply_unusual(self, value: bytes, key: bytes | None, offset: int, source: int) -> None:
        try:
            record = parse_metadata_record(value)
        except RemoteFetchError:
            self.count_malformed(source)
            return
        if isinstance(record, SegmentSnapshotRecord):
            return  # The record does not name its partition.
        if isinstance(record, PartitionDeleteRecord):
            self._delete_partition(record, offset)
            return
        segment_id, state, said = said_by(record)
        partition = self._partition(segment_id.topic_id_partition)
        head = head_of(value)
        if is_usual_head(head) and partition.id == segment_id.topic_id_partition:
            self._by_head[head] = partition
        epoch = NO_EPOCH if record.broker_leader_epoch is None else record.broker_leader_epoch
        partition.hear(segment_id.id.raw, state, said, offset, epoch)
        if key is not None:
            self._note_key(key, segment_id.id.raw, partition)

    def _partition(self, partition_id: TopicIdPartition) -> _Partition:
        identity = partition_id.identity
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
        for other, owner in self._keys.note(key, segment_id, partition):
            upload = owner.uploads.get(other)
            if upload is not None and upload.state is STARTED:
                owner.bury(other)

    def _bury(self, key: bytes | None, offset: int) -> None:
        """Delete every upload that was written under the key of a tombstone."""
        for segment_id, partition in () if key is None else self._keys.take(key):
            partition.saw(offset)
            if segment_id in partition.uploads:
                partition.bury(segment_id)

    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """The user partitions that have records, sorted."""
        return tuple(sorted(partition.id for partition in self._partitions.values()))

    def build(self, partition: TopicIdPartition) -> Timeline:
        """The timeline of `partition` by the records so far. Without records it has no segments."""
        known = self._partitions.get(partition.identity) or _Partition(partition, self._gone)
        if known.built is None or known.built.partition != partition:
            known.built = self._build(partition, known)
        elif known.built.malformed_records != self._malformed_records:
            known.built = replace(known.built, malformed_records=self._malformed_records)
        return known.built

    def _build(self, partition: TopicIdPartition, known: _Partition) -> Timeline:
        found: list[FoundSegment] = []
        unfinished: list[FoundSegment] = []
        orphans = 0
        for upload in known.uploads.values():
            if upload.state not in _SHOWN:
                continue
            metadata = upload.metadata(known.id)
            if metadata is None:
                orphans += upload.state is FINISHED
            else:
                row = metadata, upload.finished_at, upload.leader_epoch
                (found if upload.state is FINISHED else unfinished).append(row)
        segments, orders, epochs = sorted_segments(found)
        return Timeline(
            partition,
            segments,
            orders,
            next_metadata_offset=known.next_offset,
            orphan_updates=orphans,
            malformed_records=self._malformed_records,
            partition_deleted=known.deleted,
            unfinished=sorted_segments(unfinished)[0],
            upload_epochs=epochs,
        )
