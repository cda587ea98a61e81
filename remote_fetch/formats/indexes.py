"""The three indexes that Kafka uploads beside a segment: offset index, time index and transaction index.

Rules of the file:

- Pure.
- `parse` checks the whole index. A parsed index is in order, so it is searched in place as a view of its bytes.
- No index has a header or a checksum. An index is accepted only if its entries ascend as a broker writes them.

Layouts: Kafka's `.index` (entries of 8 bytes, of 12 with KIP-1333), `.timeindex` (12 bytes) and `.txnindex` (34 bytes).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.model import AbortedTransaction, Buffer

__all__ = [
    "LARGE_ENTRY_BYTES",
    "LEGACY_ENTRY_BYTES",
    "MAX_RELATIVE_OFFSET",
    "TIME_ENTRY_BYTES",
    "TRANSACTION_ENTRY_BYTES",
    "OffsetIndex",
    "OffsetPosition",
    "TimeIndex",
    "TimestampOffset",
    "parse_transaction_index",
]

LEGACY_ENTRY_BYTES = 8
"""Offset index entry of every released Kafka: relative offset int32, position int32."""

LARGE_ENTRY_BYTES = 12
"""Offset index entry of KIP-1333, for segments over 2 GiB: relative offset int32, position int64."""

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Indexes store offsets relative to the segment's first offset, in 32 bits. A broker rolls the segment before that."""

_OFFSET_ENTRIES = {LEGACY_ENTRY_BYTES: Struct(">ii"), LARGE_ENTRY_BYTES: Struct(">iq")}
_TIME_ENTRY = Struct(">qi")
_TRANSACTION_ENTRY = Struct(">hqqqq")
_TRANSACTION_VERSION = 0

TIME_ENTRY_BYTES = _TIME_ENTRY.size
"""Time index entry: timestamp int64, relative offset int32."""

TRANSACTION_ENTRY_BYTES = _TRANSACTION_ENTRY.size
"""Transaction index entry: version int16, producer id and three offsets int64."""


class OffsetPosition(NamedTuple):
    """An entry of an offset index: a batch begins at `position`.

    `offset` is the *last* offset of the append at `position`, which is one batch (Kafka 4.x) or several (3.x). All
    batches up to `offset` end at or before the position of the next entry.
    """

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """An entry of a time index: no record up to `offset` (inclusive) has a timestamp above `timestamp_ms`."""

    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """A segment's offset index: from offsets to byte positions. A batch starts at each position. Made by `parse`.

    `ambiguous`: the bytes are a valid index with either entry size. Then `candidates` has both readings, and a caller
    who reads the segment finds out which of them names starts of batches.
    """

    base_offset: int
    entry_size_bytes: int
    ambiguous: bool
    _data: memoryview = field(repr=False)

    @classmethod
    def parse(
        cls, data: Buffer, base_offset: int, *, end_offset: int | None = None, size_bytes: int | None = None
    ) -> OffsetIndex:
        """The index in `data`, of the segment that starts at `base_offset`. An empty index is valid.

        The entry size follows KIP-1333: the length of `data` decides, then the reading whose entries ascend. If both
        readings ascend, it is 8. Beyond the KIP, every entry is checked:

        - Offsets and positions ascend strictly. A broker appends no other entry.
        - No offset lies past the segment's inclusive `end_offset`, if that is given.
        - Every position lies inside `size_bytes`, if that is given.

        Raises CorruptSegment if no entry size gives a valid index.
        """
        view = memoryview(data)
        sizes = [size for size in _OFFSET_ENTRIES if len(view) % size == 0]
        if not sizes:
            raise CorruptSegment(f"offset index of {len(view)} bytes: a multiple of neither 8 nor 12")
        if not view:
            return cls(base_offset, LEGACY_ENTRY_BYTES, False, view)
        max_relative = MAX_RELATIVE_OFFSET if end_offset is None else end_offset - base_offset
        max_position = 2**63 - 1 if size_bytes is None else size_bytes - 1
        faults = {size: _offset_index_fault(view, size, max_relative, max_position) for size in sizes}
        valid = [size for size, fault in faults.items() if fault is None]
        if not valid:
            reasons = "; ".join(f"with {size}-byte entries: {fault}" for size, fault in faults.items())
            raise CorruptSegment(f"offset index of {len(view)} bytes is invalid {reasons}")
        return cls(base_offset, valid[0], len(valid) > 1, view)

    def candidates(self) -> tuple[OffsetIndex, ...]:
        """The valid readings of the bytes: this index, and if `ambiguous` also the index with 12-byte entries."""
        if not self.ambiguous:
            return (self,)
        return (self, OffsetIndex(self.base_offset, LARGE_ENTRY_BYTES, True, self._data))

    def __len__(self) -> int:
        return len(self._data) // self.entry_size_bytes

    def entries(self) -> Iterator[OffsetPosition]:
        """All entries, ascending."""
        for relative_offset, position in _OFFSET_ENTRIES[self.entry_size_bytes].iter_unpack(self._data):
            yield OffsetPosition(self.base_offset + relative_offset, position)

    def start_position(self, offset: int) -> int:
        """The position to begin reading for `offset`: that of the last entry not above it, 0 if there is none.

        A batch starts there. The wanted batch may follow several batches later.
        """
        entry = self.start_entry(offset)
        return entry.position if entry else 0

    def start_entry(self, offset: int) -> OffsetPosition | None:
        """The last entry not above `offset`, None if there is none."""
        at = bisect_right(range(len(self)), offset, key=self._offset)
        return self._entry(at - 1) if at else None

    def end_entry(self, offset: int) -> OffsetPosition | None:
        """The entry whose position ends the bytes that hold all batches up to `offset`; None: they go to the end.

        It is the entry *after* the first entry that reaches `offset`, which only tells where its batches begin.
        """
        at = bisect_left(range(len(self)), offset, key=self._offset)
        return self._entry(at + 1) if at + 1 < len(self) else None

    def _offset(self, entry: int) -> int:
        return self._entry(entry).offset

    def _entry(self, entry: int) -> OffsetPosition:
        struct = _OFFSET_ENTRIES[self.entry_size_bytes]
        relative_offset, position = struct.unpack_from(self._data, entry * self.entry_size_bytes)
        return OffsetPosition(self.base_offset + relative_offset, position)


def _offset_index_fault(data: memoryview, size: int, max_relative: int, max_position: int) -> str | None:
    """The fault of `data` as entries of `size` bytes, None if it has none."""
    last_offset = last_position = -1
    for relative_offset, position in _OFFSET_ENTRIES[size].iter_unpack(data):
        if relative_offset <= last_offset or position <= last_position:
            return f"({relative_offset}, {position}) follows ({last_offset}, {last_position})"
        last_offset, last_position = relative_offset, position
    if last_offset > max_relative:
        return f"relative offset {last_offset} lies past the segment's last, {max_relative}"
    if last_position > max_position:
        return f"position {last_position} lies past the segment's last byte, {max_position}"
    return None


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """A segment's time index: from timestamps to offsets. Made by `parse`."""

    base_offset: int
    _data: memoryview = field(repr=False)

    @classmethod
    def parse(cls, data: Buffer, base_offset: int, *, end_offset: int | None = None) -> TimeIndex:
        """The index in `data`, of the segment that starts at `base_offset`. An empty index is valid.

        Raises CorruptSegment unless timestamps ascend strictly from 0 or more and offsets do not descend. If the
        segment's inclusive `end_offset` is given, no offset may lie past it.
        """
        view = memoryview(data)
        if len(view) % _TIME_ENTRY.size:
            raise CorruptSegment(f"time index of {len(view)} bytes: not a multiple of {_TIME_ENTRY.size}")
        last_timestamp_ms, last_offset = -1, 0
        for entry, (timestamp_ms, relative_offset) in enumerate(_TIME_ENTRY.iter_unpack(view)):
            if timestamp_ms <= last_timestamp_ms or relative_offset < last_offset:
                raise CorruptSegment(
                    f"time index entry {entry}: ({timestamp_ms} ms, {relative_offset}) follows "
                    f"({last_timestamp_ms} ms, {last_offset})",
                    offset=base_offset,
                )
            last_timestamp_ms, last_offset = timestamp_ms, relative_offset
        if end_offset is not None and base_offset + last_offset > end_offset:
            raise CorruptSegment(f"time index: offset {base_offset + last_offset} lies past the last, {end_offset}")
        return cls(base_offset, view)

    def __len__(self) -> int:
        return len(self._data) // _TIME_ENTRY.size

    def entries(self) -> Iterator[TimestampOffset]:
        """All entries, ascending."""
        for timestamp_ms, relative_offset in _TIME_ENTRY.iter_unpack(self._data):
            yield TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    @property
    def max_timestamp_ms(self) -> int:
        """The timestamp of the last entry, -1 without entries. In a closed segment it is the largest timestamp."""
        return self._timestamp_ms(len(self) - 1) if len(self) else -1

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, -1 without entries. A record with the largest timestamp is in its batch."""
        return self._offset(len(self) - 1) if len(self) else -1

    def start_offset(self, timestamp_ms: int) -> int:
        """The offset to look up in the offset index to find the first record at or after `timestamp_ms`.

        It is the offset of the last entry not later than `timestamp_ms`, the base offset if there is none. Reading
        begins at its batch. The wanted record may come before this offset in the same batch.
        """
        at = bisect_right(range(len(self)), timestamp_ms, key=self._timestamp_ms)
        return self._offset(at - 1) if at else self.base_offset

    def reached_offset(self, timestamp_ms: int) -> int | None:
        """An offset (inclusive) by which some record is at or after `timestamp_ms`, None if no entry names one.

        It is the offset of the first entry not earlier than `timestamp_ms`, because a record has that timestamp.
        """
        at = bisect_left(range(len(self)), timestamp_ms, key=self._timestamp_ms)
        return self._offset(at) if at < len(self) else None

    def _offset(self, entry: int) -> int:
        relative_offset: int = _TIME_ENTRY.unpack_from(self._data, entry * _TIME_ENTRY.size)[1]
        return self.base_offset + relative_offset

    def _timestamp_ms(self, entry: int) -> int:
        timestamp_ms: int = _TIME_ENTRY.unpack_from(self._data, entry * _TIME_ENTRY.size)[0]
        return timestamp_ms


def parse_transaction_index(data: Buffer, start_offset: int = 0) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions whose marker lies in the segment, ascending by `last_offset` (the marker's offset).

    Their first offsets may lie in earlier segments. An empty index is valid. `start_offset` is that of the segment.
    Raises UnsupportedFormat for an entry version other than 0, CorruptSegment for entries no broker writes or takes.
    """
    view = memoryview(data)
    if len(view) % _TRANSACTION_ENTRY.size:
        raise CorruptSegment(f"transaction index of {len(view)} bytes: not a multiple of {_TRANSACTION_ENTRY.size}")
    found: list[AbortedTransaction] = []
    last_marker = -1
    for entry, (version, producer_id, first, last, stable) in enumerate(_TRANSACTION_ENTRY.iter_unpack(view)):
        if version != _TRANSACTION_VERSION:
            raise UnsupportedFormat(f"transaction index entry {entry} has version {version}; version 0 is known")
        if producer_id < 0 or stable < 0 or not 0 <= first <= last:
            raise CorruptSegment(
                f"transaction index entry {entry}: producer {producer_id}, offsets {first} to {last}, "
                f"last stable offset {stable}"
            )
        if last < start_offset:
            raise CorruptSegment(
                f"transaction index entry {entry}: marker {last} lies before the segment, which starts at "
                f"{start_offset}"
            )
        if last <= last_marker:
            raise CorruptSegment(f"transaction index entry {entry}: marker {last} follows marker {last_marker}")
        last_marker = last
        found.append(AbortedTransaction(producer_id, first, last, stable))
    return tuple(found)
