"""Records as kcat prints them: a format string (`-f`), JSON lines (`-J`), or the payload and nothing else.

Rules of the file: text goes out as the bytes the record has, except in JSON, which has to be UTF-8: there `--binary
base64` keeps every byte, and without it what is not UTF-8 shows as U+FFFD.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from remote_fetch.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Row", "format_printer", "json_printer", "rows_of"]

_TIMESTAMP_TYPES = {-1: "unknown", 0: "create", 1: "logappend"}


@dataclass(frozen=True, slots=True)
class Row:
    """One record. `timestamp_ms` is -1 where it has none; `headers` are pairs of a name and bytes or None."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The records of a record batch that has the default columns."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and `--help` does without

    columns = [batch.column(name) for name in ("topic", "partition", "offset")]
    micros = batch.column("timestamp").cast(pa.int64()).to_pylist()
    lists = [column.to_pylist() for column in columns]
    others = [batch.column(name).to_pylist() for name in ("timestampType", "headers", "key", "value")]
    for topic, partition, offset, at, kind, headers, key, value in zip(*lists, micros, *others, strict=True):
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield Row(topic, partition, offset, at // 1000, kind, pairs, key, value)


def json_printer(binary: str) -> Callable[[Row], bytes]:
    """One JSON object a record, with kcat's field names; `binary` is `text` or `base64`."""
    encode = _base64 if binary == "base64" else _text

    def print_row(row: Row) -> bytes:
        fields: dict[str, Any] = {
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "tstype": _TIMESTAMP_TYPES[row.timestamp_type],
            "ts": row.timestamp_ms,
            "headers": [item for name, value in row.headers for item in (name, encode(value))],
            "key": encode(row.key),
            "payload": encode(row.value),
        }
        return json.dumps(fields, ensure_ascii=False).encode("utf-8") + b"\n"

    return print_row


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


_TOKEN = re.compile(r"%(?P<field>.)|\\(?P<escape>x[0-9A-Fa-f]{2}|.)|(?P<text>[^%\\]+)|(?P<stray>.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def format_printer(template: str, *, null: bytes = b"") -> Callable[[Row], bytes]:
    """A printer for kcat's format string. Raises ConfigError for a field kcat does not know.

    %s payload, %S its size (-1 for null), %R its size as four bytes big-endian, %k key, %K its size, %T timestamp in
    milliseconds, %h headers as name=value with commas, %t topic, %p partition, %o offset, %% a percent sign; the
    escapes are \\n \\r \\t \\0 \\\\ and \\xNN. `null` is printed for a null key, payload or header value.
    """
    parts: list[Callable[[Row], bytes]] = []
    fields = _fields(null)
    for match in _TOKEN.finditer(template):
        field, escape = match["field"], match["escape"]
        if field is not None:
            if field not in fields:
                raise ConfigError(f"-f: %{field} is no field; there are %{' %'.join(fields)}", key="-f")
            parts.append(fields[field])
        elif escape is not None:
            parts.append(_constant(bytes.fromhex(escape[1:]) if len(escape) > 1 else _escaped(escape)))
        else:
            parts.append(_constant(_argument_bytes(match["text"] or match["stray"])))
    return lambda row: b"".join(part(row) for part in parts)


def _escaped(letter: str) -> bytes:
    return _ESCAPES.get(letter, _argument_bytes(letter))


def _argument_bytes(text: str) -> bytes:
    """A piece of an argument as it was typed: bytes that are no UTF-8 come as surrogates."""
    return text.encode("utf-8", "surrogateescape")


def _constant(data: bytes) -> Callable[[Row], bytes]:
    return lambda row: data


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _fields(null: bytes) -> dict[str, Callable[[Row], bytes]]:
    def shown(data: bytes | None) -> bytes:
        return null if data is None else data

    return {
        "s": lambda row: shown(row.value),
        "S": lambda row: str(_size(row.value)).encode(),
        "R": lambda row: struct.pack(">i", _size(row.value)),
        "k": lambda row: shown(row.key),
        "K": lambda row: str(_size(row.key)).encode(),
        "T": lambda row: str(row.timestamp_ms).encode(),
        "h": lambda row: b",".join(name.encode() + b"=" + shown(value) for name, value in row.headers),
        "t": lambda row: row.topic.encode(),
        "p": lambda row: str(row.partition).encode(),
        "o": lambda row: str(row.offset).encode(),
        "%": lambda row: b"%",
    }


def iso_time(timestamp_ms: int) -> str:
    """A timestamp as people read it, in UTC; `-` for none, the bare milliseconds where the calendar ends."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
