"""The primitives of Kafka's flexible encoding: varints, compact strings and bytes, sections of tagged fields.

Rules of the file:

- Pure. A reader takes `(data, at)` and returns `(value, at)`; an encoder returns bytes.
- Every length is compared with the bytes at hand before it is used.
- Every fault is a CorruptSegment that names the byte.

The records of the remote log metadata topic use it, and custom metadata that is one section of tagged fields.
Encoding: KIP-482.
"""

from __future__ import annotations

from remote_fetch.errors import CorruptSegment
from remote_fetch.model import Buffer

__all__ = [
    "encode_compact_bytes",
    "encode_compact_string",
    "encode_uvarint",
    "encode_varlong",
    "read_compact_bytes",
    "read_compact_string",
    "read_tagged_fields",
    "read_uvarint",
    "read_varlong",
    "skip_tagged_fields",
]

_MORE = 0x80
_GROUP = 0x7F


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """An unsigned 32-bit number in groups of seven bits, lowest first. Raises CorruptSegment."""
    first = data[at] if at < len(data) else _MORE
    if first < _MORE:
        return first, at + 1
    return _read_groups(data, at, bits=32)


def read_varlong(data: Buffer, at: int) -> tuple[int, int]:
    """A signed 64-bit number, zig-zag encoded. Raises CorruptSegment."""
    value, at = _read_groups(data, at, bits=64)
    return (value >> 1) ^ -(value & 1), at


def _read_groups(data: Buffer, at: int, *, bits: int) -> tuple[int, int]:
    value = 0
    for group, position in enumerate(range(at, at + -(-bits // 7))):
        if position >= len(data):
            raise CorruptSegment(f"the bytes end inside a varint at byte {at}")
        byte = data[position]
        value |= (byte & _GROUP) << (7 * group)
        if byte < _MORE:
            if value >> bits:
                break
            return value, position + 1
    raise CorruptSegment(f"varint of more than {bits} bits at byte {at}")


def read_compact_bytes(data: Buffer, at: int) -> tuple[bytes | None, int]:
    """Bytes with their length + 1 in front; 0 stands for None. Raises CorruptSegment."""
    length, start = read_uvarint(data, at)
    if length == 0:
        return None, start
    end = start + length - 1
    if end > len(data):
        raise CorruptSegment(f"{length - 1} bytes announced at byte {at}, {len(data) - start} are there")
    return bytes(data[start:end]), end


def read_compact_string(data: Buffer, at: int) -> tuple[str, int]:
    """UTF-8 text with its length in bytes + 1 in front, never null. Raises CorruptSegment."""
    raw, end = read_compact_bytes(data, at)
    if raw is None:
        raise CorruptSegment(f"null instead of a string at byte {at}")
    try:
        return raw.decode("utf-8"), end
    except UnicodeDecodeError:
        raise CorruptSegment(f"a string at byte {at} is not UTF-8") from None


def read_tagged_fields(data: Buffer, at: int) -> tuple[dict[int, bytes], int]:
    """A section of tagged fields: the raw bytes of each field by its tag, in their order. Raises CorruptSegment."""
    count, start = read_uvarint(data, at)
    if count > (len(data) - start) // 2:
        raise CorruptSegment(f"{count} tagged fields announced at byte {at}, {len(data) - start} bytes are there")
    fields: dict[int, bytes] = {}
    at = start
    for _ in range(count):
        tag, size_at = read_uvarint(data, at)
        size_bytes, start = read_uvarint(data, size_at)
        end = start + size_bytes
        if end > len(data):
            raise CorruptSegment(f"tagged field {tag} at byte {at}: {size_bytes} bytes, {len(data) - start} are there")
        if tag in fields:
            raise CorruptSegment(f"tagged field {tag} stands twice, again at byte {at}")
        fields[tag] = bytes(data[start:end])
        at = end
    return fields, at


def skip_tagged_fields(data: Buffer, at: int) -> int:
    """The end of the section of tagged fields at `at`. Raises CorruptSegment."""
    if at < len(data) and data[at] == 0:
        return at + 1
    return read_tagged_fields(data, at)[1]


def encode_uvarint(value: int) -> bytes:
    """The bytes that `read_uvarint` reads. `value` is not negative."""
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & _GROUP | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varlong(value: int) -> bytes:
    """The bytes that `read_varlong` reads."""
    return encode_uvarint(value << 1 ^ value >> 63)


def encode_compact_bytes(value: bytes | None) -> bytes:
    """The bytes that `read_compact_bytes` reads."""
    return b"\0" if value is None else encode_uvarint(len(value) + 1) + value


def encode_compact_string(value: str) -> bytes:
    """The bytes that `read_compact_string` reads."""
    return encode_compact_bytes(value.encode("utf-8"))
