"""A task: the steps that a worker reads, and all metadata that it needs for them; a few kilobytes when pickled.

Rules of the file:

- Pure.
- A task holds metadata, never data, configuration or credentials.
- Of a partition's segments it has those that it reads, the other copies of their offsets, and the next one, which
  tells that the tier goes on. If markers of transactions are wanted, it has the next two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from remote_fetch.model import IsolationLevel, RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import PlanStep, slices_of
from remote_fetch.plan.shares import Share
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.session.configured_locator import Planned

__all__ = ["Task", "TaskPart", "pack"]

_FOLLOWERS = 2
"""The number of segments after the last one that a task has; longer transactions are rare and are looked up."""


@dataclass(frozen=True, slots=True)
class TaskPart:
    """Steps of one partition. `opened` has the part of the partition's metadata that they need."""

    opened: OpenPartition
    steps: tuple[PlanStep, ...]

    def __str__(self) -> str:
        partition = self.opened.partition
        return f"{partition.topic_partition}: " + "; ".join(map(str, self.steps))


@dataclass(frozen=True, slots=True)
class Task:
    """The steps of one worker, in order. `size_bytes` is the expected size, from the store and the broker."""

    parts: tuple[TaskPart, ...]
    inferred: frozenset[RemoteLogSegmentId]
    size_bytes: int

    @property
    def planned(self) -> Planned:
        """The metadata that a session which reads the task need not look up."""
        starts = {part.opened.partition: part.opened.log.log_start_offset for part in self.parts}
        return Planned(
            tuple(part.opened.timeline for part in self.parts),
            self.inferred,
            {partition: start for partition, start in starts.items() if start is not None},
        )

    @property
    def steps(self) -> tuple[PlanStep, ...]:
        """The steps of all partitions."""
        return tuple(step for part in self.parts for step in part.steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))


def pack(share: Share, plans: Sequence[OpenPartition], is_inferred: Callable[[RemoteLogSegmentMetadata], bool]) -> Task:
    """The task that reads a share; its steps are numbered by `plans`. `is_inferred`: a segment's end is a guess."""
    parts = []
    for number, steps in groupby(share.steps, key=itemgetter(0)):
        wanted = tuple(step for _, step in steps)
        parts.append(TaskPart(_needed(plans[number], wanted), wanted))
    segments = [segment for part in parts for segment in part.opened.timeline.segments]
    inferred = frozenset(segment.segment_id for segment in segments if is_inferred(segment))
    return Task(tuple(parts), inferred, share.size_bytes)


def _needed(opened: OpenPartition, steps: Sequence[PlanStep]) -> OpenPartition:
    slices = slices_of(steps)
    if not slices:
        return opened.within(steps[0].first_offset, steps[-1].last_offset).without_segments()
    first, last = slices[0].first_offset, max(step.segment.end_offset for step in slices)
    for _ in range(_FOLLOWERS if opened.isolation is IsolationLevel.READ_COMMITTED else 1):
        following = opened.tiered(last + 1)
        if following is not None:
            last = following.end_offset
    return opened.within(first, last)
