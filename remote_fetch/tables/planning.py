"""Plans as tasks of even size, and the partitions that are opened for them. Every job is planned with these.

Rules of the file:

- A plan is outlined: no index is read for it.
- Every offset of the plans is in exactly one task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from remote_fetch.errors import OffsetOutOfRange, TopicRecreated
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.observe import Notice, Observer
from remote_fetch.plan.saved import dump_plan
from remote_fetch.plan.shares import Slots, share_out
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.tasks import Task, pack

__all__ = [
    "PlannedJob",
    "check_same_topic",
    "divided",
    "open_partitions",
    "pass_over",
    "pass_over_partitions",
    "planned_job",
    "tasks_of",
]


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """The tasks of a job. `reads` has the offsets of all of them, `partitions` the topic's partitions.

    - `fallbacks` counts, by reason, the stretches that planning left to the brokers because it failed to find them in
      the store. A plan that was saved does not tell them.
    - `outdated` has the numbers of those tasks of a saved plan that have to be planned again before they can be read.
    - `has_parted`: the log has lost offsets of a saved plan, and finished tasks may have records that it lost.
    - `notices` are sentences on the plan for the report.
    """

    tasks: tuple[Task, ...]
    reads: Progress
    partitions: tuple[int, ...]
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    outdated: frozenset[int] = frozenset()
    has_parted: bool = False
    notices: tuple[str, ...] = ()

    @property
    def begun(self) -> Progress:
        """The progress of a target for which the job begins where it does."""
        return replace(self.reads, ranges={number: (first, first) for number, (first, _) in self.reads.ranges.items()})

    @property
    def key(self) -> str:
        """A name of the plan: two plans of the same key have the same tasks."""
        steps = "".join(dump_plan(task.steps) for task in self.tasks)
        return hashlib.sha256(steps.encode("utf-8")).hexdigest()[:12]


def check_same_topic(held: Progress | None, partitions: Sequence[TopicIdPartition]) -> None:
    """Raise TopicRecreated if what is held comes from another topic than the one that has these partitions now."""
    if held is None or not partitions or held.topic_id == str(partitions[0].topic_id):
        return
    name, now = partitions[0].topic, partitions[0].topic_id
    raise TopicRecreated(
        f"the table holds topic {name!r} with the id {held.topic_id}, and the topic has the id {now}: it was deleted "
        "and created again, and its offsets begin with 0",
        topic=name,
        hint="Write the new topic to another table",
    )


def pass_over(topic: str, number: int, first: int, stop: int, observe: Observer, refusal: str | None) -> None:
    """Report that offsets [first, stop) of a partition are lost. Raises OffsetOutOfRange with the hint `refusal`.

    `refusal` None: they may pass.
    """
    lost = f"{topic}-{number}: offsets {first} to {stop - 1} were deleted before they were exported"
    if refusal is not None:
        raise OffsetOutOfRange(lost, topic=topic, partition=number, offset=first, hint=refusal)
    observe(Notice(lost, is_warning=True))


def pass_over_partitions(
    begun: Progress | None, found: Sequence[TopicIdPartition], observe: Observer, refusal: str | None
) -> None:
    """As `pass_over`, for the offsets of a job that was begun, in partitions that are not found any more.

    A bucket alone does not show a partition of which all objects were deleted.
    """
    if begun is None:
        return
    here = {partition.partition for partition in found}
    for number, (first, stop) in sorted(begun.ranges.items()):
        if first < stop and number not in here:
            pass_over(begun.topic, number, first, stop, observe, refusal)


def open_partitions(planner: Planner, partitions: Iterable[TopicIdPartition]) -> Iterator[OpenPartition]:
    """The partitions made ready, topic by topic. They come from the planner's session."""
    planner.say_log_start_unknown()
    for _, group in groupby(partitions, key=lambda partition: partition.topic_id):
        yield from planner.open(list(group), lambda opened: opened)


def _range_of(plan: PartitionPlan, first: int) -> tuple[int, int]:
    """The offsets [first, stop) that a plan reads, which begins at `first`."""
    return first, max((step.stop_offset for step in plan.steps), default=first)


def planned_job(
    tasks: tuple[Task, ...],
    plans: Sequence[tuple[PartitionPlan, int]],
    partitions: Sequence[TopicIdPartition],
    fallbacks: Mapping[str, int],
) -> PlannedJob:
    """A job of one topic, which has `partitions`. `plans` has each plan with the offset at which it begins."""
    topic = partitions[0]
    ranges = {plan.opened.partition.partition: _range_of(plan, first) for plan, first in plans}
    reads = Progress(topic.topic, str(topic.topic_id), ranges)
    return PlannedJob(tasks, reads, tuple(partition.partition for partition in partitions), fallbacks)


def tasks_of(
    plans: Iterable[PartitionPlan],
    end_is_inferred: Callable[[RemoteLogSegmentMetadata], bool],
    *,
    task_bytes: int,
    min_tasks: int = 1,
    max_offsets: int | None = None,
    slots: Slots | None = None,
) -> tuple[Task, ...]:
    """Outlined plans as tasks of about `task_bytes`, at least `min_tasks`, of at most `max_offsets` offsets each.

    `slots`: as many tasks as run at once, or a multiple of them.
    """
    known = [plan for plan in plans if plan.steps]
    opened = [divided(plan.opened, takes_store=plan.takes_store) for plan in known]
    steps = [plan.steps for plan in known]
    shares = share_out(steps, task_bytes, min_shares=min_tasks, max_offsets=max_offsets, slots=slots)
    return tuple(pack(share, opened, end_is_inferred) for share in shares)


def divided(opened: OpenPartition, *, takes_store: bool) -> OpenPartition:
    """The partition as tasks need it that read it apart. `takes_store`: any of them reads it from the store."""
    return replace(opened, known_txn_index_from=opened.tells_txn_index_from, is_divided=takes_store)
