"""Completes an outlined plan in the process that reads it: the offsets of cuts, byte positions, aborted transactions.

Rules of the file:

- An outline may be old, because another process made it. Segments that have moved since then are located again.
- A slice that was cut at a byte becomes a slice between offsets. After that it is read like any other slice.
- If a plan cannot be completed, the session's FallbackRule decides whether the broker reads the offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from remote_fetch.errors import RemoteFetchError, SegmentNotFound, StorageDenied, Unlocatable
from remote_fetch.model import IsolationLevel
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.prepare.cuts import settle_cut
from remote_fetch.prepare.planner import say_end
from remote_fetch.prepare.positions import narrow_edges
from remote_fetch.prepare.relocation import relocated
from remote_fetch.prepare.segment_files import ProducerSnapshots
from remote_fetch.prepare.transactions import is_decided, load_aborted, measured_behind
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.session.session import Session

__all__ = ["complete"]


def complete(session: Session, opened: OpenPartition, outline: Sequence[PlanStep]) -> PartitionPlan:
    """Make the plan for the steps of an outline (`Planner.outline`). The steps may have been cut at bytes since then.

    Raises the errors of a fetcher, CorruptSegment, and Unlocatable if the tier no longer has the needed state files.
    """
    return _Completion(session, opened).of(outline)


class _Completion:
    """Completes outlines of one partition."""

    def __init__(self, session: Session, opened: OpenPartition) -> None:
        self._storage, self._locator, self._brokers = session.storage, session.locator, session.brokers
        self._fallback = session.fallback
        self._opened = opened
        self._partition = opened.partition

    def of(self, outline: Sequence[PlanStep]) -> PartitionPlan:
        opened = self._opened
        steps = tuple(self._between_offsets(outline))
        # A cut slice still has the last offset of the uncut one.
        say_end(self._storage.observe, opened, outline[-1].stop_offset)
        if opened.isolation is IsolationLevel.READ_UNCOMMITTED:
            return PartitionPlan(opened, steps, None)
        try:
            return self._with_aborted(steps)
        except RemoteFetchError as error:
            if not self._fallback.allows(error):
                raise
            given = tuple(self._given(step, error) for step in steps)
            return PartitionPlan(opened, given, AbortedIntervals.of(()))

    def _between_offsets(self, outline: Sequence[PlanStep]) -> Iterator[PlanStep]:
        for step in outline:
            if isinstance(step, SegmentSlice) and step.is_cut:
                settled = self._settle(step)
                if settled is not None:
                    yield settled
            elif isinstance(step, SegmentSlice):
                yield from self._narrowed(step)
            else:
                yield step

    def _narrowed(self, step: SegmentSlice) -> Iterator[PlanStep]:
        """A slice with byte positions.

        If the index cannot be read, the slice without them: the scan handles the error.
        """
        try:
            yield from narrow_edges(self._storage, self._locator, [step])
        except RemoteFetchError as error:
            if not error.falls_back:
                raise
            yield step

    def _settle(self, step: SegmentSlice) -> SegmentSlice | None:
        """A cut slice as a slice between offsets.

        None if no batch begins in it, or if the log has deleted all of it.
        """
        try:
            return self._between(step)
        except (StorageDenied, SegmentNotFound) as error:
            newer = relocated(self._locator, self._partition, [step.segment]).get(step.segment.segment_id)
            if newer is not None:
                return self._between(replace(step, segment=newer))
            if isinstance(error, StorageDenied):
                raise
            if self._is_deleted(step):
                return None
            error.hint = (
                "Run the query again: it is then planned from the objects that exist. If the error comes again, "
                "metadata still lists the object; `remote-fetch audit` names all that are missing. A read that cuts no "
                "segment (a larger fetch.remote.task.bytes, no minPartitions) asks the broker for the records"
            )
            raise

    def _between(self, step: SegmentSlice) -> SegmentSlice | None:
        return settle_cut(self._storage, step, end_is_inferred=self._locator.end_is_inferred(step.segment))

    def _is_deleted(self, step: SegmentSlice) -> bool:
        """Whether the broker has deleted all offsets of a slice. False without a broker."""
        if self._brokers is None:
            return False
        guard = self._brokers.guard
        log = guard.bounds(self._partition, self._opened.isolation)
        return guard.pass_over(self._partition, step.last_offset, log.log_start_offset or 0) > step.last_offset

    def _with_aborted(self, steps: tuple[PlanStep, ...]) -> PartitionPlan:
        opened, snapshots = self._opened, ProducerSnapshots(self._storage)
        if not is_decided(opened, steps, snapshots):
            # A transaction spans more segments than the outline has.
            opened = opened.with_timeline(self._locator.refresh(self._partition))
            opened = measured_behind(self._locator, opened, steps, snapshots)
            if not is_decided(opened, steps, snapshots):
                raise Unlocatable(
                    "the tier does not tell any more which transactions were aborted",
                    first=steps[0].first_offset,
                    last=steps[-1].last_offset,
                    **self._partition.place,
                )
        return PartitionPlan(opened, steps, load_aborted(self._storage, opened, steps, snapshots))

    def _given(self, step: PlanStep, error: RemoteFetchError) -> BrokerRange:
        """The step as a broker range."""
        if isinstance(step, BrokerRange):
            return step
        return self._fallback.after(error, self._partition, step.first_offset, step.last_offset)
