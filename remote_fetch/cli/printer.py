"""Records as kcat prints them: a format string (`-f`), JSON lines (`-J`), or the payload and nothing else.

Rules of the file:

- The bytes are those of kcat. docs/reference/cli.md lists each exception with its reason.
- Text is printed as the bytes of the record. JSON has to be UTF-8: there `--binary base64` keeps every byte, and
  without it bytes that are not UTF-8 become U+FFFD.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from remote_fetch.cli.unpack import FIELDS, Unpack
from remote_fetch.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ROW_COLUMNS", "Row", "delimiter_bytes", "format_printer", "iso_time", "json_printer", "rows_of"]

ROW_COLUMNS = ("topic", "partition", "offset", "timestampMs", "timestampType", "headers", "key", "value")
"""The columns that printing needs, with milliseconds, because kcat prints milliseconds."""
_TIMESTAMP_TYPES = {0: "create", 1: "logappend"}
_NO_BROKER = -1
"""The broker id of librdkafka for a message from an unknown broker."""
_NULL = b"NULL"


@dataclass(frozen=True, slots=True)
class Row:
    """One record. `timestamp_ms` is -1 if it has no timestamp. `headers` are pairs of a name and bytes or None.

    `parsed` has typed keys and values, under `key` and `value`, as JSON has them.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None
    parsed: Mapping[str, Any] | None = None


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The records of a record batch that has ROW_COLUMNS."""
    columns = [batch.column(name).to_pylist() for name in ROW_COLUMNS]
    for topic, partition, offset, timestamp_ms, kind, headers, key, value in zip(*columns, strict=True):
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield Row(topic, partition, offset, timestamp_ms, kind, pairs, key, value)


def json_printer(binary: str, delimiter: bytes = b"\n") -> Callable[[Row], bytes]:
    """A printer of one JSON object a record with kcat's field names, then `delimiter`. `binary`: `text` or `base64`.

    As in kcat, a record without a timestamp has no `tstype` and `ts`, and a record without headers has no `headers`.
    """
    encode = _base64 if binary == "base64" else _text

    def print_row(row: Row) -> bytes:
        fields: dict[str, Any] = {"topic": row.topic, "partition": row.partition, "offset": row.offset}
        if row.timestamp_type in _TIMESTAMP_TYPES:
            fields |= {"tstype": _TIMESTAMP_TYPES[row.timestamp_type], "ts": row.timestamp_ms}
        fields["broker"] = _NO_BROKER
        if row.headers:
            fields["headers"] = [item for name, value in row.headers for item in (name, encode(value))]
        parsed = row.parsed or {}
        fields["key"] = parsed["key"] if "key" in parsed else encode(row.key)
        fields["payload"] = parsed["value"] if "value" in parsed else encode(row.value)
        return _json(fields).encode("utf-8") + delimiter

    return print_row


_BACKSLASH = re.compile(r"\\(u....|.)")


def _json(fields: dict[str, Any]) -> str:
    """Compact JSON, with control characters in upper-case hex digits, as kcat's library writes them."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    if "\\u00" not in text:
        return text
    return _BACKSLASH.sub(lambda found: rf"\u{found[1][1:].upper()}" if found[1][0] == "u" else found[0], text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


_TOKEN = re.compile(r"%(?P<field>.)|\\(?P<escape>x[0-9A-Fa-f]{2}|.)|(?P<text>[^%\\]+)|(?P<stray>.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def format_printer(
    template: str, *, shows_null: bool = False, unpack: Mapping[str, Unpack] | None = None
) -> Callable[[Row], bytes]:
    """A printer for kcat's format string. Raises ConfigError for a field kcat does not know.

    %s payload, %S its size (-1 for null), %R its size as four bytes big-endian, %k key, %K its size, %T timestamp in
    milliseconds, %h headers as name=value with commas, %t topic, %p partition, %o offset, %% a percent sign; the
    escapes are \\n \\r \\t \\0 \\\\ and \\xNN. A null header value is NULL. With `shows_null` a key or payload that is
    null or empty is NULL too, as in kcat. The sizes tell null from empty. `unpack` converts a key or payload that is
    not empty to text. The printer raises ConfigError if its bytes do not fit.
    """
    parts: list[Callable[[Row], bytes]] = []
    fields = _fields(_NULL if shows_null else b"", unpack or {})
    for match in _TOKEN.finditer(template):
        field = match["field"]
        if field is None:
            parts.append(_constant(_literal(match)))
        elif field in fields:
            parts.append(fields[field])
        else:
            raise ConfigError(f"-f: %{field} is no field; there are %{' %'.join(fields)}", key="-f")
    return lambda row: b"".join(part(row) for part in parts)


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


def _constant(data: bytes) -> Callable[[Row], bytes]:
    return lambda row: data


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _fields(empty: bytes, unpack: Mapping[str, Unpack]) -> dict[str, Callable[[Row], bytes]]:
    key, value = (_shown(empty, unpack.get(name)) for name in FIELDS)
    return {
        "s": lambda row: value(row, row.value),
        "S": lambda row: str(_size(row.value)).encode(),
        "R": lambda row: struct.pack(">i", _size(row.value)),
        "k": lambda row: key(row, row.key),
        "K": lambda row: str(_size(row.key)).encode(),
        "T": lambda row: str(row.timestamp_ms).encode(),
        "h": lambda row: b",".join(
            name.encode() + b"=" + (_NULL if value is None else value) for name, value in row.headers
        ),
        "t": lambda row: row.topic.encode(),
        "p": lambda row: str(row.partition).encode(),
        "o": lambda row: str(row.offset).encode(),
        "%": lambda row: b"%",
    }


def _shown(empty: bytes, unpack: Unpack | None) -> Callable[[Row, bytes | None], bytes]:
    """Prints a key or payload of a row."""
    if unpack is None:
        return lambda row, data: data or empty

    def unpacked(row: Row, data: bytes | None) -> bytes:
        try:
            return unpack(data) if data else empty
        except ConfigError as error:
            raise error.at(topic=row.topic, partition=row.partition, offset=row.offset) from None

    return unpacked


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
