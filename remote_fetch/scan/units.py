"""Units of decoding: consecutive ordinary batches of one slice, which a thread decodes with few calls.

Rules of the file:

- The drawing thread finds units by their headers, and delivers them in order. A thread of the pool may decode them
  before that. It changes when and where work is done, and nothing else.
- Damaged bytes raise no error here. Decoding ends before a batch that is damaged, and `delivery` reads that batch.
- A thread does not know where the reading of a unit begins. It takes the offset that was the first wanted one when the
  unit was found. Its rows are used only if a later first offset makes no difference.
- The units that wait are bounded in number, and the columns of each are bounded in size. The drawing thread decodes the
  rest of a unit that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from remote_fetch.decode.run_decoder import Bounds, DecodedRun, RunReader, RunsAhead, Start
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.formats.batches import FramedBatch, read_header
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.session.decode_pool import DecodePool

__all__ = ["Unit", "Units"]

_MAX_CUT_BYTES = 4 << 20
_MAX_AHEAD_BYTES = 16 << 20
"""The most that one batch may inflate to before its turn. By default a producer's batch has at most 1 MiB."""
_MAX_AHEAD_UNITS = 4
"""The most that the columns of a unit may take before its turn, as a multiple of the size that they are to have."""
_TIMEOUT_MS = 600_000
"""No unit takes that long. The limit ends a wait for a thread that hangs."""
_EPOCH_AT = 12
_HEADER_START_BYTES = 16


@dataclass(slots=True)
class Unit:
    """Whole batches in their places: `data[at:stop]`.

    - `position` is the byte position in the segment of `data[at]`.
    - `base_offset` is that of the first batch; `last_offset` ends the last one.
    - If `is_confirmed` is false, it is a single batch, and the next header has to confirm its place.
    - `start` is the state before the first batch. `work` is the work of another thread, if there is any.
    """

    data: memoryview
    at: int
    stop: int
    position: int
    base_offset: int
    last_offset: int
    is_confirmed: bool
    start: Start
    work: RunsAhead | None = None

    def batch_at(self, at: int) -> FramedBatch:
        """The batch at `data[at]`."""
        position = self.position + at - self.at
        header = read_header(self.data, at, position=position, max_batch_bytes=self.stop - at)
        assert not isinstance(header, int), "a unit has whole batches"
        return FramedBatch(header, position, self.data[at : at + header.size_bytes])


class Units:
    """Finds and decodes the units of one slice. A batch of more than `max_batch_bytes` is in no unit."""

    def __init__(
        self,
        piece: SegmentSlice,
        rows: PartitionRows,
        pool: DecodePool,
        *,
        entry_offsets: tuple[int, int],
        max_batch_bytes: int,
        max_decompressed_bytes: int,
    ) -> None:
        self._piece = piece
        self._rows = rows
        self._pool = pool
        aborted, segment = rows.aborted, piece.segment
        assert not isinstance(aborted, SequentialAborts), "a unit has many batches before their markers"
        self._bounds = Bounds(
            segment.start_offset,
            segment.end_offset,
            piece.stop_offset,
            entry_offsets,
            None if aborted is None else _hidden(aborted, piece),
            max_batch_bytes,
            max_decompressed_bytes,
        )
        self._own = self._reader(self._bounds)
        self._most_bytes = _MAX_AHEAD_UNITS * pool.unit_bytes
        self._ahead: RunReader | None = None
        # All batches from `_epoch_start` up to `_epoch_stop` (exclusive) must have this leader epoch.
        self._epoch = -1
        self._epoch_start = self._epoch_stop = 0

    def _reader(self, bounds: Bounds) -> RunReader:
        rows = self._rows
        return RunReader(rows.topic, rows.partition, rows.columns, bounds, memory=self._pool.memory)

    def _reader_ahead(self) -> RunReader:
        """The reader whose runs are decoded by the threads of the pool."""
        most = min(self._bounds.max_decompressed_bytes, _MAX_AHEAD_BYTES)
        return self._reader(self._bounds._replace(max_decompressed_bytes=most, target_bytes=self._pool.unit_bytes))

    def cut(self, data: memoryview, at: int, position: int, last_offset: int) -> Unit | None:
        """The unit that begins at `data[at]`, the byte `position` of the segment, or None.

        The batch before it ended with `last_offset`. If the pool has threads, one of them begins to decode a unit that
        is large enough.
        """
        if len(data) - at < _HEADER_START_BYTES or not self._knows_epoch(data, at):
            return None
        start = Start(last_offset, self._rows.first_wanted(self._piece), self._epoch, self._epoch_stop)
        found = self._own.cut(data, at, start, self._wanted_bytes())
        if not found.taken:
            return None
        base_offset = int.from_bytes(data[at : at + 8], "big")
        unit = Unit(data, at, found.position, position, base_offset, found.last_offset, found.is_confirmed, start)
        if self._pool.takes(unit.stop - unit.at):
            self._ahead = self._ahead or self._reader_ahead()
            unit.work = self._ahead.begin(data, at, start, unit.stop, self._pool.threads, self._most_bytes)
        return unit

    def _wanted_bytes(self) -> int:
        wanted = int(self._pool.unit_bytes / max(self._rows.ratio, 1.0))
        return min(max(wanted, 1), _MAX_CUT_BYTES)

    def runs(self, unit: Unit, at: int, last_offset: int, first_offset: int) -> Iterator[DecodedRun]:
        """The rows of `unit` from `data[at]` on. They end at the unit's end, or before a batch that is not sound.

        The batch before `data[at]` ended with `last_offset`. Records from `first_offset` on are wanted.
        """
        status = RunStatus.FULL
        for run in self._taken_from(unit, at, first_offset):
            yield run
            at, last_offset, status = run.position, run.last_offset, run.status
        if status is RunStatus.END:
            return
        # A thread has lower bounds than this one. So what it did not take is tried again.
        status = RunStatus.FULL
        while status is RunStatus.FULL:
            start = unit.start._replace(last_offset=last_offset, first_offset=first_offset)
            run = self._own.read(unit.data, at, start, unit.stop)
            yield run
            at, last_offset, status = run.position, run.last_offset, run.status

    def learn(self, unit: Unit, column_bytes: int) -> None:
        """Take the size of the columns of a unit into account for the size of the next ones."""
        if column_bytes:
            self._rows.ratio = column_bytes / (unit.stop - unit.at)

    def _taken_from(self, unit: Unit, at: int, first_offset: int) -> list[DecodedRun]:
        """Wait for the thread that decodes the unit, if its rows can be used."""
        begun = unit.start.first_offset
        is_same = first_offset == begun or max(first_offset, begun) <= unit.base_offset
        work, unit.work = unit.work, None
        if work is None or at != unit.at or not is_same:
            return []
        return work.wait(_TIMEOUT_MS)

    def _knows_epoch(self, data: memoryview, at: int) -> bool:
        """Whether the batch at `data[at]` has the leader epoch that the log has at its base offset."""
        offset = int.from_bytes(data[at : at + 8], "big", signed=True)
        epoch = int.from_bytes(data[at + _EPOCH_AT : at + _HEADER_START_BYTES], "big", signed=True)
        if epoch == self._epoch and self._epoch_start <= offset < self._epoch_stop:
            return True
        segment, lineage = self._piece.segment, self._rows.lineage
        if not self._rows.epoch_fits(segment, offset, epoch):
            return False
        # The answer stays the same up to the next entry. Past its end, a lineage agrees with its last epoch.
        stops = (entry.start_offset for entry in (*segment.segment_leader_epochs, *lineage.entries))
        self._epoch, self._epoch_start = epoch, offset
        self._epoch_stop = min((stop for stop in stops if stop > offset), default=2**63 - 1)
        return True


def _hidden(aborted: AbortedIntervals, piece: SegmentSlice) -> list[tuple[int, int, int]]:
    """Producer id, first and last offset of each aborted transaction that decides about offsets of the slice."""
    clipped = aborted.clip(piece.segment.start_offset, piece.last_offset)
    return [
        (producer, transaction.first_offset, transaction.last_offset)
        for producer, transactions in clipped.by_producer.items()
        for transaction in transactions
    ]
