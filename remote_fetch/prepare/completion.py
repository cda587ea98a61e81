"""An outlined plan made complete where it is read: where cuts fall, byte positions, aborted transactions.

Rules of the file:

- An outline may be old: it was made in another process. Segments that have moved since are located again.
- A slice that was cut without looking becomes a slice between offsets. Everything after that is the usual scan.
- If it cannot be completed, the rule of the session decides whether it falls back.
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
from remote_fetch.prepare.transactions import is_decided, load_aborted
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.session.session import Session

__all__ = ["complete"]


def complete(session: Session, opened: OpenPartition, outline: Sequence[PlanStep]) -> PartitionPlan:
    """The plan of the steps of an outline (`Planner.outline`), which may have been cut at bytes since.

    Raises the errors of a fetcher, and CorruptSegment or Unlocatable for what the tier does not tell any more.
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
        # A share that was cut is taken to reach as far as all of them.
        say_end(self._storage.observe, opened, outline[-1].last_offset + 1)
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
        """A slice between offsets, with byte positions; without them, if they cannot be had, as the scan will find."""
        try:
            yield from narrow_edges(self._storage, [step])
        except RemoteFetchError as error:
            if not error.falls_back:
                raise
            yield step

    def _settle(self, step: SegmentSlice) -> SegmentSlice | None:
        """A cut slice between offsets; None if no batch begins in it, or if the log has deleted all of it."""
        try:
            return settle_cut(self._storage, step)
        except (StorageDenied, SegmentNotFound) as error:
            newer = relocated(self._locator, self._partition, [step.segment]).get(step.segment.segment_id)
            if newer is not None:
                return settle_cut(self._storage, replace(step, segment=newer))
            if isinstance(error, StorageDenied):
                raise
            if self._is_deleted(step):
                return None
            error.hint = (
                "The object was deleted after planning, but the log still has its records. Run the query again: it is "
                "then planned from the objects that exist"
            )
            raise

    def _is_deleted(self, step: SegmentSlice) -> bool:
        """Whether the broker, if there is one, has deleted all offsets of a slice."""
        if self._brokers is None:
            return False
        guard = self._brokers.guard
        log = guard.bounds(self._partition, self._opened.isolation)
        return guard.pass_over(self._partition, step.last_offset, log.log_start_offset or 0) > step.last_offset

    def _with_aborted(self, steps: tuple[PlanStep, ...]) -> PartitionPlan:
        opened, snapshots = self._opened, ProducerSnapshots(self._storage)
        if not is_decided(opened, steps, snapshots):
            # A transaction spans more segments than the task was told of.
            opened = opened.with_timeline(self._locator.refresh(self._partition))
            if not is_decided(opened, steps, snapshots):
                raise Unlocatable(
                    "the tier does not tell any more which transactions were aborted",
                    first=steps[0].first_offset,
                    last=steps[-1].last_offset,
                    topic=self._partition.topic,
                    partition=self._partition.partition,
                )
        return PartitionPlan(opened, steps, load_aborted(self._storage, opened, steps, snapshots))

    def _given(self, step: PlanStep, error: RemoteFetchError) -> BrokerRange:
        """The step as the broker's."""
        if isinstance(step, BrokerRange):
            return step
        partition = step.segment.topic_id_partition
        return self._fallback.after(error, partition, step.first_offset, step.last_offset)
