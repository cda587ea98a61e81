"""Message sets v0 and v1, rewritten as the record area of a v2 batch. One decoder then serves all three.

Rules of the file:

- Pure. One entry of the log in, one header and one record area out.
- A compressed entry is unpacked one level deep, because no broker accepts more.

An entry is: offset int64, size int32, CRC-32 of the bytes that follow, magic int8, attributes int8, timestamp int64 (v1
only), key and value with int32 lengths, -1 for null (KIP-31 and KIP-32).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from remote_fetch.errors import CorruptSegment, FallsBackError
from remote_fetch.formats.batches import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    FramedBatch,
)
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.tagged_fields import encode_varlong
from remote_fetch.model import TimestampType

__all__ = ["LegacyMessage", "as_v2", "messages_of", "to_v2"]

_ENTRY = Struct(">qi")
_MESSAGE = Struct(">Ibb")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_CRC_FROM = 4

_ZSTD = 4

_NULL = b"\x01"
"""The varint -1: the length of a null key or value."""
_NO_HEADERS = b"\x00"
_MAX_INT32 = 2**31 - 1
_MIN_INT64 = -(2**63)


class _Message(NamedTuple):
    """One message without its offset and size; `key` and `value` are views, None for null."""

    crc: int
    attributes: int
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None


class LegacyMessage(NamedTuple):
    """One message of an entry as a reader sees it. `timestamp_ms` is -1 for magic 0. `crc` is the message's own."""

    offset: int
    timestamp_ms: int
    crc: int
    key: memoryview | None
    value: memoryview | None


def as_v2(batch: FramedBatch, codecs: Codecs) -> tuple[BatchHeader, memoryview]:
    """The header and the uncompressed v2 record area of a batch of any magic. Raises as `to_v2`, and as `codecs`."""
    if batch.header.magic < 2:
        return to_v2(batch, codecs)
    return batch.header, codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])


def to_v2(batch: FramedBatch, codecs: Codecs) -> tuple[BatchHeader, memoryview]:
    """A legacy entry as a header and an uncompressed v2 record area.

    The header keeps the entry's magic, its size and its place in the log. It also has the offsets of the first and the
    last record, their number, the timestamps in ms (-1 for magic 0), and attributes with only the timestamp type.

    The checksums of messages inside a compressed entry are checked here. `check_crc` checks the entry's own.

    Raises CorruptSegment for an entry that breaks the format, nests deeper than one level or uses zstd, which is newer
    than the format. Also raises the errors of `codecs`. All have the entry's position and offset.
    """
    try:
        return _converted(batch.header, *_opened(batch, codecs))
    except FallsBackError as error:
        raise error.at(position=batch.position, offset=batch.header.base_offset) from error.__cause__


def messages_of(batch: FramedBatch, codecs: Codecs) -> Iterator[LegacyMessage]:
    """The messages of a legacy entry, each with its own checksum: those inside it if it is compressed, else itself.

    Keys and values are valid until the next call of `codecs`. Raises as `to_v2`, when the fault is reached.
    """
    try:
        outer, messages, _ = _opened(batch, codecs)
        is_append_time = batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
        for offset, message in messages:
            timestamp_ms = outer.timestamp_ms if is_append_time else message.timestamp_ms
            yield LegacyMessage(offset, timestamp_ms, message.crc, message.key, message.value)
    except FallsBackError as error:
        raise error.at(position=batch.position, offset=batch.header.base_offset) from error.__cause__


def _opened(batch: FramedBatch, codecs: Codecs) -> tuple[_Message, Iterator[tuple[int, _Message]], int]:
    """The entry's own message, the messages of the entry with their offsets, and the first of the offsets."""
    header = batch.header
    outer = _message(batch.data[LOG_OVERHEAD_BYTES:], header.magic)
    if header.codec == 0:
        return outer, iter([(header.base_offset, outer)]), header.base_offset
    if header.codec == _ZSTD:
        raise CorruptSegment(f"zstd in a message with magic {header.magic}")
    if outer.value is None:
        raise CorruptSegment("a compressed message with a null value")
    messages = codecs.decompress(header.codec, outer.value, lz4_v0=header.magic == 0)
    first, last = _offsets_inside(messages)
    shift = _offset_shift(header, last)
    return outer, _inner(messages, header.magic, shift), first + shift


def _offset_shift(header: BatchHeader, last: int) -> int:
    """The number to add to the offsets inside a compressed entry. `last` is the largest of these offsets."""
    if header.magic == 0 and last != header.base_offset:
        raise CorruptSegment(f"a compressed message whose last inner offset is {last}")
    # In format v1 offsets inside are relative, and the entry's own offset is that of its last message. Some versions of
    # librdkafka left it 0.
    if 0 < header.base_offset < last:
        raise CorruptSegment(f"a compressed message with offset {header.base_offset}, and offset {last} inside")
    return header.base_offset - last if header.base_offset else 0


def _converted(
    header: BatchHeader, outer: _Message, messages: Iterator[tuple[int, _Message]], base_offset: int
) -> tuple[BatchHeader, memoryview]:
    log_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    records = bytearray()
    record_count = 0
    last_offset = base_offset - 1
    base_timestamp_ms = max_timestamp_ms = outer.timestamp_ms
    for offset, message in messages:
        timestamp_ms = outer.timestamp_ms if log_append_time else message.timestamp_ms
        if not record_count:
            base_timestamp_ms = max_timestamp_ms = timestamp_ms
        timestamp_delta_ms = _wrapped(timestamp_ms - base_timestamp_ms)
        if not last_offset < offset <= base_offset + _MAX_INT32:
            raise CorruptSegment(f"offset {offset} inside a compressed message, after {last_offset}")
        _put_record(records, timestamp_delta_ms, offset - base_offset, message)
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        last_offset = offset
        record_count += 1
    converted = header._replace(
        attributes=TIMESTAMP_TYPE_BIT if log_append_time else 0,
        base_offset=base_offset,
        last_offset=last_offset,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        record_count=record_count,
    )
    return converted, memoryview(records).toreadonly()


def _offsets_inside(messages: memoryview) -> tuple[int, int]:
    """The first and the last offset in a message set. Raises unless it consists of whole entries."""
    first: int | None = None
    offset = at = 0
    while at < len(messages):
        offset, at = _entry(messages, at)
        if first is None:
            first = offset
    if first is None:
        raise CorruptSegment("a compressed message with no messages inside")
    return first, offset


def _inner(messages: memoryview, magic: int, shift: int) -> Iterator[tuple[int, _Message]]:
    at = 0
    while at < len(messages):
        start = at + _ENTRY.size
        offset, at = _entry(messages, at)
        data = messages[start:at]
        message = _message(data, magic)
        actual = zlib.crc32(data[_CRC_FROM:])
        if actual != message.crc:
            raise CorruptSegment(
                "checksum mismatch inside a compressed message: "
                f"it says {message.crc:#010x}, its bytes give {actual:#010x}"
            )
        if message.attributes & CODEC_MASK:
            raise CorruptSegment("a compressed message inside a compressed message")
        yield offset + shift, message


def _entry(messages: memoryview, at: int) -> tuple[int, int]:
    """The offset of the entry at `messages[at]`, and the index at which the entry ends."""
    left_bytes = len(messages) - at - _ENTRY.size
    if left_bytes >= 0:
        offset, size_bytes = _ENTRY.unpack_from(messages, at)
        if _MESSAGE.size <= size_bytes <= left_bytes:
            return offset, at + _ENTRY.size + size_bytes
    raise CorruptSegment(f"a compressed message is cut, or breaks its sizes, at byte {at} of its {len(messages)}")


def _message(data: memoryview, magic: int) -> _Message:
    """One message from its CRC on, which has to fill `data`."""
    crc, own_magic, attributes = _MESSAGE.unpack_from(data)
    if own_magic != magic:
        raise CorruptSegment(f"a message with magic {own_magic} inside one with magic {magic}")
    at = _MESSAGE.size
    timestamp_ms = -1
    if magic == 1:
        if len(data) < at + _INT64.size:
            raise CorruptSegment(f"a message of {len(data)} bytes is too short for magic 1")
        (timestamp_ms,) = _INT64.unpack_from(data, at)
        at += _INT64.size
    key, at = _sized(data, at)
    value, at = _sized(data, at)
    if at != len(data):
        raise CorruptSegment(f"{len(data) - at} bytes follow the value of a message")
    return _Message(crc, attributes, timestamp_ms, key, value)


def _sized(data: memoryview, at: int) -> tuple[memoryview | None, int]:
    """The key or value whose length is at `data[at]`, and the index of the next field."""
    start = at + _INT32.size
    if start <= len(data):
        (size_bytes,) = _INT32.unpack_from(data, at)
        if size_bytes == -1:
            return None, start
        if 0 <= size_bytes <= len(data) - start:
            return data[start : start + size_bytes], start + size_bytes
    raise CorruptSegment(f"a key or value at byte {at} does not fit its message of {len(data)} bytes")


def _wrapped(difference: int) -> int:
    """The low 64 bits, as for the deltas of a v2 batch. Added to the base they give the same timestamp again."""
    return (difference - _MIN_INT64) % 2**64 + _MIN_INT64


def _put_record(records: bytearray, timestamp_delta_ms: int, offset_delta: int, message: _Message) -> None:
    """Append one v2 record without headers (KIP-98): its length, then attributes, deltas, key and value."""
    head = b"\x00" + encode_varlong(timestamp_delta_ms) + encode_varlong(offset_delta)
    key_size = _NULL if message.key is None else encode_varlong(len(message.key))
    value_size = _NULL if message.value is None else encode_varlong(len(message.value))
    parts = (head, key_size, message.key or b"", value_size, message.value or b"", _NO_HEADERS)
    records += encode_varlong(sum(map(len, parts)))
    for part in parts:
        records += part
