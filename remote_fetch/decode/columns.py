"""Record batches v2 as Arrow record batches with the columns of Spark's Kafka source.

Rules of the file: plain Python around the inner loop of `_columns`, run once a Kafka batch or once an Arrow batch,
never once a record. Buffers have a fixed size; a Kafka batch that might not fit closes the Arrow batch before it, and
one larger than the buffers gets buffers of its own. A malformed Kafka batch delivers nothing and disturbs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TypeAlias

import pyarrow as pa

from remote_fetch.decode import _columns
from remote_fetch.decode._chunk import Array, Chunk
from remote_fetch.errors import ConfigError, CorruptSegment, DecompressionLimit
from remote_fetch.formats.batches import BatchHeader

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "ColumnBuilder", "is_compiled", "schema_for"]

_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    "leaderEpoch": pa.int32(),
}

COLUMNS: tuple[str, ...] = tuple(_TYPES)
"""Every column there is."""

DEFAULT_COLUMNS: tuple[str, ...] = COLUMNS[:-1]
"""The columns of Spark's Kafka source, in its order, headers included."""

_INT64_MAX = 2**63 - 1
# No column may pass 2 GiB, because Arrow's offsets have 32 bits here.
_MAX_AREA_BYTES = 2**31 - 1
_MAX_TARGET_BYTES = 2**30
_MAX_ROWS = 2**22
_FIRST_CONSTANT_ROWS = 1024

_DecodeArguments: TypeAlias = tuple[memoryview, BatchHeader, int, int, int]


def schema_for(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of `columns`, in their order.

    `timestamp` is in microseconds, UTC; `timestampType` is numbered as `TimestampType`. Raises ConfigError for an
    unknown column, one named twice, or none at all.
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
        self._chunk = Chunk(self._kernel, self._wanted, max_rows, target_bytes)
        # Closed, but the Kafka batch that closed it was malformed, so that it could not be handed out by `append`.
        self._held: pa.RecordBatch | None = None
        self._constants: dict[str, Array] = {}
        self._constant_rows = 0

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

        Raises CorruptSegment for any malformed record, wanted or not, and for a timestamp that microseconds in 64 bits
        cannot hold if that column is wanted; DecompressionLimit for an area of 2 GiB or more. Then nothing of this
        batch is ever delivered, and what was pending stays so.
        """
        if len(records) > _MAX_AREA_BYTES:
            raise DecompressionLimit(
                f"a batch of {len(records)} bytes of records; {_MAX_AREA_BYTES} fit a column", offset=header.base_offset
            )
        if header.base_offset < 0 or not header.base_offset <= header.last_offset < _INT64_MAX:
            raise CorruptSegment(
                f"a batch from offset {header.base_offset} to {header.last_offset}", offset=header.base_offset
            )
        arguments = (
            records,
            header,
            header.timestamp_type,
            max(start_offset, 0),
            min(max(stop_offset, 0), _INT64_MAX),
        )
        status = self._chunk.columns.decode(*arguments)
        if status == _columns.NEED_ROOM:
            self._hold()
            status = self._chunk.columns.decode(*arguments)
            if status == _columns.NEED_ROOM:
                return self._append_large(arguments)
        if status:
            raise self._fault(header, status, self._chunk)
        return self._release()

    def flush(self) -> pa.RecordBatch | None:
        """What is pending, or None if nothing is."""
        self._hold()
        released = self._release()
        return released[0] if released else None

    def _append_large(self, arguments: _DecodeArguments) -> list[pa.RecordBatch]:
        """Decode a batch above the usual capacity into buffers of its own; nothing else is in the making then."""
        records, header = arguments[:2]
        chunk = Chunk(self._kernel, self._wanted, header.record_count, len(records))
        status = chunk.columns.decode(*arguments)
        if status:
            raise self._fault(header, status, chunk)
        return self._release() + self._close(chunk)

    def _fault(self, header: BatchHeader, status: int, chunk: Chunk) -> CorruptSegment:
        columns = chunk.columns
        return CorruptSegment(
            f"record {columns.failed_record} of {header.record_count} in its batch: {_columns.FAULTS[status]}",
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
                "topic": pa.repeat(pa.scalar(self._topic, pa.string()), self._constant_rows),
                "partition": pa.repeat(pa.scalar(self._partition, pa.int32()), self._constant_rows),
            }
        return self._constants
