"""Compressed streams to damage: streams of every codec's writers, bombs, and damage that keeps a stream plausible.

Rules of the file:

- A stream begins with the number of its codec, so that the number is damaged too.
- Bit 3 marks the lz4 of message format 0, which has a different header checksum.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Iterator, Sequence
from functools import cache

import zstandard

from remote_fetch.testing.compression import compress
from remote_fetch.testing.records import Record, encode_records
from tools.fuzz_damage import mutate

__all__ = ["damage_stream", "streams"]

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_MAGIC_0 = 8
_BOMB_BYTES = (5 << 20, 7 << 20, 40 << 20)
"""The inflated sizes of the bombs: below the bound of the fuzzed codecs, above it, and far above it."""
_BOMBS_IN = 400
"""One input in this number is a bomb, because each bomb takes milliseconds."""
_GZIP_HEADER_BYTES = 10


def streams(records: Sequence[Record]) -> Iterator[bytes]:
    """The records under each codec, in each framing that writers use."""
    area = encode_records(records)
    for codec in range(5):
        yield bytes([codec]) + compress(codec, area)
    yield bytes([_SNAPPY]) + compress(_SNAPPY, area * 20, snappy_framing="xerial")
    yield bytes([_LZ4 | _MAGIC_0]) + compress(_LZ4, area, lz4_magic_0=True)
    yield bytes([_GZIP]) + gzip.compress(area[:99], mtime=0) + gzip.compress(area[99:], mtime=0)
    yield bytes([_ZSTD]) + zstandard.ZstdCompressor(write_checksum=True).compress(area)
    yield bytes([_ZSTD]) + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstandard.ZstdCompressor().compress(area)


@cache
def _bombs() -> tuple[bytes, ...]:
    return tuple(
        bytes([codec]) + compress(codec, bytes(size_bytes)) for codec in range(1, 5) for size_bytes in _BOMB_BYTES
    )


def damage_stream(data: bytes, chance: random.Random) -> bytes:
    """Return a damaged body after a valid header, with a gzip trailer that fits; seldom a bomb, whole or damaged."""
    if chance.randrange(_BOMBS_IN) == 0:
        bomb = chance.choice(_bombs())
        return bomb if chance.randrange(2) else bomb[:1] + mutate(bomb[1:], chance)
    codec = data[0] & 7
    kept = {_GZIP: 1 + _GZIP_HEADER_BYTES, _LZ4: 1 + 7, _ZSTD: 1 + 6}.get(codec, 1)
    damaged = data[:kept] + mutate(data[kept:], chance)
    return _with_gzip_trailer(damaged) if codec == _GZIP else damaged


def _with_gzip_trailer(data: bytes) -> bytes:
    """The gzip member in `data[1:]`, with the checksum and the size of its inflated body, if the body inflates."""
    inflater = zlib.decompressobj(-15)
    try:
        content = inflater.decompress(data[1 + _GZIP_HEADER_BYTES :], _BOMB_BYTES[0])
    except zlib.error:
        return data
    if not inflater.eof:
        return data
    body_bytes = len(data) - 1 - _GZIP_HEADER_BYTES - len(inflater.unused_data)
    trailer = zlib.crc32(content).to_bytes(4, "little") + (len(content) & 0xFFFFFFFF).to_bytes(4, "little")
    return data[: 1 + _GZIP_HEADER_BYTES + body_bytes] + trailer
