"""Turns the bytes of one slice into rows, batch by batch: frame, check, apply the isolation level, decompress, decode.

Rules of the file:

- No I/O.
- A batch is delivered after the next header was read. If the base offset of a batch is damaged, that header shows it.
- After an error, `resume_position` is the byte position from which the slice can be read again.
- Every record that the isolation level shows is delivered or causes an error.
- `runs` reads ordinary batches, many at once. It is faster and gives the same rows.
- If a broker listed aborted transactions, batches are read one at a time, because the markers before a batch decide
  whether it is shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from remote_fetch.decode.columns import allocate
from remote_fetch.errors import CorruptSegment, EpochMismatch, RemoteFetchError
from remote_fetch.formats.batches import BatchFramer, BatchHeader, FramedBatch, check_crc
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import ControlType, control_type
from remote_fetch.formats.legacy import as_v2
from remote_fetch.locate.lineage import epoch_at
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import SequentialAborts
from remote_fetch.prepare.order import MisleadingIndex, check_order
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.runs import Runs
from remote_fetch.session.decode_pool import Ahead, Prepared, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SliceReader"]


class _Coming(NamedTuple):
    """Consecutive framed batches, and the work of another thread on them. Without `prepared` it is a single batch."""

    batches: list[FramedBatch]
    prepared: Prepared | None = None

    @property
    def last(self) -> FramedBatch:
        return self.batches[-1]


class SliceReader:
    """Reads one slice. `feed` its bytes in order, then `finish`. If `done` is true, later bytes are not needed.

    - `end_is_inferred`: the segment's end offset is a guess from the start of the next segment. The segment may hold
      later offsets too.
    - `ahead`, if given, decodes the next batches in other threads.
    """

    def __init__(
        self,
        piece: SegmentSlice,
        rows: PartitionRows,
        codecs: Codecs,
        *,
        position: int,
        max_batch_bytes: int,
        end_is_inferred: bool = False,
        ahead: Ahead | None = None,
    ) -> None:
        self.piece = piece
        self.done = False
        self.resume_position = position
        self._rows = rows
        self._codecs = codecs
        self._framer = BatchFramer(position, max_batch_bytes=max_batch_bytes, allocate=allocate)
        self._in_order = isinstance(rows.aborted, SequentialAborts)
        self._ahead = None if self._in_order else ahead
        self._coming: deque[_Coming | RemoteFetchError] = deque()
        self._held: _Coming | None = None
        self._last_offset = -1
        self._past_the_end = False
        self._ends_in_gap = False
        self._end_is_inferred = end_is_inferred
        self._entry_offsets = (
            piece.start_entry_offset if position == piece.start_position else -1,
            # If the slice is read again from a later position, the entry may lie before that position.
            piece.end_entry_offset
            if position == piece.start_position or rows.next_offset <= piece.end_entry_offset
            else -1,
        )
        large_bytes = max_batch_bytes if ahead is None else min(max_batch_bytes, ahead.min_batch_bytes - 1)
        self._runs = None if self._in_order else Runs(piece, rows, self._entry_offsets, large_bytes)

    def feed(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        """Take the next bytes, and yield the Arrow batches that became full.

        Batches in other threads may follow later.
        """
        self._framer.feed(data)
        yield from self._read(to_the_end=False)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Read all complete batches of the bytes so far.

        Call this before waiting for a range, and after the last one.
        """
        yield from self._read(to_the_end=True)

    def _read(self, *, to_the_end: bool) -> Iterator[pa.RecordBatch]:
        while not self.done:
            yield from self._take_runs()
            try:
                found = self._next_batch(to_the_end=to_the_end)
            except RemoteFetchError:
                yield from self._deliver_held()  # only the bytes after it are damaged
                raise
            if found is None:
                return
            first, last = found.batches[0], found.last
            try:
                self._check_place(first, self._last_offset)
            except (RemoteFetchError, MisleadingIndex):
                yield from self._deliver_confirmed()
                raise
            yield from self._deliver_held()
            if self._is_past_the_end(first.header):
                self.done = self._past_the_end or not self._lacks_wanted()
                self._ends_in_gap |= last.header.last_offset <= self.piece.segment.end_offset
                self._past_the_end = True
            else:
                self._held = found
            self._last_offset = last.header.last_offset

    def _take_runs(self) -> Iterator[pa.RecordBatch]:
        """Read ordinary batches, many in one step."""
        while self._runs is not None and not self._coming:
            data, at = self._framer.unread
            if not self._runs.find(data, at, self._last_offset):
                return
            yield from self._deliver_held()
            for taken in self._runs.take(data, self._codecs):
                self._framer.skip(taken.position - at)
                at = taken.position
                self._last_offset = taken.last_offset
                self._rows.next_offset = max(self._rows.next_offset, min(taken.last_offset, self.piece.last_offset) + 1)
                self.resume_position = self._framer.position
                yield from taken.batches
                if not taken.is_sound:
                    return

    def _next_batch(self, *, to_the_end: bool) -> _Coming | None:
        """Return the next complete batches, or None if more bytes are needed.

        Checksums are verified, except past the end of the slice. If `to_the_end` is false, this also returns None while
        the threads could take more batches, so that the caller feeds the next range first.
        """
        wants_more = self._look_ahead()
        if not self._coming or (wants_more and not to_the_end):
            return None
        found = self._coming.popleft()
        if isinstance(found, _Coming) and found.prepared is not None and not self._is_in_order(found):
            self._coming.extendleft(_Coming([batch]) for batch in reversed(found.batches))  # to name the wrong one
            found = self._coming.popleft()
        if isinstance(found, RemoteFetchError):
            raise found
        if found.prepared is None and not self._is_past_the_end(found.last.header):
            check_crc(found.last)
        return found

    def _look_ahead(self) -> bool:
        """Frame the next few batches, and give them to the threads, up to the first that the threads do not take.

        Return whether more bytes are needed for that. A framing error is queued, and raised at its place in the log.
        """
        if self._coming and _is_end(self._coming[-1]):
            return False
        ahead, together, size_bytes = self._ahead, list[FramedBatch](), 0
        while len(self._coming) < (1 if ahead is None else ahead.depth):
            found = self._frame()
            if ahead is not None and isinstance(found, FramedBatch) and self._may_prepare(ahead, found.header):
                together.append(found)
                size_bytes += found.header.size_bytes
                if size_bytes >= ahead.enough_bytes:
                    self._coming.append(self._begin(ahead, together))
                    together, size_bytes = [], 0
                continue
            if ahead is not None and together:
                self._coming.append(self._begin(ahead, together))
            if found is None:
                return True
            self._coming.append(_Coming([found]) if isinstance(found, FramedBatch) else found)
            break
        return False

    def _frame(self) -> FramedBatch | RemoteFetchError | None:
        try:
            return self._framer.next_batch()
        except RemoteFetchError as error:
            return error

    def _may_prepare(self, ahead: Ahead, header: BatchHeader) -> bool:
        return ahead.takes(header) and not self._is_past_the_end(header)

    def _begin(self, ahead: Ahead, batches: list[FramedBatch]) -> _Coming:
        """Give batches to a thread. It decodes those that will be shown, as far as the headers tell."""
        wanted = Wanted(self._rows.builder, self._start_offset, self.piece.last_offset + 1)
        are_shown = [batch.header.last_offset >= wanted.start_offset and self._shows(batch.header) for batch in batches]
        return _Coming(batches, ahead.prepare(batches, are_shown, wanted))

    def _shows(self, header: BatchHeader) -> bool:
        """Whether the batch has records that the isolation level shows."""
        aborted = self._rows.aborted
        if isinstance(aborted, SequentialAborts):
            return aborted.shows(header, None) and header.record_count != 0
        return header.record_count != 0 and (not header.is_control if aborted is None else aborted.shows(header))

    def _is_in_order(self, found: _Coming) -> bool:
        """Whether the thread decoded all batches, and the place and the leader epoch of each batch are right."""
        if found.prepared is None or not found.prepared.is_sound:
            return False
        last_offset = self._last_offset
        try:
            for batch in found.batches:
                self._check_place(batch, last_offset)
                self._check_epoch(batch.header, batch.position)
                last_offset = batch.header.last_offset
        except (RemoteFetchError, MisleadingIndex):
            return False
        return True

    @property
    def _start_offset(self) -> int:
        """The first offset that is still wanted."""
        return max(self.piece.first_offset, self._rows.next_offset)

    @property
    def lacks_wanted(self) -> bool:
        """Whether the batches so far end before the last offset of the slice."""
        return not self.done and self._lacks_wanted()

    @property
    def end_position(self) -> int:
        """The byte position after the last byte that was fed."""
        return self._framer.position + self._framer.pending_bytes

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Deliver the rest after the last byte. Raises CorruptSegment or MisleadingIndex if the bytes end too soon."""
        yield from self.drain()
        if not self.done:
            if self._last_offset < max(self._entry_offsets):
                raise MisleadingIndex
            if self.piece.end_position >= 0 and (self._framer.pending_bytes or self._lacks_wanted()):
                raise MisleadingIndex
            yield from self._deliver_held()
            self._framer.finish()
        if self._ends_in_gap:
            # The segment has a batch after the wanted offsets. So compaction removed the missing ones: none is lost.
            self._rows.next_offset = max(self._rows.next_offset, self.piece.last_offset + 1)
        self.done = True

    def _is_past_the_end(self, header: BatchHeader) -> bool:
        # The header of a compressed legacy message has its last offset. Only the decompressed bytes have the first.
        first_possible = header.base_offset if header.magic == 2 else self._last_offset + 1
        return first_possible > self.piece.last_offset

    def _lacks_wanted(self) -> bool:
        """Whether the batches so far end before the last wanted offset.

        If the next batch begins after that offset, the log has a gap, or the base offset of that batch is damaged. The
        header after it shows which.
        """
        return max(self._last_offset + 1, self._rows.next_offset, self.piece.first_offset) <= self.piece.last_offset

    def _check_place(self, batch: FramedBatch, previous: int) -> None:
        """Raise if the batch cannot follow a batch that ends with offset `previous`."""
        header, segment = batch.header, self.piece.segment
        check_order(batch, previous, self._entry_offsets)
        goes_on = self._end_is_inferred and header.base_offset > segment.end_offset
        if header.last_offset > segment.end_offset and not goes_on:
            raise self._outside(header).at(position=batch.position)
        self._check_first(header, batch.position)

    def _check_first(self, header: BatchHeader, position: int | None = None) -> None:
        if header.base_offset < self.piece.segment.start_offset:
            raise self._outside(header).at(position=position)

    def _outside(self, header: BatchHeader) -> CorruptSegment:
        segment = self.piece.segment
        return CorruptSegment(
            f"batch with offsets {header.base_offset} to {header.last_offset} in a segment of offsets "
            f"{segment.start_offset} to {segment.end_offset}",
            offset=header.base_offset,
        )

    def _deliver_held(self) -> Iterator[pa.RecordBatch]:
        held, self._held = self._held, None
        if held is None:
            return
        start = self._start_offset
        rows = None if held.prepared is None else held.prepared.rows(held.batches[0].header.base_offset, start)
        if rows is not None:
            self.resume_position = held.batches[0].position
            yield from self._rows.builder.drain()
            yield from rows
            for batch in held.batches:
                if batch.header.last_offset >= start:
                    self._remember(batch.header)
            self._went_past(held.last)
            return
        for batch in held.batches:
            self.resume_position = batch.position
            if batch.header.last_offset >= self._start_offset:
                yield from self._deliver(batch)
            elif self._in_order and batch.header.is_control:
                self._see_marker(batch)  # its transaction may have begun before offsets that were passed over
            self._went_past(batch)

    def _deliver_confirmed(self) -> Iterator[pa.RecordBatch]:
        """Deliver the held batches, except the last one: the next header does not confirm its place."""
        if self._held is not None and len(self._held.batches) > 1:
            self._held = _Coming(self._held.batches[:-1])
            yield from self._deliver_held()

    def _went_past(self, batch: FramedBatch) -> None:
        self._rows.next_offset = max(self._rows.next_offset, min(batch.header.last_offset, self.piece.last_offset) + 1)
        self.resume_position = batch.position + batch.header.size_bytes

    def _remember(self, header: BatchHeader) -> None:
        """Remember the producer if its transactional records were delivered."""
        if header.is_transactional and self._shows(header):
            self._rows.shown.setdefault(header.producer_id, header.base_offset)

    def _deliver(self, batch: FramedBatch) -> Iterator[pa.RecordBatch]:
        header = batch.header
        self._check_epoch(header, batch.position)
        if header.is_control:
            self._see_marker(batch)
            return
        if not self._shows(header):
            return  # hidden, or empty: the log cleaner keeps only the header of a batch without records
        self._remember(header)
        try:
            header, records = as_v2(batch, self._codecs)
            self._check_first(header)  # the first offset of a compressed legacy message is known only now
            rows = self._rows.builder.append(header, records, self._start_offset, self.piece.last_offset + 1)
        except RemoteFetchError as error:
            raise error.at(position=batch.position, offset=header.base_offset) from error.__cause__
        yield from rows

    def _check_epoch(self, header: BatchHeader, position: int) -> None:
        promised = epoch_at(self.piece.segment.segment_leader_epochs, header.base_offset)
        fits = header.leader_epoch == -1 or promised in (None, header.leader_epoch)
        if not fits or not self._rows.lineage.agrees(header.base_offset, header.leader_epoch):
            known = self._rows.lineage.epoch_for(header.base_offset)
            raise EpochMismatch(
                f"batch of leader epoch {header.leader_epoch} where the log has epoch "
                f"{promised if known is None else known}",
                position=position,
                offset=header.base_offset,
            )

    def _see_marker(self, batch: FramedBatch) -> None:
        """Handle a marker.

        If records of an aborted transaction were delivered, the marker must end a known interval.
        """
        header, rows = batch.header, self._rows
        if rows.aborted is None:
            return
        kind = control_type(batch, self._codecs)
        first_shown = rows.shown.get(header.producer_id)
        is_aborted = kind is ControlType.ABORT and first_shown is not None
        if isinstance(rows.aborted, SequentialAborts):
            rows.aborted.shows(header, kind)
            is_told, source = False, "broker's list"  # else nothing of the transaction was shown
        else:
            is_told, source = rows.aborted.ends_at(header.producer_id, header.base_offset), "transaction index"
        if is_aborted and not is_told:
            raise CorruptSegment(
                f"the transaction of producer {header.producer_id} from offset {first_shown} was aborted at offset "
                f"{header.base_offset}, but no {source} says so",
                position=batch.position,
                offset=first_shown,
                hint=f"A {source} is lost or incomplete; the broker has to answer for these offsets",
            )
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            rows.shown.pop(header.producer_id, None)


def _is_end(found: _Coming | RemoteFetchError) -> bool:
    """Whether nothing after it is framed yet: `runs` reads small batches, and no batch follows an error."""
    return isinstance(found, RemoteFetchError) or found.prepared is None
