"""Checks every batch of a segment, and its indexes against the batches.

Rules of the file:

- Pure. Bytes come in order, in ranges of any size. One batch and one range are held.
- A batch that Kafka's readers refuse raises CorruptSegment. A fault of an index is a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from remote_fetch.decode.run_decoder import Bounds, RunReader, Start
from remote_fetch.decode.run_status import FAULTS, RunStatus
from remote_fetch.errors import CorruptSegment, FallsBackError
from remote_fetch.formats.batches import BatchFramer, BatchHeader, FramedBatch, check_crc
from remote_fetch.formats.checkpoints import ProducerState
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import ControlType, control_type
from remote_fetch.formats.indexes import OffsetIndex, TimeIndex
from remote_fetch.formats.legacy import messages_of
from remote_fetch.locate.lineage import epoch_at
from remote_fetch.model import AbortedTransaction, RemoteLogSegmentMetadata
from remote_fetch.prepare.order import check_order

__all__ = ["LogCheck", "LogFacts", "OpenTransactions"]

_COLUMNS = ("offset",)


@dataclass(slots=True)
class LogFacts:
    """Facts about a segment, by its batches.

    - `size_bytes` is the end of the last whole batch. `end_bytes` counts all bytes that came.
    - `first_offset` and `last_offset` are -1 without batches, `max_timestamp_ms` too.
    - `aborted` are the transactions that a marker in the segment aborts and that have records: by the producer and the
      marker's offset, the offset of the first batch. `abort_markers` are all such markers.
    - `wrong_epoch` is the first batch whose leader epoch is not that of the metadata.
    """

    first_offset: int = -1
    last_offset: int = -1
    max_timestamp_ms: int = -1
    size_bytes: int = 0
    batches: int = 0
    aborted: dict[tuple[int, int], int] = field(default_factory=dict)
    abort_markers: set[tuple[int, int]] = field(default_factory=set)
    wrong_epoch: BatchHeader | None = None


@dataclass(slots=True)
class OpenTransactions:
    """The open transactions at an offset of a log that is read in order.

    - `first_offsets` has the offset of the first batch by producer, -1 if it is not known.
    - From `whole_from` on, all batches were read, and compaction has taken out none. The first offsets of earlier
      transactions may be wrong: their first batch may be gone, or the marker of the transaction before.
    """

    first_offsets: dict[int, int]
    whole_from: int


class _OffsetWalk:
    """Compares one reading of an offset index with the batches, in one pass."""

    def __init__(self, index: OffsetIndex) -> None:
        self._entries = iter(index.entries())
        self._next = next(self._entries, None)
        self._open = -1
        self.fault: str | None = None

    def take(self, batch: FramedBatch) -> None:
        """Compare the next batch. The offset of an entry is the last one of a batch, at its position or later."""
        if self.fault is not None:
            return
        if self._next is not None and self._next.position <= batch.position:
            if self._next.position < batch.position or self._open >= 0:
                self.fault = f"no batch begins at byte {self._next.position}, or none ends with offset {self._open}"
                return
            self._open, self._next = self._next.offset, next(self._entries, None)
        if 0 <= self._open <= batch.header.last_offset:
            if self._open != batch.header.last_offset:
                self.fault = f"no batch ends with offset {self._open}"
            self._open = -1

    def finish(self) -> str | None:
        """The fault after the last batch, None if there is none."""
        if self.fault is None and (self._next is not None or self._open >= 0):
            return "its last entry is behind the last batch"
        return self.fault


class LogCheck:
    """Reads one segment. `offset_index` and `time_index` are its parsed indexes, None without one.

    `transactions` are open at the start of the segment, None: not known. After `read` they are those at its end.
    """

    def __init__(
        self,
        segment: RemoteLogSegmentMetadata,
        codecs: Codecs,
        *,
        max_batch_bytes: int,
        max_decompressed_bytes: int,
        offset_index: OffsetIndex | None,
        time_index: TimeIndex | None,
        transactions: OpenTransactions | None,
    ) -> None:
        self._segment = segment
        self._codecs = codecs
        self._max_batch_bytes = max_batch_bytes
        self._walks = [] if offset_index is None else [_OffsetWalk(each) for each in offset_index.candidates()]
        self._times = iter(()) if time_index is None else time_index.entries()
        self._time = next(self._times, None)
        self._time_fault: str | None = None
        known = transactions or OpenTransactions({}, segment.start_offset)
        self.transactions = OpenTransactions(dict(known.first_offsets), known.whole_from)
        self._next_offset = segment.start_offset
        self._epochs = segment.segment_leader_epochs
        partition = segment.topic_id_partition
        bounds = Bounds(
            0, 2**63 - 2, 2**63 - 1, max_batch_bytes=max_batch_bytes, max_decompressed_bytes=max_decompressed_bytes
        )
        self._reader = RunReader(partition.topic, partition.partition, _COLUMNS, bounds)
        self.facts = LogFacts()

    def read(self, ranges: Iterable[memoryview]) -> LogFacts:
        """Check all batches. Raises CorruptSegment, DecompressionLimit, UnsupportedFormat, and what `ranges` raises."""
        framer = BatchFramer(0, max_batch_bytes=self._max_batch_bytes)
        for data in ranges:
            framer.feed(data)
            while (batch := framer.next_batch()) is not None:
                self._batch(batch)
        framer.finish()
        end = self._segment.end_offset
        if self._next_offset <= end:
            self.transactions.whole_from = end + 1
        return self.facts

    def offset_fault(self) -> str | None:
        """The fault of the offset index, None if it has none. To be called after `read`."""
        faults = [walk.finish() for walk in self._walks]
        return None if not faults or None in faults else faults[0]

    def time_fault(self) -> str | None:
        """The fault of the time index, None if it has none. To be called after `read`."""
        if self._time_fault is None and self._time is not None and self._time.offset > self.facts.last_offset:
            return f"its entry for {self._time.timestamp_ms} ms names offset {self._time.offset}, behind the last batch"
        return self._time_fault

    def transaction_faults(self, entries: Iterable[AbortedTransaction] | None) -> Iterator[str]:
        """Transactions that the transaction index lacks, makes up or lets begin elsewhere. None: there is no index."""
        known = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in entries or ()}
        for (producer_id, offset), first in self.facts.aborted.items():
            indexed = known.get((producer_id, offset))
            if indexed is None:
                yield f"it lacks the transaction of producer {producer_id} that was aborted at offset {offset}"
            elif indexed != first and min(indexed, first) >= self.transactions.whole_from:
                yield (
                    f"the transaction of producer {producer_id} that was aborted at offset {offset} begins at offset "
                    f"{first}, and not at {indexed}"
                )
        for producer_id, offset in sorted(known.keys() - self.facts.abort_markers, key=lambda entry: entry[1]):
            yield f"no marker at offset {offset} aborts a transaction of producer {producer_id}"

    def snapshot_faults(self, producers: Iterable[ProducerState] | None) -> Iterator[str]:
        """Producers whose state is not that at the end of the segment. None: there is no producer snapshot."""
        if producers is None:
            return
        end, in_snapshot, in_log = self._segment.end_offset, dict[int, int](), dict(self.transactions.first_offsets)
        for producer in producers:
            latest = max(producer.last_offset, producer.current_txn_first_offset)
            if latest > end:
                in_log.pop(producer.producer_id, None)
                yield f"producer {producer.producer_id} has a batch at offset {latest}, after the segment"
            elif producer.current_txn_first_offset >= 0:
                in_snapshot[producer.producer_id] = producer.current_txn_first_offset
        for producer_id in sorted(in_snapshot.keys() | in_log.keys()):
            begins = [offsets[producer_id] for offsets in (in_snapshot, in_log) if producer_id in offsets]
            if in_snapshot.get(producer_id) != in_log.get(producer_id) and min(begins) >= self.transactions.whole_from:
                yield (
                    f"producer {producer_id} has {_open_from(in_snapshot.get(producer_id))}, and by the log "
                    f"{_open_from(in_log.get(producer_id))}"
                )

    def _batch(self, batch: FramedBatch) -> None:
        header, facts = batch.header, self.facts
        check_crc(batch)
        check_order(batch, facts.last_offset, ())
        self._check_records(batch)
        if facts.first_offset < 0:
            facts.first_offset = header.base_offset
        self._check_epoch(header)
        for walk in self._walks:
            walk.take(batch)
        self._take_time(header)
        facts.last_offset = header.last_offset
        facts.max_timestamp_ms = max(facts.max_timestamp_ms, header.max_timestamp_ms)
        facts.size_bytes = batch.position + header.size_bytes
        facts.batches += 1
        if not header.record_count:  # compaction left its header
            self.transactions.whole_from = header.next_offset
        elif header.base_offset > self._next_offset:
            self.transactions.whole_from = header.base_offset
        self._next_offset = header.next_offset
        self._take_transaction(batch)

    def _check_records(self, batch: FramedBatch) -> None:
        header = batch.header
        if header.magic < 2:
            for _ in messages_of(batch, self._codecs):
                pass
            return
        if header.is_control or not header.record_count:
            return  # `control_type` reads the marker
        start = Start(-1, 0, header.leader_epoch, 2**63 - 1)
        at, status = 0, RunStatus.FULL
        try:
            while status is RunStatus.FULL and at < len(batch.data):
                run = self._reader.read(batch.data, at, start, len(batch.data))
                at, status = run.position, run.status
        except FallsBackError as error:
            raise error.at(position=batch.position, offset=header.base_offset) from error.__cause__
        if at != len(batch.data):
            text = FAULTS.get(status, f"it cannot be decoded ({status.name})")
            raise CorruptSegment(
                f"a batch of {header.record_count} records: {text}", position=batch.position, offset=header.base_offset
            )

    def _check_epoch(self, header: BatchHeader) -> None:
        if header.magic < 2 or not self._epochs or self.facts.wrong_epoch is not None:
            return
        if epoch_at(self._epochs, header.base_offset) not in (None, header.leader_epoch):
            self.facts.wrong_epoch = header

    def _take_time(self, header: BatchHeader) -> None:
        """An entry says that no record up to its offset is later than its timestamp."""
        while self._time is not None and self._time.offset < header.last_offset:
            self._time = next(self._times, None)
        if self._time is not None and header.magic >= 2 and header.max_timestamp_ms > self._time.timestamp_ms:
            self._time_fault = self._time_fault or (
                f"a record at {header.max_timestamp_ms} ms, up to offset {header.last_offset}, is later than its entry "
                f"({self._time.timestamp_ms} ms, offset {self._time.offset})"
            )

    def _take_transaction(self, batch: FramedBatch) -> None:
        header, opened = batch.header, self.transactions.first_offsets
        if not header.is_control:
            if header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
            return
        control = control_type(batch, self._codecs)
        if control is ControlType.ABORT:
            self.facts.abort_markers.add((header.producer_id, header.base_offset))
            if header.producer_id in opened:
                self.facts.aborted[header.producer_id, header.base_offset] = opened[header.producer_id]
        if control in (ControlType.ABORT, ControlType.COMMIT):
            opened.pop(header.producer_id, None)


def _open_from(first_offset: int | None) -> str:
    return (
        "no open transaction" if first_offset is None else f"a transaction that is open from offset {first_offset} on"
    )
