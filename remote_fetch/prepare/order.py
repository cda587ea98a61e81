"""Checks the order of the batches in a segment, their bounds, and whether they are where the offset index says.

Rules of the file:

- Pure. Every reader of batches uses it: the scan, the search for a time, the search for a cut.
- An index is believed only as far as the batches confirm it. MisleadingIndex asks for a scan from the first byte.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.batches import FramedBatch, v2_offset_at
from remote_fetch.model import RemoteLogSegmentMetadata

__all__ = ["MisleadingIndex", "check_followed", "check_inside", "check_order"]


class MisleadingIndex(Exception):
    """The batches contradict the offset index. The segment has to be scanned from its first byte."""


def check_order(batch: FramedBatch, previous: int, entry_offsets: Iterable[int]) -> None:
    """Raise if a batch cannot follow one that ends with offset `previous` (-1: it is the first).

    `entry_offsets` are the offsets of the index entries from which the byte positions come; -1: no entry. An entry has
    the last offset of a batch. Raises MisleadingIndex if an entry lies inside this batch, and CorruptSegment if the
    offsets do not grow.
    """
    header = batch.header
    if any(previous < at < header.last_offset for at in entry_offsets):
        raise MisleadingIndex
    _check_growth(header.base_offset, previous, batch.position)


def check_followed(batch: FramedBatch, data: memoryview, at: int, entry_offset: int) -> None:
    """Raise CorruptSegment if the batch that starts at `data[at]`, as far as it is there, cannot follow `batch`.

    Raises MisleadingIndex if the offset of an index entry at or before `batch` (-1: no entry) lies between the two.
    No checksum covers the base offset of a batch. If it is a little too high, only the next batch shows that. If it is
    a little too low, the entry shows it.
    """
    header, following = batch.header, v2_offset_at(data, at)
    if header.magic == 2 and following is not None:
        if header.last_offset < entry_offset < following:
            raise MisleadingIndex
        _check_growth(following, header.last_offset, batch.position + header.size_bytes)


def _check_growth(base_offset: int, previous: int, position: int) -> None:
    if base_offset <= previous:
        raise CorruptSegment(
            f"batch at base offset {base_offset} follows one that ends with offset {previous}",
            position=position,
            offset=base_offset,
        )


def check_inside(batch: FramedBatch, segment: RemoteLogSegmentMetadata, *, end_is_inferred: bool) -> None:
    """Raise CorruptSegment if a batch has offsets that its segment cannot have. Behind an inferred end it may go on."""
    header = batch.header
    goes_on = end_is_inferred and header.base_offset > segment.end_offset
    ends_outside = header.last_offset > segment.end_offset and not goes_on
    if ends_outside or header.base_offset < segment.start_offset:
        raise CorruptSegment(
            f"batch with offsets {header.base_offset} to {header.last_offset} in a segment of offsets "
            f"{segment.start_offset} to {segment.end_offset}",
            position=batch.position,
            offset=header.base_offset,
        )
