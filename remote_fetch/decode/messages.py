"""Decoded rows as message objects, equal to those that a consumer of confluent_kafka returns.

Rules of the file:

- Plain Python around an inner loop, `messages` of a run. This file runs once for each run, never once for each record.
- The caller passes the class of the messages, because this package knows no client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from remote_fetch.decode.decoded_rows import DecodedRows

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

    Raises ValueError if a column is missing.
    """

    def __init__(self, rows: DecodedRows, topic: str, partition: int, make: Callable[..., Any]) -> None:
        self._rows = rows.run.messages(make, topic, partition)
        self._count = rows.num_rows
        self._next = 0

    def __len__(self) -> int:
        """Rows left."""
        return self._count - self._next

    def skip_before(self, offset: int) -> None:
        """Drop the rows with a smaller offset."""
        self._next = bisect_left(range(self._count), offset, self._next, key=self._rows.offset)

    def take(self, count: int) -> list[Any]:
        """The next messages, at most `count`.

        Raises the errors of `make`. Then it gives no row.
        """
        stop = self._next + count  # `min` and `max` take as long as a message
        if not self._next <= stop <= self._count:
            stop = self._next if count < 0 else self._count
        messages = self._rows.messages(self._next, stop)
        self._next = stop
        return messages
