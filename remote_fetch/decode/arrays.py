"""Arrow arrays of Python values, built from buffers.

Rules of the file:

- Pure.
- No `pa.array` and no `pa.scalar`, here and in all code that reads records. If NumPy is installed, both load pandas to
  check the type of a value. That takes 60 MB, and a broken pandas raises its own error.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import pyarrow as pa

__all__ = [
    "HEADER_TYPE",
    "Array",
    "bytes_array",
    "headers_array",
    "java_text",
    "numbers_array",
]

Array: TypeAlias = "pa.Array[Any]"

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
"""One header of a record."""

# An encoded surrogate, whole or cut: one replacement character to Java, two or three to Python.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


def java_text(data: bytes) -> str:
    """A header key as the Java client reads it: U+FFFD stands for bytes that are not UTF-8."""
    return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def numbers_array(values: Sequence[int], arrow_type: pa.DataType) -> Array:
    """Whole numbers of 32 or 64 bits, or times of 64. Raises OverflowError for a value that does not fit."""
    item_format: Literal["i", "q"] = "i" if arrow_type.bit_width == 32 else "q"
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(array(item_format, values))])


def bytes_array(values: Sequence[bytes | None], arrow_type: pa.DataType) -> Array:
    """Binary values, or strings in UTF-8. None is null. Raises OverflowError for more than 2 GiB together."""
    ends = array("i", accumulate((len(value or b"") for value in values), initial=0))
    data = pa.py_buffer(b"".join(value or b"" for value in values))
    return pa.Array.from_buffers(arrow_type, len(values), [_validity(values), pa.py_buffer(ends), data])


def headers_array(rows: Sequence[Sequence[tuple[str, bytes | None]]]) -> Array:
    """The headers of records. Names may repeat, and values may be None."""
    ends = array("i", accumulate((len(headers) for headers in rows), initial=0))
    keys = bytes_array([key.encode() for headers in rows for key, _ in headers], pa.string())
    values = bytes_array([value for headers in rows for _, value in headers], pa.binary())
    pairs = pa.Array.from_buffers(HEADER_TYPE, len(keys), [None], children=[keys, values])
    return pa.Array.from_buffers(pa.list_(HEADER_TYPE), len(rows), [None, pa.py_buffer(ends)], children=[pairs])


def _validity(values: Sequence[bytes | None]) -> pa.Buffer | None:
    """One bit for each value, the first value of a byte in its lowest bit. None if there is no null."""
    if None not in values:
        return None
    bits = bytearray((len(values) + 7) // 8)
    for at, value in enumerate(values):
        bits[at >> 3] |= (value is not None) << (at & 7)
    return pa.py_buffer(bytes(bits))
