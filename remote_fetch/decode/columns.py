"""Record batches v2 as Arrow record batches with the columns of Spark's Kafka source.

Rules of the file:

- Plain Python around the inner loop of `_columns`. It runs once for a Kafka batch or an Arrow batch, never once for a
  record.
- Buffers have a fixed size. A Kafka batch that might not fit closes the Arrow batch before it. A Kafka batch larger
  than the buffers gets its own buffers.
- A malformed Kafka batch delivers no record and leaves the pending rows as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from remote_fetch.decode import _columns
from remote_fetch.decode._chunk import Chunk
from remote_fetch.decode.arrays import HEADER_TYPE
from remote_fetch.decode.batch_table import FAULTS, FIELDS, NEED_ROOM, Field, row_of
from remote_fetch.decode.constant_columns import ConstantColumns
from remote_fetch.errors import ConfigError, CorruptSegment, DecompressionLimit, RemoteFetchError
from remote_fetch.formats.batches import BatchHeader

if TYPE_CHECKING:
    from remote_fetch.decode._columns import Columns

__all__ = [
    "COLUMNS",
    "DEFAULT_COLUMNS",
    "ColumnBuilder",
    "allocate",
    "is_compiled",
    "microseconds",
    "saturated_timestamps",
    "schema_for",
    "wanted_columns",
]

_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER_TYPE),
    "leaderEpoch": pa.int32(),
    "timestampMs": pa.int64(),
}

COLUMNS: tuple[str, ...] = tuple(_TYPES)
"""All columns that can be asked for."""

DEFAULT_COLUMNS: tuple[str, ...] = COLUMNS[:8]
"""The columns of Spark's Kafka source, in its order, headers included."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_FIRST_BYTE = 7 if sys.byteorder == "little" else 0
# No column may pass 2 GiB, because Arrow's offsets have 32 bits here.
_MAX_AREA_BYTES = 2**31 - 1
_MAX_TARGET_BYTES = 2**30
_MAX_ROWS = 2**22
# The fields of the table that this module uses, as plain numbers.
_CODEC, _COUNT = int(Field.CODEC), int(Field.COUNT)
_AREA, _AREA_END = int(Field.AREA), int(Field.AREA_END)

_Table: TypeAlias = "memoryview[int] | array[int]"


def wanted_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that a user asks for. None: DEFAULT_COLUMNS. Raises ConfigError for a string in place of a list."""
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}: give a list of names, such as [{columns!r}]", key="columns")
    return tuple(DEFAULT_COLUMNS if columns is None else columns)


def schema_for(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of `columns`, in their order.

    `timestamp` is in microseconds, UTC, as `microseconds` computes them. `timestampMs` holds Kafka's milliseconds.
    `timestampType` holds the numbers of `TimestampType`. Raises ConfigError for an unknown column, for a column that is
    named twice, and for no column at all.
    """
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ConfigError(f"unknown column {unknown[0]!r}; the columns are {', '.join(COLUMNS)}", key="columns")
    if len(set(columns)) != len(columns):
        raise ConfigError(f"a column is named twice: {', '.join(columns)}", key="columns")
    if not columns:
        raise ConfigError(f"no column is named; the columns are {', '.join(COLUMNS)}", key="columns")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def is_compiled() -> bool:
    """Whether the inner loop runs as compiled code. Interpreted, decoding takes 20 to 70 times as long."""
    return _columns.COMPILED


def microseconds(timestamp_ms: int) -> int:
    """The value of the column `timestamp` for a record of that time.

    Some producers send nanoseconds for milliseconds. If the microseconds do not fit into 64 bits, the value is the
    nearest number, 2**63 - 1 or -2**63. Neither is a multiple of 1000, so no timestamp that fits equals one of them.
    """
    return min(max(timestamp_ms * 1000, _INT64_MIN), _INT64_MAX)


def saturated_timestamps(batch: pa.RecordBatch) -> int:
    """How many rows have the nearest possible `timestamp` instead of their own. 0 without that column."""
    at = batch.schema.get_field_index("timestamp")
    if at < 0 or not batch.num_rows:
        return 0
    column = batch.column(at)
    buffer = column.buffers()[1]
    assert buffer is not None
    numbers = memoryview(buffer).cast("B").cast("q")[column.offset :][: len(column)]
    # To compare only the first byte of each number is much faster. No realistic year has one of these two first bytes.
    first_bytes = bytes(numbers)[_FIRST_BYTE::8]
    if b"\x7f" not in first_bytes and b"\x80" not in first_bytes:
        return 0
    return sum(number in (_INT64_MIN, _INT64_MAX) for number in numbers)


def allocate(size_bytes: int) -> memoryview:
    """Writable memory of Arrow's pool. The pool reuses freed memory, and new memory would cost page faults."""
    return memoryview(pa.allocate_buffer(size_bytes)).cast("B")


class ColumnBuilder:
    """Gathers the records of one partition's batches, in order, into Arrow record batches.

    An Arrow batch is closed at the latest when a byte column holds `target_bytes` or when it has `max_rows` rows. It
    ends with a whole Kafka batch, unless that has more than `max_rows` records and is cut. Memory is proportional to
    `target_bytes` plus the size of the current Kafka batch. Not thread-safe. The interpreter's lock is released while
    records are decoded.

    `kernel` is the `_columns` module to run, for tests. Raises ConfigError for columns as `schema_for` does, and for
    sizes out of range.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        *,
        target_bytes: int = 1 << 20,
        max_rows: int = 65_536,
        kernel: ModuleType | None = None,
    ) -> None:
        if not 1 <= target_bytes <= _MAX_TARGET_BYTES:
            raise ConfigError(f"target_bytes is {target_bytes}; 1 to {_MAX_TARGET_BYTES} are possible")
        if not 1 <= max_rows <= _MAX_ROWS:
            raise ConfigError(f"max_rows is {max_rows}; 1 to {_MAX_ROWS} are possible")
        self.schema = schema_for(columns)
        self._topic = topic
        self._partition = partition
        self._wanted = frozenset(columns)
        self._max_rows = max_rows
        self._kernel: ModuleType = _columns if kernel is None else kernel
        self._target_bytes = target_bytes
        self._chunk = self._empty_chunk()
        # A closed Arrow batch that `append` could not return, because the Kafka batch that closed it was malformed.
        self._held: pa.RecordBatch | None = None
        self._constants = ConstantColumns(topic, partition, max_rows)

    def _empty_chunk(self) -> Chunk:
        return Chunk(self._kernel, self._wanted, self._max_rows, self._target_bytes)

    def twin(self, *, target_bytes: int, max_rows: int) -> ColumnBuilder:
        """An empty builder of the same columns, for Arrow batches of another size. `max_rows` is at most this one's."""
        return ColumnBuilder(
            self._topic,
            self._partition,
            self.schema.names,
            target_bytes=target_bytes,
            max_rows=min(max_rows, self._max_rows),
            kernel=self._kernel,
        )

    @property
    def rows(self) -> int:
        """Rows taken and not yet returned."""
        return self._chunk.rows + (self._held.num_rows if self._held is not None else 0)

    def append(
        self, header: BatchHeader, records: memoryview, start_offset: int, stop_offset: int
    ) -> list[pa.RecordBatch]:
        """Take the records with `start_offset` <= offset < `stop_offset`; return the Arrow batches that became full.

        `records` is the record area of one v2 batch, already decompressed, or a legacy message set in that form.
        Format: KIP-98. The checks are those of the Java client's DefaultRecord.

        Raises CorruptSegment for a malformed record, wanted or not, and DecompressionLimit for an area of 2 GiB or
        more. Then no record of this batch is ever delivered, and pending rows stay pending.
        """
        if len(records) > _MAX_AREA_BYTES:
            raise DecompressionLimit(
                f"a batch of {len(records)} bytes of records; {_MAX_AREA_BYTES} fit a column", offset=header.base_offset
            )
        if header.base_offset < 0 or not header.base_offset <= header.last_offset < _INT64_MAX:
            raise CorruptSegment(
                f"a batch from offset {header.base_offset} to {header.last_offset}", offset=header.base_offset
            )
        window = max(start_offset, 0), min(max(stop_offset, 0), _INT64_MAX)
        released: list[pa.RecordBatch] = []
        columns, taken = self._take(records, row_of(header, len(records)), 0, 1, window, released)
        if not taken:
            raise self._fault(header, columns)
        return released + self._release()

    def append_run(
        self,
        data: memoryview,
        batches: memoryview[int],
        first: int,
        stop: int,
        offsets: tuple[int, int],
        decompress: Callable[[int, memoryview], memoryview],
    ) -> tuple[int, list[pa.RecordBatch]]:
        """Take batches [first, stop) of the table, in order, as `append` would, with one call of the inner loop.

        `data` holds the bytes of the batches at the places that the table names. `offsets` are the start and stop of
        `append`. `decompress` returns the records of a compressed area. The call overwrites parts of the table.

        Returns the index of the first batch not taken, and the Arrow batches that became full. The call ends early:

        - after an Arrow batch became full, so that memory stays bounded whatever the batches inflate to;
        - before a batch for which `append` or `decompress` would raise an error of this package. None of its records is
          kept. A second call from there then takes no batch and returns no Arrow batch.
        """
        window = max(offsets[0], 0), min(max(offsets[1], 0), _INT64_MAX)
        released = self._release()
        done = first
        while done < stop and not released:
            area, end, row = data, stop, done * FIELDS
            if batches[row + _CODEC]:
                try:
                    area = decompress(batches[row + _CODEC], data[batches[row + _AREA] : batches[row + _AREA_END]])
                except RemoteFetchError:
                    break
                if len(area) > _MAX_AREA_BYTES:
                    break
                batches[row + _CODEC] = batches[row + _AREA] = 0
                batches[row + _AREA_END] = len(area)
                end = done + 1
            columns, done = self._take(area, batches, done, end, window, released)
            if columns.status:
                break
        return done, released + self._release()

    def _take(
        self,
        area: memoryview,
        batches: _Table,
        first: int,
        stop: int,
        window: tuple[int, int],
        released: list[pa.RecordBatch],
    ) -> tuple[Columns, int]:
        """Decode batches [first, stop) up to a malformed or compressed batch.

        Returns the columns that were written last, for their status, and the first batch not taken. Arrow batches that
        had to be closed to make room are added to `released`, except the last one, which is held.
        """
        columns = self._chunk.columns
        done = columns.decode(area, batches, first, stop, *window)
        while columns.status == NEED_ROOM:
            if self._chunk.rows:
                released += self._release()
                self._hold()
            columns = self._chunk.columns
            before = done
            done = columns.decode(area, batches, done, stop, *window)
            if columns.status == NEED_ROOM and done == before:
                return self._take_large(area, batches, done, window, released)
        return columns, done

    def _take_large(
        self, area: memoryview, batches: _Table, at: int, window: tuple[int, int], released: list[pa.RecordBatch]
    ) -> tuple[Columns, int]:
        """Decode a batch above the usual capacity into its own buffers. The usual buffers are empty then."""
        row = at * FIELDS
        size_bytes = batches[row + _AREA_END] - batches[row + _AREA]
        chunk = Chunk(self._kernel, self._wanted, batches[row + _COUNT], size_bytes)
        columns = chunk.columns
        done = columns.decode(area, batches, at, at + 1, *window)
        if done > at:
            released += self._release()
            released += self._close(chunk)
        return columns, done

    def drain(self) -> list[pa.RecordBatch]:
        """Return the pending rows as one Arrow batch, or no batch. The buffers are kept for the next rows."""
        self._hold()
        return self._release()

    def flush(self) -> pa.RecordBatch | None:
        """Return the pending rows as one Arrow batch, or None. The buffers are freed, because no rows may follow."""
        drained = self.drain()
        self._chunk = self._empty_chunk()
        return drained[0] if drained else None

    def _fault(self, header: BatchHeader, columns: Columns) -> CorruptSegment:
        return CorruptSegment(
            f"record {columns.failed_record} of {header.record_count} in its batch: {FAULTS[columns.status]}",
            topic=self._topic,
            partition=self._partition,
            offset=columns.failed_offset,
        )

    def _hold(self) -> None:
        """Close the unfinished Arrow batch. Its rows fit into one, because only a large Kafka batch is ever cut."""
        if self._chunk.rows:
            (self._held,) = self._close(self._chunk)

    def _release(self) -> list[pa.RecordBatch]:
        if self._held is None:
            return []
        released, self._held = self._held, None
        return [released]

    def _close(self, chunk: Chunk) -> list[pa.RecordBatch]:
        """The chunk's rows as Arrow batches of at most `max_rows` rows."""
        total = chunk.rows
        arrays = chunk.take()
        batches = []
        for start in range(0, total, self._max_rows):
            rows = min(self._max_rows, total - start)
            constants = self._constants.of(rows)
            batches.append(
                pa.RecordBatch.from_arrays(
                    [
                        arrays[name].slice(start, rows) if name in arrays else constants[name]
                        for name in self.schema.names
                    ],
                    schema=self.schema,
                )
            )
        return batches
