"""Decoded rows as message objects, equal to those that a consumer of confluent_kafka returns.

Rules of the file:

- Plain Python around an inner loop, `messages` of a run. This file runs once for a run, never once for a record.
- The caller passes the class of the messages, because this package knows no client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Any

from remote_fetch.decode.decoded_rows import DecodedRows, MessageRows

__all__ = ["MESSAGE_COLUMNS", "MessageCursor"]

MESSAGE_COLUMNS: tuple[str, ...] = ("key", "value", "offset", "timestampType", "headers", "leaderEpoch", "timestampMs")
"""The columns that a message is made of, besides topic and partition, in the order in which they are decoded."""


class MessageCursor:
    """Gives decoded rows as messages, in order. It takes the rows. Not thread-safe.

    The rows have MESSAGE_COLUMNS, and may have more. `make` is `confluent_kafka.Message`, or takes the same ten
    arguments by position: topic, partition, offset, key, value, headers, error, (timestamp type, timestamp in ms),
    latency, leader epoch. A message owns its memory.

    The messages follow librdkafka and its binding:

    - No headers are None, and more than 100,000 headers are None too.
    - A header key ends at its first NUL.
    - A message of magic 0 has the timestamp (0, 0).
    - One difference: a header key that is not UTF-8 has U+FFFD here. The binding raises an error.

    The first `take` or `skip_before` raises ValueError if a column is missing.
    """

    def __init__(self, rows: DecodedRows, topic: str, partition: int, make: Callable[..., Any]) -> None:
        self._shared = make, topic, partition
        self._runs = deque(rows.runs)
        self._left = rows.num_rows
        # Of the run that is open: its rows, the next one, and their number.
        self._rows: MessageRows | None = None
        self._next = self._count = 0

    def __len__(self) -> int:
        """Rows left."""
        return self._left

    def skip_before(self, offset: int) -> None:
        """Drop the rows with a smaller offset."""
        while self._left:
            rows = self._open()
            first = bisect_left(range(self._count), offset, self._next, key=rows.offset)
            self._go_to(first)
            if first < self._count:
                return

    def take(self, count: int) -> list[Any]:
        """The next messages: at most `count`, and all of one run. None only if no row is left or none is asked for.

        Raises the errors of `make`. Then it gives no row.
        """
        if not self._left or count <= 0:
            return []
        rows = self._open()
        stop = min(self._next + count, self._count)
        messages = rows.messages(self._next, stop)
        self._go_to(stop)
        return messages

    def _open(self) -> MessageRows:
        """The run that has the next row."""
        while self._next == self._count:
            run = self._runs.popleft()
            self._rows = run.messages(*self._shared)
            self._next, self._count = 0, run.rows
        assert self._rows is not None
        return self._rows

    def _go_to(self, row: int) -> None:
        self._left -= row - self._next
        self._next = row
