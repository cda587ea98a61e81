"""The borders between the GETs of a read.

Rules of the file:

- Pure.
- The reader and the cost estimate both use this module.
"""

from __future__ import annotations

from remote_fetch.model import RemoteLogSegmentMetadata

__all__ = ["Ramp", "bytes_of_records"]

_FIRST_BYTES = 1 << 20
_LEAST_BYTES = 64 << 10
"""A producer's batch has 16 KiB by default, and a batch is delivered after the header of the next one."""
_SHORT_GROWTH = 4


class Ramp:
    """The end of each GET of one read, slice after slice.

    If a slice takes several GETs, the first GETs of the read are small. Each is about twice the one before, up to
    `range_bytes`, so that decoding begins while the large GETs are under way. GETs end at multiples of their size, so
    that the chunks of a store lie in one GET each. A chunk across a border would be fetched twice.

    `first_bytes`: the reader expects to need no more than that. So the first GET has that size in any slice, and each
    is four times the one before.
    """

    def __init__(self, range_bytes: int, first_bytes: int | None = None) -> None:
        self._range_bytes = range_bytes
        self._is_short = first_bytes is not None
        self._next_bytes = min(range_bytes, _FIRST_BYTES if first_bytes is None else first_bytes)

    def end_of(self, start: int, stop: int) -> int:
        """The end (exclusive) of the next GET, which begins at `start` in a slice that ends at `stop` (exclusive)."""
        step = self._next_bytes
        self._next_bytes = min((_SHORT_GROWTH if self._is_short else 2) * step, self._range_bytes)
        if self._is_short and step < self._range_bytes:
            return min(start + step, stop)
        return stop if stop - start <= self._range_bytes else (start // step + 1) * step

    def count(self, start: int, stop: int) -> int:
        """The number of GETs for bytes [start, stop)."""
        gets = 0
        while start < stop:
            if self._next_bytes == self._range_bytes and stop - start > self._range_bytes:
                return gets - (-stop // self._range_bytes) - start // self._range_bytes
            start, gets = self.end_of(start, stop), gets + 1
        return gets


def bytes_of_records(records: int, segment: RemoteLogSegmentMetadata) -> int | None:
    """The size of a first GET that should hold so many records. None: as many bytes as those of any other read.

    It is a guess by the mean size of the segment's records.
    """
    offsets = segment.end_offset - segment.start_offset + 1
    mean_bytes = segment.segment_size_in_bytes / offsets if segment.size_known and offsets > 0 else 0.0
    wanted = max(_LEAST_BYTES, int(records * mean_bytes * 1.25))
    return wanted if wanted < _FIRST_BYTES else None
