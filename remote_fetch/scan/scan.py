"""Reads the slices of plans, of any number of partitions, in order, and goes on another way if a slice fails.

Rules of the file:

- All decoded rows are delivered before an error is raised.
- If a slice fails, `recovery` changes the queue. If it cannot, the broker reads the rest of the slice. Without a
  broker, the error is raised with topic, partition, offset and object.
- A missing object is never the end of the data.
- Before each slice a broker, if configured, is asked whether the topic may still be read, and where the log starts.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from time import monotonic
from typing import TYPE_CHECKING

from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.errors import RemoteFetchError
from remote_fetch.fetch.readahead import Awaited, RangeRequest
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import RecordsRead, TimestampsSaturated
from remote_fetch.plan.gets import bytes_of_records
from remote_fetch.prepare.order import MisleadingIndex
from remote_fetch.prepare.refusals import original, refuse_broker_ranges
from remote_fetch.prepare.segment_ends import check_end
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.recovery import Recovery
from remote_fetch.scan.rows import ReadRows, end_of
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.scan.work import BrokerWork, SharedPartition, Work, requests, works_of
from remote_fetch.session.circuit import Circuit, is_storage_failure
from remote_fetch.session.decode_pool import DecodePool
from remote_fetch.session.fallback import FallbackRule
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Scan"]


class Scan:
    """Reads the steps of several plans one after another. Iterate over `batches()` or `rows()` once; see `leave_out`.

    Several scans of one session may run at once, each in its own thread. Each then needs its own `codecs`, and its
    share of the session: `max_bytes` of the budget, and `pool`. By default a scan takes the session's, and all of it.
    `fallback`: another rule than the session's.
    `most`: the caller stops after so many records. If they are few, the first GETs are small, and rows come at once.
    """

    def __init__(
        self,
        session: Session,
        plans: Sequence[PartitionPlan],
        columns: Sequence[str],
        *,
        codecs: Codecs | None = None,
        max_bytes: int | None = None,
        pool: DecodePool | None = None,
        fallback: FallbackRule | None = None,
        most: int | None = None,
    ) -> None:
        self._storage, self._locator, self._brokers = session.storage, session.locator, session.brokers
        self._fallback, self._pool = fallback or session.fallback, pool or session.decode_pool
        self._codecs, self._max_bytes = codecs or session.codecs, max_bytes
        self._columns, self._most, self._circuit = tuple(columns), most, Circuit()
        self._todo: deque[Work | BrokerWork] = deque()
        self._recovery = Recovery(session, self._todo, self._codecs)
        for plan in plans:
            if self._fallback.reader is None:
                refuse_broker_ranges(plan.opened.timeline, plan.steps)
            self._todo.extend(works_of(plan, self._columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in order of partition and offset. Before an error is raised, the decoded rows are yielded."""
        with contextlib.closing(self.rows()) as found:
            for rows in found:
                yield from rows.to_arrow() if isinstance(rows, DecodedRows) else [rows]

    @property
    def at(self) -> TopicIdPartition | None:
        """The partition that is read, or whose error was raised. None: all rows were given."""
        return self._todo[0].partition.opened.partition if self._todo else None

    def leave_out(self, topic_id: Uuid) -> None:
        """Give no more rows of a topic. After an error about it, iterate over `batches()` again: it goes on behind."""
        left = [work for work in self._todo if work.partition.opened.partition.topic_id != topic_id]
        self._todo.clear()
        self._todo.extend(left)

    def rows(self) -> ReadRows:
        """As `batches`, but the rows of the store stay where the decoder left them, outside of Arrow."""
        while self._todo:
            head = self._todo[0]
            if isinstance(head, Work) and self._fallback.reader is not None and self._circuit.is_open(monotonic()):
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

    def _deal_with(self, trouble: RemoteFetchError | MisleadingIndex) -> ReadRows:
        """Change the queue so that reading can go on. If that is impossible, deliver the decoded rows, and raise."""
        work = self._todo[0]
        try:
            if isinstance(work, BrokerWork):
                raise trouble
            self._recovery.recover(work, trouble)
        except RemoteFetchError as error:
            yield from self._flush(work.partition)
            if isinstance(work, BrokerWork) or not self._fallback.allows(error):
                raise
            if is_storage_failure(error):
                self._circuit = self._circuit.failed(error.kind, monotonic())
            self._give_to_broker(work, original(error).kind, str(error))
        if not self._todo or self._todo[0].partition is not work.partition:
            yield from self._flush(work.partition)

    def _give_to_broker(self, work: Work, reason: str, detail: str = "") -> BrokerWork:
        """Replace the rest of the slice at the head by a broker range."""
        partition = work.partition.opened.partition
        step = self._fallback.to_broker(partition, work.first_offset, work.piece.last_offset, reason, detail)
        self._todo[0] = given = BrokerWork(step, work.partition)
        return given

    def _read_from_broker(self, work: BrokerWork) -> ReadRows:
        """Read the broker range at the head of the queue as one with those that follow it without a gap."""
        broker = self._fallback.reader
        assert broker is not None
        shared, step, count = work.partition, work.step, 1
        for more in islice(self._todo, 1, None):
            if not (isinstance(more, BrokerWork) and more.follows(step, shared)):
                break
            step, count = replace(step, last_offset=more.step.last_offset), count + 1
        yield from self._flush(shared)
        shared.rows.shown.clear()  # this scan does not see the markers in the broker's range
        isolation, lineage = shared.opened.isolation, self._lineage_beside(shared)
        first = max(step.first_offset, shared.rows.next_offset)
        if first <= step.last_offset:
            for batch in broker.read(replace(step, first_offset=first), isolation, self._columns, lineage):
                self._storage.observe(RecordsRead(step.partition, batch.num_rows, end_of(batch, step.stop_offset)))
                yield batch
        shared.rows.next_offset = max(first, step.stop_offset)
        for _ in range(count):
            self._todo.popleft()

    def _lineage_beside(self, shared: SharedPartition) -> Lineage:
        """The lineage of the rows that the store gives of the partition. Unknown if it gives none beside the broker."""
        waits = any(isinstance(item, Work) and item.partition is shared for item in self._todo)
        takes_store = shared.gave_rows or waits or shared.opened.is_divided
        return shared.opened.lineage if takes_store else Lineage.unknown()

    def _read_until_trouble(self) -> ReadRows:
        """Read slices up to the next broker range. The last ones wait for the next call if they need no bytes.

        The first slice never waits. After an error, the slice that failed is the head of the queue.
        """
        works = [work for work in takewhile(lambda item: isinstance(item, Work), self._todo) if isinstance(work, Work)]
        reader = self._storage.reader
        range_bytes = reader.range_bytes if self._max_bytes is None else min(reader.range_bytes, self._max_bytes)
        at, work = 0, works[0]
        first_bytes = None if self._most is None else bytes_of_records(self._most, work.piece.segment)
        stream = reader.read_ahead(
            requests(works, range_bytes, first_bytes), max_bytes=self._max_bytes, one_first=first_bytes is not None
        )
        current = self._reader_of(work)
        try:
            for request, wait in stream:
                try:
                    while at < request.tag:
                        yield from self._finish(work, current)
                        at, work = at + 1, works[at + 1]
                        current = self._reader_of(work)
                    yield from self._take(request, wait, work, current, flushes=first_bytes is not None)
                finally:
                    wait.cancel()  # if nothing has waited for it, as after a seek
            yield from self._finish(work, current)
        except (RemoteFetchError, MisleadingIndex):
            work.position = current.resume_position
            raise
        finally:
            stream.close()

    def _take(
        self, request: RangeRequest, wait: Awaited, work: Work, reader: SliceReader, *, flushes: bool
    ) -> ReadRows:
        """Decode the bytes of a range, unless the slice has ended before. `flushes`: deliver all of their rows now."""
        self._skip_deleted(work, reader)
        if not wait.is_done and not work.ended:
            yield from self._observed(reader.drain(), work.partition)
            work.ended = reader.done
        if reader.done or work.ended:
            return
        try:
            data = wait()
        except RemoteFetchError:
            yield from self._observed(reader.drain(), work.partition)
            raise
        self._recovery.handle_late_start(request, data, work)
        yield from self._observed(reader.feed(data), work.partition)
        if flushes:  # the next GET starts only if these rows are not enough
            yield from self._observed(reader.drain(), work.partition)
            yield from self._flush(work.partition)
        # `_finish` checks whether the segment may end here.
        work.ended = reader.done or len(data) < request.size_bytes

    def _reader_of(self, work: Work) -> SliceReader:
        if work.aborts is not None:
            work.partition.rows.aborted = work.aborts
        work.partition.rows.begin_at(work.piece.first_offset)
        reader = SliceReader(
            work.piece,
            work.partition.rows,
            self._codecs,
            self._pool,
            position=work.position,
            max_batch_bytes=self._storage.settings.max_batch_bytes,
            end_is_inferred=self._locator.end_is_inferred(work.piece.segment),
        )
        self._skip_deleted(work, reader)
        return reader

    def _skip_deleted(self, work: Work, reader: SliceReader) -> None:
        """Skip offsets that were deleted during the read, if a broker can tell the log start."""
        if self._brokers is None or reader.done:
            return
        rows, opened = work.partition.rows, work.partition.opened
        rows.begin_at(self._brokers.guard.check(opened.partition, opened.isolation, rows.next_offset))
        if rows.next_offset > work.piece.last_offset:
            reader.done = work.ended = True

    def _finish(self, work: Work, reader: SliceReader) -> ReadRows:
        """Close the slice at the head: check that it gave all its offsets, and go on to the next slice."""
        yield from self._observed(reader.drain(), work.partition)
        if reader.lacks_wanted and work.piece.end_position < 0:
            check_end(self._storage, work.piece.segment, reader.end_position)
        yield from self._observed(reader.finish(), work.partition)
        rows, piece = work.partition.rows, work.piece
        if rows.next_offset <= piece.last_offset:
            self._recovery.handle_early_end(work)
        rows.read_to(piece.last_offset, piece)
        self._circuit = self._circuit.worked()
        self._todo.popleft()
        if not self._todo or self._todo[0].partition is not work.partition:
            yield from self._flush(work.partition)

    def _observed(self, found: Iterable[DecodedRows], shared: SharedPartition) -> Iterator[DecodedRows]:
        partition = shared.opened.partition
        for rows in found:
            shared.gave_rows = True
            self._storage.observe(RecordsRead(partition, rows.num_rows, shared.rows.next_offset))
            if saturated := shared.rows.take_saturated():
                self._storage.observe(TimestampsSaturated(partition, saturated))
            yield rows

    def _flush(self, shared: SharedPartition) -> Iterator[DecodedRows]:
        return self._observed(shared.rows.flush(), shared)
