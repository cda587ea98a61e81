"""Writes a partition's log in memory, and knows the records that a broker would deliver from it.

Rules of the file:

- No I/O, no clock, no randomness. The same calls give the same bytes.
- The expected records come from the oracle. It records each call, and never reads the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from remote_fetch.model import IsolationLevel, LeaderEpoch, TimestampType, TopicIdPartition, Uuid
from remote_fetch.testing.compression import SnappyFraming
from remote_fetch.testing.oracle import LogRecord, Oracle
from remote_fetch.testing.producers import SEQUENCE_COUNT, EndMarker, ProducerStates, WrittenBatch
from remote_fetch.testing.records import Record, encode_batch, encode_legacy, encode_marker
from remote_fetch.testing.segments import BuiltSegment, SegmentOptions, build_segments

__all__ = ["FIRST_TIMESTAMP_MS", "TOPIC_ID", "LogBuilder"]

TOPIC_ID = Uuid(b"remote-fetch log")
"""The default topic id of a log."""

FIRST_TIMESTAMP_MS = 1_700_000_000_000
"""The default timestamp of offset 0. Each offset is a second later than the one before."""


class LogBuilder:
    """A log that grows by appends, transactions, leader changes and rolls.

    Offsets are assigned in order. Gaps come from records left out of a batch (`last_offset_delta`) and from whole
    batches removed (`take_out`), as by a log cleaner. A producer is an id and needs no set-up: a batch with a producer
    id is idempotent, and transactional between `begin` and `commit` or `abort`.
    """

    def __init__(
        self,
        topic: str = "topic",
        topic_id: Uuid = TOPIC_ID,
        partition: int = 0,
        *,
        start_offset: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.topic_id_partition = TopicIdPartition(topic_id, topic, partition)
        self._oracle = Oracle()
        self._producers = ProducerStates()
        self._batches: list[WrittenBatch] = []
        self._lineage = [LeaderEpoch(leader_epoch, start_offset)]
        self._cuts = [start_offset]
        self._next_offset = start_offset
        self._appends = 0

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._cuts[0]

    @property
    def next_offset(self) -> int:
        """The log end offset, the offset of the next record."""
        return self._next_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, or the log end offset."""
        return self._oracle.stable_offset(self._next_offset)

    @property
    def lineage(self) -> tuple[LeaderEpoch, ...]:
        """The leader epochs so far, ascending. Only the last may have no records."""
        return tuple(self._lineage)

    @property
    def leader_epoch(self) -> int:
        """The epoch that the next batch carries."""
        return self._lineage[-1].epoch

    @property
    def cuts(self) -> tuple[int, ...]:
        """The base offsets of the segments so far. The last belongs to the active segment."""
        return tuple(self._cuts)

    @property
    def batches(self) -> tuple[WrittenBatch, ...]:
        """Every batch written, including removed ones."""
        return tuple(self._batches)

    def boundaries(self) -> list[int]:
        """Every offset at which a segment can begin: between two append calls, and the two ends of the log."""
        starts = [after.base_offset for before, after in pairwise(self._batches) if before.append != after.append]
        return sorted({self.start_offset, *starts, self._next_offset})

    def append_batch(
        self,
        records: Sequence[Record],
        *,
        codec: int = 0,
        base_timestamp_ms: int | None = None,
        log_append_time_ms: int | None = None,
        last_offset_delta: int | None = None,
        delete_horizon_ms: int | None = None,
        producer_id: int = -1,
        same_append: bool = False,
        snappy_framing: SnappyFraming = "raw",
    ) -> int:
        """Append a v2 batch and return its base offset.

        Deltas up to `last_offset_delta` that `records` leaves out are records that a cleaner removed. Without records
        the empty batch is kept. `same_append` puts the batch into the append call of the batch before it. The remaining
        arguments are those of `encode_batch`. Raises ValueError for offset deltas that do not ascend in the batch.
        """
        last = _last_delta(records, last_offset_delta)
        base_ms = self._timestamp_ms(base_timestamp_ms)
        batch = self._next_batch(
            last, _max_timestamp_ms(records, base_ms, log_append_time_ms), producer_id, same_append
        )
        data = encode_batch(
            batch.base_offset,
            records,
            codec=codec,
            leader_epoch=batch.leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.transactional,
            log_append_time_ms=log_append_time_ms,
            base_timestamp_ms=base_ms,
            last_offset_delta=last,
            max_timestamp_ms=batch.max_timestamp_ms,
            delete_horizon_ms=delete_horizon_ms,
            snappy_framing=snappy_framing,
        )
        self._write(batch, data)
        txn = self._oracle.data(producer_id, batch.base_offset)
        seen = [_log_record(batch.base_offset, record, base_ms, log_append_time_ms, 2) for record in records]
        self._oracle.write(
            [replace(r, leader_epoch=batch.leader_epoch, producer_id=producer_id, txn=txn) for r in seen]
        )
        return batch.base_offset

    def append_legacy(
        self,
        records: Sequence[Record],
        *,
        magic: int,
        codec: int = 0,
        base_timestamp_ms: int | None = None,
        log_append_time_ms: int | None = None,
        snappy_framing: SnappyFraming = "raw",
    ) -> int:
        """Append a message set of format 0 or 1 in one append call, and return the offset that deltas count from.

        A segment written across a format upgrade holds such sets. Raises ValueError as `encode_legacy` does.
        """
        _last_delta(records, None)
        base = self._next_offset
        base_ms = self._timestamp_ms(base_timestamp_ms)
        self._appends += 1
        for entry in [records] if codec else [[record] for record in records]:
            data = encode_legacy(
                base,
                entry,
                magic=magic,
                codec=codec,
                base_timestamp_ms=base_ms,
                log_append_time_ms=log_append_time_ms,
                snappy_framing=snappy_framing,
            )
            max_ms = -1 if magic == 0 else _max_timestamp_ms(entry, base_ms, log_append_time_ms)
            first, last = base + entry[0].offset_delta, base + entry[-1].offset_delta
            self._write(WrittenBatch(data, first, last, max_ms, self._appends), data)
            self._oracle.write([_log_record(base, record, base_ms, log_append_time_ms, magic) for record in entry])
        return base

    def take_out(self, count: int, *, producer_id: int = -1) -> None:
        """Use `count` offsets for a batch that a cleaner has removed with its header.

        The batch counts for the producer's state and for the extent of its transaction, but has no bytes.
        """
        batch = self._next_batch(count - 1, self._timestamp_ms(None), producer_id, same_append=False)
        self._write(batch, b"")
        self._oracle.data(producer_id, batch.base_offset)

    def begin(self, producer_id: int) -> None:
        """Start a transaction for the producer's next batches. Raises ValueError if it is already in one."""
        self._oracle.begin(producer_id, self._next_offset)

    def in_transaction(self, producer_id: int) -> bool:
        """Whether the producer has begun a transaction and not ended it."""
        return self._oracle.is_open(producer_id)

    def commit(self, producer_id: int, *, bump_epoch: bool = False, timestamp_ms: int | None = None) -> int:
        """Write a COMMIT marker and return its offset. `bump_epoch`: it raises the producer epoch (KIP-890)."""
        return self._end(producer_id, EndMarker(commit=True), bump_epoch, timestamp_ms)

    def abort(self, producer_id: int, *, bump_epoch: bool = False, timestamp_ms: int | None = None) -> int:
        """Write an ABORT marker and return its offset. Without data before it, it aborts nothing."""
        return self._end(producer_id, EndMarker(commit=False), bump_epoch, timestamp_ms)

    def new_leader_epoch(self, epoch: int | None = None) -> int:
        """Change the leader, by default to the next epoch. Return the epoch.

        An epoch without records leaves no trace in the lineage. Raises ValueError for an epoch that does not ascend.
        """
        epoch = self.leader_epoch + 1 if epoch is None else epoch
        if epoch <= self.leader_epoch:
            raise ValueError(f"epoch {epoch} does not follow {self.leader_epoch}")
        self._lineage = [entry for entry in self._lineage if entry.start_offset < self._next_offset]
        self._lineage.append(LeaderEpoch(epoch, self._next_offset))
        return epoch

    def roll(self) -> bool:
        """Close the active segment if it has an offset. Return whether it did."""
        if self._cuts[-1] == self._next_offset:
            return False
        self._cuts.append(self._next_offset)
        return True

    def fork(self, offset: int) -> LogBuilder:
        """Another replica that has the log up to `offset` (exclusive), with the same rolls, and then diverges.

        Transactions that were open there are open. Raises ValueError if `offset` is inside a batch or outside the log.
        """
        if any(batch.base_offset < offset <= batch.last_offset for batch in self._batches):
            raise ValueError(f"offset {offset} lies inside a batch")
        if not self.start_offset <= offset <= self._next_offset:
            raise ValueError(f"offset {offset} lies outside the log")
        place = self.topic_id_partition
        other = LogBuilder(place.topic, place.topic_id, place.partition, start_offset=self.start_offset)
        other._oracle = self._oracle.fork(offset)
        other._lineage = [entry for entry in self._lineage if entry.start_offset < offset] or self._lineage[:1]
        other._cuts = [cut for cut in self._cuts if cut <= offset]
        other._appends = self._appends
        for batch in self._batches:
            if batch.base_offset < offset:
                other._write(batch, batch.data)
        other._next_offset = offset
        return other

    def records(self) -> list[LogRecord]:
        """Every record in the bytes, in offset order, without control records."""
        return self._oracle.records()

    def expected(
        self, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED, start: int = 0, stop: int | None = None
    ) -> list[LogRecord]:
        """The records that a broker delivers for offsets [start, stop), by the oracle. `stop` None: to the end.

        The end is the last stable offset under read_committed, else the log end offset.
        """
        stop = self._next_offset if stop is None else stop
        return self._oracle.expected(isolation, start, stop, end_offset=self._next_offset)

    def stable_offset_at(self, offset: int) -> int:
        """The last stable offset when the log ended at `offset`. Markers below `offset` decide all records below it."""
        return self._oracle.stable_offset(offset)

    def segments(
        self, options: SegmentOptions | None = None, *, cuts: Sequence[int] | None = None
    ) -> list[BuiltSegment]:
        """The closed segments. `cuts` gives different roll points, as of another leader.

        Raises ValueError for a cut inside a batch or an append call.
        """
        return build_segments(
            self.topic_id_partition, self._batches, self._cuts if cuts is None else cuts, self._lineage, options
        )

    def tiered(self, options: SegmentOptions | None = None, *, cuts: Sequence[int] | None = None) -> list[BuiltSegment]:
        """The closed segments that a broker copies: the next base offset is not above the last stable offset."""
        stable = self.last_stable_offset
        return [segment for segment in self.segments(options, cuts=cuts) if segment.metadata.end_offset < stable]

    def _timestamp_ms(self, given: int | None) -> int:
        return FIRST_TIMESTAMP_MS + 1000 * self._next_offset if given is None else given

    def _next_batch(self, last_offset_delta: int, max_ms: int, producer_id: int, same_append: bool) -> WrittenBatch:
        state = self._producers.get(producer_id)
        self._appends += 0 if same_append else 1
        return WrittenBatch(
            data=b"",
            base_offset=self._next_offset,
            last_offset=self._next_offset + last_offset_delta,
            max_timestamp_ms=max_ms,
            append=self._appends,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=state.epoch if producer_id >= 0 else -1,
            base_sequence=(state.last_sequence + 1) % SEQUENCE_COUNT if producer_id >= 0 else -1,
            transactional=self._oracle.is_open(producer_id),
        )

    def _write(self, batch: WrittenBatch, data: bytes) -> None:
        batch = replace(batch, data=data)
        self._producers.apply(batch)
        self._batches.append(batch)
        self._next_offset = batch.last_offset + 1

    def _end(self, producer_id: int, marker: EndMarker, bump_epoch: bool, timestamp_ms: int | None) -> int:
        offset = self._next_offset
        self._oracle.end(producer_id, offset, commit=marker.commit)
        batch = replace(
            self._next_batch(0, self._timestamp_ms(timestamp_ms), producer_id, same_append=False),
            producer_epoch=self._producers.get(producer_id).epoch + int(bump_epoch),
            base_sequence=-1,
            transactional=True,
            marker=marker,
        )
        data = encode_marker(
            offset,
            producer_id,
            commit=marker.commit,
            producer_epoch=batch.producer_epoch,
            leader_epoch=batch.leader_epoch,
            timestamp_ms=batch.max_timestamp_ms,
            coordinator_epoch=marker.coordinator_epoch,
        )
        self._write(batch, data)
        return offset


def _last_delta(records: Sequence[Record], last_offset_delta: int | None) -> int:
    deltas = [-1, *(record.offset_delta for record in records)]
    last = deltas[-1] if last_offset_delta is None else last_offset_delta
    if last < max(0, deltas[-1]) or any(before >= after for before, after in pairwise(deltas)):
        raise ValueError(f"offset deltas {deltas[1:]} do not ascend from 0 to {last}")
    return last


def _max_timestamp_ms(records: Sequence[Record], base_ms: int, log_append_time_ms: int | None) -> int:
    if log_append_time_ms is not None:
        return log_append_time_ms
    return max((base_ms + record.timestamp_delta_ms for record in records), default=base_ms)


def _log_record(
    base_offset: int, record: Record, base_ms: int, log_append_time_ms: int | None, magic: int
) -> LogRecord:
    """The record as a consumer sees it. Format 0 has no timestamps. Log append time counts for the whole batch."""
    timestamp_ms, timestamp_type = base_ms + record.timestamp_delta_ms, TimestampType.CREATE_TIME
    if magic == 0:
        timestamp_ms, timestamp_type = -1, TimestampType.NO_TIMESTAMP_TYPE
    elif log_append_time_ms is not None:
        timestamp_ms, timestamp_type = log_append_time_ms, TimestampType.LOG_APPEND_TIME
    offset = base_offset + record.offset_delta
    return LogRecord(offset, timestamp_ms, timestamp_type, record.key, record.value, record.headers)
