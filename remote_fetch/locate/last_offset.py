"""The last offset of a segment, read from the end of its object.

Rules of the file:

- The offset index only tells where to begin. Batches tell the offset.
- A segment whose index leads astray is read a second time, from its first byte.
- An object that ends before its listed size or before its index does is an error, and never a shorter segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from remote_fetch.errors import CorruptSegment, FallsBackError, UnsupportedFormat
from remote_fetch.formats.batches import BatchFramer, BatchHeader
from remote_fetch.formats.indexes import MAX_RELATIVE_OFFSET, OffsetIndex
from remote_fetch.model import MAX_OFFSET, IndexType, RemoteLogSegmentMetadata

__all__ = ["SegmentBytes", "last_offset_of"]

_LAST_OFFSET = 2**63 - 1


class SegmentBytes(Protocol):
    """Reads segments for the facts that a listing does not tell. Raises the errors of a fetcher.

    A request has at most `range_bytes`. A record batch has at most `max_batch_bytes`.
    """

    range_bytes: int
    max_batch_bytes: int

    def read_bytes(self, segment: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> memoryview:
        """Bytes [start_position, end_position), fewer at the end of the segment."""

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        """One index, None if the segment has none."""

    def read_without_index(self, segment: RemoteLogSegmentMetadata, reason: str) -> None:
        """Note that a segment is read from its first byte, because its offset index does not help."""


def last_offset_of(segment: RemoteLogSegmentMetadata, reader: SegmentBytes, starts: Sequence[int] = ()) -> int:
    """The last offset of the last batch of a segment, read from its end. `start_offset - 1` if it has no batch.

    `starts` are start offsets of other segments inside this one, ascending. The answer is then the last offset before
    the first gap that hides one of them: in the gap, or right behind it. The read begins before the first of them.

    Brokers upload empty logs too, if compaction took out all batches before. Their offset indexes are empty.

    The offset index tells where to begin. Without a usable index the whole segment is read. Raises CorruptSegment for a
    segment that is cut off, and the errors of `reader`.
    """
    try:
        position = _indexed_position(segment, reader, starts[0] - 1 if starts else _LAST_OFFSET)
        try:
            return _scan_to_end(segment, reader, position, starts)
        except (CorruptSegment, UnsupportedFormat):
            if position:
                reader.read_without_index(segment, "misleading")
        # A second read, which also mends bytes that were damaged on their way.
        return _scan_to_end(segment, reader, 0, starts, known=position)
    except FallsBackError as error:
        raise error.at(**segment.place) from error.__cause__


def _scan_to_end(
    segment: RemoteLogSegmentMetadata, reader: SegmentBytes, position: int, starts: Sequence[int], known: int = 0
) -> int:
    """The last offset, by the batches from `position` on. `known`: where a batch begins by the offset index."""
    framer = BatchFramer(position, max_batch_bytes=reader.max_batch_bytes)
    last = segment.start_offset - 1
    most = min(segment.start_offset + MAX_RELATIVE_OFFSET, MAX_OFFSET)
    size_bytes = segment.known_size_bytes
    while True:
        start = framer.position + framer.pending_bytes
        stop = start + reader.range_bytes
        if size_bytes is not None:
            stop = max(min(stop, size_bytes + 1), start + 1)  # one byte more, to see that the object ends there
        data = reader.read_bytes(segment, start, stop)
        framer.feed(data)
        while (batch := framer.next_batch()) is not None:
            header = batch.header
            if header.base_offset <= last or header.last_offset > most:
                raise CorruptSegment(
                    f"batch with offsets {header.base_offset} to {header.last_offset} behind offset {last}, in a "
                    f"segment that begins at offset {segment.start_offset}",
                    position=batch.position,
                    offset=header.base_offset,
                )
            if _hides_a_start(header, last, starts):
                if position and last < segment.start_offset:
                    raise CorruptSegment("the offset index leads past the start of another segment", position=position)
                return last
            last = header.last_offset
        if size_bytes is not None and start + len(data) > size_bytes:
            size_bytes = None  # the object is larger than its listed size
        elif len(data) < stop - start:
            framer.finish()
            end, known = start + len(data), max(position, known)
            _check_size(size_bytes, end)
            if known and end <= known:
                raise CorruptSegment(
                    f"the object ends at byte {end}, but its offset index knows a batch at {known}", position=end
                )
            return last


def _hides_a_start(header: BatchHeader, last: int, starts: Sequence[int]) -> bool:
    """Whether one of `starts` lies in the gap between offset `last` and a batch, or at the batch after the gap.

    The header of a compressed legacy message set has only its last offset, and so does not tell of a gap.
    """
    has_gap = header.magic == 2 and header.base_offset > last + 1
    return has_gap and any(last < start <= header.base_offset for start in starts)


def _check_size(size_bytes: int | None, end: int) -> None:
    if size_bytes is not None and end < size_bytes:
        raise CorruptSegment(f"the object ends at byte {end}, but was listed with {size_bytes} bytes", position=end)


def _indexed_position(segment: RemoteLogSegmentMetadata, reader: SegmentBytes, offset: int) -> int:
    data = reader.read_index(segment, IndexType.OFFSET)
    if data is None:
        reader.read_without_index(segment, "missing")
        return 0
    size_bytes = segment.known_size_bytes
    try:
        index = OffsetIndex.parse(data, segment.start_offset, size_bytes=size_bytes)
    except CorruptSegment:
        _check_is_whole(segment, data)
        reader.read_without_index(segment, "corrupt")
        return 0
    return index.start_position(offset)


def _check_is_whole(segment: RemoteLogSegmentMetadata, data: memoryview) -> None:
    """Raise CorruptSegment if the index is sound and names batches past the end of the segment.

    If it can be read with both entry sizes, both readings name such batches.
    """
    try:
        index = OffsetIndex.parse(data, segment.start_offset)
    except CorruptSegment:
        return
    raise CorruptSegment(
        f"the object has {segment.segment_size_in_bytes} bytes, but its offset index knows a batch at "
        f"{index.start_position(_LAST_OFFSET)}",
        position=segment.segment_size_in_bytes,
    )
