"""Runs a plan: slices of any number of partitions, in order, out of one read-ahead; and the way on if a slice fails.

Rules of the file:

- Everything that is decoded is delivered before an error is raised.
- Bytes that break a rule are fetched once more. Then another copy of the same offsets is tried. Then the broker reads
  the rest of the slice, or, if there is no broker, the error is raised with topic, partition, offset and object.
- A missing object is never the end of the data.
- Before each slice the broker, if there is one, is asked whether the topic may still be read, and where the log starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from remote_fetch.decode.columns import ColumnBuilder, saturated_timestamps
from remote_fetch.errors import (
    CorruptSegment,
    EpochMismatch,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    Unlocatable,
    UnsupportedFormat,
)
from remote_fetch.fetch.deadlines import now_ms
from remote_fetch.fetch.readahead import Awaited, RangeRequest
from remote_fetch.formats.codecs import Codecs
from remote_fetch.model import IndexType, TopicIdPartition
from remote_fetch.observe import (
    Fallback,
    Notice,
    RangeReread,
    RangeRetried,
    RecordsRead,
    SegmentScanned,
    TimestampsSaturated,
)
from remote_fetch.plan.ranges import PlanStep, SegmentSlice, plan_offsets
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.prepare.order import MisleadingIndex
from remote_fetch.prepare.positions import narrow_edges
from remote_fetch.prepare.refusals import no_other_copy, refuse_broker_ranges
from remote_fetch.prepare.relocation import relocated
from remote_fetch.prepare.segment_ends import EndsTooSoon, Gap, SizeTooSmall, check_end, offset_at_start
from remote_fetch.prepare.segment_files import object_of
from remote_fetch.prepare.transactions import load_aborted
from remote_fetch.prepare.true_sizes import with_true_sizes
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.scan.work import BrokerWork, SharedPartition, Work, requests, work_for
from remote_fetch.session.circuit import Circuit, is_storage_failure
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Scan"]


class Scan:
    """Reads the steps of several plans one after the other. Iterate over `batches()` once.

    Several scans of one session may run at once, each in a thread of its own with its own `codecs` and its share
    `max_bytes` of what may be under way; left out, the session's own are taken.
    """

    def __init__(
        self,
        session: Session,
        plans: Sequence[PartitionPlan],
        columns: Sequence[str],
        *,
        codecs: Codecs | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._storage, self._locator, self._brokers = session.storage, session.locator, session.brokers
        self._fallback, self._ahead = session.fallback, session.ahead
        self._codecs = codecs or session.codecs
        self._max_bytes = max_bytes
        self._columns = tuple(columns)
        self._circuit = Circuit()
        self._todo: deque[Work | BrokerWork] = deque()
        for plan in plans:
            if session.fallback.reader is None:
                refuse_broker_ranges(plan.opened.timeline, plan.steps)
            if plan.steps:
                partition = plan.opened.partition
                builder = ColumnBuilder(partition.topic, partition.partition, columns)
                rows = PartitionRows(builder, plan.opened.lineage, plan.aborted, plan.steps[0].first_offset)
                shared = SharedPartition(plan.opened, rows)
                self._todo.extend(work_for(step, shared) for step in plan.steps)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order of partition and offset. Raises the errors of reading, after what was read before."""
        while self._todo:
            head = self._todo[0]
            if isinstance(head, Work) and self._fallback.reader is not None and self._circuit.is_open(now_ms()):
                head = self._give_to_broker(head, self._circuit.reason)
            try:
                if isinstance(head, BrokerWork):
                    yield from self._read_from_broker(head)
                else:
                    yield from self._read_until_trouble()
                continue
            except (RemoteFetchError, MisleadingIndex) as error:
                trouble = error
            except Exception:  # a broker's own error, or an observer's
                yield from self._flush((self._todo[0] if self._todo else head).partition)
                raise
            yield from self._deal_with(trouble)

    def _deal_with(self, trouble: RemoteFetchError | MisleadingIndex) -> Iterator[pa.RecordBatch]:
        """Change the queue so that reading can go on; or deliver what is decoded, and raise."""
        work = self._todo[0]
        try:
            if isinstance(work, BrokerWork):
                raise trouble
            self._recover(work, trouble)
        except RemoteFetchError as error:
            yield from self._flush(work.partition)
            if isinstance(work, BrokerWork) or not self._fallback.allows(error):
                raise
            if is_storage_failure(error.kind):
                self._circuit = self._circuit.failed(error.kind, now_ms())
            is_gone = isinstance(error.__cause__, SegmentNotFound)  # that no other object has it adds nothing
            self._give_to_broker(work, SegmentNotFound.kind if is_gone else error.kind, str(error))
        if not self._todo or self._todo[0].partition is not work.partition:
            yield from self._flush(work.partition)

    def _give_to_broker(self, work: Work, reason: str, detail: str = "") -> BrokerWork:
        """Replace what is left of the slice at the head by a broker's range."""
        partition = work.partition.opened.partition
        step = self._fallback.to_broker(partition, work.first_offset, work.piece.last_offset, reason, detail)
        given = BrokerWork(step, work.partition)
        self._todo[0] = given
        return given

    def _read_from_broker(self, work: BrokerWork) -> Iterator[pa.RecordBatch]:
        broker = self._fallback.reader
        assert broker is not None
        shared, step = work.partition, work.step
        yield from self._flush(shared)
        shared.rows.shown.clear()  # the broker sees the markers in its stretch, and we do not
        isolation = shared.opened.isolation
        first = max(step.first_offset, shared.rows.next_offset)
        if first <= step.last_offset:
            for batch in broker.read(replace(step, first_offset=first), isolation, self._columns):
                yield self._handed_on(batch, step.partition, step.last_offset + 1)
        shared.rows.next_offset = max(first, step.last_offset + 1)
        self._todo.popleft()

    def _read_until_trouble(self) -> Iterator[pa.RecordBatch]:
        """Read the slices up to the next stretch of a broker's; on trouble the slice it is about is at the head."""
        works = [work for work in takewhile(lambda one: isinstance(one, Work), self._todo) if isinstance(work, Work)]
        reader = self._storage.reader
        range_bytes = reader.range_bytes if self._max_bytes is None else min(reader.range_bytes, self._max_bytes)
        stream = reader.read_ahead(requests(works, range_bytes), max_bytes=self._max_bytes)
        at, work = 0, works[0]
        current = self._reader_of(work)
        try:
            for request, wait in stream:
                while at < request.tag:
                    yield from self._finish(work, current)
                    at, work = at + 1, works[at + 1]
                    current = self._reader_of(work)
                self._heed_log_start(work, current)
                if not wait.is_done and not work.ended:
                    yield from self._observed(current.drain(), work)
                    work.ended = current.done
                if not (current.done or work.ended):
                    data = yield from self._arrived(wait, current, work)
                    self._heed_beginning(request, data, work)
                    yield from self._observed(current.feed(data), work)
                    work.ended = current.done
                    if len(data) < request.size_bytes:
                        work.ended = True  # whether the segment may end here, `_finish` finds out
            yield from self._finish(work, current)
            for work in works[at + 1 :]:
                current = self._reader_of(work)
                yield from self._finish(work, current)
        except (RemoteFetchError, MisleadingIndex):
            work.position = current.resume_position
            raise
        finally:
            stream.close()

    def _arrived(self, wait: Awaited, reader: SliceReader, work: Work) -> Generator[pa.RecordBatch, None, memoryview]:
        """The bytes of the next range; where they cannot be had, what is ready goes before the error."""
        try:
            return wait()
        except RemoteFetchError:
            yield from self._observed(reader.drain(), work)
            raise

    def _reader_of(self, work: Work) -> SliceReader:
        if work.aborts is not None:
            work.partition.rows.aborted = work.aborts
        reader = SliceReader(
            work.piece,
            work.partition.rows,
            self._codecs,
            position=work.position,
            max_batch_bytes=self._storage.settings.max_batch_bytes,
            end_is_inferred=self._locator.end_is_inferred(work.piece.segment),
            ahead=self._ahead,
        )
        self._heed_log_start(work, reader)
        return reader

    def _heed_log_start(self, work: Work, reader: SliceReader) -> None:
        """Leave out what was deleted in the meantime, as far as the broker is there to say so."""
        if self._brokers is None or reader.done:
            return
        rows, opened = work.partition.rows, work.partition.opened
        next_offset = max(rows.next_offset, work.piece.first_offset)
        rows.next_offset = self._brokers.guard.check(opened.partition, opened.isolation, next_offset)
        if rows.next_offset > work.piece.last_offset:
            reader.done = work.ended = True

    def _heed_beginning(self, request: RangeRequest, data: memoryview, work: Work) -> None:
        """Where a segment begins behind the wanted offset, what another one has of the offsets between comes first."""
        base_offset = offset_at_start(data) if request.start_position == 0 else None
        if base_offset is None or base_offset <= work.first_offset:
            return
        shared, locator, first = work.partition, self._locator, work.first_offset
        if any(locator.end_is_inferred(one) for one in shared.opened.timeline.segments if one.start_offset <= first):
            shared.opened = shared.opened.with_timeline(locator.recheck(shared.opened.partition, first))
        self._leave_gap(work, first, min(base_offset - 1, work.piece.last_offset), f"begins at offset {base_offset}")

    def _finish(self, work: Work, reader: SliceReader) -> Iterator[pa.RecordBatch]:
        """Close the slice at the head: check that it gave what it promised, and go on to the next."""
        yield from self._observed(reader.drain(), work)
        if reader.lacks_wanted and work.piece.end_position < 0:
            check_end(self._storage, work.piece.segment, reader.end_position)
        yield from self._observed(reader.finish(), work)
        rows, piece = work.partition.rows, work.piece
        if rows.next_offset <= piece.last_offset:
            self._heed_end(work)
        rows.next_offset = max(rows.next_offset, piece.last_offset + 1)
        self._circuit = self._circuit.worked()
        self._todo.popleft()
        if not self._todo or self._todo[0].partition is not work.partition:
            yield from self._flush(work.partition)

    def _heed_end(self, work: Work) -> None:
        """Handle a segment that ends before its last offset, because of compaction or because its metadata is wrong.

        If another segment has some of the offsets between, they are read from there. Behind the last segment of the
        tier the broker is asked, if there is one. Else a notice says that the segment ends early.
        """
        piece, first, opened = work.piece, work.first_offset, work.partition.opened
        if self._locator.end_is_inferred(piece.segment):
            raise EndsTooSoon(f"the segment that should hold offset {first} ends before it")
        what = f"ends before offset {first}"
        if work.partition.rows.aborted is None:
            self._leave_gap(work, first, piece.last_offset, what)
        elif _slices(self._elsewhere(work, first, piece.last_offset)):
            # Up to where transactions are decided was worked out by this very end.
            should = f"the segment should end with offset {piece.segment.end_offset} (EndOffset)"
            raise Unlocatable(f"{should} and {what}", first=first, last=piece.last_offset)
        if opened.tiered(piece.segment.end_offset + 1) is not None:
            return
        end = piece.segment.end_offset
        what = f"the last segment of the tier should end with offset {end}, and ends before {first}"
        if self._brokers is not None:
            raise Unlocatable(f"{what} (EndOffset)", first=first, last=piece.last_offset)
        self._storage.observe(Notice(f"{opened.partition.topic}-{opened.partition.partition}: {what}"))

    def _leave_gap(self, work: Work, first: int, last: int, what: str) -> None:
        """Raise Gap if other segments have something of the offsets `first` to `last`, of which this one has none."""
        pieces = _slices(self._elsewhere(work, first, last))
        if pieces:
            # Behind the last piece this segment is asked again: it may be the one that the tier ends with.
            raise Gap(f"the segment {what}", pieces, pieces[-1].last_offset)

    def _observed(self, batches: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._handed_on(batch, work.partition.opened.partition, work.partition.rows.next_offset)

    def _flush(self, partition: SharedPartition) -> Iterator[pa.RecordBatch]:
        batch = partition.rows.builder.flush()
        if batch is not None:
            yield self._handed_on(batch, partition.opened.partition, partition.rows.next_offset)

    def _handed_on(self, batch: pa.RecordBatch, partition: TopicIdPartition, next_offset: int) -> pa.RecordBatch:
        self._storage.observe(RecordsRead(partition, batch.num_rows, next_offset))
        saturated = saturated_timestamps(batch)
        if saturated:
            self._storage.observe(TimestampsSaturated(partition, saturated))
        return batch

    def _recover(self, work: Work, error: RemoteFetchError | MisleadingIndex) -> None:
        """Change the head of the queue so that reading can go on, or raise."""
        partition, piece = work.partition.opened.partition, work.piece
        if work.partition.rows.next_offset > piece.last_offset:
            self._todo.popleft()  # the trouble lies past the offsets that are wanted
            return
        if isinstance(error, MisleadingIndex):
            self._scan_instead(work)
            return
        if isinstance(error, SizeTooSmall):
            work.forget_size()
            self._storage.observe(RangeReread(partition, work.position, error.kind))
            return
        if isinstance(error, Gap):
            rest = replace(piece, first_offset=error.last + 1) if error.last < piece.last_offset else None
            self._replace(work, error.pieces, rest, error)
            return
        error.at(topic=partition.topic, partition=partition.partition, object_name=object_of(piece.segment))
        may_pass = isinstance(error, (CorruptSegment, UnsupportedFormat, EpochMismatch))
        if may_pass and piece.start_entry_offset >= 0 and work.position == piece.start_position:
            self._scan_instead(work)  # the very first batch is none: the index may be what is wrong
        elif may_pass and work.position not in work.rereads:
            work.rereads.add(work.position)
            work.ended = False
            self._storage.observe(RangeReread(partition, work.position, error.kind))
        elif isinstance(error, (StorageDenied, SegmentNotFound)) and self._relocate(work):
            self._storage.observe(RangeRetried(partition, error.kind))
        elif may_pass or isinstance(error, SegmentNotFound):
            self._read_elsewhere(work, error)
        else:
            raise error

    def _relocate(self, work: Work) -> bool:
        """Ask where the segment is now, for every slice of the partition that waits: their URLs are as old.

        Once at each position, so that a slow read outlives any number of expired URLs, and a refusal ends it.
        """
        if work.relocated_at == work.position or work.piece.segment.custom_metadata is None:
            return False
        waiting = [each for each in self._todo if isinstance(each, Work) and each.partition is work.partition]
        segments = [each.piece.segment for each in waiting]
        moved = relocated(self._locator, work.partition.opened.partition, segments)
        for each in waiting:
            segment = moved.get(each.piece.segment.segment_id, each.piece.segment)
            each.piece = replace(each.piece, segment=segment)
        work.relocated_at = work.position
        return work.piece.segment.segment_id in moved

    def _scan_instead(self, work: Work) -> None:
        """Read the segment from its first byte, without its offset index."""
        piece, rows = work.piece, work.partition.rows
        partition = work.partition.opened.partition
        self._storage.observe(SegmentScanned(partition, IndexType.OFFSET, "misleading"))
        whole = SegmentSlice(piece.segment, max(piece.first_offset, rows.next_offset), piece.last_offset)
        self._todo[0] = Work(whole, work.partition, 0, work.rereads, aborts=work.aborts)

    def _read_elsewhere(self, work: Work, error: RemoteFetchError) -> None:
        """Plan the rest of the slice again, without this copy of it; where there is no other, raise."""
        shared, piece = work.partition, work.piece
        partition, locator = shared.opened.partition, self._locator
        first = work.first_offset
        if isinstance(error, EndsTooSoon):
            shared.opened = shared.opened.with_timeline(locator.recheck(partition, first))
        elif isinstance(error, SegmentNotFound):
            shared.opened = shared.opened.with_timeline(locator.refresh(partition))
        steps = self._elsewhere(work, first, piece.last_offset)
        before = _slices(takewhile(lambda step: isinstance(step, SegmentSlice), steps))
        if not before:
            raise no_other_copy(partition, steps[0], error, may_be_gap=isinstance(error, EndsTooSoon)) from error
        # A hole may follow: what lies before it is read, then this segment fails again.
        behind = [SegmentSlice(piece.segment, step.first_offset, piece.last_offset) for step in steps[len(before) :]]
        self._replace(work, before, behind[0] if behind else None, error)

    def _elsewhere(self, work: Work, first: int, last: int) -> tuple[PlanStep, ...]:
        """How offsets `first` to `last` of a slice are read without its segment."""
        shared = work.partition
        opened = shared.fails(work.piece.segment, first)
        steps = with_true_sizes(self._storage, plan_offsets(opened.partition, opened, first, last + 1))
        return narrow_edges(self._storage, steps)

    def _replace(
        self, work: Work, pieces: Sequence[SegmentSlice], rest: SegmentSlice | None, error: RemoteFetchError
    ) -> None:
        """Put slices of other segments where the slice at the head was, and behind them what is left of it."""
        shared, first = work.partition, work.first_offset
        works = [work_for(step, shared) for step in (*pieces, *([] if rest is None else [rest]))]
        last = work.piece.last_offset if rest is None else rest.first_offset - 1
        self._storage.observe(Fallback(shared.opened.partition, first, last, error.kind, str(error)))
        if work.aborts is None and isinstance(shared.rows.aborted, AbortedIntervals):
            # Another upload has its own transaction index.
            opened = shared.opened.without(shared.failed)
            shared.rows.aborted = shared.rows.aborted.merged(load_aborted(self._storage, opened, pieces))
        self._todo.popleft()
        self._todo.extendleft(reversed(works))


def _slices(steps: Iterable[PlanStep]) -> list[SegmentSlice]:
    return [step for step in steps if isinstance(step, SegmentSlice)]
