"""Turns the arguments of a bounded read into plans: which partitions, which offsets, which slices.

Rules of the file:

- Every error that can be known before the first record is raised here.
- A face that reads and `remote-fetch plan` use the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import Notice, Observer, ReadPlanned
from remote_fetch.prepare.arguments import (
    bounds_by_partition,
    check_topic,
    choose_partitions,
    parse_log_starts,
    parse_numbers,
)
from remote_fetch.prepare.bounds import Bound, Timestamp, UserBound, resolve
from remote_fetch.prepare.planner import Planner, say_end
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.session.session import Session

__all__ = ["Span", "Wanted", "find_partitions", "plan_job", "plan_wanted", "planned_read", "say_if_empty"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The partitions of a bounded read, and by their numbers its bounds and the log start offsets that are known.

    `given` are the start and the end as the user gave them.
    """

    partitions: tuple[TopicIdPartition, ...]
    given: tuple[UserBound, UserBound]
    starts: Mapping[int, Bound]
    ends: Mapping[int, Bound]
    log_starts: Mapping[int, int]

    @classmethod
    def of(
        cls,
        partitions: tuple[TopicIdPartition, ...],
        start: UserBound,
        end: UserBound,
        log_start: int | Mapping[int, int] | None,
    ) -> Wanted:
        """Check the arguments of `read_arrow` with these names. Raises ConfigError for a wrong one."""
        numbers = [partition.partition for partition in partitions]
        return cls(
            partitions,
            (start, end),
            bounds_by_partition(start, "start", "earliest", numbers),
            bounds_by_partition(end, "end", "latest", numbers),
            parse_log_starts(log_start, numbers),
        )

    @property
    def has_unknown_log_start(self) -> bool:
        """Whether the user does not give the log start offset of each partition."""
        return len(self.log_starts) < len(self.partitions)


def find_partitions(session: Session, topic: str, numbers: Iterable[int] | None) -> tuple[TopicIdPartition, ...]:
    """Ask the locator for the partitions with these numbers. None: for all of the topic.

    Raises UnknownTopic, and ConfigError for what is no number of a partition.
    """
    wanted = parse_numbers(numbers)
    return choose_partitions(session.locator.partitions(topic, wanted), topic, wanted)


def plan_job(
    session: Session,
    topic: str,
    *,
    start: UserBound,
    end: UserBound,
    partitions: Iterable[int] | None,
    isolation: IsolationLevel,
    log_start: int | Mapping[int, int] | None = None,
) -> tuple[PartitionPlan, ...]:
    """The plans of the wanted partitions, in order. Raises the errors of planning, which `read_arrow` lists."""
    check_topic(topic)
    wanted = Wanted.of(find_partitions(session, topic, partitions), start, end, log_start)
    planner = Planner(session, isolation)
    plans = plan_wanted(planner, wanted, wanted.partitions, planner.plan)
    session.observe(planned_read(plans))
    return plans


def plan_wanted(
    planner: Planner,
    wanted: Wanted,
    chosen: Sequence[TopicIdPartition],
    make: Callable[[OpenPartition, int, int], PartitionPlan],
) -> tuple[PartitionPlan, ...]:
    """The plans of the `chosen` partitions among the wanted ones, in order. Reports what the bounds mean.

    `make` plans the offsets [first, stop) of a partition. Raises the errors of planning.
    """
    if wanted.has_unknown_log_start:
        planner.say_log_start_unknown()
    spans: list[Span] = []
    stops: dict[int, int] = {}

    def planned(opened: OpenPartition) -> PartitionPlan:
        number = opened.partition.partition
        start, end = wanted.starts[number], wanted.ends[number]
        first, stops[number] = resolve(opened, start, end, planner.times.first_offset_at)
        spans.append(Span(start, end, first, stops[number], opened.end_offset))
        return make(opened, first, stops[number])

    plans = planner.open(chosen, planned, wanted.log_starts)
    for plan in plans:
        say_end(planner.observe, plan.opened, stops[plan.opened.partition.partition])
    if spans and len(spans) == len(wanted.partitions):
        say_if_empty(planner.observe, chosen[0].topic, wanted.given, spans)
    return plans


class Span(NamedTuple):
    """The bounds of a partition, the offsets [first, stop) that they come to, and the end of what can be read."""

    start: Bound
    end: Bound
    first: int
    stop: int
    end_offset: int


def say_if_empty(observe: Observer, topic: str, given: tuple[UserBound, UserBound], spans: Collection[Span]) -> None:
    """Report why times leave nothing to read in any partition. Offsets that do so are what the user asked for."""
    has_time = any(isinstance(bound, Timestamp) for span in spans for bound in (span.start, span.end))
    if not has_time or any(span.first < span.stop for span in spans):
        return
    start, end = given
    if all(isinstance(span.start, Timestamp) and span.first >= span.end_offset for span in spans):
        text = f"start={start} is later than every record of {topic!r}: the read begins at the end"
    else:
        text = f"start={start} and end={end} leave no record of {topic!r} to read"
    observe(Notice(text, is_warning=True))


def planned_read(plans: Iterable[PartitionPlan]) -> ReadPlanned:
    """The event of a read of these plans."""
    planned = [plan for plan in plans if plan.steps]
    return ReadPlanned(
        {plan.opened.partition: (plan.steps[0].first_offset, plan.steps[-1].stop_offset) for plan in planned}
    )
