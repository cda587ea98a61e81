"""Yields the batches of a slice in order, for code that looks something up in them and delivers no records.

Rules of the file:

- At most one range is fetched before the caller needs it.
- The checksum of every batch is verified, and that its offsets lie in its segment and before the next batch. No range
  is fetched for the next batch alone.
- Bytes that break a rule are fetched once more. The last search needs no index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer, FramedBatch, check_crc
from remote_fetch.model import UNKNOWN_SIZE, IndexType
from remote_fetch.observe import RangeReread, SegmentScanned
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.prepare.order import MisleadingIndex, check_followed, check_inside
from remote_fetch.prepare.segment_ends import SizeTooSmall, check_end
from remote_fetch.session.storage import Storage

__all__ = ["batches_of", "first_sound"]

T = TypeVar("T")


def first_sound(storage: Storage, searches: Sequence[tuple[SegmentSlice, Callable[[], T]]]) -> T:
    """The result of the first search whose batches break no rule. Of each, the slice that it reads.

    Raises the errors of the last search, and those of a fetcher.
    """
    *others, (_, last) = searches
    for piece, search in others:
        try:
            return search()
        except (MisleadingIndex, CorruptSegment, UnsupportedFormat) as error:
            if piece.start_position > 0 or isinstance(error, MisleadingIndex):
                storage.observe(SegmentScanned(piece.partition, IndexType.OFFSET, "misleading"))
            else:
                storage.observe(RangeReread(piece.partition, 0, error.kind))
    return last()


def batches_of(
    storage: Storage,
    piece: SegmentSlice,
    likely_end: int,
    *,
    goes_on: Callable[[], bool] = lambda: True,
    end_is_inferred: bool = True,
    joins: bool = False,
) -> Iterator[FramedBatch]:
    """Yield the batches of a slice in order, up to its last offset. One range is fetched at a time, while `goes_on`.

    `likely_end` is the byte position at which the caller can stop if the indexes are right; -1: unknown. The first
    ranges end a header behind it, so that no more is fetched in vain. If the segment ends before the slice's last
    offset, raises the errors of `check_end`. Raises CorruptSegment for a batch that is not of this segment. If its end
    is exact and not inferred, so is a batch behind that end. If the slice `joins` what is behind it, so is one behind a
    gap.
    """
    framer = BatchFramer(piece.start_position, max_batch_bytes=storage.settings.max_batch_bytes)
    reader = storage.reader
    size_bytes, last_offset = piece.segment.known_size_bytes, -1
    while True:
        start = framer.position + framer.pending_bytes
        stop = start + reader.range_bytes
        if size_bytes is not None:
            stop = min(stop, size_bytes)
        if start < likely_end:
            stop = min(stop, likely_end + HEADER_BYTES)
        if not goes_on():
            return
        data = reader.read(RangeRequest(piece.segment, start, stop)) if stop > start else memoryview(b"")
        framer.feed(data)
        while (batch := framer.next_batch()) is not None:
            is_joined = last_offset >= piece.last_offset
            if _ends_behind(
                batch, framer, piece, is_joined, end_is_inferred=end_is_inferred and (is_joined or not joins)
            ):
                return
            check_followed(batch, *framer.unread, piece.start_entry_offset)
            last_offset = batch.header.last_offset
            yield batch
        if len(data) >= stop - start > 0:
            continue
        if last_offset < piece.last_offset:
            segment = replace(piece.segment, segment_size_in_bytes=size_bytes or UNKNOWN_SIZE)
            try:
                check_end(storage, segment, start + len(data))
            except SizeTooSmall:
                size_bytes = None
                continue
        framer.finish()
        return


def _ends_behind(
    batch: FramedBatch, framer: BatchFramer, piece: SegmentSlice, is_joined: bool, *, end_is_inferred: bool
) -> bool:
    """Whether a batch begins behind the slice, where the walk ends. Raises CorruptSegment for a wrong batch.

    If the batches before it end sooner (not `is_joined`), there is a gap, or the offset of this batch is damaged.
    """
    is_behind = batch.header.magic == 2 and batch.header.base_offset > piece.last_offset
    if not is_behind:
        check_crc(batch)
    check_inside(batch, piece.segment, end_is_inferred=end_is_inferred)
    if is_behind and not is_joined:
        check_followed(batch, *framer.unread, -1)
    return is_behind
