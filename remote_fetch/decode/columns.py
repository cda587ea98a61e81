"""Record batches v2 as Arrow record batches with the columns of Spark's Kafka source.

Rules of the file: plain Python around the inner loop of `_columns`, run once a Kafka batch or once an Arrow batch,
never once a record. Buffers have a fixed size; a Kafka batch that might not fit closes the Arrow batch before it, and
one larger than the buffers gets buffers of its own. A malformed Kafka batch delivers nothing and disturbs nothing.
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
from remote_fetch.decode.arrays import HEADER_TYPE, Array, bytes_array, numbers_array
from remote_fetch.decode.batch_table import FAULTS, FIELDS, NEED_ROOM, Field, row_of
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
"""Every column there is."""

DEFAULT_COLUMNS: tuple[str, ...] = COLUMNS[:8]
"""The columns of Spark's Kafka source, in its order, headers included."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_FIRST_BYTE = 7 if sys.byteorder == "little" else 0
# No column may pass 2 GiB, because Arrow's offsets have 32 bits here.
_MAX_AREA_BYTES = 2**31 - 1
_MAX_TARGET_BYTES = 2**30
_MAX_ROWS = 2**22
_FIRST_CONSTANT_ROWS = 1024
# What others than this module need not know of the table.
_CODEC, _COUNT = int(Field.CODEC), int(Field.COUNT)
_AREA, _AREA_END = int(Field.AREA), int(Field.AREA_END)

_Table: TypeAlias = "memoryview[int] | array[int]"


def wanted_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that a user asks for; None: all but those on request. Raises ConfigError for a name alone."""
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}: give a list of names, such as [{columns!r}]", key="columns")
    return tuple(DEFAULT_COLUMNS if columns is None else columns)


def schema_for(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of `columns`, in their order.

    `timestamp` is in microseconds, UTC, as `microseconds` has them; `timestampMs` holds Kafka's own milliseconds;
    `timestampType` is numbered as `TimestampType`. Raises ConfigError for an unknown column, one named twice, or none
    at all.
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
    """Whether the inner loop runs as compiled code; if not, it is some hundred times slower."""
    return _columns.COMPILED


def microseconds(timestamp_ms: int) -> int:
    """What the column `timestamp` has for a record of that time.

    Milliseconds that 64 bits of microseconds cannot hold, as producers send that take nanoseconds for them, become the
    nearest number, 2**63 - 1 or -2**63. Neither is a multiple of 1000: no timestamp that fits looks like one of them.
    """
    return min(max(timestamp_ms * 1000, _INT64_MIN), _INT64_MAX)


def saturated_timestamps(batch: pa.RecordBatch) -> int:
    """How many rows have a `timestamp` that is not their time but the nearest there is; 0 without that column."""
    at = batch.schema.get_field_index("timestamp")
    if at < 0 or not batch.num_rows:
        return 0
    column = batch.column(at)
    buffer = column.buffers()[1]
    assert buffer is not None
    numbers = memoryview(buffer).cast("B").cast("q")[column.offset :][: len(column)]
    # The first byte of all numbers is looked at much faster than the numbers; it is another in any year that comes up.
    first_bytes = bytes(numbers)[_FIRST_BYTE::8]
    if b"\x7f" not in first_bytes and b"\x80" not in first_bytes:
        return 0
    return sum(number in (_INT64_MIN, _INT64_MAX) for number in numbers)


def allocate(size_bytes: int) -> memoryview:
    """Memory of Arrow's pool, to be written: the pool keeps what is given back, and new memory costs page faults."""
    return memoryview(pa.allocate_buffer(size_bytes)).cast("B")


class ColumnBuilder:
    """Gathers the records of one partition's batches, in order, into Arrow record batches.

    An Arrow batch is closed at the latest when a byte column holds `target_bytes` or when it has `max_rows` rows, and
    always on the border of a Kafka batch, except that a Kafka batch of more than `max_rows` records is cut. Memory
    stays proportional to `target_bytes` plus the size of the Kafka batch in hand. Not thread-safe; the interpreter's
    lock is free while records are decoded.

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
        # Closed, but the Kafka batch that closed it was malformed, so that it could not be handed out by `append`.
        self._held: pa.RecordBatch | None = None
        self._constants: dict[str, Array] = {}
        self._constant_rows = 0

    def _empty_chunk(self) -> Chunk:
        return Chunk(self._kernel, self._wanted, self._max_rows, self._target_bytes)

    def twin(self, *, target_bytes: int, max_rows: int) -> ColumnBuilder:
        """An empty one that makes the same columns in Arrow batches of another size, of no more rows than its own."""
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
        """Rows taken and not yet handed out."""
        return self._chunk.rows + (self._held.num_rows if self._held is not None else 0)

    def append(
        self, header: BatchHeader, records: memoryview, start_offset: int, stop_offset: int
    ) -> list[pa.RecordBatch]:
        """Take the records with `start_offset` <= offset < `stop_offset`; return the Arrow batches that became full.

        `records` is the record area of one v2 batch, already decompressed, or a legacy message set in that form.
        Format: KIP-98, and the Java client's DefaultRecord for what is checked.

        Raises CorruptSegment for any malformed record, wanted or not, and DecompressionLimit for an area of 2 GiB or
        more. Then nothing of this batch is ever delivered, and what was pending stays so.
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
        """Take batches [first, stop) of the table as `append` would, one after the other, with one step into the loop.

        `data` holds their bytes, each at the place the table says; `offsets` are `append`'s start and stop;
        `decompress` gives the records of a codec. The table is scribbled in.

        Returns the index of the first batch not taken and the Arrow batches that became full. Ends early once there
        are any, so that memory stays bounded whatever batches inflate to, and before a batch for which `append` or
        `decompress` would raise an error of this package; nothing of that one is kept. Going on where it ended, and
        getting no further and nothing back, tells the one from the other.
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
        """Decode batches [first, stop) up to one that is malformed or compressed.

        Gives the columns that were written last, for their status, and the first batch not taken. Of the Arrow batches
        that were closed for want of room the last one is held, the others are added to `released`.
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
        """Decode a batch above the usual capacity into buffers of its own; nothing else is in the making then."""
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
        """What is pending, if anything is. The buffers stay for what comes next."""
        self._hold()
        return self._release()

    def flush(self) -> pa.RecordBatch | None:
        """What is pending, or None if nothing is. The buffers are given back: perhaps nothing comes after it."""
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
        """Close the Arrow batch in the making. Its rows fit one: only a large Kafka batch is ever cut."""
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
            constants = self._constants_of(rows)
            batches.append(
                pa.RecordBatch.from_arrays(
                    [
                        arrays[name].slice(start, rows) if name in arrays else constants[name].slice(0, rows)
                        for name in self.schema.names
                    ],
                    schema=self.schema,
                )
            )
        return batches

    def _constants_of(self, rows: int) -> dict[str, Array]:
        """Topic and partition for at least `rows` rows, made once and sliced from then on."""
        if rows > self._constant_rows:
            self._constant_rows = min(self._max_rows, max(2 * rows, _FIRST_CONSTANT_ROWS))
            self._constants = {
                "topic": bytes_array([self._topic.encode()] * self._constant_rows, pa.string()),
                "partition": numbers_array([self._partition] * self._constant_rows, pa.int32()),
            }
        return self._constants
