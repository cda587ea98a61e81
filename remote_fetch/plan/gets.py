"""The borders between the GETs of a read.

Rules of the file:

- Pure.
- The reader and the cost estimate both use this module.
"""

from __future__ import annotations

__all__ = ["Ramp"]

_FIRST_BYTES = 1 << 20


class Ramp:
    """The end of each GET of one read, slice after slice.

    If a slice takes several GETs, the first GETs of the read are small. Each is about twice the one before, up to
    `range_bytes`, so that decoding begins while the large GETs are under way. GETs end at multiples of their size, so
    that the chunks of a store lie in one GET each. A chunk across a border would be fetched twice.
    """

    def __init__(self, range_bytes: int) -> None:
        self._range_bytes = range_bytes
        self._next_bytes = min(range_bytes, _FIRST_BYTES)

    def end_of(self, start: int, stop: int) -> int:
        """The end (exclusive) of the next GET, which begins at `start` in a slice that ends at `stop` (exclusive)."""
        step = self._next_bytes
        self._next_bytes = min(2 * step, self._range_bytes)
        return stop if stop - start <= self._range_bytes else (start // step + 1) * step

    def count(self, start: int, stop: int) -> int:
        """The number of GETs for bytes [start, stop)."""
        gets = 0
        while start < stop:
            if self._next_bytes == self._range_bytes and stop - start > self._range_bytes:
                return gets - (-stop // self._range_bytes) - start // self._range_bytes
            start, gets = self.end_of(start, stop), gets + 1
        return gets
