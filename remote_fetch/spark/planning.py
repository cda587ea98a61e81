"""Turns options into tasks, on the driver. The metadata of every partition is read once.

Rules of the file:

- Segments are cut into tasks without their indexes. So planning thousands of segments takes only seconds.
- The driver raises every error that can be known before a task runs.
- Offsets that no readable segment covers get tasks that ask the broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from remote_fetch.amounts import counted
from remote_fetch.errors import ConfigError, UnknownTopic
from remote_fetch.html_table import html_table
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.observe import Observer, ignore
from remote_fetch.plan.cost import PlanCost, estimate
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.plan.shares import Slots
from remote_fetch.prepare.arguments import choose_partitions
from remote_fetch.prepare.planner import Planner, say_end
from remote_fetch.prepare.refusals import refuse_broker_ranges
from remote_fetch.prepare.subscribed import topic_names
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.session.session import Session
from remote_fetch.spark.limits import (
    FAIL_ON_DATA_LOSS_HINT,
    LimitRules,
    Restriction,
    check_batch,
    check_covered,
    offsets_from,
    offsets_of,
)
from remote_fetch.spark.options import Limit, SourceOptions, Subscription
from remote_fetch.tables.planning import (
    PlannedJob,
    check_same_topic,
    open_partitions,
    pass_over_partitions,
    planned_job,
)
from remote_fetch.tables.planning import tasks_of as shared_tasks_of
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.tasks import Task

__all__ = ["JobPlan", "plan_backfill", "plan_batch", "subscribed", "tasks_of"]

_INTERNAL = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
"""Topics that a pattern never matches, as in the Java client."""
_SHOWN_TASKS = 20
_MOST_TASK_BYTES = 256 << 20
"""A backfill's tasks grow to this if that makes fewer waves. Each takes a tenth of a second to begin and to end."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The tasks of a batch, and what they will cost. Prints as a table.

    `cost` has the GETs, the bytes of segments and the offsets of brokers: `gets`, `size_bytes`, `segments`,
    `broker_offsets`, and more.
    """

    tasks: tuple[Task, ...]
    cost: PlanCost

    def __str__(self) -> str:
        sizes = sorted(task.size_bytes for task in self.tasks)
        of_broker = sum(isinstance(step, BrokerRange) for task in self.tasks for step in task.steps)
        cost = self.cost
        lines = [
            f"{counted(len(self.tasks), 'task')}, {_mib(sizes[0])} to {_mib(sizes[-1])} each" if sizes else "no tasks",
            f"from the store: {_mib(cost.size_bytes)} of {counted(cost.segments, 'segment')} "
            f"with {counted(cost.gets, 'GET')}"
            + ("" if cost.stored_bytes is None else f" (about {_mib(cost.stored_bytes)} in the store)")
            + (f", and {counted(cost.unknown_slices, 'slice')} of unknown size" if cost.unknown_slices else ""),
            f"from the broker: {counted(cost.broker_offsets, 'offset')} in {counted(of_broker, 'range')}",
        ]
        for number, task in enumerate(self.tasks[:_SHOWN_TASKS]):
            lines += [f"  {number:4d} {_mib(task.size_bytes):>10}  {line}" for line in str(task).splitlines()]
        if len(self.tasks) > _SHOWN_TASKS:
            lines.append(f"  ... and {len(self.tasks) - _SHOWN_TASKS} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The plan as a notebook shows it: a row for each task, up to a number."""
        rows = ((number, _mib(task.size_bytes), str(task)) for number, task in enumerate(self.tasks))
        summary = "\n".join(line for line in str(self).splitlines() if not line.startswith(" "))
        return html_table(summary, ("task", "size", "steps"), rows, len(self.tasks))


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"


def plan_batch(
    options: SourceOptions, *, restriction: Restriction | None = None, observer: Observer = ignore
) -> JobPlan:
    """The tasks of a batch read. Raises what options, offsets and planning find wrong."""
    start, end = check_batch(options)
    with Session.open(options.config, observer) as session:
        range_bytes = session.config.settings.range_bytes
        partitions = subscribed(session, options.subscription)
        plans = tuple(_plans(session, options, partitions, start, end, restriction or Restriction()))
        tasks = tasks_of((plan for plan, _ in plans), options, session.locator.end_is_inferred)
        return JobPlan(tasks, estimate((task.steps for task in tasks), range_bytes, session.stored_size))


def plan_backfill(
    options: SourceOptions, at_once: Callable[[], int | None], held: Progress | None, begun: Progress | None = None
) -> PlannedJob:
    """The tasks of a backfill of one topic, behind what its target holds: see `JobPlanner`.

    `at_once` tells how many tasks Spark runs at the same time; None or 0: unknown.
    """
    start, end = check_batch(options)
    with Session.open(options.config) as session:
        partitions = subscribed(session, options.subscription)
        check_same_topic(held, partitions)
        refusal = FAIL_ON_DATA_LOSS_HINT if options.fail_on_data_loss else None
        pass_over_partitions(begun, partitions, session.observe, refusal)
        plans = tuple(
            _plans(session, options, partitions, start, end, Restriction(), {} if held is None else held.ends)
        )
        count = at_once()
        most_bytes = 0 if "fetch.remote.task.bytes" in options.given else _MOST_TASK_BYTES
        slots = Slots(count, most_bytes) if count else None
        tasks = tasks_of((plan for plan, _ in plans), options, session.locator.end_is_inferred, slots)
        return planned_job(tasks, plans, partitions, session.counters.report().fallbacks)


def tasks_of(
    plans: Iterable[PartitionPlan],
    options: SourceOptions,
    end_is_inferred: Callable[[RemoteLogSegmentMetadata], bool],
    slots: Slots | None = None,
) -> tuple[Task, ...]:
    """Outlined plans as tasks of even size, by the options on how large or how many they are to be."""
    return shared_tasks_of(
        plans,
        end_is_inferred,
        task_bytes=options.task_bytes,
        min_tasks=options.min_partitions,
        max_offsets=options.max_records_per_partition,
        slots=slots,
    )


def _plans(
    session: Session,
    options: SourceOptions,
    partitions: Sequence[TopicIdPartition],
    start: Limit,
    end: Limit,
    wanted: Restriction,
    held: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[tuple[PartitionPlan, int]]:
    """The plan of each partition, and the offset at which it begins. Partitions in `held` begin there."""
    rules = LimitRules(options.latest_if_unmatched, options.fail_on_data_loss)
    names = {(partition.topic, partition.partition) for partition in partitions}
    check_covered(start, names, "startingOffsets")
    check_covered(end, names, "endingOffsets")
    chosen = [partition for partition in partitions if wanted.takes(partition.partition)]
    planner = Planner(session, options.isolation)
    for opened in open_partitions(planner, chosen):
        at = held.get(opened.partition.partition)
        if at is None:
            first, stop = offsets_of(planner, opened, start, end, rules)
        else:
            first, stop = offsets_from(planner, opened, at, end, rules)
        if wanted.since_ms is not None and first < stop:
            first = min(max(first, planner.times.least_offset_at(opened, wanted.since_ms)), stop)
        first, stop = max(first, wanted.first_offset), min(stop, wanted.stop_offset)
        say_end(planner.observe, opened, stop)
        plan = planner.outline(opened, first, stop)
        if session.fallback.reader is None:
            refuse_broker_ranges(opened.timeline, plan.steps)
        yield plan, first


def subscribed(session: Session, subscription: Subscription) -> tuple[TopicIdPartition, ...]:
    """The partitions that are read, by topic. Raises UnknownTopic for a topic or partition that is not there."""
    topics = subscription.topics
    if subscription.pattern is not None:
        topics = tuple(_matching(session, subscription.pattern))
    found: list[TopicIdPartition] = []
    for topic in topics:
        assigned = None if subscription.partitions is None else sorted(set(subscription.partitions[topic]))
        try:
            partitions = session.locator.partitions(topic, assigned)
        except UnknownTopic:
            if subscription.pattern is None or session.brokers is None:
                raise
            continue  # it was deleted after the brokers had named it
        found += choose_partitions(partitions, topic, assigned)
    return tuple(found)


def _matching(session: Session, pattern: str) -> Iterator[str]:
    if _is_other_in_java(pattern):
        raise ConfigError(
            f"subscribePattern '{pattern}' has [ or && inside of brackets, which Java reads as classes of characters, "
            "and Python as characters",
            key="pattern",
            hint="Write one class without them, or put a backslash before a character",
        )
    try:
        found_in = re.compile(pattern).search
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"subscribePattern '{pattern}' is no regular expression: {error}", key="pattern") from None
    names = topic_names(session.brokers, session.locator)
    return (name for name in names if name not in _INTERNAL and found_in(name))


def _is_other_in_java(pattern: str) -> bool:
    """Whether a class of characters holds a class, or an intersection of classes, if Java reads it.

    Python takes the same signs for characters, so that it finds other topics than Spark's own source.
    """
    classes = re.findall(r"\[\^?(\]?[^\]]*)", re.sub(r"\\.", "x", pattern))
    return any("[" in inside or "&&" in inside for inside in classes)
