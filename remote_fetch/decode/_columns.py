# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, infer_types=True
"""The inner loop: the records of one v2 batch (KIP-98) into Arrow's buffers, without a Python object per record.

Rules of the file:

- One source, two lives: compiled and interpreted it gives the same answers. So no pointers, and no sum past 64 bits.
- Indices are not checked in compiled code. Each read follows a check against the end of the record. Each write is safe,
  because `decode` refuses a batch that might not fit. Nothing is raised: a malformed batch gives a negative status.
- Attributes are written once a batch. Objects of several threads share cache lines, and each write takes a line away.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # only in plain Python: compiled code needs no `cython` module at run time
    from remote_fetch.decode import _shadow as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED = bool(cython.compiled)

# Numbers of a batch in the table that `decode` reads. `batch_table.py` has their meaning.
FIELDS = cython.declare(cython.longlong, 12)
CODEC = cython.declare(cython.longlong, 2)

# Statuses; inside the loop they travel as negative positions. `batch_table.py` has a sentence for each.
NO_ROOM = cython.declare(cython.longlong, -1)
BAD_COUNT = cython.declare(cython.longlong, -2)
BAD_VARINT = cython.declare(cython.longlong, -3)
BAD_LENGTH = cython.declare(cython.longlong, -4)
BAD_OFFSET = cython.declare(cython.longlong, -5)
BAD_FIELD = cython.declare(cython.longlong, -6)
BAD_HEADER_COUNT = cython.declare(cython.longlong, -7)
BAD_HEADER_KEY = cython.declare(cython.longlong, -8)
BAD_END = cython.declare(cython.longlong, -9)
BAD_REST = cython.declare(cython.longlong, -10)
# A record has at least its length, attributes, two deltas, two lengths and a header count, one byte each.
MIN_RECORD_BYTES = cython.declare(cython.longlong, 7)
MIN_HEADER_BYTES = cython.declare(cython.longlong, 2)
# Shift of the last byte of a varint: the fifth of 32 bits, the tenth of 64.
INT32 = cython.declare(cython.int, 28)
INT64 = cython.declare(cython.int, 63)
LOG_APPEND_TIME = cython.declare(cython.int, 1)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
INT64_MIN = cython.declare(cython.longlong, -INT64_MAX - 1)
MAX_TIMESTAMP_MS = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF // 1000)  # that fit, as microseconds


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _wrapped_sum(base: cython.longlong, delta: cython.longlong) -> cython.longlong:
    """The sum in 64 bits with overflow, as the Java client adds deltas."""
    if (delta > 0 and base > INT64_MAX - delta) or (delta < 0 and base < INT64_MIN - delta):
        return (base ^ INT64_MIN) + (delta ^ INT64_MIN)  # a flipped top bit is 2**63 more, or less
    return base + delta


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(
    area: cython.const[cython.uchar][::1], pos: cython.longlong, end: cython.longlong, last_shift: cython.int
) -> tuple[cython.longlong, cython.longlong]:
    """Position after a zigzag varint whose last byte is shifted by `last_shift` at most (INT32, INT64), and its value.

    A position that is a status is returned, so a caller checks once after several steps.
    """
    if pos < 0:
        return pos, 0
    if pos >= end:
        return BAD_VARINT, 0
    raw: cython.ulonglong = area[pos]
    pos += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift: cython.int = 7
        byte: cython.ulonglong = 0x80
        while byte >= 0x80:
            if pos >= end:
                return BAD_VARINT, 0
            byte = area[pos]
            if shift == last_shift and byte > (0x0F if last_shift == INT32 else 0x01):
                return BAD_VARINT, 0
            pos += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
    # Assigned before the exclusive or, so that it works on signed numbers in C too.
    half: cython.longlong = raw >> 1
    sign: cython.longlong = raw & 1
    return pos, half ^ -sign


@cython.cclass
class ByteColumn:
    """An unfinished Arrow column of variable length: offsets, validity bits and data, all of fixed size."""

    offsets: cython.int[::1]
    validity: cython.uchar[::1]
    data: cython.uchar[::1]

    def __init__(self, offsets: cython.int[::1], validity: cython.uchar[::1], data: cython.uchar[::1]) -> None:
        self.offsets = offsets
        self.validity = validity
        self.data = data
        offsets[0] = 0

    def used_bytes(self, items: cython.longlong) -> int:
        """How many bytes the first items have together."""
        return self.offsets[items]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def put(
        self, row: cython.longlong, area: cython.const[cython.uchar][::1], start: cython.longlong, size: cython.longlong
    ) -> cython.void:
        """Write one item behind those before it; a negative size is null."""
        # Every bit is set or cleared, because a batch that was given up may have left bits behind.
        mask: cython.int = 1 << (row & 7)
        if mask == 1:
            self.validity[row >> 3] = 0
        used: cython.longlong = self.offsets[row]
        if size >= 0:
            if cython.compiled:
                memcpy(cython.address(self.data[used]), cython.address(area[start]), size)
            else:
                self.data[used : used + size] = area[start : start + size]
            used += size
            self.validity[row >> 3] |= mask
        else:
            self.validity[row >> 3] &= ~mask & 0xFF
        self.offsets[row + 1] = used


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field(
    column: ByteColumn | None,
    row: cython.longlong,
    area: cython.const[cython.uchar][::1],
    pos: cython.longlong,
    end: cython.longlong,
) -> cython.longlong:
    """Position after a length and as many bytes, put into `column` unless that is None."""
    pos, size = _varint(area, pos, end, INT32)
    if pos < 0:
        return pos
    if size > end - pos:
        return BAD_FIELD
    if column is not None:
        column.put(row, area, pos, size)
    return pos + size if size > 0 else pos


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _fits(column: ByteColumn | None, items: cython.longlong, size_bytes: cython.longlong) -> cython.bint:
    return column is None or column.offsets[items] + size_bytes <= column.data.shape[0]


@cython.cclass
class Columns:
    """The columns of an unfinished record batch. A column that is not wanted is None.

    `rows` and `header_count` count finished items. After a negative `status`, `failed_record` is the index of the
    failed record, and `failed_offset` its offset, or the batch's if the record's was not read.
    """

    key: ByteColumn
    value: ByteColumn
    header_key: ByteColumn
    header_value: ByteColumn
    header_ends: cython.int[::1]
    offset: cython.longlong[::1]
    timestamp: cython.longlong[::1]
    timestamp_ms: cython.longlong[::1]
    timestamp_type: cython.int[::1]
    leader_epoch: cython.int[::1]
    row_capacity: cython.longlong
    header_capacity: cython.longlong
    base_offset: cython.longlong
    last_offset: cython.longlong
    start_offset: cython.longlong
    stop_offset: cython.longlong
    base_timestamp_ms: cython.longlong
    batch_timestamp_type: cython.int
    batch_leader_epoch: cython.int
    rows = cython.declare(cython.longlong, visibility="readonly")
    header_count = cython.declare(cython.longlong, visibility="readonly")
    status = cython.declare(cython.longlong, visibility="readonly")
    failed_record = cython.declare(cython.longlong, visibility="readonly")
    failed_offset = cython.declare(cython.longlong, visibility="readonly")

    def __init__(self, row_capacity: cython.longlong, header_capacity: cython.longlong, views: dict) -> None:
        self.row_capacity = row_capacity
        self.header_capacity = header_capacity
        self.key = views.get("key")
        self.value = views.get("value")
        self.header_ends = views.get("header_ends")
        self.header_key = views.get("header_key")
        self.header_value = views.get("header_value")
        self.offset = views.get("offset")
        self.timestamp = views.get("timestamp")
        self.timestamp_ms = views.get("timestamp_ms")
        self.timestamp_type = views.get("timestamp_type")
        self.leader_epoch = views.get("leader_epoch")
        self.rows = self.header_count = self.status = self.failed_record = self.failed_offset = 0
        if self.header_ends is not None:
            self.header_ends[0] = 0

    def decode(
        self,
        area: cython.const[cython.uchar][::1],
        batches: cython.longlong[::1],
        first: cython.longlong,
        stop: cython.longlong,
        start_offset: cython.longlong,
        stop_offset: cython.longlong,
    ) -> int:
        """Take batches [first, stop) of the table, up to one that is compressed or that cannot be taken.

        Returns the index of the first batch not taken, of which no record is kept. `status` is NEED_ROOM or a fault if
        that stopped it, else 0. `area` holds the uncompressed records at the places that the table names. Offsets are
        in [0, 2^63 - 1). Records in [start_offset, stop_offset) are kept.
        """
        self.start_offset = start_offset
        self.stop_offset = stop_offset
        self.status = 0
        index: cython.longlong = first
        with cython.nogil:
            while index < stop and batches[index * FIELDS + CODEC] == 0:
                self.status = self._batch(area, batches, index * FIELDS)
                if self.status < 0:
                    break
                index += 1
        return index

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _batch(
        self, area: cython.const[cython.uchar][::1], batches: cython.longlong[::1], row: cython.longlong
    ) -> cython.longlong:
        pos: cython.longlong = batches[row]
        end: cython.longlong = batches[row + 1]
        count: cython.longlong = batches[row + 3]
        self.failed_record = 0
        self.failed_offset = self.base_offset = batches[row + 4]
        if pos < 0 or end > area.shape[0] or count < 0 or count > (end - pos) // MIN_RECORD_BYTES:
            return BAD_COUNT
        if not self._has_room(end - pos, count):
            return NO_ROOM
        self.last_offset = batches[row + 5]
        self.batch_leader_epoch = batches[row + 8]
        self.batch_timestamp_type = batches[row + 7]
        self.base_timestamp_ms = batches[row + 6]
        return self._records(area, pos, end, count)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_room(self, size_bytes: cython.longlong, count: cython.longlong) -> cython.bint:
        """Whether a batch of that size fits in any case. No column takes more bytes than the batch has."""
        if self.header_ends is not None and self.header_count + size_bytes // MIN_HEADER_BYTES > self.header_capacity:
            return False
        return (
            self.rows + count <= self.row_capacity
            and _fits(self.key, self.rows, size_bytes)
            and _fits(self.value, self.rows, size_bytes)
            and _fits(self.header_key, self.header_count, size_bytes)
            and _fits(self.header_value, self.header_count, size_bytes)
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _records(
        self, area: cython.const[cython.uchar][::1], pos: cython.longlong, stop: cython.longlong, count: cython.longlong
    ) -> cython.longlong:
        row: cython.longlong = self.rows
        previous: cython.longlong = self.base_offset - 1
        for index in range(count):
            if pos >= stop:
                return self._fail(BAD_COUNT, index, self.base_offset)
            pos, length = _varint(area, pos, stop, INT32)
            if pos < 0:
                return self._fail(pos, index, self.base_offset)
            if length < MIN_RECORD_BYTES - 1 or length > stop - pos:
                return self._fail(BAD_LENGTH, index, self.base_offset)
            end = pos + length
            # The record's attributes are skipped, because no bit has a meaning yet.
            pos, timestamp_delta = _varint(area, pos + 1, end, INT64)
            pos, offset = _varint(area, pos, end, INT32)
            if pos < 0:
                return self._fail(pos, index, self.base_offset)
            # Compared as a difference, because base plus delta might leave 64 bits.
            if offset > self.last_offset - self.base_offset:
                return self._fail(BAD_OFFSET, index, self.base_offset)
            offset += self.base_offset
            if offset <= previous:
                return self._fail(BAD_OFFSET, index, self.base_offset)
            previous = offset
            pos = self._body(row, area, pos, end)
            if pos != end:
                return self._fail(pos if pos < 0 else BAD_END, index, offset)
            # The next record overwrites items that are not counted.
            if self.start_offset <= offset < self.stop_offset:
                self._put_numbers(row, offset, timestamp_delta)
                row += 1
        if pos != stop:
            return self._fail(BAD_REST, count - 1 if count > 0 else 0, previous if count > 0 else self.base_offset)
        self.rows = row
        if self.header_ends is not None:
            self.header_count = self.header_ends[row]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fail(self, status: cython.longlong, record: cython.longlong, offset: cython.longlong) -> cython.longlong:
        self.failed_record = record
        self.failed_offset = offset
        return status

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _body(
        self, row: cython.longlong, area: cython.const[cython.uchar][::1], pos: cython.longlong, end: cython.longlong
    ) -> cython.longlong:
        """Position after key, value and headers, or a status."""
        pos = _field(self.key, row, area, pos, end)
        pos = _field(self.value, row, area, pos, end)
        pos, count = _varint(area, pos, end, INT32)
        if self.header_ends is None:
            return pos if count == 0 else self._headers(0, count, area, pos, end)
        first: cython.longlong = self.header_ends[row]
        if count != 0:
            pos = self._headers(first, count, area, pos, end)
        if pos >= 0:
            self.header_ends[row + 1] = first + count
        return pos

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _headers(
        self,
        first: cython.longlong,
        count: cython.longlong,
        area: cython.const[cython.uchar][::1],
        pos: cython.longlong,
        end: cython.longlong,
    ) -> cython.longlong:
        """Position after `count` headers, of which the first becomes item `first`, or a status."""
        # Bounded before the loop: a hostile count costs nothing and cannot pass the room of the columns.
        if count < 0 or count > (end - pos) // MIN_HEADER_BYTES:
            return BAD_HEADER_COUNT
        for item in range(first, first + count):
            after, size = _varint(area, pos, end, INT32)
            if after >= 0 and size < 0:
                return BAD_HEADER_KEY
            pos = _field(self.header_key, item, area, pos, end)
            pos = _field(self.header_value, item, area, pos, end)
            if pos < 0:
                return pos
        return pos

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_numbers(self, row: cython.longlong, offset: cython.longlong, delta_ms: cython.longlong) -> cython.void:
        """Write the columns of fixed width."""
        if self.offset is not None:
            self.offset[row] = offset
        ms: cython.longlong = self.base_timestamp_ms
        if self.batch_timestamp_type != LOG_APPEND_TIME:
            ms = _wrapped_sum(ms, delta_ms)
        if self.timestamp_ms is not None:
            self.timestamp_ms[row] = ms
        if self.timestamp is not None:
            if ms > MAX_TIMESTAMP_MS or ms < -MAX_TIMESTAMP_MS:
                self.timestamp[row] = INT64_MAX if ms > 0 else INT64_MIN
            else:
                self.timestamp[row] = ms * 1000
        if self.timestamp_type is not None:
            self.timestamp_type[row] = self.batch_timestamp_type
        if self.leader_epoch is not None:
            self.leader_epoch[row] = self.batch_leader_epoch
