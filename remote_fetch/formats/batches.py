"""Framing: from bytes to record batches, without looking at a single record.

Rules of the file:

- Pure. No function reads past the bytes it was given.
- A cut batch asks for more bytes. It never means the end.
- Every length is checked before it is used.

Layout: Kafka's record batch v2 (KIP-98; 61 bytes of header), and the legacy message sets v0 and v1, which have offset,
size and magic in the same places.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.model import TimestampType

__all__ = [
    "CODEC_MASK",
    "DEFAULT_MAX_BATCH_BYTES",
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "TIMESTAMP_TYPE_BIT",
    "BatchFramer",
    "BatchHeader",
    "FramedBatch",
    "check_crc",
    "read_header",
    "sequence_at",
    "v2_offset_at",
]

LOG_OVERHEAD_BYTES = 12
"""Base offset and length, the first fields of every entry of a log, of any magic."""

HEADER_BYTES = 61
"""Size of a v2 batch header; the records follow."""

DEFAULT_MAX_BATCH_BYTES = 128 << 20
"""The largest batch length that is accepted. Brokers' `message.max.bytes` is 1 MiB by default."""

_LEGACY_MIN_BYTES = 14
_MAGIC_AT = 16
_V2 = Struct(">qiibIhiqqqhii")
_V2_CRC_FROM = 21
_LEGACY = Struct(">qiIbb")
_LEGACY_CRC_FROM = 16
_INT64 = Struct(">q")
_MAX_INT64 = 2**63 - 1
_SEQUENCES = 2**31
_NOTHING = memoryview(b"")

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40


class BatchHeader(NamedTuple):
    """The header of one record batch (v2), or of one legacy message, which counts as a batch.

    `size_bytes` is the size of the whole batch with its length prefix. For magic 0 and 1:

    - The producer fields, `leader_epoch` and `record_count` are -1, and `last_offset` equals `base_offset`. The
      contents of a compressed message are unknown before it is decompressed.
    - Both timestamps are the message's own, -1 for magic 0.
    """

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """Compression codec id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 do not exist."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker set the timestamps. Magic 0 has none."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.magic >= 2 and bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record (a transaction marker), which no consumer sees."""
        return self.magic >= 2 and bool(self.attributes & _CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which the log cleaner may remove the batch's tombstones or marker. None if it has set none.

        It is in the place of the base timestamp.
        """
        return self.base_timestamp_ms if self.magic >= 2 and self.attributes & _DELETE_HORIZON_BIT else None

    @property
    def next_offset(self) -> int:
        """The offset after the batch. If the log cleaner removed records, the last record may lie further before it."""
        return self.last_offset + 1


class FramedBatch(NamedTuple):
    """One whole batch: its header, its byte position in the segment and its bytes (header included)."""

    header: BatchHeader
    position: int
    data: memoryview


def read_header(
    data: memoryview, at: int, *, position: int, max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES, whole: bool = True
) -> BatchHeader | int:
    """The header of the batch that starts at `data[at]`, or the number of bytes from there that are needed.

    The number is the size of the whole batch if its length can be read, else the length of a header. With `whole`, a
    header is returned only if the whole batch lies in `data`, so that the caller can check its CRC. Without it, the
    header's own bytes are enough. `position` is the byte position in the segment, for error messages.

    Raises CorruptSegment for a length or a field that no broker writes and UnsupportedFormat for a magic above 2.
    """
    available = len(data) - at
    if available <= _MAGIC_AT:
        return _MAGIC_AT + 1
    magic = data[at + _MAGIC_AT]
    length = int.from_bytes(data[at + 8 : at + LOG_OVERHEAD_BYTES], "big", signed=True)
    size_bytes = LOG_OVERHEAD_BYTES + length
    if magic > 2:
        raise UnsupportedFormat(
            f"record batch with magic {magic}; versions 0 to 2 are known", position=position, offset=_offset(data, at)
        )
    minimum = HEADER_BYTES if magic == 2 else LOG_OVERHEAD_BYTES + _LEGACY_MIN_BYTES
    if size_bytes < minimum:
        raise CorruptSegment(
            f"batch length {length} is below the minimum of its format", position=position, offset=_offset(data, at)
        )
    if size_bytes > max_batch_bytes:
        raise CorruptSegment(
            f"batch of {size_bytes} bytes, more than the bound of {max_batch_bytes}",
            position=position,
            offset=_offset(data, at),
        )
    if available < (size_bytes if whole else min(size_bytes, HEADER_BYTES)):
        return size_bytes
    return _read_v2(data, at, position, size_bytes) if magic == 2 else _read_legacy(data, at, position, size_bytes)


def _read_v2(data: memoryview, at: int, position: int, size_bytes: int) -> BatchHeader:
    (
        base_offset, _, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp_ms, max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, record_count,
    ) = _V2.unpack_from(data, at)  # fmt: skip
    if base_offset < 0 or not 0 <= last_offset_delta <= _MAX_INT64 - base_offset or record_count < 0:
        raise CorruptSegment(
            f"field out of range in a batch header: base offset {base_offset}, last offset delta {last_offset_delta}, "
            f"record count {record_count}",
            position=position,
            offset=base_offset,
        )
    return BatchHeader(
        base_offset, size_bytes, leader_epoch, magic, crc, attributes, base_offset + last_offset_delta,
        base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip


def _read_legacy(data: memoryview, at: int, position: int, size_bytes: int) -> BatchHeader:
    base_offset, _, crc, magic, attributes = _LEGACY.unpack_from(data, at)
    if base_offset < 0:
        raise CorruptSegment(f"negative offset {base_offset} of a message", position=position, offset=base_offset)
    timestamp_ms = -1
    if magic == 1 and size_bytes >= LOG_OVERHEAD_BYTES + _LEGACY_MIN_BYTES + 8:
        (timestamp_ms,) = _INT64.unpack_from(data, at + _LEGACY.size)
    return BatchHeader(
        base_offset, size_bytes, -1, magic, crc, attributes, base_offset, timestamp_ms, timestamp_ms, -1, -1, -1, -1
    )


def v2_offset_at(data: memoryview, at: int) -> int | None:
    """The base offset of the v2 batch that starts at `data[at]`. None for another format, and for too few bytes."""
    return _offset(data, at) if len(data) - at > _MAGIC_AT and data[at + _MAGIC_AT] == 2 else None


def _offset(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def sequence_at(base: int, delta: int) -> int:
    """The producer's sequence number `delta` after `base`, or before it. They begin again at 0 after 2^31 - 1."""
    return (base + delta) % _SEQUENCES


def check_crc(batch: FramedBatch) -> None:
    """Check the checksum of a batch: CRC-32C from the attributes on (v2), CRC-32 from the magic on (v0, v1).

    Raises CorruptSegment when it does not match.
    """
    header = batch.header
    actual = crc32c(batch.data[_V2_CRC_FROM:]) if header.magic == 2 else zlib.crc32(batch.data[_LEGACY_CRC_FROM:])
    if actual != header.crc:
        raise CorruptSegment(
            f"checksum mismatch: the batch says {header.crc:#010x}, its bytes give {actual:#010x}",
            position=batch.position,
            offset=header.base_offset,
        )


class BatchFramer:
    """Cuts the byte ranges of one segment, fed in order, into whole batches.

    `feed` takes the next range. `next_batch` returns the next whole batch, or None if it needs more bytes. `finish`
    ends the input and raises if a batch is cut. A batch inside one range is a view of the range. A batch that crosses
    a border is copied into memory of its own. Nothing else is copied. `position` is the byte position in the segment of
    the next batch.
    """

    def __init__(self, position: int, *, max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES) -> None:
        self.position = position
        self._max_batch_bytes = max_batch_bytes
        self._data = memoryview(b"")
        self._at = 0
        # A batch that began in an earlier range: room for the bytes that are known to be needed, and how many are here.
        self._joined = _NOTHING
        self._joined_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes fed that are not yet part of a returned batch."""
        return self._joined_bytes + len(self._data) - self._at

    @property
    def unread(self) -> tuple[memoryview, int]:
        """The range fed last, and the index of the next batch in it. No bytes while a batch is being joined."""
        return (_NOTHING, 0) if self._joined_bytes else (self._data, self._at)

    def skip(self, size_bytes: int) -> None:
        """Skip that many bytes of `unread`, whole batches that the caller has read."""
        self._at += size_bytes
        self.position += size_bytes

    def feed(self, data: memoryview) -> None:
        """Take the bytes that follow the last range. Call it only after `next_batch` has returned None."""
        rest = self._data[self._at :]
        if rest:
            self._make_room(self._header(rest, 0))
            self._join(rest)
        self._data = data
        self._at = 0

    def next_batch(self) -> FramedBatch | None:
        """The next whole batch, or None if more bytes are needed. Raises as `read_header` does."""
        if self._joined_bytes:
            return self._next_joined()
        found = self._header(self._data, self._at)
        if isinstance(found, int):
            return None
        start = self._at
        self._at += found.size_bytes
        return self._framed(found, self._data[start : self._at])

    def _next_joined(self) -> FramedBatch | None:
        """Complete the batch that began in an earlier range, then go on in the new range."""
        while True:
            missing = len(self._joined) - self._joined_bytes
            taken = self._data[self._at : self._at + missing]
            self._join(taken)
            self._at += len(taken)
            if len(taken) < missing:
                return None
            found = self._header(self._joined, 0)
            if not isinstance(found, int):
                joined, self._joined, self._joined_bytes = self._joined, _NOTHING, 0
                return self._framed(found, joined.toreadonly())
            self._make_room(found)

    def _header(self, data: memoryview, at: int) -> BatchHeader | int:
        return read_header(data, at, position=self.position, max_batch_bytes=self._max_batch_bytes)

    def _make_room(self, needed: BatchHeader | int) -> None:
        """Make room for `needed` bytes of a batch, and keep the bytes that are already here."""
        assert isinstance(needed, int)  # a whole batch leaves no rest
        before, self._joined = self._joined[: self._joined_bytes], memoryview(bytearray(needed))
        self._joined[: len(before)] = before

    def _join(self, data: memoryview) -> None:
        self._joined[self._joined_bytes : self._joined_bytes + len(data)] = data
        self._joined_bytes += len(data)

    def _framed(self, header: BatchHeader, data: memoryview) -> FramedBatch:
        batch = FramedBatch(header, self.position, data)
        self.position += header.size_bytes
        return batch

    def finish(self) -> None:
        """End the input. Raises CorruptSegment if it ends inside a batch."""
        if self.pending_bytes:
            raise CorruptSegment(
                f"the bytes end inside a batch: {self.pending_bytes} bytes are left over", position=self.position
            )
