"""Damages record batches inside, and then makes their lengths, codecs and checksums valid again.

Rules of the file:

- The seed is a whole, valid log. The product's readers open it, and the writers of the test kit close it.
- One header field is damaged, or the records or messages inside.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from struct import Struct

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.codecs import Codecs
from remote_fetch.testing.compression import compress
from remote_fetch.testing.records import HEADER_BYTES, rewrite_crc
from tools.fuzz_damage import damage_varints, mutate

__all__ = ["damage_log", "reseal_log"]

_PREFIX = Struct(">qi")
_MAGIC_AT = 16
_ATTRIBUTES_AT = {0: 17, 1: 17, 2: 22}
_CODEC_MASK = 7
_V2_FIELDS = ((0, 8), (12, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))
"""Position and size of the header fields to damage: all but length, magic and the checksum."""
_LEGACY_VALUE_AT = {0: 26, 1: 34}
"""The position of the value of a wrapper, which has no key."""
_MAX_BYTES = 4 << 20


def reseal_log(data: bytes) -> bytes:
    """The entries that their length field covers completely, each with the right checksum of its bytes."""
    out = bytearray()
    at = 0
    while len(data) - at > HEADER_BYTES:
        size_bytes = _PREFIX.size + _PREFIX.unpack_from(data, at)[1]
        if not _MAGIC_AT + 6 <= size_bytes <= len(data) - at:
            break
        out += rewrite_crc(data[at : at + size_bytes])
        at += size_bytes
    return bytes(out) + data[at:]


def _entries(log: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(log):
        size_bytes = _PREFIX.size + _PREFIX.unpack_from(log, at)[1]
        found.append(log[at : at + size_bytes])
        at += size_bytes
    return found


def damage_log(log: bytes, chance: random.Random) -> bytes:
    """Return the log with one batch damaged inside. One time in 16, return it with a batch inserted a second time."""
    batches = _entries(log)
    at = chance.randrange(len(batches))
    if chance.randrange(16) == 0:
        batches.insert(chance.randrange(len(batches) + 1), batches[at])
    else:
        batches[at] = _damage_batch(batches[at], chance)
    return b"".join(batches)


def _damage_batch(batch: bytes, chance: random.Random) -> bytes:
    magic = batch[_MAGIC_AT]
    if magic == 2:
        return _damage_header(batch, chance) if chance.randrange(3) == 0 else _damage_records(batch, chance)
    if batch[_ATTRIBUTES_AT[magic]] & _CODEC_MASK and chance.randrange(8):
        return _damage_wrapper(batch, magic, chance)
    return _sealed(mutate(batch, chance))


def _sealed(batch: bytes) -> bytes:
    """The bytes as one entry with the right length and checksum."""
    if len(batch) <= _MAGIC_AT + 5:
        return batch
    return rewrite_crc(batch[:8] + (len(batch) - _PREFIX.size).to_bytes(4, "big", signed=True) + batch[12:])


def _damage_header(batch: bytes, chance: random.Random) -> bytes:
    at, size_bytes = chance.choice(_V2_FIELDS)
    bits = 8 * size_bytes
    before = int.from_bytes(batch[at : at + size_bytes], "big")
    others = (
        before + 1,
        before - 1,
        before ^ 1 << chance.randrange(bits),
        0,
        -1,
        1,
        1 << bits - 1,
        (1 << bits - 1) - 1,
    )
    field = (chance.choice(others) % (1 << bits)).to_bytes(size_bytes, "big")
    return rewrite_crc(batch[:at] + field + batch[at + size_bytes :])


def _damage_records(batch: bytes, chance: random.Random) -> bytes:
    codec = batch[_ATTRIBUTES_AT[2]] & _CODEC_MASK
    area = (
        bytes(Codecs(max_bytes=_MAX_BYTES).decompress(codec, memoryview(batch)[HEADER_BYTES:]))
        if batch[57:61] != bytes(4)
        else b""
    )
    how: Callable[[bytes, random.Random], bytes] = damage_varints if chance.randrange(2) else mutate
    return _sealed(batch[:HEADER_BYTES] + compress(codec, how(area, chance)))


def _damage_wrapper(batch: bytes, magic: int, chance: random.Random) -> bytes:
    """A compressed message set with one message inside changed, sealed, doubled, left out or replaced by a wrapper."""
    codec = batch[_ATTRIBUTES_AT[magic]] & _CODEC_MASK
    value_at = _LEGACY_VALUE_AT[magic]
    try:
        inside = Codecs(max_bytes=_MAX_BYTES).decompress(codec, memoryview(batch)[value_at:], lz4_v0=magic == 0)
    except RemoteFetchError:
        return _sealed(mutate(batch, chance))
    messages = _entries(bytes(inside))
    at = chance.randrange(len(messages))
    match chance.randrange(5):
        case 0:
            messages[at] = mutate(messages[at], chance)
        case 1:
            messages[at] = batch
        case 2:
            messages.insert(at, messages[at])
        case 3:
            del messages[at]
        case _:
            messages[at] = _sealed_inside(mutate(messages[at], chance))
    value = compress(codec, b"".join(messages), lz4_magic_0=magic == 0)
    return _sealed(batch[: value_at - 4] + len(value).to_bytes(4, "big") + value)


def _sealed_inside(message: bytes) -> bytes:
    if len(message) < _MAGIC_AT:
        return message
    crc = zlib.crc32(message[_MAGIC_AT:]).to_bytes(4, "big")
    return message[:8] + (len(message) - _PREFIX.size).to_bytes(4, "big") + crc + message[_MAGIC_AT:]
