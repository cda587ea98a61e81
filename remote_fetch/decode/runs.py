# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, infer_types=True
"""Walks over the headers of v2 batches (KIP-98) up to the first one that needs plain Python.

Rules of the file:

- One source, two lives, as in `_columns`.
- A run raises nothing. It ends before the first batch that plain Python has to read: a cut or damaged one, one out of
  place, another leader epoch, a format before v2, a transaction marker that matters.
- A run takes a batch only if its checksum is right and the batch after it confirms its place.
- So reading batch by batch from the end of a run gives the same rows and the same errors as reading without runs.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # only in plain Python: compiled code needs no `cython` module at run time
    from remote_fetch.decode import _shadow as cython

COMPILED = bool(cython.compiled)

HEADER_BYTES = cython.declare(cython.longlong, 61)
LOG_OVERHEAD_BYTES = cython.declare(cython.longlong, 12)
CRC_FROM = cython.declare(cython.longlong, 21)
LAST_CODEC = cython.declare(cython.longlong, 4)
CODEC_MASK = cython.declare(cython.longlong, 0x07)
TIMESTAMP_TYPE_BIT = cython.declare(cython.longlong, 0x08)
TRANSACTIONAL_BIT = cython.declare(cython.longlong, 0x10)
CONTROL_BIT = cython.declare(cython.longlong, 0x20)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)

# Numbers of a batch in the table that this module writes. `batch_table.py` has their meaning.
FIELDS = cython.declare(cython.longlong, 12)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(area: cython.const[cython.uchar][::1], at: cython.longlong) -> cython.longlong:
    if cython.compiled:
        raw: cython.uint = 0
        place: cython.longlong
        for place in range(at, at + 4):
            raw = raw << 8 | area[place]
        value: cython.int = raw
        return value
    else:
        return int.from_bytes(area[at : at + 4], "big", signed=True)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int64(area: cython.const[cython.uchar][::1], at: cython.longlong) -> cython.longlong:
    if cython.compiled:
        raw: cython.ulonglong = 0
        place: cython.longlong
        for place in range(at, at + 8):
            raw = raw << 8 | area[place]
        value: cython.longlong = raw
        return value
    else:
        return int.from_bytes(area[at : at + 8], "big", signed=True)


@cython.cclass
class Scanner:
    """Looks for runs in the bytes of one slice of a segment.

    - `checksum` is CRC-32C.
    - Offsets of batches lie in [segment_start, segment_end].
    - `entries` are offsets of the offset index, -1 for none. Such an offset is the last offset of a batch, never an
      earlier one.
    - A run ends before a batch whose base offset is `stop_offset` or more.
    - `hidden` None: read_uncommitted. Else three rows of numbers, sorted together: producer id, first and last offset
      of each aborted transaction.

    After `scan`: `taken` batches were walked over, and `rows` of them are in the table. The next batch begins at
    `position`. The last batch ended with `last_offset`.
    """

    checksum: object
    max_batch_bytes: cython.longlong
    segment_start: cython.longlong
    segment_end: cython.longlong
    stop_offset: cython.longlong
    first_entry: cython.longlong
    last_entry: cython.longlong
    is_committed: cython.bint
    hidden_count: cython.longlong
    hidden_producers: cython.longlong[::1]
    hidden_firsts: cython.longlong[::1]
    hidden_lasts: cython.longlong[::1]
    next_offset: cython.longlong
    epoch: cython.longlong
    epoch_stop: cython.longlong
    taken = cython.declare(cython.longlong, visibility="readonly")
    rows = cython.declare(cython.longlong, visibility="readonly")
    position = cython.declare(cython.longlong, visibility="readonly")
    last_offset = cython.declare(cython.longlong, visibility="readonly")

    def __init__(
        self,
        checksum: object,
        max_batch_bytes: cython.longlong,
        segment_offsets: tuple,
        stop_offset: cython.longlong,
        entries: tuple,
        hidden: object,
    ) -> None:
        self.checksum = checksum
        self.max_batch_bytes = max_batch_bytes
        self.segment_start, self.segment_end = segment_offsets
        self.stop_offset = stop_offset
        self.first_entry, self.last_entry = entries
        self.is_committed = hidden is not None
        self.hidden_count = 0
        if hidden is not None and len(hidden[0]) > 0:
            self.hidden_producers, self.hidden_firsts, self.hidden_lasts = hidden
            self.hidden_count = len(hidden[0])
        self.taken = self.rows = self.position = self.last_offset = 0

    def scan(
        self,
        data: object,
        at: cython.longlong,
        step_bytes: cython.longlong,
        offsets: tuple,
        epochs: tuple,
        table: cython.longlong[::1],
    ) -> int:
        """Walk from `data[at]` over at most `step_bytes`, or over one larger batch. Return how many were taken.

        `offsets`: the last offset of the batch before, and the first offset that is wanted. `epochs`: the leader epoch
        that batches must have, and the first offset for which it may change. `data` is a read-only memoryview of bytes.
        """
        area: cython.const[cython.uchar][::1] = data
        limit: cython.longlong = at + step_bytes
        self.last_offset, self.next_offset = offsets
        self.epoch, self.epoch_stop = epochs
        self.taken = self.rows = 0
        self.position = at
        last: cython.longlong = self._last_offset_of(area, at, self.last_offset)
        while last >= 0 and self.position < limit and (self.rows + 1) * FIELDS <= table.shape[0]:
            at = self.position
            size_bytes: cython.longlong = LOG_OVERHEAD_BYTES + _int32(area, at + 8)
            following: cython.longlong = self._last_offset_of(area, at + size_bytes, last)
            if following < 0 or not self._is_plain(area, at):
                break
            if self.checksum(data[at + CRC_FROM : at + size_bytes]) != (_int32(area, at + 17) & 0xFFFFFFFF):
                break
            if self._is_wanted(area, at, last):
                self._put(area, at, size_bytes, last, table)
            self.taken += 1
            self.position = at + size_bytes
            self.last_offset = last
            last = following
        return self.taken

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _last_offset_of(
        self, area: cython.const[cython.uchar][::1], at: cython.longlong, previous: cython.longlong
    ) -> cython.longlong:
        """The last offset of the batch at `at`, if the batch is complete and may follow offset `previous`; else -1."""
        if at > area.shape[0] - HEADER_BYTES or area[at + 16] != 2:
            return -1
        size_bytes: cython.longlong = LOG_OVERHEAD_BYTES + _int32(area, at + 8)
        if size_bytes < HEADER_BYTES or size_bytes > self.max_batch_bytes or size_bytes > area.shape[0] - at:
            return -1
        base: cython.longlong = _int64(area, at)
        delta: cython.longlong = _int32(area, at + 23)
        if base < self.segment_start or base <= previous or delta < 0 or base >= INT64_MAX - delta:
            return -1
        last: cython.longlong = base + delta
        if last > self.segment_end or previous < self.first_entry < last or previous < self.last_entry < last:
            return -1
        return last

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_plain(self, area: cython.const[cython.uchar][::1], at: cython.longlong) -> cython.bint:
        """Whether the run can take the batch: its format and epoch are as expected, and it is no marker that counts."""
        base: cython.longlong = _int64(area, at)
        attributes: cython.longlong = _int32(area, at + 19) & 0xFFFF
        if base >= self.stop_offset or base >= self.epoch_stop or _int32(area, at + 12) != self.epoch:
            return False
        if attributes & CODEC_MASK > LAST_CODEC or _int32(area, at + 57) < 0:
            return False
        if not self.is_committed:
            return True
        if attributes & CONTROL_BIT:
            return False
        return not attributes & TRANSACTIONAL_BIT or _int64(area, at + 43) >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_wanted(
        self, area: cython.const[cython.uchar][::1], at: cython.longlong, last: cython.longlong
    ) -> cython.bint:
        """Whether the isolation level and the bounds show any record of the batch."""
        attributes: cython.longlong = _int32(area, at + 19)
        if last < self.next_offset or attributes & CONTROL_BIT or _int32(area, at + 57) == 0:
            return False
        if self.hidden_count == 0 or not attributes & TRANSACTIONAL_BIT:
            return True
        producer: cython.longlong = _int64(area, at + 43)
        offset: cython.longlong = _int64(area, at)
        # The last transaction of that producer that begins at the offset or before it.
        low: cython.longlong = 0
        high: cython.longlong = self.hidden_count
        while low < high:
            middle: cython.longlong = (low + high) // 2
            found: cython.longlong = self.hidden_producers[middle]
            if found < producer or (found == producer and self.hidden_firsts[middle] <= offset):
                low = middle + 1
            else:
                high = middle
        return low == 0 or self.hidden_producers[low - 1] != producer or self.hidden_lasts[low - 1] < offset

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(
        self,
        area: cython.const[cython.uchar][::1],
        at: cython.longlong,
        size_bytes: cython.longlong,
        last: cython.longlong,
        table: cython.longlong[::1],
    ) -> cython.void:
        """Write the row of a batch into the table."""
        row: cython.longlong = self.rows * FIELDS
        attributes: cython.longlong = _int32(area, at + 19)
        broker_set_time: cython.bint = (attributes & TIMESTAMP_TYPE_BIT) != 0
        table[row] = at + HEADER_BYTES
        table[row + 1] = at + size_bytes
        table[row + 2] = attributes & CODEC_MASK
        table[row + 3] = _int32(area, at + 57)
        table[row + 4] = _int64(area, at)
        table[row + 5] = last
        table[row + 6] = _int64(area, at + 35) if broker_set_time else _int64(area, at + 27)
        table[row + 7] = 1 if broker_set_time else 0
        table[row + 8] = _int32(area, at + 12)
        table[row + 9] = _int64(area, at + 43) if self.is_committed and attributes & TRANSACTIONAL_BIT else -1
        table[row + 10] = at
        table[row + 11] = self.last_offset
        self.rows += 1
