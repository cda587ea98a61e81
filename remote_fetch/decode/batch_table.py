"""The table of batches and the statuses that plain Python and the compiled loops share, as numbers.

Rules of the file:

- Constants only, and one function that makes a row from a header.
- The compiled sources repeat the numbers that they use; a test compares them.
- A table is a flat array of 64-bit integers, FIELDS of them for each batch.
"""

from __future__ import annotations

from array import array
from enum import IntEnum

from remote_fetch.formats.batches import BatchHeader
from remote_fetch.model import TimestampType

__all__ = ["FAULTS", "FIELDS", "NEED_ROOM", "Field", "new_table", "row_of"]

FIELDS = 12
"""Numbers in the row of one batch."""


class Field(IntEnum):
    """The place of each number in a row."""

    AREA = 0
    """The bounds of the record area in the bytes given; the end is exclusive."""
    AREA_END = 1
    CODEC = 2
    """The codec; 0 if the area is not compressed."""
    COUNT = 3
    BASE_OFFSET = 4
    LAST_OFFSET = 5
    BASE_MS = 6
    """The base of the timestamp deltas, or the timestamp of all records if the broker set it (LogAppendTime)."""
    TIMESTAMP_TYPE = 7
    EPOCH = 8
    PRODUCER_ID = 9
    """The producer of a transactional batch; -1 for other batches, and always under read_uncommitted."""
    AT = 10
    """The index of the whole batch in the bytes given."""
    PREVIOUS_OFFSET = 11
    """The last offset of the batch before it, even if that batch has no row. -1 for the first batch of a slice."""


NEED_ROOM = -1
"""The status of a batch for which the columns have no room."""

FAULTS = {
    -2: "the batch is too short for its record count",
    -3: "a number is cut off or too long",
    -4: "the record's length is too small or goes past the batch",
    -5: "the offset does not follow the one before it, or is past the batch's last offset",
    -6: "a key or value goes past the record",
    -7: "the header count is negative or more than the record has room for",
    -8: "a header key is null",
    -9: "the record does not end where its length says",
    -10: "bytes are left after the last record",
}
"""The meaning of each status of a malformed batch."""


def new_table(rows: int) -> memoryview:
    """A table for that many batches."""
    return memoryview(bytearray(rows * FIELDS * 8)).cast("q")


def row_of(header: BatchHeader, size_bytes: int) -> array[int]:
    """The table of one batch whose uncompressed record area of `size_bytes` is the whole input."""
    timestamp_type = header.timestamp_type
    base_ms = header.max_timestamp_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else header.base_timestamp_ms
    return array(
        "q",
        (0, size_bytes, 0, header.record_count, header.base_offset, header.last_offset, base_ms, timestamp_type,
         header.leader_epoch, -1, 0, -1),
    )  # fmt: skip
