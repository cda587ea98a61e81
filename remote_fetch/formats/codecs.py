"""Decompression of record areas: Kafka's four codecs, with a bound on the output.

Rules of the file:

- Bytes in, bytes out. This module knows no batches and no records.
- The output is bounded before memory is taken for it. A stream may declare a size. The module believes it only if the
  length of the stream, or its block headers, allow so many bytes.
- If no size is declared, the module adds up the output part by part, and stops at the bound.
- Memory of the usual size is reused: new memory costs about as much as writing to it.
- An error of a library leaves as CorruptSegment without a position. The caller adds the position.
- Bytes after the end of a stream are ignored where Java's reader, by which brokers check batches, ignores them: after
  gzip members and after an LZ4 frame.

The streams, in the order of the sections below:
    gzip    RFC 1952, one member or several
    snappy  one raw block (librdkafka), or the xerial framing of several (Java), one stream of it or more
    lz4     one LZ4 frame, as in the LZ4 frame format description 1.6
    zstd    RFC 8878, one frame or several; producers stream, so the content size is usually not declared
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final

import cramjam
import zstandard

from remote_fetch.errors import CorruptSegment, DecompressionLimit, UnsupportedFormat
from remote_fetch.formats import lz4_frame

__all__ = ["CODEC_NAMES", "DEFAULT_MAX_DECOMPRESSED_BYTES", "Codecs"]

CODEC_NAMES: Final[Mapping[int, str]] = MappingProxyType({0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"})
"""Kafka's codec ids, the low three bits of a batch's attributes. 5 to 7 do not exist."""

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""Default of `fetch.remote.max.decompressed.bytes`."""

_KEPT_BYTES = 4 << 20
"""Larger memory is freed after use. Batches have at most 1 MiB unless a topic is configured otherwise."""

_UINT32_LE = Struct("<I")
_INT32_BE = Struct(">i")


class Codecs:
    """The decompressors of one worker thread, reused from batch to batch. Not thread-safe.

    `max_bytes` is the most that one call may inflate to. Besides the output a call holds at most a few MiB.
    """

    def __init__(self, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> None:
        self.max_bytes = max_bytes
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
        self._room = memoryview(bytearray(lz4_frame.KAFKA_FRAME.max_block_bytes))

    def decompress(self, codec: int, data: memoryview, *, lz4_v0: bool = False) -> memoryview:
        """The decompressed record area, read only. The next call overwrites it.

        Codec 0 returns `data`. `lz4_v0`: `data` is the value of a message with magic 0. Writers of such messages
        computed the checksum of the LZ4 frame header over the wrong bytes (KIP-57), so it is not checked.

        Raises DecompressionLimit if the output would have more than `max_bytes`, CorruptSegment for a stream that
        breaks its format or ends early, and UnsupportedFormat for the codecs 5 to 7.
        """
        if codec == 0:
            return data
        try:
            if codec == 1:
                return self._gunzip(data).toreadonly()
            if codec == 2:
                return self._unsnappy(data).toreadonly()
            if codec == 3:
                return self._unlz4(data, lz4_v0).toreadonly()
            if codec == 4:
                return self._unzstd(data)
        except (cramjam.DecompressionError, zstandard.ZstdError, zlib.error) as error:
            raise CorruptSegment(f"{CODEC_NAMES[codec]} data cannot be decompressed: {error}") from error
        raise UnsupportedFormat(f"compression codec {codec}; 0 to 4 are known")

    def _larger(self, room: memoryview, used_bytes: int, size_bytes: int) -> memoryview:
        """A larger replacement for `room`, of at least `size_bytes`, with the first `used_bytes` copied over."""
        larger = memoryview(bytearray(max(size_bytes, len(room) + len(room) // 4)))
        larger[:used_bytes] = room[:used_bytes]
        if len(larger) <= _KEPT_BYTES:
            self._room = larger
        return larger

    def _output(self, size_bytes: int) -> memoryview:
        room = self._room if size_bytes <= len(self._room) else self._larger(self._room, 0, size_bytes)
        return room[:size_bytes]

    def _gunzip(self, data: memoryview) -> memoryview:
        """Inflate a single member at once, to the size that its last four bytes declare. Inflate the rest in parts."""
        if len(data) >= _GZIP_MIN_BYTES:
            (size_bytes,) = _UINT32_LE.unpack_from(data, len(data) - 4)
            if size_bytes <= min(self.max_bytes, _DEFLATE_MAX_RATIO * len(data)):
                output = self._output(size_bytes)
                try:
                    written_bytes = cramjam.gzip.decompress_into(data, output)
                except cramjam.DecompressionError:
                    written_bytes = -1  # corrupt, or several members: `_gunzip_members` finds out
                if written_bytes == size_bytes:
                    return output
        return _gunzip_members(data, self.max_bytes)

    def _unsnappy(self, data: memoryview) -> memoryview:
        size_bytes = 0
        for block in _snappy_blocks(data):
            size_bytes += _snappy_size_bytes(block)
            if size_bytes > self.max_bytes:
                raise _limit("snappy", self.max_bytes)
        output = self._output(size_bytes)
        at = 0
        for block in _snappy_blocks(data):
            at += cramjam.snappy.decompress_raw_into(block, output[at : at + _snappy_size_bytes(block)])
        return output

    def _unlz4(self, data: memoryview, any_header_checksum: bool) -> memoryview:
        room, at = self._room, 0
        block, most_bytes = lz4_frame.single_block(data), lz4_frame.KAFKA_FRAME.max_block_bytes
        if block is not None and self.max_bytes >= most_bytes:
            return room[: cramjam.lz4.decompress_block_into(block, room[:most_bytes], output_len=most_bytes)]
        frame = lz4_frame.frame_of(data, any_header_checksum)
        for stored, block in lz4_frame.blocks(data, frame):
            most_bytes = len(block) if stored else min(frame.max_block_bytes, lz4_frame.MAX_RATIO * len(block))
            if at + most_bytes > len(room):
                room = self._larger(room, at, at + most_bytes)
            if stored:
                room[at : at + most_bytes] = block
                at += most_bytes
            else:
                # A linked block copies from the output before it, which a block decoder does not have. So that output
                # becomes the beginning of the block, and the decoder writes it again in its place.
                start = max(at - lz4_frame.HISTORY_BYTES, 0) if frame.linked else at
                whole = lz4_frame.after_history(room[start:at], block) if start < at else block
                output = room[start : at + most_bytes]
                at = start + cramjam.lz4.decompress_block_into(whole, output, output_len=len(output))
            if at > self.max_bytes:
                raise _limit("lz4", self.max_bytes)
        if frame.content_bytes is not None and frame.content_bytes != at:
            raise CorruptSegment(f"lz4 frame declares {frame.content_bytes} bytes and holds {at}")
        return room[:at]

    def _unzstd(self, data: memoryview) -> memoryview:
        most_bytes = _zstd_single_block(data)
        if not 0 < most_bytes <= self.max_bytes:
            return self._unzstd_frames(data)
        try:
            return self._unzstd_frame(data, most_bytes)
        except zstandard.ZstdError:  # larger, or corrupt: `_unzstd_frames` finds out
            return self._unzstd_frames(data)

    def _unzstd_frame(self, frame: memoryview, most_bytes: int) -> memoryview:
        """The content of one complete frame. Raises ZstdError if it is corrupt or larger than `most_bytes`."""
        if 0 < most_bytes <= _ZSTD_SMALL_BYTES:  # without a content this would not check the checksum
            return memoryview(self._zstd.decompress(frame, max_output_size=most_bytes))
        output = self._output(most_bytes)
        with self._zstd.stream_reader(frame) as reader:
            written_bytes = reader.readinto(output)
            if reader.read(1):  # this read also checks the checksum at the end
                raise zstandard.ZstdError(f"more than {most_bytes} bytes")
        return output[:written_bytes].toreadonly()

    def _unzstd_frames(self, data: memoryview) -> memoryview:
        frames: list[bytes] = []
        left_bytes = self.max_bytes
        for frame, most_bytes in _zstd_frames(data):
            if most_bytes > _ZSTD_ONE_PIECE_BYTES:
                content = self._unzstd_by_parts(frame, left_bytes)
            elif len(frame) == len(data) and most_bytes <= left_bytes:
                return self._unzstd_frame(frame, most_bytes)
            else:
                content = bytes(self._unzstd_frame(frame, most_bytes))
                if len(content) > left_bytes:
                    raise _limit("zstd", self.max_bytes)
            frames.append(content)
            left_bytes -= len(content)
        return memoryview(frames[0] if len(frames) == 1 else b"".join(frames))

    def _unzstd_by_parts(self, frame: memoryview, left_bytes: int) -> bytes:
        """The content of a frame that is large, or whose headers allow it to be."""
        parts: list[bytes] = []
        with self._zstd.stream_reader(frame) as reader:
            while part := reader.read(_ZSTD_PART_BYTES):
                left_bytes -= len(part)
                if left_bytes < 0:
                    raise _limit("zstd", self.max_bytes)
                parts.append(part)
        return b"".join(parts)


def _limit(codec: str, max_bytes: int) -> DecompressionLimit:
    return DecompressionLimit(
        f"{codec} data inflates to more than {max_bytes} bytes",
        hint="If the batch is genuine, raise fetch.remote.max.decompressed.bytes",
    )


# gzip

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_MIN_BYTES = 18
_GZIP_WBITS = 31
_GZIP_PART_BYTES = 64 << 10
_DEFLATE_MAX_RATIO = 1032


def _gunzip_members(data: memoryview, max_bytes: int) -> memoryview:
    output = bytearray()
    member = zlib.decompressobj(_GZIP_WBITS)
    at = 0
    while at < len(data):
        if member.eof:
            if not _GZIP_MAGIC.startswith(bytes(data[at : at + len(_GZIP_MAGIC)])):
                break
            member = zlib.decompressobj(_GZIP_WBITS)
        # Small parts, because zlib copies the rest of a part after the end of a member or after the bound.
        part = data[at : at + _GZIP_PART_BYTES]
        output += member.decompress(part, min(max_bytes - len(output) + 1, sys.maxsize))
        if len(output) > max_bytes:
            raise _limit("gzip", max_bytes)
        at += len(part) - len(member.unused_data)
    if not member.eof:
        raise CorruptSegment(f"gzip data ends early, after {len(data)} bytes")
    return memoryview(output)


# snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
# The densest element is a copy of 64 bytes, written in 3.
_SNAPPY_MAX_RATIO = 22


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data
        return
    at = 0
    while at < len(data):
        if data[at : at + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # another stream, which Java's reader goes on with
            at += _XERIAL_HEADER_BYTES
            continue
        if len(data) - at < _INT32_BE.size:
            raise CorruptSegment(f"snappy data ends inside a block length, at byte {at}")
        (size_bytes,) = _INT32_BE.unpack_from(data, at)
        at += _INT32_BE.size
        if not 0 < size_bytes <= len(data) - at:
            raise CorruptSegment(f"snappy block of {size_bytes} bytes where {len(data) - at} are left, at byte {at}")
        yield data[at : at + size_bytes]
        at += size_bytes
    if at > len(data):
        raise CorruptSegment("snappy data ends inside the xerial header")


def _snappy_size_bytes(block: memoryview) -> int:
    size_bytes: int = cramjam.snappy.decompress_raw_len(block)
    if size_bytes > _SNAPPY_MAX_RATIO * len(block):
        raise CorruptSegment(f"snappy block declares {size_bytes} bytes, more than {len(block)} bytes can hold")
    return size_bytes


# zstd

_ZSTD_MAGIC: Final[bytes] = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final[bytes] = b"\x2a\x4d\x18"
_ZSTD_MAX_WINDOW_BYTES = 128 << 20
"""The largest window that zstd's readers accept by default. Kafka's brokers keep the default."""
_ZSTD_MAX_BLOCK_BYTES = 128 << 10
_ZSTD_ONE_PIECE_BYTES = 4 << 20
_ZSTD_SMALL_BYTES = 64 << 10
"""Up to this size new memory costs less than a stream. For more the C library asks the system each time."""
_ZSTD_USUAL_RATIO = 8
_ZSTD_PART_BYTES = 1 << 20
_ZSTD_MIN_BYTES = 9
_ZSTD_CHECKSUM_BIT = 0x04
_ZSTD_SINGLE_SEGMENT_BIT = 0x20
_ZSTD_WINDOW_AT = 5
_ZSTD_USUAL_WINDOWS = range(0x38, 0x89)
"""128 KiB to 128 MiB. A block in a smaller window may be too large. Section 3.1.1.1.2."""
_ZSTD_UNUSUAL_BITS = 0x0B
"""The bits for a dictionary, and a reserved bit."""
# Where the content size is declared, and where the first block begins. The upper three bits of the descriptor choose
# the pair. A frame that is not a single segment has its window between. Section 3.1.1.1.
_ZSTD_PLACES = ((6, 6), (5, 6), (6, 8), (5, 7), (6, 10), (5, 9), (6, 14), (5, 13))


def _zstd_single_block(data: memoryview) -> int:
    """The largest output if the data is one frame of one block, as in most batches. 0 if it is not."""
    if len(data) < _ZSTD_MIN_BYTES or data[:4] != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    size_at, block_at = _ZSTD_PLACES[descriptor >> 5]
    block = int.from_bytes(data[block_at : block_at + 3], "little")
    left_bytes = len(data) - block_at - 3 - (4 if descriptor & _ZSTD_CHECKSUM_BIT else 0)
    if block & 3 != 1 or block >> 3 != left_bytes or descriptor & _ZSTD_UNUSUAL_BITS:
        return 0
    if not descriptor & _ZSTD_SINGLE_SEGMENT_BIT and data[_ZSTD_WINDOW_AT] not in _ZSTD_USUAL_WINDOWS:
        return 0
    if size_at == block_at:
        return min(_ZSTD_USUAL_RATIO * len(data), _ZSTD_MAX_BLOCK_BYTES)
    size_bytes = int.from_bytes(data[size_at:block_at], "little") + (256 if block_at - size_at == 2 else 0)
    return size_bytes if size_bytes <= _ZSTD_MAX_BLOCK_BYTES else 0


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
    """The end of the frame that begins at `start`, and the most bytes it can inflate to, by its block headers."""
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
