"""Two streams of Arrow batches side by side, and the first row in which they differ.

Rules of the file:

- Pure. Batches come from iterators. They have one schema with the column `offset`, in ascending order.
- At most one batch of each side is held.
- The key of a header counts up to its first NUL: the broker's client gives no more of it.
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

    @property
    def text(self) -> str:
        """The difference in words, without the record itself: it may be long, and secret."""
        if self.broker is None or self.store is None:
            return f"only the {'store' if self.broker is None else 'broker'} has the record"
        return f"{', '.join(self.columns)} differ"


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
        of_store, of_broker = store.below(stop), broker.below(stop)
        if of_store is None or of_broker is None:
            return _alone(of_store, of_broker)
        count = min(of_store.num_rows, of_broker.num_rows)
        of_store, of_broker = of_store.slice(0, count), of_broker.slice(0, count)
        alike = count if of_store.equals(of_broker) else _rows_alike(of_store, of_broker)
        store.take(alike)
        broker.take(alike)
        if alike < count:
            found = _between(_row(of_store, alike), _row(of_broker, alike))
            if found is not None:
                return found
            store.take(1)
            broker.take(1)


def _alone(of_store: pa.RecordBatch | None, of_broker: pa.RecordBatch | None) -> Difference | None:
    """The difference if one of the sides has ended. None if both have."""
    if of_store is None and of_broker is None:
        return None
    row = _row(of_store if of_store is not None else of_broker, 0)
    return Difference(row["offset"], row if of_store is not None else None, row if of_broker is not None else None)


def _rows_alike(of_store: pa.RecordBatch, of_broker: pa.RecordBatch) -> int:
    """How many rows at the beginning are alike, of batches of one length that are not."""
    counts = range(1, of_store.num_rows + 1)
    return bisect_left(counts, True, key=lambda count: not of_store.slice(0, count).equals(of_broker.slice(0, count)))


def _between(of_store: Mapping[str, Any], of_broker: Mapping[str, Any]) -> Difference | None:
    if of_store["offset"] < of_broker["offset"]:
        return Difference(of_store["offset"], of_store, None)
    if of_broker["offset"] < of_store["offset"]:
        return Difference(of_broker["offset"], None, of_broker)
    columns = tuple(name for name in of_store if _cut(of_store[name]) != of_broker[name])
    return Difference(of_store["offset"], of_store, of_broker, columns) if columns else None


def _cut(value: Any) -> Any:
    """A value of the store, with the keys of headers as the broker's client gives them."""
    if not isinstance(value, list):
        return value
    return [{**header, "key": header["key"].partition("\0")[0]} for header in value]


def _row(batch: Any, at: int) -> Mapping[str, Any]:
    row: Mapping[str, Any] = batch.slice(at, 1).to_pylist()[0]
    return row
