"""Changes the queue of a scan after a slice has failed, so that the reading can go on.

Rules of the file:

- Bytes that break a rule are fetched once more. Then another segment with the same offsets is tried.
- If that is impossible, the error is raised. The scan then decides whether the broker reads the offsets.
- A segment that begins late or ends early is no end of the data: other segments may have the offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from remote_fetch.errors import (
    CorruptSegment,
    EpochMismatch,
    FallsBackError,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    Unlocatable,
    UnsupportedFormat,
)
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.codecs import Codecs
from remote_fetch.model import IndexType
from remote_fetch.observe import Fallback, Notice, RangeReread, RangeRetried, SegmentScanned
from remote_fetch.plan.ranges import PlanStep, SegmentSlice, leading_slices, plan_offsets, slices_of
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.prepare.batch_walk import batches_of
from remote_fetch.prepare.order import MisleadingIndex
from remote_fetch.prepare.positions import narrow_edges
from remote_fetch.prepare.refusals import no_other_copy
from remote_fetch.prepare.relocation import relocated
from remote_fetch.prepare.segment_ends import EndsTooSoon, Gap, SizeTooSmall, offset_at_start
from remote_fetch.prepare.transactions import load_aborted
from remote_fetch.prepare.true_sizes import with_true_sizes
from remote_fetch.scan.work import BrokerWork, Work, work_for
from remote_fetch.session.session import Session

__all__ = ["Recovery"]


class Recovery:
    """Changes the queue `todo` of a scan, whose head is the slice that failed. `codecs` are those of the scan."""

    def __init__(self, session: Session, todo: deque[Work | BrokerWork], codecs: Codecs) -> None:
        self._storage, self._locator, self._brokers = session.storage, session.locator, session.brokers
        self._todo, self._codecs = todo, codecs

    def recover(self, work: Work, error: RemoteFetchError | MisleadingIndex) -> None:
        """Change the head of the queue so that reading can go on. If that is impossible, raise."""
        partition, piece = work.partition.opened.partition, work.piece
        if work.partition.rows.next_offset > piece.last_offset:
            self._todo.popleft()  # the error lies after the wanted offsets
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
        error.at(**piece.segment.place)
        may_pass = isinstance(error, (CorruptSegment, UnsupportedFormat, EpochMismatch))
        if may_pass and piece.start_entry_offset >= 0 and work.position == piece.start_position:
            self._scan_instead(work)  # no valid batch at the indexed position: the index may be wrong
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

    def handle_late_start(self, request: RangeRequest, data: memoryview, work: Work) -> None:
        """If the segment begins after the wanted offset, have the offsets between read from other segments first."""
        if request.start_position > 0:
            return
        bound = self._storage.settings.max_batch_bytes
        base_offset = offset_at_start(data, self._codecs, partial(self._behind, request), max_batch_bytes=bound)
        if base_offset is None or base_offset <= work.first_offset:
            return
        shared, locator, first = work.partition, self._locator, work.first_offset
        before = [segment for segment in shared.opened.timeline.segments if segment.start_offset <= first]
        if any(map(locator.end_is_inferred, before)):
            shared.opened = shared.opened.with_timeline(locator.recheck(shared.opened.partition, first))
        self._leave_gap(work, first, min(base_offset - 1, work.piece.last_offset), f"begins at offset {base_offset}")

    def _behind(self, request: RangeRequest, position: int) -> memoryview:
        """The bytes from `position` on, behind those of `request`. No bytes if that got fewer than it asked for.

        Then the object ends there.
        """
        if position < request.size_bytes:
            return memoryview(b"")
        reader = self._storage.reader
        return reader.read(RangeRequest(request.segment, position, position + reader.range_bytes))

    def handle_early_end(self, work: Work) -> None:
        """Handle a segment that ends before its last offset, because of compaction or because its metadata is wrong.

        If another segment has some of the missing offsets, they are read from there; under read_committed that is an
        error, unless it has no batch of them either. After the last segment of the tier the broker reads them, if one
        is configured. If not, a notice reports that the segment ends early.
        """
        piece, first, opened = work.piece, work.first_offset, work.partition.opened
        if self._locator.end_is_inferred(piece.segment):
            raise EndsTooSoon(f"the segment that should hold offset {first} ends before it")
        what = f"ends before offset {first}"
        if work.partition.rows.aborted is None:
            self._leave_gap(work, first, piece.last_offset, what)
        elif any(map(self._may_have_batches, slices_of(self._elsewhere(work, first, piece.last_offset)))):
            # The stable offset was computed from this end offset, so it may be wrong too.
            should = f"the segment should end with offset {piece.segment.end_offset} (EndOffset)"
            raise Unlocatable(f"{should} and {what}", first=first, last=piece.last_offset)
        if opened.tiered(piece.segment.end_offset + 1) is not None:
            return
        end = piece.segment.end_offset
        what = f"the last segment of the tier should end with offset {end}, and ends before {first}"
        if self._brokers is not None:
            raise Unlocatable(f"{what} (EndOffset)", first=first, last=piece.last_offset)
        self._storage.observe(Notice(f"{opened.partition.topic_partition}: {what}"))

    def _may_have_batches(self, piece: SegmentSlice) -> bool:
        """Whether a slice has a batch. True if its segment cannot be read."""
        try:
            batches = batches_of(self._storage, piece, piece.end_position, end_is_inferred=False)
            return any(batch.header.last_offset >= piece.first_offset for batch in batches)
        except (FallsBackError, MisleadingIndex):
            return True

    def _leave_gap(self, work: Work, first: int, last: int, what: str) -> None:
        """Raise Gap if other segments have some of the offsets `first` to `last`, which this segment lacks."""
        pieces = slices_of(self._elsewhere(work, first, last))
        if pieces:
            # After the last piece this segment is read again, because it may be the last of the tier.
            raise Gap(f"the segment {what}", pieces, pieces[-1].last_offset)

    def _relocate(self, work: Work) -> bool:
        """Ask the locator for the current location of every waiting segment of the partition: their URLs are as old.

        This happens once at each position. So a slow read survives any number of expired URLs, and a refusal ends it.
        """
        if work.relocated_at == work.position or work.piece.segment.custom_metadata is None:
            return False
        waiting = [each for each in self._todo if isinstance(each, Work) and each.partition is work.partition]
        moved = relocated(self._locator, work.partition.opened.partition, [each.piece.segment for each in waiting])
        for each in waiting:
            segment = moved.get(each.piece.segment.segment_id, each.piece.segment)
            each.piece = replace(each.piece, segment=segment)
        work.relocated_at = work.position
        return work.piece.segment.segment_id in moved

    def _scan_instead(self, work: Work) -> None:
        """Read the segment from its first byte, without its offset index."""
        partition = work.partition.opened.partition
        self._storage.observe(SegmentScanned(partition, IndexType.OFFSET, "misleading"))
        whole = SegmentSlice(work.piece.segment, work.first_offset, work.piece.last_offset)
        self._todo[0] = Work(whole, work.partition, 0, work.rereads, aborts=work.aborts)

    def _read_elsewhere(self, work: Work, error: RemoteFetchError) -> None:
        """Plan the rest of the slice again, without this segment. Raises if no other segment has its offsets."""
        shared, piece = work.partition, work.piece
        partition, locator = shared.opened.partition, self._locator
        first = work.first_offset
        if isinstance(error, EndsTooSoon):
            shared.opened = shared.opened.with_timeline(locator.recheck(partition, first))
        elif isinstance(error, SegmentNotFound):
            shared.opened = shared.opened.with_timeline(locator.refresh(partition))
        steps = self._elsewhere(work, first, piece.last_offset)
        before = list(leading_slices(steps))
        if not before:
            raise no_other_copy(partition, steps[0], error, may_be_gap=isinstance(error, EndsTooSoon)) from error
        # If a hole follows, the offsets before it are read, and then this segment fails again.
        behind = [SegmentSlice(piece.segment, step.first_offset, piece.last_offset) for step in steps[len(before) :]]
        self._replace(work, before, behind[0] if behind else None, error)

    def _elsewhere(self, work: Work, first: int, last: int) -> tuple[PlanStep, ...]:
        """Steps that read offsets `first` to `last` of a slice without its segment."""
        opened = work.partition.fails(work.piece.segment, first)
        steps = with_true_sizes(self._storage, plan_offsets(opened, first, last + 1))
        return narrow_edges(self._storage, self._locator, steps)

    def _replace(
        self, work: Work, pieces: Sequence[SegmentSlice], rest: SegmentSlice | None, error: RemoteFetchError
    ) -> None:
        """Replace the slice at the head by slices of other segments, followed by its `rest`."""
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
