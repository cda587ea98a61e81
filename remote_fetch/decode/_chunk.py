"""The memory behind the inner loop: buffers of a fixed size, handed over to Arrow as arrays.

Rules of the file:

- The caller gives the sizes and bounds them.
- A buffer that is mostly used becomes part of the array. A mostly empty buffer is copied and kept. So an array holds at
  most twice the memory that it needs, and small columns take no new memory for each Arrow batch.
- While the inner loop can write into a buffer, no array has it.
"""

from __future__ import annotations

from collections.abc import Collection
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from remote_fetch.decode.arrays import HEADER_TYPE, Array, bytes_array, java_text

if TYPE_CHECKING:
    from remote_fetch.decode._columns import ByteColumn, Columns

__all__ = ["Chunk"]

_Format: TypeAlias = Literal["B", "i", "q"]

_INT32_BYTES = 4
_INT64_BYTES = 8
# A header is at least two lengths, so no batch has more headers than half its bytes.
_MIN_HEADER_BYTES = 2

_FIXED: dict[str, tuple[str, _Format, int, pa.DataType]] = {
    "offset": ("offset", "q", _INT64_BYTES, pa.int64()),
    "timestamp": ("timestamp", "q", _INT64_BYTES, pa.timestamp("us", "UTC")),
    "timestampMs": ("timestamp_ms", "q", _INT64_BYTES, pa.int64()),
    "timestampType": ("timestamp_type", "i", _INT32_BYTES, pa.int32()),
    "leaderEpoch": ("leader_epoch", "i", _INT32_BYTES, pa.int32()),
}
"""Column: its name in the inner loop, the memoryview format and the size of an item, the Arrow type."""


class _Scratch:
    """One buffer that the inner loop writes and Arrow gets."""

    __slots__ = ("_buffer", "_capacity_bytes")

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._buffer: pa.Buffer | None = None

    def view(self, item_format: _Format) -> memoryview:
        """The memory as a memoryview of that format, valid until `take`."""
        if self._buffer is None:
            self._buffer = pa.allocate_buffer(self._capacity_bytes)
        return memoryview(self._buffer).cast("B").cast(item_format)

    def take(self, used_bytes: int) -> pa.Buffer:
        """The first `used_bytes` as a buffer that is never written again."""
        buffer = self._buffer
        assert buffer is not None
        if 2 * used_bytes >= self._capacity_bytes:
            self._buffer = None
            return buffer.slice(0, used_bytes)
        taken = pa.allocate_buffer(used_bytes)
        memoryview(taken)[:] = memoryview(buffer)[:used_bytes]
        return taken


class _Bytes:
    """The three buffers of a binary or string column."""

    __slots__ = ("_bound", "_data", "_offsets", "_validity")

    def __init__(self, rows: int, size_bytes: int) -> None:
        self._offsets = _Scratch((rows + 1) * _INT32_BYTES)
        self._validity = _Scratch((rows + 7) // 8)
        self._data = _Scratch(size_bytes)

    def bind(self, kernel: ModuleType) -> ByteColumn:
        bound: ByteColumn = kernel.ByteColumn(self._offsets.view("i"), self._validity.view("B"), self._data.view("B"))
        self._bound = bound
        return bound

    def take(self, rows: int, arrow_type: pa.DataType) -> Array:
        buffers: list[pa.Buffer | None] = [
            self._validity.take((rows + 7) // 8),
            self._offsets.take((rows + 1) * _INT32_BYTES),
            self._data.take(self._bound.used_bytes(rows)),
        ]
        return pa.Array.from_buffers(arrow_type, rows, buffers)


class Chunk:
    """The columns `wanted` of an unfinished Arrow batch, with room for `rows` rows and `size_bytes` a byte column.

    A Kafka batch fits an empty chunk if it has at most `rows` records in at most `size_bytes` bytes.
    """

    def __init__(self, kernel: ModuleType, wanted: Collection[str], rows: int, size_bytes: int) -> None:
        self._kernel = kernel
        self._row_capacity = rows
        self._header_capacity = max(size_bytes // _MIN_HEADER_BYTES, 1)
        self._fixed = {name: _Scratch(rows * _FIXED[name][2]) for name in _FIXED if name in wanted}
        self._bytes = {name: _Bytes(rows, size_bytes) for name in ("key", "value") if name in wanted}
        self._has_headers = "headers" in wanted
        if self._has_headers:
            self._header_ends = _Scratch((rows + 1) * _INT32_BYTES)
            self._header_keys = _Bytes(self._header_capacity, size_bytes)
            self._header_values = _Bytes(self._header_capacity, size_bytes)
        self._columns: Columns | None = None

    @property
    def rows(self) -> int:
        """Rows decoded so far."""
        return 0 if self._columns is None else self._columns.rows

    @property
    def columns(self) -> Columns:
        """The columns that the inner loop writes. Made at the first use, and again after `take`."""
        if self._columns is None:
            self._columns = self._bind()
        return self._columns

    def _bind(self) -> Columns:
        views: dict[str, memoryview | ByteColumn] = {
            _FIXED[name][0]: scratch.view(_FIXED[name][1]) for name, scratch in self._fixed.items()
        }
        views |= {name: column.bind(self._kernel) for name, column in self._bytes.items()}
        if self._has_headers:
            views["header_ends"] = self._header_ends.view("i")
            views["header_key"] = self._header_keys.bind(self._kernel)
            views["header_value"] = self._header_values.bind(self._kernel)
        columns: Columns = self._kernel.Columns(self._row_capacity, self._header_capacity, views)
        return columns

    def take(self) -> dict[str, Array]:
        """The columns as arrays of `rows` items. The chunk is empty afterwards."""
        columns = self.columns
        self._columns = None
        rows = columns.rows
        arrays = {name: column.take(rows, pa.binary()) for name, column in self._bytes.items()}
        for name, scratch in self._fixed.items():
            _, _, item_bytes, arrow_type = _FIXED[name]
            arrays[name] = pa.Array.from_buffers(arrow_type, rows, [None, scratch.take(rows * item_bytes)])
        if self._has_headers:
            arrays["headers"] = self._take_headers(rows, columns.header_count)
        return arrays

    def _take_headers(self, rows: int, header_count: int) -> Array:
        keys = _valid_strings(self._header_keys.take(header_count, pa.string()))
        values = self._header_values.take(header_count, pa.binary())
        headers = pa.Array.from_buffers(HEADER_TYPE, header_count, [None], children=[keys, values])
        ends = self._header_ends.take((rows + 1) * _INT32_BYTES)
        return pa.Array.from_buffers(pa.list_(HEADER_TYPE), rows, [None, ends], children=[headers])


def _valid_strings(strings: Array) -> Array:
    """The same strings, with U+FFFD for bytes that are not UTF-8, as the Java client reads header keys."""
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        raw: list[Any] = strings.view(pa.binary()).to_pylist()
        keys = [java_text(key).encode() for key in raw]
        return bytes_array(keys, pa.string())
    return strings
