# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, infer_types=True
"""The inner loop: the records of one v2 batch (KIP-98) into Arrow's buffers, without a Python object per record.

Rules of the file: one source, two lives. Compiled by Cython where a C compiler is at hand, run as it stands where not,
and both give the same answer for every input; so no pointers, only typed memoryviews, and no sum that could pass 64
bits. Compiled code does not check indices: every read is preceded by a check against the end of the record, and every
write is safe because `decode` refuses a batch whose bytes could not all fit into a column. Nothing is raised: a
malformed batch gives a negative status, and nothing of it is counted.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # only in plain Python: compiled code needs no `cython` module at run time
    from remote_fetch.decode import _shadow as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED = bool(cython.compiled)

NEED_ROOM = -1
"""Status of `Columns.decode`: nothing was read, the columns have no room for the batch."""

# The other statuses; inside the loop they travel as negative positions.
BAD_COUNT = cython.declare(cython.longlong, -2)
BAD_VARINT = cython.declare(cython.longlong, -3)
BAD_LENGTH = cython.declare(cython.longlong, -4)
BAD_OFFSET = cython.declare(cython.longlong, -5)
BAD_FIELD = cython.declare(cython.longlong, -6)
BAD_HEADER_COUNT = cython.declare(cython.longlong, -7)
BAD_HEADER_KEY = cython.declare(cython.longlong, -8)
BAD_END = cython.declare(cython.longlong, -9)
BAD_TIMESTAMP = cython.declare(cython.longlong, -10)
BAD_REST = cython.declare(cython.longlong, -11)

FAULTS = {
    BAD_COUNT: "the batch is too short for its record count",
    BAD_VARINT: "a number is cut off or too long",
    BAD_LENGTH: "the record's length is too small or goes past the batch",
    BAD_OFFSET: "the offset does not follow the one before it, or is past the batch's last offset",
    BAD_FIELD: "a key or value goes past the record",
    BAD_HEADER_COUNT: "the header count is negative or more than the record has room for",
    BAD_HEADER_KEY: "a header key is null",
    BAD_END: "the record does not end where its length says",
    BAD_TIMESTAMP: "the timestamp does not fit 64 bits of microseconds",
    BAD_REST: "bytes are left after the last record",
}
"""What each status of a malformed batch means."""

# A record has at least its length, attributes, two deltas, two lengths and a header count, one byte each.
MIN_RECORD_BYTES = cython.declare(cython.longlong, 7)
MIN_HEADER_BYTES = cython.declare(cython.longlong, 2)

# Shift of the last byte of a varint: the fifth of 32 bits, the tenth of 64.
INT32 = cython.declare(cython.int, 28)
INT64 = cython.declare(cython.int, 63)

LOG_APPEND_TIME = cython.declare(cython.int, 1)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
INT64_MIN = cython.declare(cython.longlong, -INT64_MAX - 1)
# The most milliseconds that fit a column of microseconds.
MAX_TIMESTAMP_MS = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF // 1000)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(
    area: cython.const[cython.uchar][::1], pos: cython.longlong, end: cython.longlong, last_shift: cython.int
) -> tuple[cython.longlong, cython.longlong]:
    """Position after a zigzag varint whose last byte is shifted by `last_shift` at most (INT32, INT64), and its value.

    A position that is a status already stays as it is, so that a caller may ask once for several steps.
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
    """A variable-length Arrow column in the making: offsets, validity bits and data, all of fixed size."""

    offsets: cython.int[::1]
    validity: cython.uchar[::1]
    data: cython.uchar[::1]
    used_bytes = cython.declare(cython.longlong, visibility="readonly")

    def __init__(self, offsets: cython.int[::1], validity: cython.uchar[::1], data: cython.uchar[::1]) -> None:
        self.offsets = offsets
        self.validity = validity
        self.data = data
        self.used_bytes = 0
        offsets[0] = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def put(
        self, row: cython.longlong, area: cython.const[cython.uchar][::1], start: cython.longlong, size: cython.longlong
    ) -> cython.void:
        """Write one item; a negative size is null."""
        # Bits are set or cleared, never taken as they are: they may be those of a batch that was given up.
        mask: cython.int = 1 << (row & 7)
        if mask == 1:
            self.validity[row >> 3] = 0
        if size >= 0:
            if cython.compiled:
                memcpy(cython.address(self.data[self.used_bytes]), cython.address(area[start]), size)
            else:
                self.data[self.used_bytes : self.used_bytes + size] = area[start : start + size]
            self.used_bytes += size
            self.validity[row >> 3] |= mask
        else:
            self.validity[row >> 3] &= ~mask & 0xFF
        self.offsets[row + 1] = self.used_bytes


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


@cython.cclass
class Columns:
    """The columns of a record batch in the making; those not wanted are None.

    `rows` and `header_count` are what is finished. After a negative status of `decode`, `failed_record` is the index
    of the record it is about, and `failed_offset` that record's offset, or the batch's if it was not read.
    """

    key: ByteColumn
    value: ByteColumn
    header_key: ByteColumn
    header_value: ByteColumn
    byte_columns: tuple
    header_ends: cython.int[::1]
    offset: cython.longlong[::1]
    timestamp: cython.longlong[::1]
    timestamp_type: cython.int[::1]
    leader_epoch: cython.int[::1]
    row_capacity: cython.longlong
    header_capacity: cython.longlong
    base_offset: cython.longlong
    last_offset: cython.longlong
    start_offset: cython.longlong
    stop_offset: cython.longlong
    base_timestamp_ms: cython.longlong
    min_timestamp_delta: cython.longlong
    max_timestamp_delta: cython.longlong
    has_own_timestamps: cython.bint
    batch_timestamp_type: cython.int
    batch_leader_epoch: cython.int
    rows = cython.declare(cython.longlong, visibility="readonly")
    header_count = cython.declare(cython.longlong, visibility="readonly")
    failed_record = cython.declare(cython.longlong, visibility="readonly")
    failed_offset = cython.declare(cython.longlong, visibility="readonly")

    def __init__(
        self,
        row_capacity: cython.longlong,
        header_capacity: cython.longlong,
        *,
        key: ByteColumn | None = None,
        value: ByteColumn | None = None,
        header_ends: cython.int[::1] = None,
        header_key: ByteColumn | None = None,
        header_value: ByteColumn | None = None,
        offset: cython.longlong[::1] = None,
        timestamp: cython.longlong[::1] = None,
        timestamp_type: cython.int[::1] = None,
        leader_epoch: cython.int[::1] = None,
    ) -> None:
        self.row_capacity = row_capacity
        self.header_capacity = header_capacity
        self.key = key
        self.value = value
        self.header_ends = header_ends
        self.header_key = header_key
        self.header_value = header_value
        self.byte_columns = tuple(c for c in (key, value, header_key, header_value) if c is not None)
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch
        self.rows = self.header_count = self.failed_record = self.failed_offset = 0
        if header_ends is not None:
            header_ends[0] = 0

    def decode(
        self,
        area: cython.const[cython.uchar][::1],
        header: object,
        timestamp_type: cython.int,
        start_offset: cython.longlong,
        stop_offset: cython.longlong,
    ) -> int:
        """Take the records of one batch and return 0, or take nothing and return a negative status.

        `area` holds the uncompressed records of `header`, whose offsets are in [0, 2^63 - 1). Those in
        [start_offset, stop_offset) are kept. `timestamp_type` is `header`'s, as a number.
        """
        count: cython.longlong = header.record_count
        self.failed_record = 0
        self.failed_offset = self.base_offset = header.base_offset
        if count < 0 or count > area.shape[0] // MIN_RECORD_BYTES:
            return BAD_COUNT
        if not self._has_room(area.shape[0], count):
            return NEED_ROOM
        self.last_offset = header.last_offset
        self.start_offset = start_offset
        self.stop_offset = stop_offset
        self.has_own_timestamps = timestamp_type != LOG_APPEND_TIME
        base_ms: cython.longlong = header.base_timestamp_ms if self.has_own_timestamps else header.max_timestamp_ms
        self.base_timestamp_ms = base_ms
        # Deltas within these bounds may be added to the base and fit the column; no step here leaves 64 bits.
        self.min_timestamp_delta = INT64_MIN if base_ms > INT64_MAX - MAX_TIMESTAMP_MS else -MAX_TIMESTAMP_MS - base_ms
        self.max_timestamp_delta = INT64_MAX if base_ms < MAX_TIMESTAMP_MS - INT64_MAX else MAX_TIMESTAMP_MS - base_ms
        self.batch_timestamp_type = timestamp_type
        self.batch_leader_epoch = header.leader_epoch
        with cython.nogil:
            status = self._records(area, count)
        if status < 0:
            self._cut(self.rows)
        return status

    @cython.cfunc
    def _has_room(self, size_bytes: cython.longlong, count: cython.longlong) -> cython.bint:
        """Whether any batch of that size fits: no column can take more bytes than the batch has."""
        column: ByteColumn
        for column in self.byte_columns:
            if column.used_bytes + size_bytes > column.data.shape[0]:
                return False
        if self.header_ends is not None and self.header_count + size_bytes // MIN_HEADER_BYTES > self.header_capacity:
            return False
        return self.rows + count <= self.row_capacity

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _cut(self, rows: cython.longlong) -> cython.void:
        """Forget what was written from that row on."""
        if self.key is not None:
            self.key.used_bytes = self.key.offsets[rows]
        if self.value is not None:
            self.value.used_bytes = self.value.offsets[rows]
        if self.header_ends is not None:
            self.header_count = self.header_ends[rows]
            self.header_key.used_bytes = self.header_key.offsets[self.header_count]
            self.header_value.used_bytes = self.header_value.offsets[self.header_count]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _records(self, area: cython.const[cython.uchar][::1], count: cython.longlong) -> cython.longlong:
        size_bytes: cython.longlong = area.shape[0]
        row: cython.longlong = self.rows
        previous: cython.longlong = self.base_offset - 1
        pos: cython.longlong = 0
        for index in range(count):
            self.failed_record = index
            self.failed_offset = self.base_offset
            if pos >= size_bytes:
                return BAD_COUNT
            pos, length = _varint(area, pos, size_bytes, INT32)
            if pos < 0:
                return pos
            if length < MIN_RECORD_BYTES - 1 or length > size_bytes - pos:
                return BAD_LENGTH
            end = pos + length
            # The record's attributes are skipped: no bit of them has a meaning yet.
            pos, timestamp_delta = _varint(area, pos + 1, end, INT64)
            pos, offset = _varint(area, pos, end, INT32)
            if pos < 0:
                return pos
            # Asked this way round because base plus delta might leave 64 bits.
            if offset > self.last_offset - self.base_offset:
                return BAD_OFFSET
            offset += self.base_offset
            if offset <= previous:
                return BAD_OFFSET
            self.failed_offset = previous = offset
            pos = self._body(row, area, pos, end)
            if pos != end:
                return pos if pos < 0 else BAD_END
            if offset < self.start_offset or offset >= self.stop_offset:
                self._cut(row)
            elif self._put_numbers(row, offset, timestamp_delta):
                row += 1
            else:
                return BAD_TIMESTAMP
        if pos != size_bytes:
            return BAD_REST
        self.rows = row
        return 0

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
        if count != 0:
            pos = self._headers(count, area, pos, end)
        if self.header_ends is not None:
            self.header_ends[row + 1] = self.header_count
        return pos

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _headers(
        self, count: cython.longlong, area: cython.const[cython.uchar][::1], pos: cython.longlong, end: cython.longlong
    ) -> cython.longlong:
        """Position after `count` headers, or a status."""
        # Bounded before the loop, so that a hostile count costs nothing and can never pass the columns' room.
        if count < 0 or count > (end - pos) // MIN_HEADER_BYTES:
            return BAD_HEADER_COUNT
        for _ in range(count):
            after, size = _varint(area, pos, end, INT32)
            if after >= 0 and size < 0:
                return BAD_HEADER_KEY
            pos = _field(self.header_key, self.header_count, area, pos, end)
            pos = _field(self.header_value, self.header_count, area, pos, end)
            if pos < 0:
                return pos
            self.header_count += 1
        return pos

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_numbers(
        self, row: cython.longlong, offset: cython.longlong, timestamp_delta: cython.longlong
    ) -> cython.bint:
        """Write the columns of fixed width; false for a timestamp that its column cannot hold."""
        if self.offset is not None:
            self.offset[row] = offset
        if self.timestamp is not None:
            if not self.has_own_timestamps:
                timestamp_delta = 0
            if timestamp_delta < self.min_timestamp_delta or timestamp_delta > self.max_timestamp_delta:
                return False
            self.timestamp[row] = (self.base_timestamp_ms + timestamp_delta) * 1000
        if self.timestamp_type is not None:
            self.timestamp_type[row] = self.batch_timestamp_type
        if self.leader_epoch is not None:
            self.leader_epoch[row] = self.batch_leader_epoch
        return True
