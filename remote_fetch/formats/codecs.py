"""Decompression of record areas: Kafka's four codecs, each bounded by what comes out of it.

Rules of the file: bytes in, bytes out; nothing is known of batches or records. The output is bounded before memory is
taken for it: what a stream declares is believed only as far as its own structure can produce it, and what it produces
is counted piece by piece. Whatever a library raises leaves as CorruptSegment, without a position: the caller adds it.

What the streams look like, in the sections they are decoded by:
    gzip    RFC 1952, one member or several
    snappy  one raw block (librdkafka), or the xerial framing of several (Java)
    lz4     one LZ4 frame, as in the LZ4 frame format description 1.6
    zstd    RFC 8878, one frame or several; producers stream, so the content size is usually not declared
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

import cramjam
import zstandard

from remote_fetch.errors import CorruptSegment, DecompressionLimit, UnsupportedFormat

__all__ = ["CODEC_NAMES", "DEFAULT_MAX_DECOMPRESSED_BYTES", "Codecs"]

CODEC_NAMES: Final[Mapping[int, str]] = MappingProxyType({0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"})
"""Kafka's codec ids, the low three bits of a batch's attributes. 5 to 7 do not exist."""

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""Default of `fetch.remote.max.decompressed.bytes`."""

_UINT32_LE = Struct("<I")
_INT32_BE = Struct(">i")


class Codecs:
    """The decompressors of one worker thread, reused from batch to batch. Not thread-safe.

    `max_bytes` is the most that one call may inflate to. Besides the output a call holds at most a few MiB.
    """

    def __init__(self, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
        self._lz4_room = bytearray()
        self._lz4_block_room = memoryview(bytearray(_LZ4_KAFKA_FRAME.max_block_bytes))

    def decompress(self, codec: int, data: memoryview, *, lz4_v0: bool = False) -> memoryview:
        """The decompressed record area, read only. Codec 0 gives `data` itself.

        `lz4_v0` says that `data` is the value of a message with magic 0, whose writers computed the checksum of the
        LZ4 frame header over the wrong bytes (KIP-57): it is not looked at then.

        Raises DecompressionLimit when more than `max_bytes` would come out, CorruptSegment for a stream that breaks
        its format or ends early, and UnsupportedFormat for the codecs 5 to 7.
        """
        if codec == 0:
            return data
        try:
            if codec == 1:
                return _gunzip(data, self._max_bytes)
            if codec == 2:
                return _unsnappy(data, self._max_bytes)
            if codec == 3:
                return self._unlz4(data, lz4_v0)
            if codec == 4:
                return self._unzstd(data)
        except (cramjam.DecompressionError, zstandard.ZstdError, zlib.error) as error:
            raise CorruptSegment(f"{CODEC_NAMES[codec]} data cannot be decompressed: {error}") from error
        raise UnsupportedFormat(f"compression codec {codec}; 0 to 4 are known")

    def _unlz4(self, data: memoryview, any_header_checksum: bool) -> memoryview:
        block = _lz4_single_block(data)
        if block is not None and self._max_bytes >= _LZ4_KAFKA_FRAME.max_block_bytes:
            room = self._lz4_block_room
            return memoryview(bytes(room[: cramjam.lz4.decompress_block_into(block, room, output_len=len(room))]))
        frame = _lz4_frame(data, any_header_checksum)
        room = self._lz4_room_for(_LZ4_HISTORY_BYTES + frame.max_block_bytes)
        output = bytearray()
        for stored, block in _lz4_blocks(data, frame):
            if stored:
                output += block
            else:
                # A linked block refers back into the output before it, which block decoders know nothing of.
                history = output[-_LZ4_HISTORY_BYTES:] if frame.linked else b""
                whole = _after_history(history, block) if history else block
                most_bytes = len(history) + frame.max_block_bytes
                size_bytes = cramjam.lz4.decompress_block_into(whole, room[:most_bytes], output_len=most_bytes)
                output += room[len(history) : size_bytes]
            if len(output) > self._max_bytes:
                raise _limit("lz4", self._max_bytes)
        if frame.content_bytes is not None and frame.content_bytes != len(output):
            raise CorruptSegment(f"lz4 frame declares {frame.content_bytes} bytes and holds {len(output)}")
        return memoryview(output).toreadonly()

    def _lz4_room_for(self, size_bytes: int) -> memoryview:
        if len(self._lz4_room) < size_bytes:
            self._lz4_room = bytearray(size_bytes)
        return memoryview(self._lz4_room)

    def _unzstd(self, data: memoryview) -> memoryview:
        most_bytes = min(_ZSTD_USUAL_RATIO * len(data), self._max_bytes)
        if most_bytes and _zstd_is_single_block(data):
            with suppress(zstandard.ZstdError):  # it is larger, or corrupt: told apart below
                return memoryview(self._zstd.decompress(data, max_output_size=most_bytes))
        frames: list[bytes] = []
        left_bytes = self._max_bytes
        for frame, most_bytes in _zstd_frames(data):
            if most_bytes <= _ZSTD_ONE_PIECE_BYTES:
                # A bound of 0 would mean "as declared" there.
                content = self._zstd.decompress(frame, max_output_size=most_bytes or 1)
                if len(content) > left_bytes:
                    raise _limit("zstd", self._max_bytes)
            else:
                content = self._unzstd_by_parts(frame, left_bytes)
            frames.append(content)
            left_bytes -= len(content)
        return memoryview(frames[0] if len(frames) == 1 else b"".join(frames))

    def _unzstd_by_parts(self, frame: memoryview, left_bytes: int) -> bytes:
        """The content of a frame that is large, or that only looks as if it could be."""
        parts: list[bytes] = []
        with self._zstd.stream_reader(frame) as reader:
            while part := reader.read(_ZSTD_PART_BYTES):
                left_bytes -= len(part)
                if left_bytes < 0:
                    raise _limit("zstd", self._max_bytes)
                parts.append(part)
        return b"".join(parts)


def _limit(codec: str, max_bytes: int) -> DecompressionLimit:
    return DecompressionLimit(
        f"{codec} data inflates to more than {max_bytes} bytes",
        hint="If the batch is genuine, raise fetch.remote.max.decompressed.bytes",
    )


# gzip

_GZIP_MIN_BYTES = 18
_GZIP_WBITS = 31
_GZIP_PART_BYTES = 64 << 10
_DEFLATE_MAX_RATIO = 1032


def _gunzip(data: memoryview, max_bytes: int) -> memoryview:
    """One member, in the size its last four bytes declare, at once; anything else goes the careful way."""
    if len(data) >= _GZIP_MIN_BYTES:
        (size_bytes,) = _UINT32_LE.unpack_from(data, len(data) - 4)
        if size_bytes <= min(max_bytes, _DEFLATE_MAX_RATIO * len(data)):
            output = bytearray(size_bytes)
            try:
                written_bytes = cramjam.gzip.decompress_into(data, output)
            except cramjam.DecompressionError:
                written_bytes = -1  # corrupt, or several members: told apart below
            if written_bytes == size_bytes:
                return memoryview(output).toreadonly()
    return _gunzip_members(data, max_bytes)


def _gunzip_members(data: memoryview, max_bytes: int) -> memoryview:
    output = bytearray()
    member = zlib.decompressobj(_GZIP_WBITS)
    at = 0
    while at < len(data):
        if member.eof:
            member = zlib.decompressobj(_GZIP_WBITS)
        # Small parts, for zlib copies what it leaves over of each: behind a member, or behind the bound.
        part = data[at : at + _GZIP_PART_BYTES]
        output += member.decompress(part, max_bytes - len(output) + 1)
        if len(output) > max_bytes:
            raise _limit("gzip", max_bytes)
        at += len(part) - len(member.unused_data)
    if not member.eof:
        raise CorruptSegment(f"gzip data ends early, after {len(data)} bytes")
    return memoryview(output).toreadonly()


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
# The densest element is a copy of 64 bytes, written in 3.
_SNAPPY_MAX_RATIO = 22


def _unsnappy(data: memoryview, max_bytes: int) -> memoryview:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_bytes, max_bytes)
    if len(data) < _XERIAL_HEADER_BYTES:
        raise CorruptSegment("snappy data ends inside the xerial header")
    output = bytearray()
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        if len(data) - at < _INT32_BE.size:
            raise CorruptSegment(f"snappy data ends inside a block length, at byte {at}")
        (size_bytes,) = _INT32_BE.unpack_from(data, at)
        at += _INT32_BE.size
        if not 0 < size_bytes <= len(data) - at:
            raise CorruptSegment(f"snappy block of {size_bytes} bytes where {len(data) - at} are left, at byte {at}")
        output += _unsnappy_block(data[at : at + size_bytes], max_bytes - len(output), max_bytes)
        at += size_bytes
    return memoryview(output).toreadonly()


def _unsnappy_block(block: memoryview, left_bytes: int, max_bytes: int) -> memoryview:
    size_bytes = cramjam.snappy.decompress_raw_len(block)
    if size_bytes > left_bytes:
        raise _limit("snappy", max_bytes)
    if size_bytes > _SNAPPY_MAX_RATIO * len(block):
        raise CorruptSegment(f"snappy block declares {size_bytes} bytes, more than {len(block)} bytes can hold")
    return memoryview(cramjam.snappy.decompress_raw(block)).toreadonly()


# lz4

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_KAFKA_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
"""What both Java and librdkafka write: independent blocks of at most 64 KiB, no sizes, no checksums of content."""
_LZ4_HISTORY_BYTES = 64 << 10
_LZ4_STORED_BIT = 1 << 31


class _Lz4Frame(NamedTuple):
    header_bytes: int
    linked: bool
    block_checksums: bool
    content_checksum: bool
    content_bytes: int | None
    max_block_bytes: int


_LZ4_KAFKA_FRAME = _Lz4Frame(len(_LZ4_KAFKA_HEADER), False, False, False, None, 64 << 10)


def _lz4_frame(data: memoryview, any_header_checksum: bool) -> _Lz4Frame:
    if data[: len(_LZ4_KAFKA_HEADER)] == _LZ4_KAFKA_HEADER:
        return _LZ4_KAFKA_FRAME
    if len(data) < len(_LZ4_KAFKA_HEADER) or data[:4] != _LZ4_MAGIC:
        raise CorruptSegment(f"lz4 data does not start with a frame header but with {bytes(data[:7]).hex()}")
    flags, block_descriptor = data[4], data[5]
    header_bytes = len(_LZ4_KAFKA_HEADER) + (8 if flags & 0x08 else 0)
    # Bits: 2 for the version, 01; then linked, block checksums, size, content checksum; reserved; dictionary.
    if flags & 0xC3 != 0x40 or block_descriptor & 0x8F or block_descriptor < 0x40 or len(data) < header_bytes:
        raise CorruptSegment(f"lz4 frame header is not legal: flags {flags:#04x}, blocks {block_descriptor:#04x}")
    checksum = (_xxh32_short(bytes(data[4 : header_bytes - 1])) >> 8) & 0xFF
    if checksum != data[header_bytes - 1] and not any_header_checksum:
        raise CorruptSegment(f"lz4 frame header has checksum {data[header_bytes - 1]:#04x}, not {checksum:#04x}")
    return _Lz4Frame(
        header_bytes=header_bytes,
        linked=not flags & 0x20,
        block_checksums=bool(flags & 0x10),
        content_checksum=bool(flags & 0x04),
        content_bytes=int.from_bytes(data[6:14], "little") if flags & 0x08 else None,
        max_block_bytes=1 << (8 + 2 * (block_descriptor >> 4)),
    )


def _lz4_single_block(data: memoryview) -> memoryview | None:
    """The block of a frame as Kafka's clients write it, if it is the only one, and not stored (bit 31 of its size)."""
    start, stop = len(_LZ4_KAFKA_HEADER) + 4, len(data) - 4
    if not 0 < stop - start <= _LZ4_KAFKA_FRAME.max_block_bytes or data[stop:] != bytes(4):
        return None
    return data[start:stop] if data[:start] == _LZ4_KAFKA_HEADER + (stop - start).to_bytes(4, "little") else None


def _lz4_blocks(data: memoryview, frame: _Lz4Frame) -> Iterator[tuple[bool, memoryview]]:
    """Each block of the frame, and whether it is stored as it is. Raises unless the frame ends where `data` does.

    The checksums of blocks and content are stepped over, as Kafka's own reader does: the batch has its CRC.
    """
    at = frame.header_bytes
    trailer_bytes = 4 if frame.block_checksums else 0
    while True:
        if len(data) - at < _UINT32_LE.size:
            raise CorruptSegment(f"lz4 frame ends early, after {len(data)} bytes")
        (word,) = _UINT32_LE.unpack_from(data, at)
        at += _UINT32_LE.size
        if not word:
            break
        size_bytes = word & ~_LZ4_STORED_BIT
        if size_bytes > min(frame.max_block_bytes, len(data) - at):
            raise CorruptSegment(f"lz4 block of {size_bytes} bytes at byte {at} is larger than its frame allows")
        yield bool(word & _LZ4_STORED_BIT), data[at : at + size_bytes]
        at += size_bytes + trailer_bytes
    left_bytes = len(data) - at - (4 if frame.content_checksum else 0)
    if left_bytes:
        raise CorruptSegment(f"lz4 frame has {left_bytes} bytes after its end mark, besides its checksum")


def _after_history(history: bytes | bytearray, block: memoryview) -> bytes:
    """The block that decodes to `history` followed by what `block` means after `history`.

    A block is a row of (literals, copy); the history is put in front of the first literals.
    """
    token = block[0] if len(block) else 0
    literal_bytes, at = token >> 4, 1
    if literal_bytes == 15:
        while at < len(block):
            literal_bytes += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    literal_bytes += len(history)
    if literal_bytes < 15:
        head = bytes([literal_bytes << 4 | token & 15])
    else:
        full, rest = divmod(literal_bytes - 15, 255)
        head = bytes([0xF0 | token & 15]) + b"\xff" * full + bytes([rest])
    return b"".join((head, history, block[at:]))


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK_32 = 0xFFFFFFFF


def _xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes: all that a frame header needs."""
    value = _PRIME_5 + len(data)
    words_end = len(data) & ~3
    for (word,) in _UINT32_LE.iter_unpack(data[:words_end]):
        value = _rotated(value + word * _PRIME_3, 17) * _PRIME_4
    for byte in data[words_end:]:
        value = _rotated(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= _MASK_32
    value = (value ^ value >> 15) * _PRIME_2 & _MASK_32
    value = (value ^ value >> 13) * _PRIME_3 & _MASK_32
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK_32
    return value << bits | value >> (32 - bits)


# zstd

_ZSTD_MAGIC: Final[bytes] = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final[bytes] = b"\x2a\x4d\x18"
_ZSTD_MAX_WINDOW_BYTES = 128 << 20
"""The largest window that zstd's own readers take unless told otherwise, and Kafka's brokers do not tell."""
_ZSTD_MAX_BLOCK_BYTES = 128 << 10
_ZSTD_ONE_PIECE_BYTES = 4 << 20
_ZSTD_USUAL_RATIO = 8
_ZSTD_PART_BYTES = 1 << 20


def _zstd_is_single_block(data: memoryview) -> bool:
    """Whether all of the data is one frame of one compressed block, as most batches are."""
    block = int.from_bytes(data[6:9], "little")  # behind a header that declares nothing but its window
    return block & 3 == 1 and block >> 3 == len(data) - 9 and data[:5] == _ZSTD_MAGIC + b"\0"


def _zstd_frames(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Each frame that holds content, and the most bytes it can inflate to. Raises unless the last ends with `data`."""
    at = 0
    while at < len(data) or at == 0:
        if len(data) - at >= 8 and data[at + 1 : at + 4] == _ZSTD_SKIPPABLE and data[at] & 0xF0 == 0x50:
            at += 8 + _UINT32_LE.unpack_from(data, at + 4)[0]  # a skippable frame, section 3.1.2
            continue
        stop, most_bytes = _zstd_frame(data, at)
        yield data[at:stop], most_bytes
        at = stop
    if at > len(data):
        raise CorruptSegment(f"zstd data ends inside a skippable frame, after {len(data)} bytes")


def _zstd_frame(data: memoryview, start: int) -> tuple[int, int]:
    """Where the frame that begins at `start` ends, and the most bytes it can inflate to. Reads its block headers."""
    if data[start : start + 4] != _ZSTD_MAGIC:
        raise CorruptSegment(f"no zstd frame at byte {start} but {bytes(data[start : start + 4]).hex()}")
    parameters = zstandard.get_frame_parameters(data[start : start + 18])
    if parameters.window_size > _ZSTD_MAX_WINDOW_BYTES:
        raise UnsupportedFormat(f"zstd window of {parameters.window_size} bytes; {_ZSTD_MAX_WINDOW_BYTES} are allowed")
    max_block_bytes = min(parameters.window_size, _ZSTD_MAX_BLOCK_BYTES)
    at = start + zstandard.frame_header_size(data[start : start + 18])
    most_bytes = 0
    last = False
    while not last:
        header = int.from_bytes(data[at : at + 3], "little")
        last, kind, size_bytes = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == 3 or size_bytes > max_block_bytes:
            raise CorruptSegment(f"zstd block at byte {at} has type {kind} and {size_bytes} bytes")
        most_bytes += max_block_bytes if kind == 2 else size_bytes
        at += 3 + (1 if kind == 1 else size_bytes)
        if at > len(data):
            raise CorruptSegment(f"zstd frame ends early, after {len(data)} bytes")
    stop = at + (4 if parameters.has_checksum else 0)
    if stop > len(data):
        raise CorruptSegment(f"zstd frame ends early, after {len(data)} bytes")
    if parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        return stop, most_bytes
    if parameters.content_size > most_bytes:
        raise CorruptSegment(f"zstd frame declares {parameters.content_size} bytes and holds at most {most_bytes}")
    return stop, parameters.content_size
