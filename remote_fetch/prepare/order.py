"""The order of the batches in a segment, and the place that an offset index gives them.

Rules of the file:

- Pure. Each reader of batches asks here: the scan, the search for a time, the search for a cut.
- An index is believed only as far as the batches confirm it. MisleadingIndex asks for a scan from the first byte.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.batches import FramedBatch

__all__ = ["MisleadingIndex", "check_order"]


class MisleadingIndex(Exception):
    """The bytes do not fit the offset index that chose them: the segment has to be scanned from its first byte."""


def check_order(batch: FramedBatch, previous: int, entry_offsets: Iterable[int]) -> None:
    """Raise unless a batch may stand behind one that ends with offset `previous` (-1: none).

    `entry_offsets` are the offsets of the index entries that chose the bytes, -1 for no entry. An entry has the last
    offset of a batch. MisleadingIndex if one lies inside of this batch, CorruptSegment if the offsets do not grow.
    """
    header = batch.header
    if any(previous < at < header.last_offset for at in entry_offsets):
        raise MisleadingIndex
    if header.base_offset <= previous:
        raise CorruptSegment(
            f"batch at base offset {header.base_offset} follows one that ends with offset {previous}",
            position=batch.position,
            offset=header.base_offset,
        )
