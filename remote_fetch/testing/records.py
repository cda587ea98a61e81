"""Encodes records into the batches that a broker keeps, for tests of the decoders.

Rules of the file:

- Pure, and independent of the package's readers, so that both cannot share a mistake.
- The output is what Kafka's clients, brokers and log cleaner write.
- `rewrite_crc` repairs the checksum after a test has changed bytes.

Layout: record batch v2 (KIP-98), and the older message sets v0 and v1.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from remote_fetch.formats.tagged_fields import encode_varlong
from remote_fetch.testing.compression import SnappyFraming, compress

__all__ = [
    "HEADER_BYTES",
    "Header",
    "Record",
    "encode_batch",
    "encode_legacy",
    "encode_marker",
    "encode_records",
    "encode_varint",
    "rewrite_crc",
]

HEADER_BYTES = 61
"""Size of a v2 batch header. An empty batch that the cleaner left has only the header."""

LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_V2 = Struct(">qiibIhiqqqhii")
_V2_CRC_AT = 17
_V2_CRC_FROM = 21
_MAGIC_AT = 16
_LEGACY_CRC_AT = 12
_LEGACY_CRC_FROM = 16
_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
_NULL_LENGTH = (-1).to_bytes(4, "big", signed=True)

Header = tuple[str, bytes | None]
"""One record header: its key, which may repeat, and its value, which may be null."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record, placed relative to its batch: `offset_delta` from the base offset, `timestamp_delta_ms` likewise.

    The timestamp delta may be negative. None and b"" are different keys and different values.
    """

    offset_delta: int
    timestamp_delta_ms: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


def encode_varint(value: int) -> bytes:
    """`value` as a zig-zag variable-length integer: up to 5 bytes for 32 bits, 10 for 64 (both written alike)."""
    return encode_varlong(value)


def _varint_bytes(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def encode_records(records: Sequence[Record], *, shift_ms: int = 0) -> bytes:
    """The record area of a v2 batch before compression; `shift_ms` is added to every timestamp delta."""
    out = bytearray()
    for record in records:
        body = bytearray(1)  # attributes: Kafka has defined none
        body += encode_varint(record.timestamp_delta_ms + shift_ms) + encode_varint(record.offset_delta)
        body += _varint_bytes(record.key) + _varint_bytes(record.value) + encode_varint(len(record.headers))
        for name, value in record.headers:
            body += _varint_bytes(name.encode()) + _varint_bytes(value)
        out += encode_varint(len(body)) + body
    return bytes(out)


def encode_batch(
    base_offset: int,
    records: Sequence[Record],
    *,
    codec: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    base_timestamp_ms: int = 0,
    last_offset_delta: int | None = None,
    max_timestamp_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    snappy_framing: SnappyFraming = "raw",
) -> bytes:
    """One v2 batch with a right CRC-32C.

    - `last_offset_delta` is the end of the batch before a cleaner removed records (default: its last record).
    - Without records it is the 61-byte batch that a cleaner leaves, which is never compressed.
    - `max_timestamp_ms` defaults to the largest of the records, -1 without records.
    - `log_append_time_ms` sets the broker's time for all records.
    - With `delete_horizon_ms` the base timestamp is that horizon, and the deltas count from it, as the cleaner writes
      them. The records keep their timestamps.

    Raises ValueError if neither records nor `last_offset_delta` give the end of the batch.
    """
    if last_offset_delta is None:
        if not records:
            raise ValueError("an empty batch needs last_offset_delta")
        last_offset_delta = records[-1].offset_delta
    attributes = (
        (codec if records else 0)
        | (LOG_APPEND_TIME_BIT if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    if log_append_time_ms is not None:
        max_timestamp_ms = log_append_time_ms
    elif max_timestamp_ms is None:
        max_timestamp_ms = max((base_timestamp_ms + record.timestamp_delta_ms for record in records), default=-1)
    header_base_ms = base_timestamp_ms if records else -1
    if delete_horizon_ms is not None:
        header_base_ms = delete_horizon_ms
    area = encode_records(records, shift_ms=base_timestamp_ms - header_base_ms)
    body = compress(codec, area, snappy_framing=snappy_framing) if records else b""
    head = _V2.pack(
        base_offset, HEADER_BYTES - 12 + len(body), leader_epoch, 2, 0, attributes, last_offset_delta,
        header_base_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    return rewrite_crc(head + body)


def encode_marker(
    offset: int,
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    leader_epoch: int = 0,
    timestamp_ms: int = 0,
    coordinator_epoch: int = 0,
) -> bytes:
    """The 78-byte control batch that ends a transaction of `producer_id`: COMMIT, or else ABORT."""
    key = _CONTROL_KEY.pack(0, int(commit))
    value = _CONTROL_VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        offset,
        [Record(0, 0, key, value)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        base_timestamp_ms=timestamp_ms,
    )


def encode_legacy(
    base_offset: int,
    records: Sequence[Record],
    *,
    magic: int,
    codec: int = 0,
    base_timestamp_ms: int = 0,
    log_append_time_ms: int | None = None,
    snappy_framing: SnappyFraming = "raw",
) -> bytes:
    """A message set of format 0 or 1: one message a record, or with a codec one wrapper around all messages.

    Format 0 has no timestamps and has absolute offsets inside a wrapper. Format 1 counts them from the first. Under
    `log_append_time_ms` only the wrapper has the broker's time. Raises ValueError if the format cannot hold the
    records: headers, zstd, format 0 with log append time, an empty set.
    """
    _check_legacy(records, magic, codec, log_append_time_ms)
    attributes = codec | (LOG_APPEND_TIME_BIT if log_append_time_ms is not None else 0)
    times_ms = [base_timestamp_ms + record.timestamp_delta_ms for record in records]
    outer_ms = times_ms if log_append_time_ms is None else [log_append_time_ms] * len(records)
    if codec == 0:
        return b"".join(
            _message(base_offset + r.offset_delta, r.key, r.value, magic=magic, attributes=attributes, time_ms=time_ms)
            for r, time_ms in zip(records, outer_ms, strict=True)
        )
    inner_base = base_offset if magic == 0 else 0
    inner = b"".join(
        _message(inner_base + r.offset_delta, r.key, r.value, magic=magic, attributes=0, time_ms=time_ms)
        for r, time_ms in zip(records, times_ms, strict=True)
    )
    packed = compress(codec, inner, snappy_framing=snappy_framing, lz4_magic_0=magic == 0)
    last = base_offset + records[-1].offset_delta
    return _message(last, None, packed, magic=magic, attributes=attributes, time_ms=max(outer_ms))


def _check_legacy(records: Sequence[Record], magic: int, codec: int, log_append_time_ms: int | None) -> None:
    if magic not in (0, 1):
        raise ValueError(f"magic {magic}: message sets have 0 or 1")
    if not records:
        raise ValueError("a message set without messages")
    if codec not in range(4):
        raise ValueError(f"codec {codec}: message sets have 0 to 3")
    if any(record.headers for record in records):
        raise ValueError("message sets have no headers")
    if magic == 0 and log_append_time_ms is not None:
        raise ValueError("format 0 has no timestamps")


def _message(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int, attributes: int, time_ms: int
) -> bytes:
    covered = bytes((magic, attributes))
    if magic == 1:
        covered += time_ms.to_bytes(8, "big", signed=True)
    for data in (key, value):
        covered += _NULL_LENGTH if data is None else len(data).to_bytes(4, "big") + data
    crc = zlib.crc32(covered).to_bytes(4, "big")
    return offset.to_bytes(8, "big") + (len(crc) + len(covered)).to_bytes(4, "big") + crc + covered


def rewrite_crc(batch: bytes) -> bytes:
    """The same batch or legacy message with the right checksum of its bytes. Other bytes stay as they are."""
    if batch[_MAGIC_AT] >= 2:
        crc_at, crc = _V2_CRC_AT, crc32c(batch[_V2_CRC_FROM:])
    else:
        crc_at, crc = _LEGACY_CRC_AT, zlib.crc32(batch[_LEGACY_CRC_FROM:])
    return batch[:crc_at] + crc.to_bytes(4, "big") + batch[crc_at + 4 :]
