"""The rows of a record batch as messages, in plain Python: one call of the message class a row.

The reference for the native loop, `native/src/messages.rs`, and the loop that runs if that was not built.

Rules of the file:

- Both give the same messages and the same errors for the same columns.
- Every read is checked. A row or an offset outside its column is an IndexError, and no index counts from the end.
- If confluent_kafka's binding shows a record differently from the columns, this module follows the binding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Cells", "Rows"]

MAX_HEADERS = 100_000
"""librdkafka treats more headers than this as malformed, and gives none."""

NO_TIMESTAMP = (0, 0)
"""librdkafka's timestamp of a message of magic 0: the type "not available" and 0, not Kafka's -1."""

NO_LATENCY = -1.0


class Cells(NamedTuple):
    """A binary or string column: Arrow's offsets, data and validity bits (None: no item is null).

    `ends` begins at the column's first item. `first_bit` is the index of that item's validity bit.
    """

    ends: memoryview
    data: memoryview
    validity: memoryview | None = None
    first_bit: int = 0

    def item(self, row: int) -> bytes | None:
        """A copy of the item as bytes."""
        return None if self._is_null(row) else self._data(row)

    def name(self, row: int) -> str:
        """The item as text; it is not null. It ends at the first NUL, because the binding reads it as a C string."""
        return self._data(row).partition(b"\0")[0].decode()

    def _is_null(self, row: int) -> bool:
        if self.validity is None:
            return False
        bit = self.first_bit + row
        if self.first_bit < 0 or bit >> 3 >= len(self.validity):
            raise _outside()
        return not self.validity[bit >> 3] >> (bit & 7) & 1

    def _data(self, row: int) -> bytes:
        start, stop = _range_of(self.ends, row)
        if stop > len(self.data):
            raise _outside()
        return bytes(self.data[start:stop])


class Rows:
    """The columns of one record batch, and the arguments that all its messages share.

    `make` is called with ten arguments in the order of confluent_kafka.Message, the latency -1.0 being "none".

    The columns are read only, contiguous and aligned: `offset` and `timestamp_ms` of 64 bits, the other numbers of 32.
    Row n has the headers from `header_ends[n]` to `header_ends[n + 1]`, exclusive.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        topic: str,
        partition: int,
        *,
        key: Cells,
        value: Cells,
        offset: memoryview,
        timestamp_ms: memoryview,
        timestamp_type: memoryview,
        leader_epoch: memoryview,
        header_ends: memoryview,
        header_key: Cells,
        header_value: Cells,
    ) -> None:
        self._make = make
        self._topic = topic
        self._partition = partition
        self._key = key
        self._value = value
        self._offset = offset
        self._timestamp_ms = timestamp_ms
        self._timestamp_type = timestamp_type
        self._leader_epoch = leader_epoch
        self._header_ends = header_ends
        self._header_key = header_key
        self._header_value = header_value
        numbers = (offset, timestamp_ms, timestamp_type, leader_epoch)
        self._count = min(*map(len, numbers), *(len(ends) - 1 for ends in (key.ends, value.ends, header_ends)))

    def messages(self, start: int, stop: int) -> list[Any]:
        """The messages of rows [start, stop). Raises IndexError, and the errors of `make`."""
        if start < stop and (start < 0 or stop > self._count):
            raise IndexError("a row outside its columns")
        return [self._message(row) for row in range(start, stop)]

    def _message(self, row: int) -> Any:
        headers = self._headers(row)  # the first, as natively, so that a row with two faults has the same error
        return self._make(
            self._topic,
            self._partition,
            self._offset[row],
            self._key.item(row),
            self._value.item(row),
            headers,
            None,
            self._stamp(row),
            NO_LATENCY,
            self._leader_epoch[row],
        )

    def _stamp(self, row: int) -> tuple[int, int]:
        """Type and milliseconds. librdkafka counts types from "not available", Kafka from CreateTime."""
        kind = self._timestamp_type[row]
        return NO_TIMESTAMP if kind < 0 else (kind + 1, self._timestamp_ms[row])

    def _headers(self, row: int) -> list[tuple[str, bytes | None]] | None:
        start, stop = _range_of(self._header_ends, row)
        if stop >= len(self._header_key.ends):
            raise _outside()
        if not 0 < stop - start <= MAX_HEADERS:
            return None
        return [(self._header_key.name(index), self._header_value.item(index)) for index in range(start, stop)]


def _range_of(ends: memoryview, row: int) -> tuple[int, int]:
    """The part of an item, from one of Arrow's offsets to the next."""
    if row + 1 >= len(ends) or not 0 <= ends[row] <= ends[row + 1]:
        raise _outside()
    return ends[row], ends[row + 1]


def _outside() -> IndexError:
    return IndexError("an offset outside its column")
