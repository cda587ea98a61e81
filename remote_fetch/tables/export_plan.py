"""Plans an export: which partitions, from which offset to which, and the tasks that read them.

Rules of the file:

- Every error that can be known before a task runs is raised here.
- A partition of which the target holds something begins where that ends. `start` is for the others.
- `tier` as the end is the end of what the tier decides. A broker's tail is read only if it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remote_fetch.errors import ConfigError, OffsetOutOfRange, Unlocatable
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import Notice, Observer, ignore
from remote_fetch.prepare.bounds import Bound, UserBound, resolve
from remote_fetch.prepare.job import Span, Wanted, find_partitions, say_if_empty
from remote_fetch.prepare.planner import Planner, say_end
from remote_fetch.prepare.refusals import refuse_broker_ranges
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.session.session import Session
from remote_fetch.tables.planning import (
    PlannedJob,
    check_same_topic,
    pass_over,
    pass_over_partitions,
    planned_job,
    tasks_of,
)
from remote_fetch.tables.progress import Progress

__all__ = ["LOSS_HINT", "TIER", "ExportBounds", "plan_export"]

LOSS_HINT = "They are lost. To go on behind them: allow_lost=True (--allow-lost)"
TIER = "tier"
"""The end of an export at the end of the tier."""


@dataclass(frozen=True, slots=True)
class ExportBounds:
    """The records of an export. The fields are the arguments of `read_arrow`; `end` may also be TIER.

    `may_lose`: offsets that the target waits for and that were deleted are passed over with a warning.
    """

    topic: str
    start: UserBound
    end: UserBound
    partitions: Iterable[int] | None
    isolation: IsolationLevel
    log_start: int | Mapping[int, int] | None
    may_lose: bool
    task_bytes: int
    config: Mapping[str, Any] = field(repr=False)

    @property
    def refusal(self) -> str | None:
        """The hint of the error about lost offsets; None: they may pass."""
        return None if self.may_lose else LOSS_HINT

    def find(self, session: Session) -> tuple[TopicIdPartition, ...]:
        """The wanted partitions. Raises UnknownTopic."""
        return find_partitions(session, self.topic, self.partitions)


def plan_export(
    bounds: ExportBounds, held: Progress | None, begun: Progress | None = None, *, observer: Observer = ignore
) -> PlannedJob:
    """The tasks of an export behind what its target holds: see `JobPlanner`."""
    with Session.open(bounds.config, observer) as session:
        chosen = bounds.find(session)
        check_same_topic(held, chosen)
        pass_over_partitions(begun, chosen, session.observe, bounds.refusal)
        reads = _Reads(session, bounds, chosen, {} if held is None else held.ends)
        plans = reads.plans()
        if session.fallback.reader is None:
            for plan, _ in plans:
                refuse_broker_ranges(plan.opened.timeline, plan.steps)
        tasks = tasks_of((plan for plan, _ in plans), session.locator.end_is_inferred, task_bytes=bounds.task_bytes)
        is_all = bounds.partitions is None
        everything = chosen if is_all else session.locator.partitions(bounds.topic)
        return planned_job(tasks, plans, everything, session.counters.report().fallbacks)


class _Reads:
    """The plans of an export's partitions. `held` has the offsets at which partitions go on."""

    def __init__(
        self, session: Session, bounds: ExportBounds, chosen: tuple[TopicIdPartition, ...], held: Mapping[int, int]
    ) -> None:
        self._session, self._bounds, self._held = session, bounds, held
        self._is_tier = bounds.end == TIER
        self._wanted = Wanted.of(chosen, bounds.start, "latest" if self._is_tier else bounds.end, bounds.log_start)
        self._planner = Planner(session, bounds.isolation)
        self._spans: list[Span] = []
        if self._is_tier and session.stepwise is not None:
            raise ConfigError(
                "end='tier' needs a list of the tier's segments, and remote.locator=broker has none",
                key="end",
                hint="Ask for end='latest', or locate segments by metadata-topic",
            )

    def plans(self) -> tuple[tuple[PartitionPlan, int], ...]:
        """The plan of each partition, and the offset at which it begins."""
        if self._wanted.has_unknown_log_start:
            self._planner.say_log_start_unknown()
        plans = self._planner.open(self._wanted.partitions, self._planned, self._wanted.log_starts)
        if self._spans and len(self._spans) == len(plans):
            self._say_if_first_run_is_empty()
        return plans

    def _say_if_first_run_is_empty(self) -> None:
        topic = self._bounds.topic
        if not self._is_tier:
            say_if_empty(self._session.observe, topic, self._wanted.given, self._spans)
        elif all(span.first >= span.stop for span in self._spans):
            hint = (
                "" if self._session.brokers is None else ". end='latest' (--end latest) reads the brokers' records too"
            )
            text = f"the tier has no record of {topic!r} from start={self._bounds.start} on{hint}"
            self._session.observe(Notice(text, is_warning=True))

    def _planned(self, opened: OpenPartition) -> tuple[PartitionPlan, int]:
        number = opened.partition.partition
        if self._is_tier:
            opened = self._with_tier(opened)
        end = opened.clip(max(opened.stable_stop, opened.first_offset)) if self._is_tier else self._wanted.ends[number]
        at = self._held.get(number)
        first, stop = self._first_read(opened, number, end) if at is None else self._next_read(opened, at, end)
        say_end(self._session.observe, opened, stop)
        return self._planner.outline(opened, first, stop), first

    def _with_tier(self, opened: OpenPartition) -> OpenPartition:
        """The partition with the end of its tier. Raises an error if that is unknown: the tier would look empty."""
        opened = self._planner.reopened(opened)
        try:
            self._session.configured_locator.check()
        except Unlocatable as error:
            through_brokers = "To read through the brokers, ask for end='latest' (--end latest)"
            raise error.at(topic=opened.partition.topic, hint=through_brokers) from error.__cause__
        return opened

    def _first_read(self, opened: OpenPartition, number: int, end: Bound) -> tuple[int, int]:
        start = self._wanted.starts[number]
        if self._is_tier and isinstance(start, int) and isinstance(end, int) and start > end:
            end = start  # the tier ends before the wanted offset: nothing to read yet
        first, stop = resolve(opened, start, end, self._planner.times.first_offset_at)
        self._spans.append(Span(start, end, first, stop, opened.end_offset))
        return first, stop

    def _next_read(self, opened: OpenPartition, at: int, end: Bound) -> tuple[int, int]:
        """The offsets behind `at`, at which the target's own ends. Raises OffsetOutOfRange if some were deleted."""
        partition = opened.partition
        where = partition.topic_partition
        if at > opened.last_start:
            raise OffsetOutOfRange(
                f"the table holds {where} up to offset {at}, and {opened.end_text}",
                topic=partition.topic,
                partition=partition.partition,
                offset=at,
                hint="The log was cut, or an open transaction hides what the table has, or the table was filled "
                "through a broker whose tail is not in the tier yet: run again later, or with bootstrap.servers (-b)",
            )
        if isinstance(end, int) and end <= at:
            return at, at  # the table holds all that is wanted, whatever became of the log since
        first = at
        if at < opened.first_offset:
            first = opened.first_offset
            pass_over(partition.topic, partition.partition, at, first, self._session.observe, self._bounds.refusal)
        _, stop = resolve(opened, opened.first_offset, end, self._planner.times.first_offset_at)
        return first, max(first, stop)
