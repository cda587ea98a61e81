"""A job's tasks as text and back, so that a driver that resumes the job reads the same shares.

Rules of the file:

- Saved are the bytes and offsets that each task reads.
- Everything else is looked up again, as it may have changed: segments are deleted, the log start moves. So a task
  may be outdated.
- A share of a topic that was deleted and created again is refused.
- A partition that a slice reads is opened, or the error is raised: without it, a slice is not compared with the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    EpochMismatch,
    RemoteFetchError,
    TopicRecreated,
    Unlocatable,
    UnsupportedFormat,
)
from remote_fetch.failures.file_errors import MISSHAPEN
from remote_fetch.model import IsolationLevel, LogBounds, RemoteLogSegmentId, TopicIdPartition
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.plan.saved import dump_plan, load_plan
from remote_fetch.plan.shares import Share
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import OpenPartition, untiered
from remote_fetch.session.session import Session
from remote_fetch.tables.job_records import checked, with_checksum
from remote_fetch.tables.planning import PlannedJob, divided, open_partitions
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.tasks import Task, pack

__all__ = ["Reading", "base_of", "dump_job", "load_job"]

_VERSION = 2
_AGAIN = "remove {}: the job is then begun again"
_HINT = f"If that lasts, {_AGAIN}"
_DAMAGED = f"To go on, {_AGAIN}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a job reads: the session's configuration, the isolation level, and which partitions `find` finds."""

    config: Mapping[str, Any] = field(repr=False)
    isolation: IsolationLevel
    find: Callable[[Session], tuple[TopicIdPartition, ...]]


def dump_job(job: PlannedJob, fingerprint: str, base: Progress | None = None) -> str:
    """A job as JSON. `fingerprint` identifies its arguments. `base` is what the target held when it was planned."""
    tasks = [{"size_bytes": task.size_bytes, "plan": dump_plan(task.steps)} for task in job.tasks]
    head = {"version": _VERSION, "fingerprint": fingerprint, "reads": job.reads.dump()}
    return with_checksum({**head, "partitions": job.partitions, "base": _ends(base), "tasks": tasks})


def base_of(text: str, topic: str) -> dict[int, int] | None:
    """The ends of `base` that `dump_job` was given, by partition, for all that the job reads.

    A partition of which nothing was held has the end -1. None: another text, or a job that reads another topic.
    """
    try:
        saved: Any = json.loads(text)
        reads, ends = Progress.load(saved["reads"]), saved["base"]
        return {number: int(ends.get(str(number), -1)) for number in reads.ranges} if reads.topic == topic else None
    except (*MISSHAPEN, CorruptSegment):
        return None


def _ends(base: Progress | None) -> dict[str, int]:
    return {} if base is None else {str(number): end for number, end in base.ends.items()}


def load_job(text: str, reading: Reading, place: str) -> tuple[str, PlannedJob]:
    """The fingerprint and the job that `dump_job` was given. `place` is the folder of the text, for messages.

    Raises UnsupportedFormat for another version, CorruptSegment for any other text, TopicRecreated if a topic
    was deleted and created again, and the errors of finding a topic's segments and of opening a partition.
    """
    try:
        saved: Any = json.loads(text)
        version = saved["version"]
        if version != _VERSION:
            raise UnsupportedFormat(
                f"saved tasks of version {version!r}; version {_VERSION} is known",
                hint=f"Finish the job with the release that began it, or remove {place} to begin it again",
            )
        checked(saved)
        plans = [(load_plan(task["plan"]), int(task["size_bytes"])) for task in saved["tasks"]]
        fingerprint, reads = str(saved["fingerprint"]), Progress.load(saved["reads"])
        partitions = tuple(map(int, saved["partitions"]))
    except MISSHAPEN as error:
        what = f"not a saved-tasks file: {type(error).__name__}: {error}"
        raise CorruptSegment(what, hint=_DAMAGED.format(place)) from None
    except RemoteFetchError as error:
        raise error.at(hint=_DAMAGED.format(place)) from None
    if not plans:
        return fingerprint, PlannedJob((), reads, partitions)
    tasks, outdated, has_parted = _packed(plans, reading, place)
    return fingerprint, PlannedJob(tasks, reads, partitions, outdated=outdated, has_parted=has_parted)


def _packed(
    plans: Sequence[tuple[tuple[PlanStep, ...], int]], reading: Reading, place: str
) -> tuple[tuple[Task, ...], frozenset[int], bool]:
    """The tasks, the numbers of those that are outdated, and whether the log has parted from any of them."""
    with Session.open(reading.config) as session:
        planner = Planner(session, reading.isolation)
        stored = {step.partition for steps, _ in plans for step in steps if isinstance(step, SegmentSlice)}
        found = open_partitions(planner, reading.find(session))
        again = (_reopened(planner, opened, place) if opened.partition in stored else opened for opened in found)
        partitions = [divided(opened, takes_store=opened.partition in stored) for opened in again]
        if stored:
            _check_located(session, place)
        wanted = {step.partition for steps, _ in plans for step in steps}
        gone = _gone_partitions(wanted, [opened.partition for opened in partitions], place)
        partitions += [untiered(partition, reading.isolation, LogBounds()) for partition in gone]
        numbers = {opened.partition: number for number, opened in enumerate(partitions)}
        has_broker = session.fallback.reader is not None
        known = {segment.segment_id for opened in partitions for segment in opened.timeline.segments}
        tasks: list[Task] = []
        outdated: set[int] = set()
        has_parted = False
        for steps, size_bytes in plans:
            numbered = tuple((numbers[step.partition], step) for step in steps)
            has_parted |= any(_has_parted(partitions[number], step) for number, step in numbered)
            is_outdated = session.stepwise is None and any(
                _is_gone(step, known) and _is_outdated(partitions[number], step, has_broker)
                for number, step in numbered
            )
            if is_outdated or any(step.partition in gone for step in steps):
                outdated.add(len(tasks))
            tasks.append(pack(Share(numbered, size_bytes), partitions, session.locator.end_is_inferred))
        return tuple(tasks), frozenset(outdated), has_parted


def _check_located(session: Session, place: str) -> None:
    """Raise Unlocatable if nothing tells whether the log still has what the job reads from the store.

    A job that has no store any more goes on: brokers give it everything.
    """
    try:
        with suppress(ConfigError):
            session.configured_locator.check()
    except Unlocatable as error:
        raise error.at(hint=_HINT.format(place)) from error.__cause__


def _reopened(planner: Planner, opened: OpenPartition, place: str) -> OpenPartition:
    """As `Planner.reopened`. If the log has lost the end of the tier, the partition stays as it is."""
    try:
        return planner.reopened(opened)
    except EpochMismatch:
        return opened
    except RemoteFetchError as error:
        error.at(hint=_HINT.format(place))
        raise


def _has_parted(opened: OpenPartition, step: PlanStep) -> bool:
    """Whether a step is of a log that an unclean leader election has cut off since, at any offset.

    A broker's records before the cut, or behind the end of a log that has grown again, do not show it.
    """
    if opened.log.end_offset is not None and step.last_offset >= opened.log.end_offset:
        return True
    if isinstance(step, BrokerRange):
        return False
    return opened.unread is not None or not opened.lineage.accepts(step.segment)


def _is_gone(step: PlanStep, known: Collection[RemoteLogSegmentId]) -> bool:
    return isinstance(step, SegmentSlice) and step.segment.segment_id not in known


def _is_outdated(opened: OpenPartition, step: PlanStep, has_broker: bool) -> bool:
    """Whether a slice cannot be read any more, because its segment is gone.

    A slice between offsets is read from another copy, and one that was cut at bytes is not. If the offsets are gone
    too, a broker tells so, and the task decides. A bucket alone does not tell. Under read_committed it does not tell
    either which transactions were aborted: the files beside the segment did.
    """
    is_cut = isinstance(step, SegmentSlice) and step.is_cut
    if has_broker:
        return is_cut and step.last_offset >= opened.first_offset
    is_committed = opened.isolation is IsolationLevel.READ_COMMITTED
    return is_cut or is_committed or step.first_offset < opened.first_offset


def _gone_partitions(
    wanted: Collection[TopicIdPartition], found: Collection[TopicIdPartition], place: str
) -> tuple[TopicIdPartition, ...]:
    """The wanted partitions that are not found. A bucket alone does not show one whose objects were all deleted.

    Raises TopicRecreated if the topic has another id now.
    """
    now = {partition.topic: partition.topic_id for partition in found}
    for partition in wanted:
        if now.get(partition.topic, partition.topic_id) != partition.topic_id:
            raise TopicRecreated(
                f"the job was begun with topic {partition.topic!r} of the id {partition.topic_id}, and the "
                f"topic has the id {now[partition.topic]}: it was deleted and created again",
                topic=partition.topic,
                hint=f"To begin a job with the new topic, remove {place}",
            )
    return tuple(sorted(set(wanted).difference(found), key=lambda partition: partition.partition))
