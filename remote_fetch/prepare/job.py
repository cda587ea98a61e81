"""Turns the arguments of a bounded read into plans: which partitions, which offsets, which slices.

Rules of the file:

- Every error that can be known before the first record is raised here.
- A face that reads and `remote-fetch plan` use the same plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remote_fetch.errors import ConfigError
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import Notice
from remote_fetch.prepare.arguments import bounds_by_partition, choose_partitions, parse_log_starts, parse_numbers
from remote_fetch.prepare.bounds import Timestamp, resolve
from remote_fetch.prepare.planner import Planner, say_end
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.session.session import Session

__all__ = ["plan_job"]


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
    """The plans of the wanted partitions, in order. Raises the errors of planning, which `read_arrow` lists."""
    if not isinstance(topic, str) or not topic:  # None would stand for all topics
        raise ConfigError(f"topic={topic!r}: give a topic's name", key="topic")
    if session.brokers is not None:
        session.brokers.cluster.consumer(isolation)  # it connects while the locator is asked
    wanted = parse_numbers(partitions)
    chosen = choose_partitions(session.locator.partitions(topic, wanted), topic, wanted)
    numbers = [partition.partition for partition in chosen]
    starts = bounds_by_partition(start, "start", "earliest", numbers)
    ends = bounds_by_partition(end, "end", "latest", numbers)
    log_starts = parse_log_starts(log_start, numbers)
    planner = Planner(session, isolation)
    if len(log_starts) < len(numbers):
        planner.say_log_start_unknown()

    late: list[int] = []
    stops: dict[int, int] = {}

    def planned(opened: OpenPartition) -> PartitionPlan:
        number = opened.partition.partition
        first, stops[number] = resolve(opened, starts[number], ends[number], planner.first_offset_at)
        if isinstance(starts[number], Timestamp) and first >= opened.end_offset:
            late.append(number)
        return planner.plan(opened, first, stops[number])

    plans = planner.open(chosen, planned, log_starts)
    for plan in plans:
        say_end(session.observe, plan.opened, stops[plan.opened.partition.partition])
    if len(late) == len(plans):  # usual for some of the partitions, but not for all of them
        text = f"start={start} is later than every record of {topic!r}: the read begins at the end"
        session.observe(Notice(text, is_warning=True))
    return plans
