"""Record batches as message objects, equal to those that a consumer of confluent_kafka returns.

Rules of the file:

- Plain Python around an inner loop, which is native if it was built, else `message_reference`. This file runs once for
  a record batch, never once for a record.
- The caller passes the class of the messages, because this package knows no client.
- Types and nulls are checked here. The inner loop checks the offsets inside a batch as it reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from remote_fetch.decode import message_reference
from remote_fetch.decode.columns import schema_for
from remote_fetch.decode.engine import installed
from remote_fetch.decode.message_reference import Cells
from remote_fetch.errors import ConfigError

__all__ = ["MESSAGE_COLUMNS", "MessageCursor"]

MESSAGE_COLUMNS: tuple[str, ...] = ("key", "value", "offset", "timestampType", "headers", "leaderEpoch", "timestampMs")
"""The columns that a message is made of, besides topic and partition, in the order in which they are decoded."""

_ENGINE = installed(message_reference)
_TYPES: dict[str, pa.DataType] = {field.name: field.type for field in schema_for(MESSAGE_COLUMNS)}
_ITEM_BYTES: dict[str, int] = {"i": 4, "q": 8}

_Array: TypeAlias = "pa.Array[Any]"
_Format: TypeAlias = Literal["i", "q"]


class MessageCursor:
    """Gives the rows of one record batch as messages, in order.

    `batch` has MESSAGE_COLUMNS in any order, with the types and contents of `BatchReader`, so offsets rise. It may
    have more columns. `make` is `confluent_kafka.Message`, or takes the same ten arguments by position: topic,
    partition, offset, key, value, headers, error, (timestamp type, timestamp in ms), latency, leader epoch. A message
    owns its memory. The cursor keeps the batch. Not thread-safe.

    The messages follow librdkafka and its binding:

    - No headers are None, and more than 100,000 headers are None too.
    - A header key ends at its first NUL.
    - A message of magic 0 has the timestamp (0, 0).
    - One difference: a header key that is not UTF-8 has U+FFFD here. The binding raises an error.

    `engine` is the module of the inner loop, for tests. Raises ConfigError for a column that is missing, has another
    type, or has nulls where none can be.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        topic: str,
        partition: int,
        make: Callable[..., Any],
        *,
        engine: ModuleType | None = None,
    ) -> None:
        key, value, offset, timestamp_type, headers, leader_epoch, timestamp_ms = map(
            _column_of(batch), MESSAGE_COLUMNS
        )
        names, values = _header_columns(headers)
        self._count = batch.num_rows
        self._next = 0
        self._offsets = _numbers(offset, "q")
        self._rows = (engine or _ENGINE).Rows(
            make,
            topic,
            partition,
            key=_cells(key),
            value=_cells(value),
            offset=self._offsets,
            timestamp_ms=_numbers(timestamp_ms, "q"),
            timestamp_type=_numbers(timestamp_type, "i"),
            leader_epoch=_numbers(leader_epoch, "i"),
            header_ends=_view(headers.buffers()[1], headers.offset, _ends_in(headers), "i"),
            header_key=_cells(names),
            header_value=_cells(values),
        )

    def __len__(self) -> int:
        """Rows left."""
        return self._count - self._next

    @property
    def next_offset(self) -> int | None:
        """The offset of the next row, None if no row is left."""
        return int(self._offsets[self._next]) if self._next < self._count else None

    def skip_before(self, offset: int) -> None:
        """Drop the rows with a smaller offset."""
        self._next = bisect_left(self._offsets, offset, self._next, self._count)

    def take(self, count: int) -> list[Any]:
        """The next messages, at most `count`.

        Raises the errors of `make`, and IndexError for offsets that leave their column; then it gives no row.
        """
        stop = self._next + count  # `min` and `max` take as long as a message
        if not self._next <= stop <= self._count:
            stop = self._next if count < 0 else self._count
        messages: list[Any] = self._rows.messages(self._next, stop)
        self._next = stop
        return messages


def _column_of(batch: pa.RecordBatch) -> Callable[[str], _Array]:
    """A function that finds a column by its name and checks it."""

    schema = batch.schema

    def column_of(name: str) -> _Array:
        index = schema.get_field_index(name)
        if index < 0:
            raise ConfigError(f"a message needs the column {name!r}", key="columns")
        column = batch.column(index)
        if column.type != _TYPES[name]:
            raise ConfigError(f"the column {name!r} is of type {column.type}", key="columns")
        if name not in ("key", "value"):
            _refuse_nulls(column, name)
        return column

    return column_of


def _refuse_nulls(column: _Array, name: str) -> None:
    if column.null_count:
        raise ConfigError(f"the column {name!r} has nulls", key="columns")


def _header_columns(headers: Any) -> tuple[_Array, _Array]:
    """Keys and values of all headers, at the positions that the offsets of `headers` name."""
    structs = headers.values
    _refuse_nulls(structs, "headers")
    names, values = structs.field(0), structs.field(1)
    _refuse_nulls(names, "headers")
    return names, values


def _cells(column: _Array) -> Cells:
    validity, ends, data = column.buffers()
    return Cells(
        _view(ends, column.offset, _ends_in(column), "i"),
        _bytes_of(data) if data is not None and data.size else memoryview(b""),
        _bytes_of(validity) if validity is not None and column.null_count else None,
        column.offset,
    )


def _numbers(column: _Array, item_format: _Format) -> memoryview:
    return _view(column.buffers()[1], column.offset, len(column), item_format)


def _ends_in(column: _Array) -> int:
    """The number of offsets of a column of variable length: one more than items, or none if the column is empty."""
    return len(column) + 1 if len(column) else 0


def _view(buffer: pa.Buffer | None, first: int, count: int, item_format: _Format) -> memoryview:
    """Items `first` to `first + count`, exclusive, of a buffer."""
    item_bytes = _ITEM_BYTES[item_format]
    if not count:
        return memoryview(bytes(item_bytes)).cast(item_format)
    assert buffer is not None
    return _bytes_of(buffer)[first * item_bytes : (first + count) * item_bytes].cast(item_format)


def _bytes_of(buffer: pa.Buffer) -> memoryview:
    """Read only, also if Arrow may still write to it."""
    return memoryview(buffer).cast("B").toreadonly()
