"""The rows of a run in plain Python, on their way to Arrow or to messages.

Rules of the file: `native/src/columns.rs` gives the same columns, and `native/src/messages.rs` the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from remote_fetch.decode.arrays import Array, bytes_array, headers_array, java_text, numbers_array
from remote_fetch.decode.columns import is_saturated, microseconds, schema_for
from remote_fetch.decode.message_reference import Rows
from remote_fetch.decode.record_reference import Row
from remote_fetch.decode.run_status import RunStatus

__all__ = ["Run", "joined"]

# In the order in which both engines look for them.
_MESSAGE_COLUMNS = ("headers", "key", "value", "offset", "timestampMs", "timestampType", "leaderEpoch")


class Run:
    """One run. `decoded_rows.py` describes it."""

    def __init__(self, position: int, last_offset: int) -> None:
        self.position = position
        self.last_offset = last_offset
        self.taken = 0
        self.status = RunStatus.END
        self.shown: dict[int, int] = {}
        self.ended_producers: set[int] = set()
        self.rows = self.size_bytes = self.end_offset = self.saturated = 0
        self._taken: tuple[Sequence[Row], Sequence[str]] | None = None

    def close(self, rows: Sequence[Row], columns: Sequence[str]) -> Run:
        """Set the rows, of which `columns` are wanted."""
        self.rows = len(rows)
        self._taken = rows, columns
        self.size_bytes = sum(_size_of(rows, name) for name in columns) if rows else 0
        self.end_offset = rows[-1].offset + 1 if rows and "offset" in columns else 0
        if "timestamp" in columns:
            self.saturated = sum(is_saturated(row.timestamp_ms) for row in rows)
        return self

    def take(self) -> tuple[Sequence[Row], Sequence[str]]:
        """The rows and the names of the columns, once."""
        taken, self._taken = self._taken, None
        if taken is None:
            raise RuntimeError("the columns are taken already")
        return taken

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """The columns, by the Arrow PyCapsule interface."""
        capsules: tuple[Any, Any] = _columns_of(*self.take()).__arrow_c_array__()  # type: ignore[no-untyped-call]
        return capsules

    def messages(self, make: Callable[..., Any], topic: str, partition: int) -> Rows:
        """The rows as messages. Raises ValueError if a column is missing that a message needs."""
        rows, columns = self.take()
        for name in _MESSAGE_COLUMNS:
            if name not in columns:
                raise ValueError(f"a message needs the column '{name}'")
        return Rows(make, topic, partition, rows)


def joined(runs: Sequence[Run]) -> Run:
    """The rows of several runs of one reader, as one run. It takes their columns."""
    parts = [run.take() for run in runs]
    return Run(0, -1).close([row for rows, _ in parts for row in rows], parts[0][1])


def _size_of(rows: Sequence[Row], name: str) -> int:
    """The bytes of a column in Arrow's layout."""
    match name:
        case "key":
            return _size_of_items([row.key for row in rows])
        case "value":
            return _size_of_items([row.value for row in rows])
        case "headers":
            headers = [header for row in rows for header in row.headers]
            keys = [java_text(key).encode() for key, _ in headers]
            return 4 * (len(rows) + 1) + _size_of_items(keys) + _size_of_items([value for _, value in headers])
        case "timestampType" | "leaderEpoch":
            return 4 * len(rows)
        case _:
            return 8 * len(rows)


def _size_of_items(items: Sequence[bytes | None]) -> int:
    """The bytes of offsets, of items, and of validity bits if an item is null."""
    bits = len(items) if None in items else 0
    return 4 * (len(items) + 1) + sum(len(item or b"") for item in items) + (bits + 7) // 8


def _columns_of(rows: Sequence[Row], columns: Sequence[str]) -> pa.RecordBatch:
    if not columns:
        nothing: Any = pa.StructArray.from_buffers(pa.struct([]), len(rows), [None])
        return pa.RecordBatch.from_struct_array(nothing)
    schema = schema_for(columns)
    arrays = [_column_of(rows, name, schema.field(name).type) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column_of(rows: Sequence[Row], name: str, arrow_type: pa.DataType) -> Array:
    match name:
        case "key":
            return bytes_array([row.key for row in rows], arrow_type)
        case "value":
            return bytes_array([row.value for row in rows], arrow_type)
        case "headers":
            return headers_array([[(java_text(key), value) for key, value in row.headers] for row in rows])
        case "offset":
            numbers = [row.offset for row in rows]
        case "timestamp":
            numbers = [microseconds(row.timestamp_ms) for row in rows]
        case "timestampMs":
            numbers = [row.timestamp_ms for row in rows]
        case "timestampType":
            numbers = [int(row.timestamp_type) for row in rows]
        case _:
            numbers = [row.leader_epoch for row in rows]
    return numbers_array(numbers, arrow_type)
