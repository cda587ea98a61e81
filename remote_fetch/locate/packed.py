"""Columns of numbers in a frame: the bytes that saved timelines and saved replays share.

Rules of the file:

- Pure.
- Framed bytes are foreign: they are checked, bounded before memory is taken, and refused with an error of this package.

A frame is a header (magic, version, CRC-32 of the rest, size of the body) and the body, compressed with zlib. A column
keeps one int64 for each row. Its bytes are grouped by significance, because neighbouring values differ in few bytes.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.tagged_fields import read_compact_string
from remote_fetch.model import Buffer, Uuid

__all__ = ["UUID_BYTES", "Frame", "PackedReader", "column", "numbers", "steps"]

UUID_BYTES = 16

_HEADER = Struct(">4sHIQ")
_CRC_FROM = 10
_NUMBER_BYTES = 8
_MASK_64 = 2**64 - 1
_SIGN_64 = 2**63


@dataclass(frozen=True, slots=True)
class Frame:
    """One kind of file: its first four bytes, its versions (the newest last), and its name in messages."""

    magic: bytes
    versions: tuple[int, ...]
    name: str

    def wrap(self, body: bytes) -> bytes:
        """The body as a file of the newest version."""
        covered = len(body).to_bytes(_HEADER.size - _CRC_FROM, "big") + zlib.compress(body)
        return _HEADER.pack(self.magic, self.versions[-1], zlib.crc32(covered), 0)[:_CRC_FROM] + covered

    def unwrap(self, data: Buffer, max_body_bytes: int) -> tuple[int, bytes]:
        """The version and the body of a file.

        Raises UnsupportedFormat for other bytes and other versions, CorruptSegment for a damaged file and for a body
        larger than `max_body_bytes`.
        """
        view = memoryview(data)
        if len(view) < _HEADER.size or view[: len(self.magic)] != self.magic:
            raise UnsupportedFormat(f"not a {self.name}: it does not begin like one")
        _, version, crc, body_bytes = _HEADER.unpack_from(view)
        if version not in self.versions:
            known = " or ".join(map(str, self.versions))
            raise UnsupportedFormat(f"{self.name} of version {version}; version {known} is known")
        if zlib.crc32(view[_CRC_FROM:]) != crc:
            raise CorruptSegment(f"{self.name}: checksum mismatch")
        if body_bytes > max_body_bytes:
            raise CorruptSegment(f"{self.name}: body of {body_bytes} bytes, the bound is {max_body_bytes}")
        inflater = zlib.decompressobj()
        try:
            body = inflater.decompress(view[_HEADER.size :], body_bytes + 1)
        except zlib.error as error:
            raise CorruptSegment(f"{self.name}: {error}") from None
        if len(body) != body_bytes or not inflater.eof or inflater.unused_data:
            raise CorruptSegment(f"{self.name}: body is not the {body_bytes} bytes that were announced")
        return version, body


def numbers(*values: int) -> bytes:
    """The values as big-endian int64."""
    return pack(f">{len(values)}q", *values)


def steps(values: Sequence[int]) -> Iterable[int]:
    """The first value, then the difference of each value to its predecessor, as signed 64-bit integers."""
    return (_signed(after - before) for before, after in pairwise((0, *values)))


def _signed(number: int) -> int:
    return ((number + _SIGN_64) & _MASK_64) - _SIGN_64


def column(values: Iterable[int]) -> bytes:
    """The values as big-endian int64: the first byte of each, then the second byte of each, and so on."""
    row = array("q", values)
    rows = pack(f">{len(row)}q", *row)
    return b"".join(rows[at::_NUMBER_BYTES] for at in range(_NUMBER_BYTES))


class PackedReader:
    """Reads a body from front to back. Raises CorruptSegment if the bytes do not fit. `name` is that of the file."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._at = 0
        self.name = name

    def take(self, size_bytes: int) -> bytes:
        """The next bytes."""
        if not 0 <= size_bytes <= len(self._data) - self._at:
            raise CorruptSegment(f"{self.name}: {size_bytes} bytes wanted at byte {self._at} of {len(self._data)}")
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]

    def text(self) -> str:
        """A compact string."""
        text, self._at = read_compact_string(self._data, self._at)
        return text

    def uuid(self) -> Uuid:
        """A uuid."""
        return Uuid(self.take(UUID_BYTES))

    def uuids(self, count: int) -> list[bytes]:
        """Raw uuids."""
        data = self.take(count * UUID_BYTES)
        return [data[at : at + UUID_BYTES] for at in range(0, len(data), UUID_BYTES)]

    def numbers(self, count: int) -> tuple[int, ...]:
        """As many of `numbers`."""
        return unpack(f">{count}q", self.take(count * _NUMBER_BYTES))

    def column(self, count: int) -> tuple[int, ...]:
        """A `column` of as many rows."""
        planes = self.take(count * _NUMBER_BYTES)
        rows = bytearray(len(planes))
        for at in range(_NUMBER_BYTES):
            rows[at::_NUMBER_BYTES] = planes[at * count : (at + 1) * count]
        return unpack(f">{count}q", rows)

    def sums(self, count: int) -> tuple[int, ...]:
        """A column of `steps`, added up again."""
        return tuple(accumulate(self.column(count), lambda before, step: _signed(before + step)))

    def blobs(self, sizes: Sequence[int]) -> list[bytes | None]:
        """Bytes of these sizes, one after the other. Size -1 stands for None."""
        if min(sizes, default=0) < -1:
            raise CorruptSegment(f"{self.name}: negative sizes before byte {self._at}")
        return [None if size_bytes < 0 else self.take(size_bytes) for size_bytes in sizes]

    def finish(self) -> None:
        """Check that nothing is left over."""
        if self._at != len(self._data):
            raise CorruptSegment(f"{self.name}: {len(self._data) - self._at} bytes are left over")
