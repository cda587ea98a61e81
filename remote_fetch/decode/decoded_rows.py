"""Rows where a decoder left them. They become Arrow batches, or the messages of a cursor.

Rules of the file:

- A decoder keeps its columns in a run, outside of Arrow.
- To make an Arrow batch gives the interpreter's lock away several times. A thread that has to work beside an
  application makes none.
- Columns that are the same in every row, topic and partition, are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Protocol

import pyarrow as pa

from remote_fetch.decode.columns import schema_for
from remote_fetch.decode.constant_columns import CONSTANT_COLUMNS, ConstantColumns

__all__ = ["DecodedRows", "MessageRows", "RunRows", "Tables", "arrow_of"]


class MessageRows(Protocol):
    """The rows of a run as messages, in `native/src/messages.rs` and `message_reference.py`."""

    def messages(self, start: int, stop: int) -> list[Any]:
        """The messages of rows [start, stop). Raises IndexError, and the errors of the class."""

    def offset(self, row: int) -> int:
        """The offset of a row. Raises IndexError."""


class RunRows(Protocol):
    """The rows of one run. The Arrow PyCapsule interface takes its columns, or `messages` does: one of both, once."""

    @property
    def rows(self) -> int:
        """Their number."""

    @property
    def size_bytes(self) -> int:
        """The size of the columns."""

    @property
    def end_offset(self) -> int:
        """One past the offset of the last row, 0 without rows or without the column of offsets."""

    def messages(self, make: Callable[..., Any], topic: str, partition: int) -> MessageRows:
        """The rows as messages. Raises ValueError if a column is missing that a message needs."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]: ...


class Tables:
    """Puts the columns of a decoder and the constant columns together."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str], max_rows: int, engine: ModuleType) -> None:
        schema = schema_for(columns)
        self.engine = engine
        self.decoded = [name for name in schema.names if name not in CONSTANT_COLUMNS]
        self._max_rows = max_rows
        self._places = [(at, field) for at, field in enumerate(schema) if field.name in CONSTANT_COLUMNS]
        self._constants = ConstantColumns(topic, partition, max_rows, engine, [field.name for _, field in self._places])

    def batches(self, run: RunRows) -> list[pa.RecordBatch]:
        """The rows as Arrow batches of at most `max_rows` rows: only a large batch of Kafka's has more."""
        if not run.rows:
            return []
        columns: pa.RecordBatch = pa.record_batch(run)  # by its __arrow_c_array__
        if columns.schema.names != self.decoded:
            columns = columns.select(self.decoded)
        pieces = [columns.slice(start, self._max_rows) for start in range(0, run.rows, self._max_rows)]
        return [self._with_constants(piece) for piece in pieces]

    def _with_constants(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """Adds a column at a time: to take all columns out and put them together again takes twice as long."""
        constants = self._constants.of(piece.num_rows)
        for at, field in self._places:
            piece = piece.add_column(at, field, constants[field.name])
        return piece


class DecodedRows:
    """The rows of one run. They become Arrow batches or messages: one of both, once. Not thread-safe.

    - `num_rows` is their number.
    - `size_bytes` is the size of their columns, without topic and partition.
    - `end_offset` is one past the offset of the last row, 0 without rows or without the column of offsets.
    """

    __slots__ = ("_batches", "_tables", "end_offset", "num_rows", "run", "size_bytes")

    def __init__(self, run: RunRows, tables: Tables) -> None:
        self.run = run
        self._tables = tables
        self._batches: list[pa.RecordBatch] | None = None
        self.num_rows, self.size_bytes, self.end_offset = run.rows, run.size_bytes, run.end_offset

    def to_arrow(self) -> list[pa.RecordBatch]:
        """The rows as Arrow batches of at most `max_rows` rows. There is none without rows, and mostly there is one."""
        if self._batches is None:
            self._batches = self._tables.batches(self.run)
        return self._batches

    @classmethod
    def joined(cls, parts: Sequence[DecodedRows]) -> DecodedRows:
        """The rows of all parts, at least one, of one reader. Those of several parts are copied into one run."""
        tables = parts[0]._tables
        return parts[0] if len(parts) == 1 else cls(tables.engine.joined([part.run for part in parts]), tables)


def arrow_of(rows: Iterable[DecodedRows]) -> list[pa.RecordBatch]:
    """All rows as Arrow batches, in order."""
    return [batch for one in rows for batch in one.to_arrow()]
