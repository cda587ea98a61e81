"""LZ4 frames, as far as Kafka's readers look at them: a header, blocks with their sizes, an end mark.

Rules of the file:

- Bytes in, positions in these bytes out. Nothing is decompressed here.

Format: LZ4 frame format description 1.6. KIP-57 names the writers of a wrong header checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from remote_fetch.errors import CorruptSegment

__all__ = ["HISTORY_BYTES", "KAFKA_FRAME", "MAX_RATIO", "Frame", "after_history", "blocks", "frame_of", "single_block"]

HISTORY_BYTES: Final = 64 << 10
"""How far back a linked block may refer."""

MAX_RATIO: Final = 255
"""The densest byte lengthens a copy by 255 bytes, so no block inflates more."""

_UINT32_LE = Struct("<I")
_MAGIC = b"\x04\x22\x4d\x18"
_KAFKA_HEADER = _MAGIC + b"\x60\x40\x82"
_STORED_BIT = 1 << 31


class Frame(NamedTuple):
    """The fields of a frame header. `header_bytes` is its own size. The other sizes are of decompressed content."""

    header_bytes: int
    linked: bool
    block_checksums: bool
    content_checksum: bool
    content_bytes: int | None
    max_block_bytes: int


KAFKA_FRAME: Final = Frame(len(_KAFKA_HEADER), False, False, False, None, 64 << 10)
"""The header that Java and librdkafka write: independent blocks of at most 64 KiB, no sizes, no content checksum."""


def frame_of(data: memoryview, any_header_checksum: bool) -> Frame:
    """The frame at the beginning of `data`. Raises CorruptSegment if the header breaks the format."""
    if data[: len(_KAFKA_HEADER)] == _KAFKA_HEADER:
        return KAFKA_FRAME
    if len(data) < len(_KAFKA_HEADER) or data[:4] != _MAGIC:
        raise CorruptSegment(f"lz4 data does not start with a frame header but with {bytes(data[:7]).hex()}")
    flags, block_descriptor = data[4], data[5]
    header_bytes = len(_KAFKA_HEADER) + (8 if flags & 0x08 else 0)
    # Two bits for the version, 01. Then linked, block checksums, size, content checksum, reserved, dictionary.
    if flags & 0xC3 != 0x40 or block_descriptor & 0x8F or block_descriptor < 0x40 or len(data) < header_bytes:
        raise CorruptSegment(f"lz4 frame header is not legal: flags {flags:#04x}, blocks {block_descriptor:#04x}")
    checksum = (_xxh32_short(bytes(data[4 : header_bytes - 1])) >> 8) & 0xFF
    if checksum != data[header_bytes - 1] and not any_header_checksum:
        raise CorruptSegment(f"lz4 frame header has checksum {data[header_bytes - 1]:#04x}, not {checksum:#04x}")
    return Frame(
        header_bytes=header_bytes,
        linked=not flags & 0x20,
        block_checksums=bool(flags & 0x10),
        content_checksum=bool(flags & 0x04),
        content_bytes=int.from_bytes(data[6:14], "little") if flags & 0x08 else None,
        max_block_bytes=1 << (8 + 2 * (block_descriptor >> 4)),
    )


def single_block(data: memoryview) -> memoryview | None:
    """The only block of a frame in the form of Kafka's clients. None for other frames and for a stored block."""
    start, stop = len(_KAFKA_HEADER) + 4, len(data) - 4
    if not 0 < stop - start <= KAFKA_FRAME.max_block_bytes or data[stop:] != bytes(4):
        return None
    return data[start:stop] if data[:start] == _KAFKA_HEADER + (stop - start).to_bytes(4, "little") else None


def blocks(data: memoryview, frame: Frame) -> Iterator[tuple[bool, memoryview]]:
    """Each block of the frame, and whether it is stored uncompressed. Raises if `data` ends before the frame.

    Bytes after the frame are ignored, as Kafka's reader ignores them. The checksums of blocks and content are skipped,
    because the batch has its CRC. Kafka's reader compares those of blocks.
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
        size_bytes = word & ~_STORED_BIT
        if size_bytes > min(frame.max_block_bytes, len(data) - at):
            raise CorruptSegment(f"lz4 block of {size_bytes} bytes at byte {at} is larger than its frame allows")
        yield bool(word & _STORED_BIT), data[at : at + size_bytes]
        at += size_bytes + trailer_bytes
    if frame.content_checksum and len(data) - at < _UINT32_LE.size:
        raise CorruptSegment(f"lz4 frame ends inside its checksum, after {len(data)} bytes")


def after_history(history: memoryview, block: memoryview) -> bytes:
    """A block that decodes to `history`, followed by the content of `block` after that history.

    A block is a sequence of (literals, copy). The history is put in front of the first literals.
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
