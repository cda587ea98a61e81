"""The columns `topic` and `partition`, which have one value for all rows of a reader.

Rules of the file: the arrays are made once and then sliced.
"""

from __future__ import annotations

from remote_fetch.decode.arrays import Array, repeated_number, repeated_text

__all__ = ["CONSTANT_COLUMNS", "ConstantColumns"]

CONSTANT_COLUMNS = ("topic", "partition")
_FIRST_ROWS = 1024


class ConstantColumns:
    """The constant columns of one partition. For one thread at a time.

    `max_rows` is the largest number of rows of one Arrow batch.
    """

    def __init__(self, topic: str, partition: int, max_rows: int) -> None:
        self._topic = topic
        self._partition = partition
        self._max_rows = max_rows
        self._made: dict[str, Array] = {}
        self._rows = 0

    def of(self, rows: int) -> dict[str, Array]:
        """The columns by their names, each of `rows` rows."""
        if rows > self._rows:
            self._rows = min(self._max_rows, max(2 * rows, _FIRST_ROWS))
            self._made = {
                "topic": repeated_text(self._topic, self._rows),
                "partition": repeated_number(self._partition, self._rows),
            }
        return {name: column.slice(0, rows) for name, column in self._made.items()}
