"""Finds the items of a slice in its bytes, before their turn: units, and batches that are read alone.

Rules of the file:

- After a batch that is in no unit, nothing is found until the caller has taken it: it may end the slice.
- An error of framing waits like an item. It is raised at its place in the log.
"""

from __future__ import annotations

from collections import deque

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.batches import BatchFramer, FramedBatch
from remote_fetch.scan.units import Unit, Units

__all__ = ["LookAhead"]


class LookAhead:
    """Finds up to `depth` items ahead. Feed the bytes to `framer`. If `units` is None, each batch is in no unit."""

    def __init__(self, framer: BatchFramer, units: Units | None, depth: int) -> None:
        self._framer = framer
        self._units = units
        self._depth = depth
        self._coming: deque[Unit | FramedBatch | RemoteFetchError] = deque()

    def next(self, last_offset: int, *, to_the_end: bool) -> Unit | FramedBatch | None:
        """The next unit, or the next batch that is in no unit. None: more bytes are needed.

        The item before it ends with `last_offset`. If `to_the_end` is false, this also returns None while the threads
        could take more units. Then the caller feeds the next range first.
        """
        wants_more = self._find(last_offset)
        if not self._coming or (wants_more and not to_the_end):
            return None
        found = self._coming.popleft()
        if isinstance(found, RemoteFetchError):
            raise found
        return found

    def _find(self, last_offset: int) -> bool:
        """Find items, as far as the bytes go, and let the threads begin. Return whether more bytes are needed."""
        while len(self._coming) < self._depth:
            if self._coming:
                last = self._coming[-1]
                if not isinstance(last, Unit):
                    return False
                last_offset = last.last_offset
            found = self._unit(last_offset) or self._frame(last_offset)
            if found is None:
                return True
            self._coming.append(found)
        return False

    def _unit(self, last_offset: int) -> Unit | None:
        """The next unit inside the range that was fed last."""
        if self._units is None:
            return None
        data, at = self._framer.unread
        unit = self._units.cut(data, at, self._framer.position, last_offset)
        if unit is not None:
            self._framer.skip(unit.stop - unit.at)
        return unit

    def _frame(self, last_offset: int) -> Unit | FramedBatch | RemoteFetchError | None:
        """The next batch. One that crosses a border of ranges may be a unit of its own."""
        try:
            batch = self._framer.next_batch()
        except RemoteFetchError as error:
            return error
        if batch is None or self._units is None:
            return batch
        return self._units.cut(batch.data, 0, batch.position, last_offset) or batch
