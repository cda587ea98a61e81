"""A bounded read from its arguments to its plans: which partitions, which offsets, which slices.

Rules of the file: everything that can be refused is refused here, before the first record; the same plans serve a
reading face and `remote-fetch plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from remote_fetch.errors import ConfigError, RemoteFetchError, UnknownTopic
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.observe import Fallback, Notice
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, plan_offsets
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.read.at_once import TIMEOUT_MS, threads_of
from remote_fetch.read.bounds import Bound, Timestamp, parse_bound, resolve
from remote_fetch.read.partition import OpenPartition, narrow_edges, open_partition, untiered
from remote_fetch.read.scan import PartitionPlan
from remote_fetch.read.session import Session
from remote_fetch.read.transactions import Replan, settle, settle_steps

__all__ = ["outline_stretch", "parse_isolation", "plan_job", "plan_stretch", "say_end", "with_open", "with_reason"]

T = TypeVar("T")


def parse_isolation(value: object) -> IsolationLevel:
    """`isolation.level` as Kafka spells it. Raises ConfigError."""
    try:
        return IsolationLevel(str(value))
    except ValueError:
        raise ConfigError(
            f"isolation={value!r}: choose {' or '.join(level.value for level in IsolationLevel)}", key="isolation"
        ) from None


def plan_job(
    session: Session,
    topic: str,
    *,
    start: Any,
    end: Any,
    partitions: Iterable[int] | None,
    isolation: IsolationLevel,
    log_start: int | Mapping[int, int] | None = None,
) -> tuple[PartitionPlan, ...]:
    """The plans of the wanted partitions, in order. Raises what planning finds wrong: see `read_arrow`."""
    if not isinstance(topic, str) or not topic:  # None would be all of them
        raise ConfigError(f"topic={topic!r}: give a topic's name", key="topic")
    if session.cluster is not None:
        session.cluster.consumer(isolation)  # so that it connects meanwhile
    wanted = _numbers(partitions)
    chosen = _choose(session.locator.partitions(topic, wanted), topic, wanted)
    numbers = [partition.partition for partition in chosen]
    starts = _by_partition(start, "start", "earliest", numbers)
    ends = _by_partition(end, "end", "latest", numbers)
    log_starts = _log_starts(log_start, numbers)
    if session.cluster is None and len(log_starts) < len(numbers):
        session.observe(
            Notice("log start unknown: the bucket alone does not tell which records were deleted before its segments")
        )

    late: list[int] = []
    stops: dict[int, int] = {}

    def planned(opened: OpenPartition) -> PartitionPlan:
        number = opened.partition.partition
        first, stop = resolve(session, opened, starts[number], ends[number])
        if isinstance(starts[number], Timestamp) and first >= opened.end_offset:
            late.append(number)
        stop = stop if opened.log.end_offset is None else min(stop, opened.log.end_offset)
        stops[number] = stop
        return with_reason(session, plan_stretch(session, opened, first, stop))

    plans = with_open(session, chosen, isolation, planned, log_starts)
    for plan in plans:
        say_end(session, plan.opened, stops[plan.opened.partition.partition])
    if len(late) == len(plans):  # of some partitions alone it is usual
        text = f"start={start} is later than every record of {topic!r}: the read begins at the end"
        session.observe(Notice(text, is_warning=True))
    return plans


def with_open(
    session: Session,
    partitions: Sequence[TopicIdPartition],
    isolation: IsolationLevel,
    make: Callable[[OpenPartition], T],
    log_starts: Mapping[int, int] | None = None,
) -> tuple[T, ...]:
    """What `make` makes of each of these partitions of one topic; what cannot be opened counts as not tiered.

    Each takes questions to brokers and small GETs one after the other, so several are made ready at once, in threads.
    `log_starts` are those that the user knows better. Raises, without a broker, what `open_partition` raises, and
    with one the broker's own errors.
    """
    with threads_of(session) as pool:
        local = pool.submit(partial(session.local_starts, partitions))
        if session.guard is not None and partitions:
            session.guard.authorise(partitions[0])  # once for all of them

        def made(one: TopicIdPartition) -> T:
            opened = _open(session, one, isolation, (log_starts or {}).get(one.partition))
            return make(replace(opened, local_start=local.wait(TIMEOUT_MS).get(one)))

        calls = [pool.submit(partial(made, one)) for one in partitions]
        return tuple(call.wait(TIMEOUT_MS) for call in calls)


def say_end(session: Session, opened: OpenPartition, stop: int) -> None:
    """Say why a read up to `stop` (exclusive) ends there, where the log may go on: see `OpenPartition.ends_at`."""
    end = opened.ends_at(stop)
    if end is not None:
        session.observe(end)


def with_reason(session: Session, plan: PartitionPlan) -> PartitionPlan:
    """The plan with the reason why nothing was found in the tier, where that is not that nothing is there."""
    reason = session.unlocated
    if reason is None:
        return plan
    steps: list[PlanStep] = []
    for step in plan.steps:
        if isinstance(step, BrokerRange) and step.reason == Reason.NOT_TIERED:
            session.observe(Fallback(step.partition, step.first_offset, step.last_offset, reason))
            steps.append(replace(step, reason=reason))
        else:
            steps.append(step)
    return replace(plan, steps=tuple(steps))


def _log_bounds(
    session: Session, partition: TopicIdPartition, isolation: IsolationLevel, log_start: int | None
) -> LogBounds:
    """The ends of the log, from the broker where there is one; before that, whether we may read it at all."""
    if session.guard is None:
        return LogBounds(log_start)
    session.guard.authorise(partition)
    told = session.guard.bounds(partition, isolation)
    return LogBounds(max(told.log_start_offset or 0, log_start or 0), told.end_offset)


def _open(
    session: Session, partition: TopicIdPartition, isolation: IsolationLevel, log_start: int | None
) -> OpenPartition:
    log = _log_bounds(session, partition, isolation, log_start)
    try:
        return open_partition(session, partition, isolation, log)
    except RemoteFetchError as error:
        if session.broker is None or not error.falls_back:
            raise
        session.observe(
            Fallback(partition, log.log_start_offset or 0, (log.end_offset or 1) - 1, error.kind, str(error))
        )
        session.surveyor.explain(error.kind)
        return untiered(partition, isolation, log)


def plan_stretch(session: Session, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
    """How offsets [first, stop) of one partition are read. What cannot be planned is the session's broker's.

    Raises, where the session has no broker, what planning finds wrong: CorruptSegment, Unlocatable, a fetcher's errors.
    """

    def plan() -> PartitionPlan:
        if opened.isolation is IsolationLevel.READ_UNCOMMITTED:
            steps = plan_offsets(opened.partition, opened, first, stop)
            return PartitionPlan(opened, narrow_edges(session, steps), None)
        settled, steps, aborted = settle(session, opened, _stable(first, stop))
        return PartitionPlan(settled, narrow_edges(session, steps), aborted)

    return _or_broker(session, opened, first, stop, plan)


def outline_stretch(session: Session, opened: OpenPartition, first: int, stop: int) -> PartitionPlan:
    """As `plan_stretch`, without what those who read the slices can find out themselves: no index is read here.

    Slices have no byte positions, and `aborted` is None. Under read_committed a few producer snapshots are read, to see
    up to where transactions are decided; of a listing's segments all those of which the end is a guess.
    """

    def plan() -> PartitionPlan:
        if opened.isolation is IsolationLevel.READ_UNCOMMITTED:
            return PartitionPlan(opened, plan_offsets(opened.partition, opened, first, stop), None)
        return PartitionPlan(*settle_steps(session, opened, _stable(first, stop)), None)

    return _or_broker(session, opened, first, stop, plan)


def _stable(first: int, stop: int) -> Replan:
    def replan(now: OpenPartition) -> tuple[PlanStep, ...]:
        return plan_offsets(now.partition, now, first, stop, stable_stop=now.stable_stop)

    return replan


def _or_broker(
    session: Session, opened: OpenPartition, first: int, stop: int, plan: Callable[[], PartitionPlan]
) -> PartitionPlan:
    """The plan, or one that leaves all of it to the session's broker."""
    try:
        return plan()
    except RemoteFetchError as error:
        if session.broker is None or not error.falls_back:
            raise
        session.observe(Fallback(opened.partition, first, stop - 1, error.kind, str(error)))
        session.surveyor.explain(error.kind)
        steps = (BrokerRange(opened.partition, first, stop - 1, error.kind),) if first < stop else ()
        return PartitionPlan(opened, steps, AbortedIntervals.of(()))


def _numbers(wanted: Iterable[int] | None) -> list[int] | None:
    if wanted is None:
        return None
    if not _are_numbers(wanted):
        raise ConfigError(f"partitions={wanted!r}: give partition numbers", key="partitions")
    return sorted(set(wanted))


def _choose(
    found: tuple[TopicIdPartition, ...], topic: str, numbers: Sequence[int] | None
) -> tuple[TopicIdPartition, ...]:
    if numbers is None:
        return found
    known = {partition.partition: partition for partition in found}
    missing = [number for number in numbers if number not in known]
    if missing:
        raise UnknownTopic(
            f"topic {topic!r} has no tiered partition {', '.join(map(str, missing))}; "
            f"there are {', '.join(map(str, known))}"
        )
    return tuple(known[number] for number in numbers)


def _by_partition(value: Any, name: str, default: str, numbers: Iterable[int]) -> dict[int, Bound]:
    """A bound for each partition; a mapping may leave partitions out, which then get the default."""
    if not isinstance(value, Mapping):
        bound = parse_bound(value, name)
        return dict.fromkeys(numbers, bound)
    known = set(numbers)
    strangers = [key for key in value if key not in known]
    if strangers:
        raise ConfigError(f"{name} names partitions that are not read: {strangers}", key=name)
    return {number: parse_bound(value.get(number, default), f"{name}[{number}]") for number in known}


def _log_starts(value: int | Mapping[int, int] | None, numbers: Collection[int]) -> dict[int, int]:
    if value is None:
        return {}
    starts = dict(value) if isinstance(value, Mapping) else dict.fromkeys(numbers, value)
    strangers = [number for number in starts if number not in numbers]
    if strangers:
        raise ConfigError(f"log_start names partitions that are not read: {strangers}", key="log_start")
    for number, offset in starts.items():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise ConfigError(f"log_start of partition {number} is {offset!r}: give an offset", key="log_start")
    return starts


def _are_numbers(wanted: object) -> bool:
    return isinstance(wanted, Collection) and all(
        isinstance(number, int) and not isinstance(number, bool) for number in wanted
    )
