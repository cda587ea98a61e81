"""Records as kcat prints them: a format string (`-f`), JSON lines (`-J`), or the payload and nothing else.

Rules of the file:

- The bytes are those of kcat. docs/reference/cli.md lists each exception with its reason.
- Text is printed as the bytes of the record. JSON has to be UTF-8: there `--binary base64` keeps every byte, and
  without it bytes that are not UTF-8 become U+FFFD.
- A printer takes all records of an Arrow batch at once. Arrow joins the columns, so that no record of a format string
  becomes a Python object.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from remote_fetch.cli.unpack import FIELDS, Unpack
from remote_fetch.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from remote_fetch.decode.arrays import Array

__all__ = [
    "ROW_COLUMNS",
    "Parsed",
    "Printer",
    "UnprintableRow",
    "delimiter_bytes",
    "format_printer",
    "iso_time",
    "json_printer",
]

ROW_COLUMNS = ("topic", "partition", "offset", "timestampMs", "timestampType", "headers", "key", "value")
"""The columns that printing needs, with milliseconds, because kcat prints milliseconds."""
_TIMESTAMP_TYPES = {0: "create", 1: "logappend"}
_NO_BROKER = -1
"""The broker id of librdkafka for a message from an unknown broker."""
_NULL = b"NULL"

Parsed: TypeAlias = Mapping[str, Sequence[Any]]
"""Typed keys and values, under `key` and `value`, as JSON has them: one for each row of a batch."""
Printer: TypeAlias = "Callable[[pa.RecordBatch, Parsed | None], Array]"
"""Makes the bytes of each record of a batch that has ROW_COLUMNS: an Arrow array of type binary, without nulls."""
_Column: TypeAlias = "Callable[[pa.RecordBatch], Array]"


class UnprintableRow(Exception):
    """The row `at` of a batch cannot be printed, because of `error`. The rows before it can."""

    def __init__(self, at: int, error: ConfigError) -> None:
        super().__init__(str(error))
        self.at = at
        self.error = error


def json_printer(binary: str, delimiter: bytes = b"\n") -> Printer:
    """A printer of one JSON object a record with kcat's field names, then `delimiter`. `binary`: `text` or `base64`.

    As in kcat, a record without a timestamp has no `tstype` and `ts`, and a record without headers has no `headers`.
    """
    text_of = _base64 if binary == "base64" else _text

    def headers_of(headers: Sequence[Mapping[str, Any]] | None) -> bytes:
        pairs = [item for header in headers or () for item in (header["key"], text_of(header["value"]))]
        return b',"headers":' + _json_of(pairs) if pairs else b""

    def json_column(batch: pa.RecordBatch, name: str, parsed: Parsed | None) -> Array:
        typed = (parsed or {}).get(name)
        return _json_strings(batch.column(name), text_of) if typed is None else _binary(map(_json_of, typed))

    def print_batch(batch: pa.RecordBatch, parsed: Parsed | None) -> Array:
        keys, values = (json_column(batch, name, parsed) for name in FIELDS)
        has_headers = batch.column("headers").null_count < len(batch)
        columns = [
            b'{"topic":', _json_topics(batch.column("topic")),
            b',"partition":', _numbers(batch.column("partition")),
            b',"offset":', _numbers(batch.column("offset")),
            _json_timestamps(batch),
            b',"broker":%d' % _NO_BROKER,
            _binary(map(headers_of, batch.column("headers").to_pylist())) if has_headers else b"",
            b',"key":', keys,
            b',"payload":', values,
            b"}" + delimiter,
        ]  # fmt: skip
        return _joined(columns, len(batch))

    return print_batch


_MOST_ESCAPED_BYTES = (2**31 - 1) // 6
"""A character becomes six at most. Arrow's function does not notice if more than 2 GiB come out."""

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _json_of(value: Any) -> bytes:
    return _as_kcat(_to_json(value)).encode("utf-8")


def _json_strings(column: Array, text_of: Callable[[bytes | None], str | None]) -> Array:
    """Each value of a binary column as a JSON string, `null` for a null. `text_of` makes a value text."""
    text = _text_column(column, text_of)
    if text.nbytes > _MOST_ESCAPED_BYTES:
        return _binary(_json_of(value) for value in text.to_pylist())
    for char in _escaped_chars(text):
        text = _compute().replace_substring(text, char, _json_of(char)[1:-1].decode("ascii"))
    quoted = _joined([b'"', text.cast("binary"), b'"'], len(text))
    filled: Array = _compute().fill_null(quoted, b"null")
    return filled


def _text_column(column: Array, text_of: Callable[[bytes | None], str | None]) -> Array:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and needed where batches are

    if text_of is _text:
        with contextlib.suppress(pa.ArrowInvalid):  # not all of it is UTF-8
            return column.cast("string")
    return pa.array(map(text_of, column.to_pylist()), pa.string())


def _escaped_chars(text: Array) -> list[str]:
    """The characters in a text column that JSON escapes, the backslash first: others are escaped by one.

    They may be those of values beside the column's, which share its memory.
    """
    import pyarrow as pa  # noqa: PLC0415 - heavy, and needed where batches are

    data = text.buffers()[2]
    if not data:
        return []
    least = _compute().min(pa.Array.from_buffers(pa.uint8(), data.size, [None, data])).as_py()
    below = [chr(code) for code in range(least, ord(" "))]
    found = data.to_pybytes()
    return [char for char in ("\\", '"', *below) if char.encode("ascii") in found]


def _json_topics(topics: Array) -> Array:
    """The topics as JSON. A batch has few of them, and many records."""
    encoded = topics.dictionary_encode()
    return _binary(map(_json_of, encoded.dictionary.to_pylist())).take(encoded.indices)


def _json_timestamps(batch: pa.RecordBatch) -> Array:
    """The fields `tstype` and `ts` of each record; empty for a record without a timestamp."""
    kinds, times = batch.column("timestampType"), _numbers(batch.column("timestampMs"))
    shown: Array = _binary(itertools.repeat(b"", len(batch)))
    for kind, name in _TIMESTAMP_TYPES.items():
        fields = _joined([b',"tstype":"%s","ts":' % name.encode("ascii"), times], len(batch))
        shown = _compute().if_else(_compute().equal(kinds, kind), fields, shown)
    return shown


_BACKSLASH = re.compile(r"\\(u....|.)")


def _as_kcat(text: str) -> str:
    """JSON with control characters in upper-case hex digits, as kcat's library writes them."""
    if "\\u00" not in text:
        return text
    return _BACKSLASH.sub(lambda found: rf"\u{found[1][1:].upper()}" if found[1][0] == "u" else found[0], text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


_TOKEN = re.compile(r"%(?P<field>.)|\\(?P<escape>x[0-9A-Fa-f]{2}|.)|(?P<text>[^%\\]+)|(?P<stray>.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def format_printer(template: str, *, shows_null: bool = False, unpack: Mapping[str, Unpack] | None = None) -> Printer:
    """A printer for kcat's format string. Raises ConfigError for a field kcat does not know.

    %s payload, %S its size (-1 for null), %R its size as four bytes big-endian, %k key, %K its size, %T timestamp in
    milliseconds, %h headers as name=value with commas, %t topic, %p partition, %o offset, %% a percent sign; the
    escapes are \\n \\r \\t \\0 \\\\ and \\xNN. A null header value is NULL. With `shows_null` a key or payload that is
    null or empty is NULL too, as in kcat. The sizes tell null from empty. `unpack` converts a key or payload that is
    not empty to text. The printer raises UnprintableRow if its bytes do not fit.
    """
    parts: list[_Column | bytes] = []
    fields = _fields(_NULL if shows_null else b"", unpack or {})
    for match in _TOKEN.finditer(template):
        field = match["field"]
        if field is not None and field not in fields:
            raise ConfigError(f"-f: %{field} is no field; there are %{' %'.join(fields)}", key="-f")
        part = _literal(match) if field is None else fields[field]
        if isinstance(part, bytes) and parts and isinstance(parts[-1], bytes):
            parts[-1] += part
        else:
            parts.append(part)
    return lambda batch, _: _joined([part if isinstance(part, bytes) else part(batch) for part in parts], len(batch))


def _joined(columns: Sequence[Any], rows: int) -> Array:
    """The columns joined row by row. Bytes stand for a column that has the same bytes in each row."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and needed where batches are

    if all(isinstance(column, bytes) for column in columns):
        return pa.array([b"".join(columns)] * rows, pa.binary())
    shown = [pa.scalar(column, pa.binary()) if isinstance(column, bytes) else column for column in columns]
    joined: Array = _compute().binary_join_element_wise(*shown, pa.scalar(b"", pa.binary()))
    return joined


def delimiter_bytes(text: str) -> bytes:
    """A delimiter as bytes. It has the escapes of a format string."""
    return b"".join(_literal(match) for match in _TOKEN.finditer(text.replace("%", "%%")))


def _literal(match: re.Match[str]) -> bytes:
    """The bytes of a piece of a template that names no field of a record."""
    escape = match["escape"]
    if escape is None:
        return _argument_bytes(match["text"] or match["stray"] or match["field"])
    return bytes.fromhex(escape[1:]) if len(escape) > 1 else _ESCAPES.get(escape, _argument_bytes(escape))


def _argument_bytes(text: str) -> bytes:
    """The bytes of a piece of an argument as it was typed. Python has surrogates for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _fields(empty: bytes, unpack: Mapping[str, Unpack]) -> dict[str, _Column | bytes]:
    return {
        "s": _shown("value", empty, unpack.get("value")),
        "S": lambda batch: _numbers(_sizes(batch, "value")),
        "R": lambda batch: _binary(struct.pack(">i", size) for size in _sizes(batch, "value").to_pylist()),
        "k": _shown("key", empty, unpack.get("key")),
        "K": lambda batch: _numbers(_sizes(batch, "key")),
        "T": lambda batch: _numbers(batch.column("timestampMs")),
        "h": lambda batch: _binary(map(_headers, batch.column("headers").to_pylist())),
        "t": lambda batch: batch.column("topic").cast("binary"),
        "p": lambda batch: _numbers(batch.column("partition")),
        "o": lambda batch: _numbers(batch.column("offset")),
        "%": b"%",
    }


def _binary(values: Iterator[bytes]) -> Array:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and needed where batches are

    return pa.array(values, pa.binary())


def _numbers(column: Any) -> Array:
    numbers: Array = column.cast("string").cast("binary")
    return numbers


def _sizes(batch: pa.RecordBatch, name: str) -> Array:
    sizes: Array = _compute().binary_length(batch.column(name)).fill_null(-1)
    return sizes


def _compute() -> Any:
    """Arrow's functions. Its stubs know no array of any type."""
    import pyarrow.compute as pc  # noqa: PLC0415 - heavy, and needed where batches are

    return pc


def _headers(headers: Sequence[Mapping[str, Any]] | None) -> bytes:
    return b",".join(
        one["key"].encode() + b"=" + (_NULL if one["value"] is None else one["value"]) for one in headers or ()
    )


def _shown(name: str, empty: bytes, unpack: Unpack | None) -> _Column:
    """The keys or payloads of a batch, with `empty` for a null or empty one."""

    def column(batch: pa.RecordBatch) -> Array:
        found: Array = batch.column(name)
        if unpack is not None:
            return _binary(_unpacked(batch, found, empty, unpack))
        if found.null_count:
            found = _compute().fill_null(found, b"")
        if empty:
            found = _compute().if_else(_compute().equal(_compute().binary_length(found), 0), empty, found)
        return found

    return column


def _unpacked(batch: pa.RecordBatch, column: Array, empty: bytes, unpack: Unpack) -> Iterator[bytes]:
    for at, data in enumerate(column.to_pylist()):
        try:
            yield unpack(data) if data else empty
        except ConfigError as error:
            topic, partition, offset = (batch.column(name)[at].as_py() for name in ROW_COLUMNS[:3])
            raise UnprintableRow(at, error.at(topic=topic, partition=partition, offset=offset)) from None


def iso_time(timestamp_ms: int) -> str:
    """Format a timestamp as ISO 8601 in UTC. Returns `-` if it is negative, because Kafka's -1 means no timestamp.

    Python's calendar ends with the year 9999. A later timestamp is returned as its number of milliseconds.
    """
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
