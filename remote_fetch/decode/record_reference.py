"""The records of one v2 batch (KIP-98) in plain Python, checked as the Java client's DefaultRecord checks them.

Rules of the file:

- `native/src/records.rs` gives the same rows, and ends with the same status.
- Nothing is read past the bytes that are given. A length is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from remote_fetch.decode.run_status import RunStatus
from remote_fetch.formats.batches import BatchHeader
from remote_fetch.model import TimestampType

__all__ = ["Ended", "Fault", "Row", "Shape", "base_ms_of", "fault_of", "records_of"]

# A record has at least its length, attributes, two deltas, two lengths and a header count, one byte each.
_MIN_RECORD_BYTES = 7
_MIN_HEADER_BYTES = 2


class Ended(Exception):
    """The run ends before the batch at hand."""

    def __init__(self, status: RunStatus, offset: int | None = None) -> None:
        self.status = status
        self.offset = offset


class Fault(NamedTuple):
    """The record of a batch that is malformed: its index, its offset if that could be read, and why."""

    record: int
    offset: int
    status: RunStatus


class Row(NamedTuple):
    """One record. A header key may be no UTF-8."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class Shape(NamedTuple):
    """The fields of a header that its records need."""

    base_offset: int
    last_offset: int
    record_count: int
    base_ms: int
    timestamp_type: int
    leader_epoch: int

    @classmethod
    def of(cls, header: BatchHeader) -> Shape:
        """The fields of `header`."""
        offsets, timestamp_type = (header.base_offset, header.last_offset), header.timestamp_type
        return cls(*offsets, header.record_count, base_ms_of(header), timestamp_type, header.leader_epoch)


def base_ms_of(header: BatchHeader) -> int:
    """The base of the timestamp deltas of a batch, or the timestamp of all its records if the broker set it."""
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return header.max_timestamp_ms if is_append_time else header.base_timestamp_ms


class _Reader:
    """Bytes that are read from the front. A malformed number or length ends the run."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def number(self, bits: int) -> int:
        """A zigzag varint of `bits` bits, in as many bytes as they need at most. As in Java the bits above are lost."""
        raw = shift = 0
        while shift < bits and self.left:
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                raw %= 1 << bits
                return raw >> 1 ^ -(raw & 1)
        raise Ended(RunStatus.BAD_VARINT)

    def int32(self) -> int:
        return self.number(32)

    def taken(self, size_bytes: int, status: RunStatus) -> memoryview:
        if size_bytes > self.left:
            raise Ended(status)
        self.at += size_bytes
        return self.data[self.at - size_bytes : self.at]

    def field(self) -> bytes | None:
        """A length and as many bytes; a negative length is null."""
        size_bytes = self.int32()
        return None if size_bytes < 0 else bytes(self.taken(size_bytes, RunStatus.BAD_FIELD))


def records_of(area: memoryview, shape: Shape) -> Iterator[Row]:
    """The records of one v2 batch (KIP-98).

    The checks are those of the Java client's DefaultRecord, and one more: the offsets ascend.
    """
    if not 0 <= shape.record_count <= len(area) // _MIN_RECORD_BYTES:
        raise Ended(RunStatus.BAD_COUNT)
    reader, previous = _Reader(area), shape.base_offset - 1
    for _ in range(shape.record_count):
        if not reader.left:
            raise Ended(RunStatus.BAD_COUNT)
        size_bytes = reader.int32()
        if size_bytes < _MIN_RECORD_BYTES - 1:
            raise Ended(RunStatus.BAD_LENGTH)
        # The record's attributes are skipped, because no bit has a meaning yet.
        record = _Reader(reader.taken(size_bytes, RunStatus.BAD_LENGTH)[1:])
        delta_ms = record.number(64)
        offset = shape.base_offset + record.int32()
        if not previous < offset <= shape.last_offset:
            raise Ended(RunStatus.BAD_OFFSET)
        previous = offset
        try:
            key, value = record.field(), record.field()
            headers = list(_headers(record, record.int32()))
            if record.left:
                raise Ended(RunStatus.BAD_END)
        except Ended as ended:
            raise Ended(ended.status, offset) from None
        is_append_time = shape.timestamp_type == TimestampType.LOG_APPEND_TIME
        ms = shape.base_ms if is_append_time else _wrapped(shape.base_ms + delta_ms)
        yield Row(offset, ms, shape.timestamp_type, shape.leader_epoch, key, value, headers)
    if reader.left:
        raise Ended(RunStatus.BAD_REST, max(previous, shape.base_offset))


def _headers(record: _Reader, count: int) -> Iterator[tuple[bytes, bytes | None]]:
    if not 0 <= count <= record.left // _MIN_HEADER_BYTES:
        raise Ended(RunStatus.BAD_HEADER_COUNT)
    for _ in range(count):
        key = record.field()
        if key is None:
            raise Ended(RunStatus.BAD_HEADER_KEY)
        yield key, record.field()


def _wrapped(number: int) -> int:
    """The number in 64 bits with overflow, as the Java client adds deltas."""
    return (number + 2**63) % 2**64 - 2**63


def fault_of(records: memoryview, header: BatchHeader) -> Fault:
    """The malformed record of a batch that `BatchDecoder` refuses."""
    sound = 0
    try:
        for _ in records_of(records, Shape.of(header)):
            sound += 1
    except Ended as ended:
        record = max(sound - 1, 0) if ended.status is RunStatus.BAD_REST else sound
        return Fault(record, header.base_offset if ended.offset is None else ended.offset, ended.status)
    raise AssertionError("the batch is well-formed")
