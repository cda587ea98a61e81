"""Two streams of Arrow batches side by side, and the first row in which they differ.

Rules of the file:

- Pure. Batches come from iterators. They have one schema with the column `offset`, in ascending order.
- At most one batch of each side is held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["Difference", "RowStream", "first_difference"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row in which two sides differ. The side that lacks the offset is None. `columns` are those that differ."""

    offset: int
    store: Mapping[str, Any] | None
    broker: Mapping[str, Any] | None
    columns: tuple[str, ...] = ()


class RowStream:
    """Rows in order of their offsets, taken in pieces that a caller chooses. `taken` counts them.

    `has_failed`: the batches have raised an error.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches: Iterator[pa.RecordBatch] = iter(batches)
        self._batch: pa.RecordBatch | None = None
        self.taken = 0
        self.has_failed = False

    def below(self, stop: int) -> pa.RecordBatch | None:
        """The next rows, with offsets below `stop`. They are not taken. None: there are no more."""
        while self._batch is None or not self._batch.num_rows:
            try:
                self._batch = next(self._batches, None)
            except BaseException:
                self.has_failed = True
                raise
            if self._batch is None:
                return None
        offsets = self._batch.column("offset")
        count = bisect_left(range(len(offsets)), stop, key=lambda at: offsets[at].as_py())
        return self._batch.slice(0, count) if count else None

    def take(self, count: int) -> None:
        """Take so many of the rows that `below` gave."""
        if self._batch is not None:
            self._batch = self._batch.slice(count)
            self.taken += count

    def close(self) -> None:
        """Close the generator of the batches."""
        if isinstance(self._batches, Generator):
            self._batches.close()

    def skip_below(self, stop: int) -> None:
        """Take all rows with offsets below `stop`."""
        while (rows := self.below(stop)) is not None:
            self.take(rows.num_rows)


def first_difference(store: RowStream, broker: RowStream, stop: int) -> Difference | None:
    """Compare the rows below the offset `stop`, and take those before the first one that is not alike."""
    while True:
        mine, theirs = store.below(stop), broker.below(stop)
        if mine is None or theirs is None:
            return _alone(mine, theirs)
        count = min(mine.num_rows, theirs.num_rows)
        mine, theirs = mine.slice(0, count), theirs.slice(0, count)
        alike = count if mine.equals(theirs) else _rows_alike(mine, theirs)
        store.take(alike)
        broker.take(alike)
        if alike < count:
            return _between(_row(mine, alike), _row(theirs, alike))


def _alone(mine: pa.RecordBatch | None, theirs: pa.RecordBatch | None) -> Difference | None:
    """The difference if one of the sides has ended. None if both have."""
    if mine is None and theirs is None:
        return None
    row = _row(mine if mine is not None else theirs, 0)
    return Difference(row["offset"], row if mine is not None else None, row if theirs is not None else None)


def _rows_alike(mine: pa.RecordBatch, theirs: pa.RecordBatch) -> int:
    """How many rows at the beginning are alike, of batches of one length that are not."""
    counts = range(1, mine.num_rows + 1)
    return bisect_left(counts, True, key=lambda count: not mine.slice(0, count).equals(theirs.slice(0, count)))


def _between(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Difference:
    if mine["offset"] < theirs["offset"]:
        return Difference(mine["offset"], mine, None)
    if theirs["offset"] < mine["offset"]:
        return Difference(theirs["offset"], None, theirs)
    return Difference(mine["offset"], mine, theirs, tuple(name for name in mine if mine[name] != theirs[name]))


def _row(batch: Any, at: int) -> Mapping[str, Any]:
    row: Mapping[str, Any] = batch.slice(at, 1).to_pylist()[0]
    return row
