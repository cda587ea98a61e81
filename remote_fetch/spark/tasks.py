"""A task: what a worker is told to read, and all that it needs to know for it; pickled, and a few kilobytes.

Rules of the file: pure; a task holds metadata, never data, configuration or credentials; of a partition's segments it
has those it reads, the other copies of their offsets, and the next few, in which the markers of transactions may lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.plan.shares import Share
from remote_fetch.read.partition import OpenPartition
from remote_fetch.read.session import Planned

__all__ = ["Task", "TaskPart", "pack"]

_FOLLOWERS = 2
"""How many segments after the last one a task knows; transactions that span more are rare, and then asked for."""


@dataclass(frozen=True, slots=True)
class TaskPart:
    """Steps of one partition. `opened` has as much of the partition as they need."""

    opened: OpenPartition
    steps: tuple[PlanStep, ...]

    def __str__(self) -> str:
        partition = self.opened.partition
        return f"{partition.topic}-{partition.partition}: " + "; ".join(map(str, self.steps))


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker reads, in order. `size_bytes` is what is expected to come from the store or a broker."""

    parts: tuple[TaskPart, ...]
    inferred: frozenset[RemoteLogSegmentId]
    size_bytes: int

    @property
    def planned(self) -> Planned:
        """What a session that reads the task need not find out."""
        opened = [part.opened for part in self.parts]
        starts = {one.partition: one.log.log_start_offset for one in opened}
        return Planned(
            tuple(one.timeline for one in opened),
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


def _needed(opened: OpenPartition, steps: Iterable[PlanStep]) -> OpenPartition:
    slices = [step for step in steps if isinstance(step, SegmentSlice)]
    if not slices:
        return replace(opened, timeline=Timeline(opened.partition, (), ()), lineage=Lineage.unknown())
    first, last = slices[0].first_offset, max(step.segment.end_offset for step in slices)
    if opened.isolation is IsolationLevel.READ_COMMITTED:
        for _ in range(_FOLLOWERS):
            following = opened.tiered(last + 1)
            if following is not None:
                last = following.end_offset
    return replace(opened, timeline=opened.timeline.within(first, last), lineage=opened.lineage.within(first, last + 1))
