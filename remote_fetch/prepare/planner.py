"""From partitions and offsets to plans: opened, bounded, planned. Every face plans here.

Rules of the file:

- The order is: `open` (what the tier holds and where the log ends), then offsets by the caller, then `plan`.
- If the session has a broker, it gets the offsets that cannot be opened or planned, with the reason.
- No offset behind the end of the log is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from typing import TypeVar

from remote_fetch.errors import RemoteFetchError
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.observe import Notice
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice, plan_offsets
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.prepare.opening import open_partition
from remote_fetch.prepare.parallel import TIMEOUT_MS, threads_of
from remote_fetch.prepare.positions import narrow_edges
from remote_fetch.prepare.transactions import Replan, settle, settle_steps
from remote_fetch.prepare.view import OpenPartition, PartitionPlan, untiered
from remote_fetch.session.session import Session

__all__ = ["Planner"]

T = TypeVar("T")


class Planner:
    """Plans reads of one session under one isolation level. Thread-safe, as the session is."""

    def __init__(self, session: Session, isolation: IsolationLevel) -> None:
        self._session = session
        self._isolation = isolation

    def open(
        self,
        partitions: Sequence[TopicIdPartition],
        make: Callable[[OpenPartition], T],
        log_starts: Mapping[int, int] | None = None,
    ) -> tuple[T, ...]:
        """Open the partitions of one topic, and give the result of `make` for each, in order.

        A partition that cannot be opened counts as not tiered if there is a broker. Each partition needs questions to
        brokers and small GETs one after the other, so several are opened at once, in threads. `log_starts` are log
        start offsets that the user knows better. Raises the errors of `open_partition` without a broker, and the
        broker's own errors with one.
        """
        session = self._session
        with threads_of(session) as pool:
            local = pool.submit(partial(session.local_starts, partitions))
            if session.guard is not None and partitions:
                session.guard.authorise(partitions[0])  # once for all of them

            def made(partition: TopicIdPartition) -> T:
                opened = self._open(partition, (log_starts or {}).get(partition.partition))
                return make(replace(opened, local_start=local.wait(TIMEOUT_MS).get(partition)))

            calls = [pool.submit(partial(made, partition)) for partition in partitions]
            return tuple(call.wait(TIMEOUT_MS) for call in calls)

    def say_log_start_unknown(self) -> None:
        """Tell that no broker says where the logs start."""
        if self._session.cluster is None:
            text = "log start unknown: the bucket alone does not tell which records were deleted before its segments"
            self._session.observe(Notice(text))

    def say_end(self, opened: OpenPartition, stop: int) -> None:
        """Tell why a read up to `stop` (exclusive) ends there, if the log may go on: see `OpenPartition.ends_at`."""
        end = opened.ends_at(stop)
        if end is not None:
            self._session.observe(end)

    def plan(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        """How offsets [first, stop) of one partition are read, as far as the log goes.

        Raises, if the session has no broker, CorruptSegment, Unlocatable and a fetcher's errors.
        """
        return self._planned(opened, first, stop, self._whole)

    def outline(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        """As `plan`, without what readers of the slices can find out themselves: no index is read here.

        Slices have no byte positions, and `aborted` is None. Under read_committed a few producer snapshots are read, to
        see up to where transactions are decided; of a listing's segments all those of which the end is a guess.
        """
        return self._planned(opened, first, stop, self._outlined)

    def leading(self, opened: OpenPartition, first: int, most: int) -> PartitionPlan | str:
        """The slices from offset `first` on that follow each other, at most `most`; the reason if there is none."""
        stop = opened.clip(opened.stop_offset)
        slices = _leading(plan_offsets(opened.partition, opened, first, stop), most)
        if slices:
            plan = self._whole(opened, first, slices[-1].last_offset + 1)
            slices = _leading(plan.steps, most)
            if slices:
                return replace(plan, steps=slices)
        shown = max(stop, first + 1)
        steps = plan_offsets(opened.partition, opened, first, shown, stable_stop=opened.stable_stop)
        return next((str(step.reason) for step in steps if isinstance(step, BrokerRange)), Reason.UNSTABLE.value)

    def _open(self, partition: TopicIdPartition, log_start: int | None) -> OpenPartition:
        session = self._session
        log = self._log_bounds(partition, log_start)
        try:
            return open_partition(session, partition, self._isolation, log)
        except RemoteFetchError as error:
            session.fallback.after(error, partition, log.log_start_offset or 0, (log.end_offset or 1) - 1)
            return untiered(partition, self._isolation, log)

    def _log_bounds(self, partition: TopicIdPartition, log_start: int | None) -> LogBounds:
        """The ends of the log, from the broker if there is one; before that, whether this principal may read it."""
        guard = self._session.guard
        if guard is None:
            return LogBounds(log_start)
        guard.authorise(partition)
        told = guard.bounds(partition, self._isolation)
        return LogBounds(max(told.log_start_offset or 0, log_start or 0), told.end_offset)

    def _planned(
        self, opened: OpenPartition, first: int, stop: int, make: Callable[[OpenPartition, int, int], PartitionPlan]
    ) -> PartitionPlan:
        stop = max(opened.clip(stop), first)
        try:
            plan = make(opened, first, stop)
        except RemoteFetchError as error:
            step = self._session.fallback.after(error, opened.partition, first, stop - 1)
            plan = PartitionPlan(opened, (step,) if first < stop else (), AbortedIntervals.of(()))
        return self._with_reason(plan)

    def _whole(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        session = self._session
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            steps = plan_offsets(opened.partition, opened, first, stop)
            return PartitionPlan(opened, narrow_edges(session, steps), None)
        settled, steps, aborted = settle(session, opened, _stable(first, stop))
        return PartitionPlan(settled, narrow_edges(session, steps), aborted)

    def _outlined(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return PartitionPlan(opened, plan_offsets(opened.partition, opened, first, stop), None)
        return PartitionPlan(*settle_steps(self._session, opened, _stable(first, stop)), None)

    def _with_reason(self, plan: PartitionPlan) -> PartitionPlan:
        """The plan with the reason why nothing was found in the tier, if that is not that nothing is there."""
        reason = self._session.unlocated
        if reason is None:
            return plan
        return replace(plan, steps=tuple(self._unlocated(plan.steps, reason)))

    def _unlocated(self, steps: Sequence[PlanStep], reason: str) -> Iterator[PlanStep]:
        for step in steps:
            if isinstance(step, BrokerRange) and step.reason == Reason.NOT_TIERED:
                yield self._session.fallback.to_broker(step.partition, step.first_offset, step.last_offset, reason)
            else:
                yield step


def _stable(first: int, stop: int) -> Replan:
    def replan(now: OpenPartition) -> tuple[PlanStep, ...]:
        return plan_offsets(now.partition, now, first, stop, stable_stop=now.stable_stop)

    return replan


def _leading(steps: Sequence[PlanStep], most: int) -> tuple[SegmentSlice, ...]:
    slices = takewhile(lambda step: isinstance(step, SegmentSlice), steps)
    return tuple(step for step in islice(slices, most) if isinstance(step, SegmentSlice))
