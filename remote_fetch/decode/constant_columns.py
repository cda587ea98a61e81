"""The columns `topic` and `partition`, which have one value for all rows of a reader.

Rules of the file: the arrays are made once and then sliced.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa

from remote_fetch.decode.arrays import Array

__all__ = ["CONSTANT_COLUMNS", "ConstantColumns"]

CONSTANT_COLUMNS = ("topic", "partition")
_FIRST_ROWS = 1024


class ConstantColumns:
    """The constant columns of one partition, those in `names` alone. For one thread at a time.

    `max_rows` is the largest number of rows of one Arrow batch. `engine` is the module of the decoder. In plain Python,
    an array of 65,536 strings takes 4 ms, and no other thread of Python runs in that time.
    """

    def __init__(
        self, topic: str, partition: int, max_rows: int, engine: ModuleType, names: Sequence[str] = CONSTANT_COLUMNS
    ) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._max_rows = max_rows
        self._engine = engine
        self._names = names
        self._made: dict[str, Array] = {}
        self._rows = 0

    def of(self, rows: int) -> dict[str, Array]:
        """The columns by their names, each of `rows` rows."""
        if rows > self._rows:
            self._rows = min(self._max_rows, max(2 * rows, _FIRST_ROWS))
            self._made = {name: self._column(name, self._rows) for name in self._names}
        return {name: column.slice(0, rows) for name, column in self._made.items()}

    def _column(self, name: str, rows: int) -> Array:
        if name == "topic":
            ends = self._engine.multiples(len(self._topic), rows + 1)
            return pa.Array.from_buffers(
                pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(self._topic * rows)]
            )
        return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(array("i", [self._partition]) * rows)])
