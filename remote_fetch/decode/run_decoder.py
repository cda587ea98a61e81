"""From the bytes of whole batches to columns with one call: native if it was built, else plain Python.

`RunReader` takes many batches at once. `BatchReader` takes the records of one batch that plain Python has unpacked.

Rules of the file:

- A run is several whole batches that one call decodes. The decoder stops before a batch that it cannot decode or that
  needs a decision. It returns the position of that batch and a RunStatus. The caller decides what to do with the batch.
- The message of an error is made here, after plain Python has read the malformed records again.
- Both decoders get the same arguments and give the same answer. `Bounds`, `Start` and `DecodedRun` describe them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from remote_fetch.decode import run_reference
from remote_fetch.decode.decoded_rows import DecodedRows, Tables
from remote_fetch.decode.engine import installed
from remote_fetch.decode.record_reference import base_ms_of, fault_of
from remote_fetch.decode.resources import ColumnMemory, DecodeThreads
from remote_fetch.decode.run_status import FAULTS, RunStatus
from remote_fetch.errors import CorruptSegment, DecompressionLimit
from remote_fetch.formats.batches import BatchHeader

if TYPE_CHECKING:
    from remote_fetch.decode import _native

__all__ = ["BatchReader", "Bounds", "Cut", "DecodedRun", "RunReader", "RunsAhead", "Start", "is_native"]

_ENGINE = installed(run_reference)

MAX_ROWS = 65_536
"""The most rows of one Arrow batch."""
TARGET_BYTES = 1 << 20
"""The size of a byte column with which an Arrow batch is full, unless its reader says otherwise."""
_MAX_INT64 = 2**63 - 1
_SIGNALS_MS = 100


class Bounds(NamedTuple):
    """The bounds of all runs of one slice.

    - Offsets of batches lie in [segment_start, segment_end].
    - `entries` are offsets of the offset index, -1 for none. Such an offset is the last offset of a batch, never an
      earlier one.
    - Records before `stop_offset` are wanted. A run ends before a batch whose base offset is that or more.
    - `aborted` None: read_uncommitted. Else producer id, first and last offset of each aborted transaction.
    - One batch has at most `max_batch_bytes`, and inflates to at most `max_decompressed_bytes`.
    - A run ends after a batch with which there are `max_rows` rows, or with which a byte column or the offsets of the
      headers' items have `target_bytes`.
    """

    segment_start: int
    segment_end: int
    stop_offset: int
    entries: tuple[int, int] = (-1, -1)
    aborted: Sequence[tuple[int, int, int]] | None = None
    max_batch_bytes: int = 128 << 20
    max_decompressed_bytes: int = 256 << 20
    target_bytes: int = TARGET_BYTES
    max_rows: int = MAX_ROWS


class Start(NamedTuple):
    """Where a run begins.

    - The batch before it ended with `last_offset`; -1 at the beginning of a slice.
    - Records from `first_offset` on are wanted.
    - Batches have leader epoch `epoch`, up to base offset `epoch_stop`, exclusive.
    """

    last_offset: int
    first_offset: int
    epoch: int
    epoch_stop: int


class DecodedRun(NamedTuple):
    """The result of one run.

    - `taken` batches were walked over, and the last of them ended with `last_offset`.
    - The next batch begins at `position`. `status` says why it was not taken.
    - `ended_producers` holds, under read_committed, the producers whose transactions ended in the run.
    - `shown` holds, under read_committed, the producers of the transactional batches that were shown since the
      producer's last marker, and the base offset of the first of each.
    - `rows` may be none.
    - `saturated` rows have the nearest possible `timestamp` instead of their own; 0 without that column.
    """

    position: int
    last_offset: int
    taken: int
    status: RunStatus
    ended_producers: Set[int]
    shown: Mapping[int, int]
    rows: DecodedRows
    saturated: int


class Cut(NamedTuple):
    """Batches that a run can take, as far as their headers tell: `taken` batches up to `position`.

    The last of them ends with `last_offset`. If `is_confirmed` is false, no header after it shows that its offsets are
    right. Then it is the only one.
    """

    position: int
    last_offset: int
    taken: int
    is_confirmed: bool


def is_native() -> bool:
    """Whether batches are decoded natively. In plain Python, decoding takes about 100 times as long."""
    return _ENGINE is not run_reference


class RunReader:
    """Reads the runs of one slice. For one thread at a time.

    `memory` is for its columns. `engine` is the module of the decoder, for tests. Raises ConfigError for columns as
    `schema_for` does.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str],
        bounds: Bounds,
        *,
        memory: ColumnMemory | None = None,
        engine: ModuleType | None = None,
    ) -> None:
        self._engine = engine = engine or _ENGINE
        self._tables = Tables(topic, partition, columns, bounds.max_rows, engine)
        self._decoder: _native.RunDecoder = engine.RunDecoder(
            self._tables.decoded,
            segment_offsets=(bounds.segment_start, bounds.segment_end),
            stop_offset=bounds.stop_offset,
            entries=bounds.entries,
            aborted=bounds.aborted,
            max_batch_bytes=bounds.max_batch_bytes,
            max_decompressed_bytes=bounds.max_decompressed_bytes,
            target_bytes=bounds.target_bytes,
            max_rows=bounds.max_rows,
            memory=None if memory is None else memory.of(engine),
        )

    def cut(self, data: memoryview, at: int, start: Start, size_bytes: int) -> Cut:
        """Find ordinary batches from `data[at]` on that have `size_bytes`, by their headers alone.

        Their order and their offsets are checked, and neither checksums nor records.
        """
        last_offset, _, epoch, epoch_stop = start
        where = {"last_offset": last_offset, "epoch": epoch, "epoch_stop": epoch_stop}
        return Cut(*self._decoder.cut(data, at, size_bytes, **where))

    def read(self, data: memoryview, at: int, start: Start, stop: int | None = None) -> DecodedRun:
        """The run that begins at `data[at]`. `data` is read only. It is decoded without the interpreter's lock.

        The place of a batch that ends at `stop` counts as confirmed, and the run ends with it.
        """
        return self._decoded(self._decoder.decode(data, at, **start._asdict(), stop=stop))

    def begin(
        self, data: memoryview, at: int, start: Start, stop: int, threads: DecodeThreads, most_bytes: int
    ) -> RunsAhead:
        """As `read`, in one of `threads`. It goes on up to `stop` until the columns have `most_bytes`."""
        ahead = self._decoder.decode_ahead(
            data, at, **start._asdict(), stop=stop, threads=threads.of(self._engine), most_bytes=most_bytes
        )
        return RunsAhead(ahead, self._decoded)

    def _decoded(self, run: _native.Run) -> DecodedRun:
        return DecodedRun(
            run.position, run.last_offset, run.taken, RunStatus(run.status), run.ended_producers, run.shown,
            DecodedRows(run, self._tables), run.saturated,
        )  # fmt: skip


class RunsAhead:
    """Runs that another thread decodes."""

    def __init__(self, ahead: _native.Ahead, decoded: Callable[[_native.Run], DecodedRun]) -> None:
        self._ahead, self._decoded = ahead, decoded

    def wait(self, timeout_ms: int) -> list[DecodedRun]:
        """The runs, once. Decodes them in this thread if no other one has begun to. Raises TimeoutError."""
        for _ in range(max(timeout_ms // _SIGNALS_MS, 1)):  # Python handles signals between two calls
            runs = self._ahead.wait(_SIGNALS_MS)
            if runs is not None:
                return [self._decoded(run) for run in runs]
        raise TimeoutError(f"a run was not decoded within {timeout_ms} ms")


class BatchReader:
    """Reads the records of single batches of one partition. For one thread at a time.

    Rows are full, and returned together, as a run of these `Bounds` is.
    `saturated` counts as in `DecodedRun`, of all rows so far that are no longer pending. `engine` is the module of the
    decoder, for tests. Raises ConfigError for columns as `schema_for` does.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str],
        *,
        target_bytes: int = TARGET_BYTES,
        max_rows: int = MAX_ROWS,
        engine: ModuleType | None = None,
    ) -> None:
        self._topic, self._partition = topic, partition
        self._engine = engine or _ENGINE
        self._tables = Tables(topic, partition, columns, max_rows, self._engine)
        self._target_bytes, self._max_rows = target_bytes, max_rows
        # A decoder keeps room for as many rows as it gave before. A reader may be kept for long after its last batch.
        self._decoder: _native.BatchDecoder | None = None
        self._rows = 0
        self._full: list[DecodedRows] = []
        self.saturated = 0

    @property
    def rows(self) -> int:
        """Rows taken and not yet returned."""
        return self._rows + sum(full.num_rows for full in self._full)

    def read(self, header: BatchHeader, records: memoryview, start_offset: int, stop_offset: int) -> list[DecodedRows]:
        """As `append`, and then `drain`."""
        return self.append(header, records, start_offset, stop_offset) + self.drain()

    def append(
        self, header: BatchHeader, records: memoryview, start_offset: int, stop_offset: int
    ) -> list[DecodedRows]:
        """Take the records with `start_offset` <= offset < `stop_offset`. Return the rows that became full.

        `records` is the record area of one v2 batch, already decompressed, or a legacy message set in that form.
        Format: KIP-98. The checks are those of the Java client's DefaultRecord.

        Raises CorruptSegment for a malformed record, wanted or not, and DecompressionLimit for an area that does not
        fit a column. Then no record of this batch is ever returned, and pending rows stay pending.
        """
        if header.base_offset < 0 or not header.base_offset <= header.last_offset < _MAX_INT64:
            raise CorruptSegment(
                f"a batch from offset {header.base_offset} to {header.last_offset}", offset=header.base_offset
            )
        window = max(start_offset, 0), min(max(stop_offset, 0), _MAX_INT64)
        status, size_bytes = self._append(header, records, window)
        if status == RunStatus.FULL:
            self._full = self._taken()
            status, size_bytes = self._append(header, records, window)
        if status == RunStatus.TOO_LARGE:
            most = run_reference.MAX_COLUMN_BYTES
            raise DecompressionLimit(
                f"a batch of {len(records)} bytes of records; {most} fit a column", offset=header.base_offset
            )
        if status != RunStatus.END:
            raise self._fault(header, records)
        if self._rows >= self._max_rows or size_bytes >= self._target_bytes:
            return self._taken()
        full, self._full = self._full, []
        return full

    def _append(self, header: BatchHeader, records: memoryview, window: tuple[int, int]) -> tuple[int, int]:
        if self._decoder is None:
            self._decoder = self._engine.BatchDecoder(self._tables.decoded)
        status, self._rows, size_bytes = self._decoder.append(
            records.toreadonly(),
            offsets=(header.base_offset, header.last_offset),
            window=window,
            record_count=header.record_count,
            base_ms=base_ms_of(header),
            timestamp_type=int(header.timestamp_type),
            leader_epoch=header.leader_epoch,
        )
        return status, size_bytes

    def drain(self) -> list[DecodedRows]:
        """Return the pending rows. The reader keeps no memory for the next ones."""
        taken, self._decoder = self._taken(), None
        return taken

    def _taken(self) -> list[DecodedRows]:
        full, self._full = self._full, []
        if self._decoder is not None and self._rows:
            self._rows = 0
            run = self._decoder.take()
            self.saturated += run.saturated
            full.append(DecodedRows(run, self._tables))
        return full

    def _fault(self, header: BatchHeader, records: memoryview) -> CorruptSegment:
        fault = fault_of(records, header)
        return CorruptSegment(
            f"record {fault.record} of {header.record_count} in its batch: {FAULTS[fault.status]}",
            topic=self._topic,
            partition=self._partition,
            offset=fault.offset,
        )
