"""Turns the bytes of one slice into rows. An item of it is a unit of ordinary batches, or a batch that is read alone.

An item is found (`lookahead`), placed, held, and delivered (`delivery`), in this order:

- Placed: its offsets follow those of the items before it. A message of v0 or v1 is unpacked first: its first offset is
  inside. A unit is placed when it is found.
- Held: until the next item is placed. If the base offset of a batch is damaged, the next header shows it. A unit whose
  last batch has a header after it is not held.

A batch behind the wanted offsets is not held. It ends the slice, unless wanted offsets are missing before it: then the
log has a gap, or the base offset of that batch is damaged. The item after it shows which, and ends the slice.

Rules of the file:

- No I/O.
- The rows and the errors of units are those of batches that are read one by one.
- If a broker listed aborted transactions, there are no units, because the markers before a batch decide whether it is
  shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.batches import BatchFramer, FramedBatch, check_crc
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.legacy import as_v2
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import SequentialAborts
from remote_fetch.prepare.order import MisleadingIndex, check_inside, check_order
from remote_fetch.scan.delivery import Delivery, Single
from remote_fetch.scan.lookahead import LookAhead
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.units import Unit, Units
from remote_fetch.session.decode_pool import DecodePool

__all__ = ["SliceReader"]


class SliceReader:
    """Reads one slice. `feed` its bytes in order, then `finish`.

    - `done`: the next bytes are not needed. A caller sets it if the other offsets are no longer wanted.
    - `end_is_inferred`: the segment's end offset is a guess from the start of the next segment. The segment may hold
      later offsets too.
    - `pool` decodes the next units in other threads.
    """

    def __init__(
        self,
        piece: SegmentSlice,
        rows: PartitionRows,
        codecs: Codecs,
        pool: DecodePool,
        *,
        position: int,
        max_batch_bytes: int,
        end_is_inferred: bool = False,
    ) -> None:
        self.done = False
        self._piece = piece
        self._rows = rows
        self._codecs = codecs
        self._framer = BatchFramer(position, max_batch_bytes=max_batch_bytes)
        self._held: Unit | Single | None = None
        self._last_offset = -1
        self._ends_in_gap = False
        self._end_is_inferred = end_is_inferred
        # If the slice is read again from a later position, the first entry may lie before it. The last entry does not:
        # no offset that is wanted lies behind it.
        begin_entry_offset = piece.start_entry_offset if position == piece.start_position else -1
        self._entry_offsets = (begin_entry_offset, piece.end_entry_offset)
        units = (
            None
            if isinstance(rows.aborted, SequentialAborts)
            else Units(
                piece,
                rows,
                pool,
                entry_offsets=self._entry_offsets,
                max_batch_bytes=max_batch_bytes,
                max_decompressed_bytes=codecs.max_bytes,
            )
        )
        self._delivery = Delivery(piece, rows, codecs, units, position)
        self._ahead = LookAhead(self._framer, units, pool.depth)

    def feed(self, data: memoryview) -> Iterator[DecodedRows]:
        """Take the next bytes, and yield the rows that became full.

        Rows in other threads may follow later.
        """
        self._framer.feed(data.toreadonly())
        yield from self._read(to_the_end=False)

    def drain(self) -> Iterator[DecodedRows]:
        """Read all complete batches of the bytes so far.

        Call this before waiting for a range, and after the last one.
        """
        yield from self._read(to_the_end=True)
        self._check_held()

    def _check_held(self) -> None:
        """Check the checksum of a unit that no header has confirmed.

        A damaged last offset of it could otherwise make the next batch, or the end of the slice, look wrong.
        """
        if isinstance(self._held, Unit):
            check_crc(self._held.batch_at(self._held.at))

    def _read(self, *, to_the_end: bool) -> Iterator[DecodedRows]:
        while not self.done:
            try:
                found = self._next(to_the_end=to_the_end)
            except RemoteFetchError:
                yield from self._deliver_held()  # only the bytes after it are damaged
                raise
            if found is None:
                return
            if isinstance(found, Single):
                self._check_place(found.batch)
            yield from self._deliver_held()
            if isinstance(found, Single) and self._is_behind(found.batch):
                self.done = not self.lacks_wanted
                self._ends_in_gap |= found.last_offset <= self._piece.segment.end_offset
            else:
                self._held = found
                if found.is_confirmed:
                    yield from self._deliver_held()
            self._last_offset = found.last_offset

    def _next(self, *, to_the_end: bool) -> Unit | Single | None:
        """As `LookAhead.next`, with a batch that was verified."""
        found = self._ahead.next(self._last_offset, to_the_end=to_the_end)
        return self._verified(found) if isinstance(found, FramedBatch) else found

    def _verified(self, batch: FramedBatch) -> Single:
        """Verify the checksum of a batch, unless it is behind the wanted offsets. That of a unit is verified later.

        A message of v0 or v1 is always verified, and unpacked: only its records tell its first offset. One that ends
        before the item before it is left: `_check_place` refuses it.
        """
        header = batch.header
        if header.magic < 2 or not self._is_behind(batch):
            check_crc(batch)
        if header.magic == 2 or header.last_offset <= self._last_offset:
            return Single(batch)
        header, records = as_v2(batch, self._codecs)
        return Single(batch._replace(header=header), records)

    @property
    def resume_position(self) -> int:
        """The byte position from which the slice can be read again after an error."""
        return self._delivery.resume_position

    @property
    def lacks_wanted(self) -> bool:
        """Whether the slice is not done, and the items so far end before its last offset."""
        first = max(self._last_offset + 1, self._rows.first_wanted(self._piece))
        return not self.done and first <= self._piece.last_offset

    @property
    def end_position(self) -> int:
        """The byte position after the last byte that was fed."""
        return self._framer.position + self._framer.pending_bytes

    def finish(self) -> Iterator[DecodedRows]:
        """Deliver the rest after the last byte. Raises CorruptSegment or MisleadingIndex if the bytes end too soon."""
        yield from self.drain()
        if not self.done:
            if self._last_offset < max(self._entry_offsets):
                raise MisleadingIndex
            if self._piece.end_position >= 0 and (self._framer.pending_bytes or self.lacks_wanted):
                raise MisleadingIndex
            yield from self._deliver_held()
            self._framer.finish()
        if self._ends_in_gap:
            # The segment has a batch after the wanted offsets. So compaction removed the missing ones: none is lost.
            self._rows.read_to(self._piece.last_offset, self._piece)
        self.done = True

    def _is_behind(self, batch: FramedBatch) -> bool:
        return batch.header.base_offset > self._piece.last_offset

    def _check_place(self, batch: FramedBatch) -> None:
        """Raise if the batch cannot follow the items so far."""
        try:
            check_order(batch, self._last_offset, self._entry_offsets)
            check_inside(batch, self._piece.segment, end_is_inferred=self._end_is_inferred)
        except RemoteFetchError:
            self._check_held()
            raise

    def _deliver_held(self) -> Iterator[DecodedRows]:
        held, self._held = self._held, None
        if held is not None:
            yield from self._delivery.deliver(held)
