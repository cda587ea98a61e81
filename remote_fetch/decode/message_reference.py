"""The rows of a run as messages, in plain Python: one call of the message class a row.

The reference for the native loop, `native/src/messages.rs`, and the loop that runs if that was not built.

Rules of the file:

- Both give the same messages and the same errors for the same rows. No index counts from the end.
- If confluent_kafka's binding shows a record differently from the columns, this module follows the binding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remote_fetch.decode.arrays import java_text
from remote_fetch.decode.record_reference import Row

__all__ = ["Rows"]

MAX_HEADERS = 100_000
"""librdkafka treats more headers than this as malformed, and gives none."""

NO_TIMESTAMP = (0, 0)
"""librdkafka's timestamp of a message of magic 0: the type "not available" and 0, not Kafka's -1."""

NO_LATENCY = -1.0


class Rows:
    """The rows of one run, and the arguments that all its messages share.

    `make` is called with ten arguments in the order of confluent_kafka.Message, the latency -1.0 being "none".
    """

    def __init__(self, make: Callable[..., Any], topic: str, partition: int, rows: Sequence[Row]) -> None:
        self._make = make
        self._topic = topic
        self._partition = partition
        self._rows = rows

    def messages(self, start: int, stop: int) -> list[Any]:
        """The messages of rows [start, stop). Raises IndexError, and the errors of `make`."""
        if start < stop and (start < 0 or stop > len(self._rows)):
            raise IndexError("a row outside its columns")
        return [self._message(row) for row in self._rows[max(start, 0) : max(stop, 0)]]

    def offset(self, row: int) -> int:
        """The offset of a row. Raises IndexError."""
        if not 0 <= row < len(self._rows):
            raise IndexError("a row outside its columns")
        return self._rows[row].offset

    def _message(self, row: Row) -> Any:
        # librdkafka counts types from "not available", Kafka from CreateTime.
        stamp = NO_TIMESTAMP if row.timestamp_type < 0 else (int(row.timestamp_type) + 1, row.timestamp_ms)
        return self._make(
            self._topic,
            self._partition,
            row.offset,
            row.key,
            row.value,
            _headers(row),
            None,
            stamp,
            NO_LATENCY,
            row.leader_epoch,
        )


def _headers(row: Row) -> list[tuple[str, bytes | None]] | None:
    """The headers. A key ends at the first NUL, because the binding reads it as a C string."""
    if not 0 < len(row.headers) <= MAX_HEADERS:
        return None
    return [(java_text(key).partition("\0")[0], value) for key, value in row.headers]
