"""What an executor does: a task from its bytes to Arrow batches.

Rules of the file: a task is read by a session of its own, with the worker's own credentials; it either gives all the
rows of its offsets, or those that the broker still has where data loss may pass, or fails, so that Spark tries it anew;
a slice that was cut in the dark becomes a slice between offsets first, and everything after that is the usual scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from remote_fetch.errors import OffsetOutOfRange, RemoteFetchError, SegmentNotFound, StorageDenied, Unlocatable
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import Fallback, Observer, Report, ignore
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.read.at_once import all_at_once
from remote_fetch.read.cuts import settle_cut
from remote_fetch.read.job import say_end
from remote_fetch.read.partition import OpenPartition, narrow_edges
from remote_fetch.read.scan import PartitionPlan, Scan
from remote_fetch.read.session import Session
from remote_fetch.read.state_files import ProducerSnapshots
from remote_fetch.read.transactions import is_decided, load_aborted
from remote_fetch.spark.limits import FAIL_ON_DATA_LOSS_HINT
from remote_fetch.spark.schema import as_spark
from remote_fetch.spark.tasks import Task, TaskPart

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

__all__ = ["read_rows", "read_task"]


def read_task(
    task: Task,
    config: Mapping[str, str],
    columns: Sequence[str],
    *,
    observer: Observer = ignore,
    report: Callable[[Report], None] = lambda report: None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in order of partition and offset, as batches that Spark takes; else as `read_rows`."""
    for batch in read_rows(task, config, columns, observer=observer, report=report):
        yield as_spark(batch)


def read_rows(
    task: Task,
    config: Mapping[str, str],
    columns: Sequence[str],
    *,
    observer: Observer = ignore,
    report: Callable[[Report], None] = lambda report: None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in order of partition and offset, as `read_arrow` gives them.

    `config` is `SourceOptions.config`. `report` is told what it cost, when it is over or given up. Raises the errors of
    reading; OffsetOutOfRange where records were deleted that the task should have read, and that is not to pass.
    """
    with Session.open(config, observer, planned=task.planned) as session:
        try:
            plans = all_at_once(session, partial(_ready, session), task.parts)
            yield from Scan(session, plans, columns).batches()
        except OffsetOutOfRange as error:
            error.hint = FAIL_ON_DATA_LOSS_HINT
            raise
        finally:
            report(session.counters.report())


def _ready(session: Session, part: TaskPart) -> PartitionPlan:
    """The part with all that the driver left open: where cuts fall, byte positions, aborted transactions."""
    steps = tuple(_settled(session, part))
    opened = part.opened
    say_end(session, opened, _stop_of(part))  # what the driver has said in its log only
    if opened.isolation is IsolationLevel.READ_UNCOMMITTED:
        return PartitionPlan(opened, steps, None)
    try:
        return _with_aborted(session, opened, steps)
    except RemoteFetchError as error:
        if session.broker is None or not error.falls_back:
            raise
        given = tuple(_given(session, opened.partition, step, error) for step in steps)
        return PartitionPlan(opened, given, AbortedIntervals.of(()))


def _stop_of(part: TaskPart) -> int:
    """Where the part ends (exclusive). A share that was cut is taken to reach as far as all of them."""
    return part.steps[-1].last_offset + 1


def _settled(session: Session, part: TaskPart) -> Iterator[PlanStep]:
    for step in part.steps:
        if isinstance(step, SegmentSlice) and step.is_cut:
            settled = _settle(session, part.opened, step)
            if settled is not None:
                yield settled
        elif isinstance(step, SegmentSlice):
            yield from _narrowed(session, step)
        else:
            yield step


def _narrowed(session: Session, step: SegmentSlice) -> Iterator[PlanStep]:
    """A slice between offsets, with byte positions; without them, if they cannot be had, as the scan will find out."""
    try:
        yield from narrow_edges(session, [step])
    except RemoteFetchError as error:
        if not error.falls_back:
            raise
        yield step


def _settle(session: Session, opened: OpenPartition, step: SegmentSlice) -> SegmentSlice | None:
    try:
        return settle_cut(session, step)
    except (StorageDenied, SegmentNotFound) as error:
        newer = _relocated(session, opened, step)
        if newer is not None:
            return settle_cut(session, newer)
        guard = session.guard
        if isinstance(error, StorageDenied):
            raise
        if guard is not None:
            log = guard.bounds(opened.partition, opened.isolation)
            if guard.pass_over(opened.partition, step.last_offset, log.log_start_offset or 0) > step.last_offset:
                return None
        error.hint = (
            "The object went away between plan and read, though the log still has its records: run the query again, "
            "and it is planned by what is there"
        )
        raise


def _relocated(session: Session, opened: OpenPartition, step: SegmentSlice) -> SegmentSlice | None:
    """The slice where its segment is now, if metadata has another place for it: a signed URL expires in a queue."""
    if step.segment.custom_metadata is None:
        return None
    for segment in session.locator.refresh(opened.partition).segments:
        if segment.segment_id == step.segment.segment_id and segment.custom_metadata != step.segment.custom_metadata:
            return replace(step, segment=segment)
    return None


def _with_aborted(session: Session, opened: OpenPartition, steps: tuple[PlanStep, ...]) -> PartitionPlan:
    snapshots = ProducerSnapshots(session)
    if not is_decided(session, opened, steps, snapshots):
        # A transaction spans more segments than the task was told of.
        opened = opened.with_timeline(session.locator.refresh(opened.partition))
        if not is_decided(session, opened, steps, snapshots):
            raise Unlocatable(
                "the tier does not tell any more which transactions were aborted",
                first=steps[0].first_offset,
                last=steps[-1].last_offset,
                topic=opened.partition.topic,
                partition=opened.partition.partition,
            )
    return PartitionPlan(opened, steps, load_aborted(session, opened, steps, snapshots))


def _given(session: Session, partition: TopicIdPartition, step: PlanStep, error: RemoteFetchError) -> PlanStep:
    """The step as the broker's."""
    if isinstance(step, BrokerRange):
        return step
    session.observe(Fallback(partition, step.first_offset, step.last_offset, error.kind, str(error)))
    return BrokerRange(partition, step.first_offset, step.last_offset, error.kind)
