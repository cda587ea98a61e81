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

__all__ = ["Run"]

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
        self.rows = self.size_bytes = self.end_offset = self.saturated = 0
        self._columns: tuple[Sequence[Row], pa.RecordBatch] | None = None

    def close(self, rows: Sequence[Row], columns: Sequence[str]) -> Run:
        """Set the columns."""
        self.rows = len(rows)
        batch = _columns_of(rows, columns)
        self._columns = rows, batch
        buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
        self.size_bytes = sum(buffer.size for buffer in buffers) if rows else 0
        self.end_offset = rows[-1].offset + 1 if rows and "offset" in columns else 0
        if "timestamp" in columns:
            self.saturated = sum(is_saturated(row.timestamp_ms) for row in rows)
        return self

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """The columns, by the Arrow PyCapsule interface."""
        _, batch = self._take()
        capsules: tuple[Any, Any] = batch.__arrow_c_array__()  # type: ignore[no-untyped-call]
        return capsules

    def messages(self, make: Callable[..., Any], topic: str, partition: int) -> Rows:
        """The rows as messages. Raises ValueError if a column is missing that a message needs."""
        rows, batch = self._take()
        for name in _MESSAGE_COLUMNS:
            if name not in batch.schema.names:
                raise ValueError(f"a message needs the column '{name}'")
        return Rows(make, topic, partition, rows)

    def _take(self) -> tuple[Sequence[Row], pa.RecordBatch]:
        taken, self._columns = self._columns, None
        if taken is None:
            raise RuntimeError("the columns are taken already")
        return taken


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
