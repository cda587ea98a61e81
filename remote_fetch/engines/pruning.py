"""The offsets and times that a filter may match, found by asking Arrow whether a box of values can have a match.

Rules of the file:

- Pure. A filter is an Arrow expression, and is never taken apart here: Arrow simplifies it under the bounds of a box.
- The answer is never too narrow. A box that Arrow cannot decide may match.
- A search asks for many boxes at once and goes on within those that may match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

__all__ = ["Box", "Filter"]

_PARTS = 4
"""Into how many parts a search divides a range. Fewer boxes are asked for in all than with more parts."""
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Box:
    """Bounds of rows, inclusive: of one partition, or of any. Times are in microseconds since 1970."""

    partition: int | None = None
    first_offset: int = 0
    last_offset: int = _MAX_INT64
    first_us: int = _MIN_INT64
    last_us: int = _MAX_INT64

    @property
    def guarantee(self) -> Any:
        """The box as an expression that is true for each of its rows."""
        known: Any = pc.field("offset") >= pa.scalar(self.first_offset, pa.int64())
        known &= pc.field("offset") <= pa.scalar(self.last_offset, pa.int64())
        if self.partition is not None:
            known &= pc.field("partition") == pa.scalar(self.partition, pa.int32())
        if self.first_us > _MIN_INT64:
            known &= pc.field("timestamp") >= pa.scalar(self.first_us, _TIME)
        if self.last_us < _MAX_INT64:
            known &= pc.field("timestamp") <= pa.scalar(self.last_us, _TIME)
        return known


class Filter:
    """An Arrow expression over the columns of a read. None: every row matches."""

    def __init__(self, expression: Any, schema: pa.Schema) -> None:
        """Raises Arrow's error for an expression that is no filter of such rows, as one of an unknown column."""
        if expression is not None:
            schema.empty_table().filter(expression)
        self._expression = expression
        self._schema = schema

    def may_match(self, boxes: Sequence[Box]) -> list[bool]:
        """For each box, whether a row in it may match."""
        if self._expression is None or not boxes:
            return [True] * len(boxes)
        made = ds.FileSystemDataset.from_paths(
            [str(at) for at in range(len(boxes))],
            schema=self._schema,
            format=ds.ParquetFileFormat(),
            filesystem=pyarrow.fs.LocalFileSystem(),  # nothing is opened: Arrow leaves out files by what is known
            partitions=[box.guarantee for box in boxes],
        )
        try:
            kept = {int(fragment.path) for fragment in made.get_fragments(filter=self._expression)}
        except pa.ArrowInvalid:  # as a bound that does not fit into the type of the filter's number
            return [True] * len(boxes)
        return [at in kept for at in range(len(boxes))]

    def offsets(self, partition: int, first: int, last: int) -> tuple[int, int] | None:
        """The least and the greatest of these offsets that may match. None: none of them does."""
        if first > last:
            return None
        return self._edges(lambda low, high: Box(partition, low, high), first, last)

    def times_us(self) -> tuple[int, int] | None:
        """The earliest and the latest time at which a row may match. None: no row does."""
        return self._edges(lambda low, high: Box(first_us=low, last_us=high), _MIN_INT64, _MAX_INT64)

    def _edges(self, box: Callable[[int, int], Box], first: int, last: int) -> tuple[int, int] | None:
        if not self.may_match([box(first, last)])[0]:
            return None
        return self._edge(box, first, last, at_end=False), self._edge(box, first, last, at_end=True)

    def _edge(self, box: Callable[[int, int], Box], first: int, last: int, *, at_end: bool) -> int:
        edge = last if at_end else first
        if self.may_match([box(edge, edge)])[0]:
            return edge  # as always if the filter says nothing of this side
        while first < last:
            size = last - first + 1
            cuts = [first + size * at // min(_PARTS, size) for at in range(min(_PARTS, size) + 1)]
            parts = [(low, high - 1) for low, high in pairwise(cuts)]
            may = self.may_match([box(*part) for part in parts])
            if not any(may):  # undecided for the whole, decided for its parts: nothing is known of where
                return last if at_end else first
            first, last = [part for part, is_kept in zip(parts, may, strict=True) if is_kept][-1 if at_end else 0]
        return first
