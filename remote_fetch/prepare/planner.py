"""Plans the reads of every face: opens partitions, and turns offsets into plans.

Rules of the file:

- The order is: `open` (which offsets the tier holds, where the log ends), then the caller's offsets, then `plan`.
- If the session has a broker, it gets the offsets that cannot be opened or planned, with the reason.
- No offset after the end of the log is planned.
- A locator that needs the wanted offsets (`StepwiseLocator`) is asked in `plan`, not in `open`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from remote_fetch.errors import RemoteFetchError
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.observe import Notice, Observer
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, leading_slices, plan_offsets
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.prepare.opening import StillHolds, open_partition
from remote_fetch.prepare.positions import narrow_edges
from remote_fetch.prepare.segment_files import ProducerSnapshots
from remote_fetch.prepare.time_lookup import TimeLookup
from remote_fetch.prepare.transactions import settle, settle_listed, settle_steps
from remote_fetch.prepare.true_sizes import with_true_sizes
from remote_fetch.prepare.view import OpenPartition, PartitionPlan, untiered
from remote_fetch.session.parallel import result_of, threads
from remote_fetch.session.session import Session

__all__ = ["Planner", "say_end"]

T = TypeVar("T")


class Planner:
    """Plans the reads of one session under one isolation level. Thread-safe.

    `observe` takes events. `times` looks up times.
    """

    def __init__(self, session: Session, isolation: IsolationLevel) -> None:
        self._session = session
        self._isolation = isolation
        self._storage, self._locator, self._brokers = session.storage, session.locator, session.brokers
        self._stepwise = session.stepwise
        self.observe = session.observe
        self.times = TimeLookup(session)

    def open(
        self,
        partitions: Sequence[TopicIdPartition],
        make: Callable[[OpenPartition], T],
        log_starts: Mapping[int, int] | None = None,
    ) -> tuple[T, ...]:
        """Open the partitions of one topic, and return the result of `make` for each, in order.

        - If the session has a broker, a partition that cannot be opened counts as not tiered.
        - Each partition needs several questions and small GETs in sequence, so several are opened at once, in threads.
        - `log_starts` are log start offsets from the user, by partition number. The larger of these and the broker's
          is used.

        If the session has no broker, raises the errors of `open_partition`. If it has one, raises the broker's errors.
        """
        with threads() as pool:
            local = pool.submit(partial(self._session.local_starts, partitions))
            if self._brokers is not None and partitions:
                self._brokers.guard.authorise(partitions[0])  # once for all of them

            def made(partition: TopicIdPartition) -> T:
                opened = self._open(partition, (log_starts or {}).get(partition.partition))
                return make(replace(opened, local_start=result_of(local).get(partition)))

            calls = [pool.submit(partial(made, partition)) for partition in partitions]
            return tuple(map(result_of, calls))

    def open_timeline(self, timeline: Timeline, log: LogBounds, *, waits: bool = False) -> OpenPartition:
        """Open one partition whose segments are known. `log` has the ends of the log.

        `waits`: for a broker that is away, as the guard does. Raises the errors of `open`.
        """
        holds: StillHolds | None = None
        if self._brokers is not None:
            holds = self._brokers.guard.still_holds if waits else self._brokers.cluster.still_holds
        return open_partition(self._storage, holds, timeline, self._isolation, log)

    def reopened(self, opened: OpenPartition) -> OpenPartition:
        """The partition, opened once more if that failed. Raises the errors of `open_partition`, also with a broker."""
        if opened.unread is None:
            return opened
        timeline = self._locator.timeline(opened.partition)
        return replace(self.open_timeline(timeline, opened.log, waits=True), local_start=opened.local_start)

    def say_log_start_unknown(self) -> None:
        """Report that the log start offsets are unknown, if the session has no broker."""
        if self._brokers is None:
            text = "log start unknown: the bucket alone does not tell which records were deleted before its segments"
            self.observe(Notice(text))

    def plan(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        """The plan to read offsets [first, stop) of one partition, up to the end of the log.

        If the session has no broker, raises CorruptSegment, Unlocatable and the errors of a fetcher.
        """
        return self._planned(opened, first, stop, self._whole, self._isolation)

    def outline(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        """As `plan`, but reads no index. The readers of the slices complete the plan (`completion.complete`).

        Slices have no byte positions, and `aborted` is None. Under read_committed this reads a few producer snapshots
        to find the stable offset, and the snapshot of each segment whose end a listing only guesses.
        """
        # Parts of segments are read in any order. So brokers' lists of aborted transactions are of no use here.
        return self._planned(opened, first, stop, self._outlined, IsolationLevel.READ_UNCOMMITTED)

    def leading(self, opened: OpenPartition, first: int, most: int) -> PartitionPlan | str:
        """A plan of at most `most` consecutive slices from offset `first` on. If there is none, the reason for that."""
        stop = opened.clip(opened.stop_offset)
        slices = tuple(islice(leading_slices(plan_offsets(opened, first, stop)), most))
        if slices:
            plan = self._whole(opened, first, slices[-1].stop_offset)
            slices = tuple(islice(leading_slices(plan.steps), most))
            if slices:
                return replace(plan, steps=slices)
        shown = max(stop, first + 1)
        steps = plan_offsets(opened, first, shown, stable_stop=opened.stable_stop)
        return next((str(step.reason) for step in steps if isinstance(step, BrokerRange)), Reason.UNSTABLE.value)

    def _open(self, partition: TopicIdPartition, log_start: int | None) -> OpenPartition:
        log = self._log_bounds(partition, log_start)
        if self._stepwise is not None:
            return untiered(partition, self._isolation, log)
        try:
            timeline = self._locator.timeline(partition)
            self._session.note_unusable(timeline)
            return self.open_timeline(timeline, log, waits=True)
        except RemoteFetchError as error:
            first, stop = log.log_start_offset or 0, log.end_offset or 1
            unread = self._session.fallback.after(error, partition, first, stop - 1)
            return replace(untiered(partition, self._isolation, log), unread=unread)

    def _log_bounds(self, partition: TopicIdPartition, log_start: int | None) -> LogBounds:
        """The ends of the log.

        If there is a broker, it is asked, and first whether this principal may read the topic.
        """
        if self._brokers is None:
            return LogBounds(log_start)
        guard = self._brokers.guard
        guard.authorise(partition)
        bounds = guard.bounds(partition, self._isolation)
        return LogBounds(max(bounds.log_start_offset or 0, log_start or 0), bounds.end_offset)

    def _planned(
        self,
        opened: OpenPartition,
        first: int,
        stop: int,
        make: Callable[[OpenPartition, int, int], PartitionPlan],
        lists: IsolationLevel,
    ) -> PartitionPlan:
        """The plan that `make` makes. A stepwise locator is asked first, with the isolation level `lists`."""
        stop = max(opened.clip(stop), first)
        try:
            if self._stepwise is not None and first < stop:
                timeline = self._stepwise.reach(opened.partition, first, stop, isolation=lists, most=stop - first)
                opened = self.open_timeline(timeline, opened.log, waits=True)
            plan = make(opened, first, stop)
        except RemoteFetchError as error:
            step = self._session.fallback.after(error, opened.partition, first, stop - 1)
            plan = PartitionPlan(opened, (step,) if first < stop else (), AbortedIntervals.of(()))
        return self._with_reason(plan)

    def _whole(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        storage = self._storage
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            steps = with_true_sizes(storage, plan_offsets(opened, first, stop))
            return PartitionPlan(opened, narrow_edges(storage, self._locator, steps), None)
        if opened.timeline.listed_aborts is not None:
            steps = settle_listed(opened, plan_offsets(opened, first, stop))
            return PartitionPlan(opened, narrow_edges(storage, self._locator, steps), AbortedIntervals.of(()))
        settled, steps, aborted = settle(storage, self._locator, opened, first, stop)
        return PartitionPlan(settled, narrow_edges(storage, self._locator, with_true_sizes(storage, steps)), aborted)

    def _outlined(self, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            steps = plan_offsets(opened, first, stop)
        else:
            snapshots = ProducerSnapshots(self._storage)
            opened, steps = settle_steps(snapshots, self._locator, opened, first, stop)
        return PartitionPlan(opened, with_true_sizes(self._storage, steps), None)

    def _with_reason(self, plan: PartitionPlan) -> PartitionPlan:
        """The plan. Its broker ranges tell why the partition was not opened, or its segments were not located."""
        unread = plan.opened.unread
        if unread is not None:  # `_open` has reported the fallback
            given = (replace(unread, first_offset=one.first_offset, last_offset=one.last_offset) for one in plan.steps)
            return replace(plan, steps=tuple(given))
        reason = self._session.configured_locator.unlocated
        if reason is None:
            return plan
        return replace(plan, steps=tuple(self._unlocated(plan.steps, reason)))

    def _unlocated(self, steps: Sequence[PlanStep], reason: str) -> Iterator[PlanStep]:
        for step in steps:
            if isinstance(step, BrokerRange) and step.reason == Reason.NOT_TIERED:
                yield self._session.fallback.to_broker(step.partition, step.first_offset, step.last_offset, reason)
            else:
                yield step


def say_end(observe: Observer, opened: OpenPartition, stop: int) -> None:
    """Report why a read up to `stop` (exclusive) ends there, if the log may go on: see `OpenPartition.ends_at`."""
    end = opened.ends_at(stop)
    if end is not None:
        observe(end)
