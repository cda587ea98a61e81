"""The writers' side of Kafka's codecs, for logs made in tests.

Rules of the file:

- Pure. Nothing is decompressed.
- Each codec frames its output as a client in use does (Java for gzip and lz4, librdkafka for zstd and raw snappy),
  because readers have to distinguish the frames.
"""

from __future__ import annotations

import gzip
from typing import Literal, TypeAlias

import cramjam
import zstandard

__all__ = ["GZIP", "LZ4", "NONE", "SNAPPY", "ZSTD", "SnappyFraming", "compress"]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

SnappyFraming: TypeAlias = Literal["raw", "xerial"]
"""`raw` is one bare snappy block (librdkafka); `xerial` is the framed stream of Java's and kafka-python's writers."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES = 32 << 10

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"
"""Version 1, independent blocks of at most 64 KiB, no sizes and no checksums, as Kafka's own writer sets it."""
_LZ4_HEADER_CHECKSUM = 0x82
_LZ4_HEADER_CHECKSUM_MAGIC_0 = 0x1A
"""Writers of message format 0 included the frame magic in the checksum. Readers must accept that."""
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_STORED = 1 << 31
_LZ4_END_MARK = bytes(4)


def compress(codec: int, data: bytes, *, snappy_framing: SnappyFraming = "raw", lz4_magic_0: bool = False) -> bytes:
    """`data` under Kafka's codec id 0 to 4 (none, gzip, snappy, lz4, zstd), the same bytes for the same input.

    `lz4_magic_0` writes the wrong header checksum of message format 0. Raises ValueError for any other codec id.
    """
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data)) if snappy_framing == "raw" else _xerial(data)
    if codec == LZ4:
        return _lz4_frame(data, _LZ4_HEADER_CHECKSUM_MAGIC_0 if lz4_magic_0 else _LZ4_HEADER_CHECKSUM)
    if codec == ZSTD:
        return _zstd_stream(data)
    raise ValueError(f"codec {codec}: Kafka has 0 to 4")


def _xerial(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


def _lz4_frame(data: bytes, header_checksum: int) -> bytes:
    out = bytearray(_LZ4_MAGIC + _LZ4_DESCRIPTOR)
    out.append(header_checksum)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(packed) < len(plain):
            out += len(packed).to_bytes(4, "little") + packed
        else:
            out += (len(plain) | _LZ4_STORED).to_bytes(4, "little") + plain
    return bytes(out + _LZ4_END_MARK)


def _zstd_stream(data: bytes) -> bytes:
    # A streaming writer does not know the size at the beginning, so the frame does not declare it.
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(data) + writer.flush()
