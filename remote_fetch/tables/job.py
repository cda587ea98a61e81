"""The parts of a job that all faces share: its arguments as one value, and how its tasks are planned and resumed.

Rules of the file:

- Faces differ in how tasks are planned and run. The rest of a job is the same for all of them.
- Nothing here knows what the target is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.parquet_files import FileForm
from remote_fetch.tables.planning import PlannedJob
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.saved_tasks import Reading, dump_job, load_job
from remote_fetch.tables.staging import Staging
from remote_fetch.tables.tasks import Task
from remote_fetch.tables.write_task import TaskWriter, Transform
from remote_fetch.typed.plan import TypedPlan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JobPlanner", "JobSpec", "Runner", "all_records", "saved_or_planned"]

_ANOTHERS = "another driver of the job planned it first: this one has worked by that plan"

Runner: TypeAlias = Callable[[TaskWriter, Sequence[Task], Sequence[int]], Iterator[TaskRecord]]
"""Runs the tasks with the given numbers, and yields the record of each."""


class JobPlanner(Protocol):
    """Plans a job."""

    def __call__(self, held: Progress | None, begun: Progress | None = None) -> PlannedJob:
        """The tasks behind what the target holds; None: it holds nothing of the topic.

        `begun` are the offsets of a plan that this one replaces. Those of partitions that are gone were deleted.

        Raises the errors of planning, TopicRecreated if the topic has another id than what is held, and
        OffsetOutOfRange if offsets between were deleted and that may not pass.
        """


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job but for its target. `fingerprint` identifies its input and output.

    `compression` is asked for if a task is to be run. The other fields are those of `TaskWriter` and `FileForm`.
    """

    topic: str
    fingerprint: str
    columns: Sequence[str]
    schema: pa.Schema
    transform: Transform | None
    partition_by: Sequence[str]
    compression: Callable[[], str]
    row_group_bytes: int
    reading: Reading = field(repr=False)
    plan: JobPlanner
    run: Runner
    file_bytes: int | None = None
    loss_hint: str | None = None
    typed: TypedPlan | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration of the sessions that read."""
        return self.reading.config

    def writer(
        self, staging: Staging, *, is_hive: bool = True, of_table: bool = False, required: Sequence[str] = ()
    ) -> TaskWriter:
        """The writer of this job's tasks. For `is_hive` and `of_table` see `FileForm`. `required` have no null."""
        partition_by, compression = tuple(self.partition_by), self.compression()
        form = FileForm(
            self.schema, partition_by, compression, self.row_group_bytes, self.file_bytes, is_hive, of_table
        )
        wanted = [name for name in required if name in self.schema.names]
        return TaskWriter(staging, self.config, self.columns, self.transform, form, self.loss_hint, self.typed, wanted)


def saved_or_planned(
    staging: Staging, spec: JobSpec, held: Progress | None, planned: PlannedJob | None = None
) -> tuple[str, PlannedJob]:
    """The fingerprint and the tasks of a job: those saved when it was begun, or else planned now and saved.

    If a task that is still to run is outdated, the job is planned again, from where it began: offsets that were deleted
    since are lost, and the plan tells so. If the log has parted, finished tasks are planned again too. `planned` is the
    plan, if there is one already. Records of another plan's tasks do not count for these.
    """
    saved = staging.plan()
    notices: tuple[str, ...] = ()
    if saved is None:
        job = planned or spec.plan(held)
        saved = staging.plan()  # another driver may have planned it in that time: each would read all records
        notices = () if saved is None else (_ANOTHERS,)
    if saved is not None:
        fingerprint, loaded = load_job(saved, spec.reading, staging.staging)
        begun = replace(loaded, notices=notices)
        if fingerprint != spec.fingerprint:
            return fingerprint, begun
        left = begun.outdated and begun.outdated - _kept_records(staging.of_plan(begun.key)).keys()
        if not (left or begun.has_parted):
            return fingerprint, begun
        job = spec.plan(begun.begun, begun.reads)
        staging.begin_again()
    if job.reads.offsets:
        staging.keep_plan(dump_job(job, spec.fingerprint, held))
    return spec.fingerprint, job


def all_records(
    staging: Staging, writer: TaskWriter, job: PlannedJob, run: Runner
) -> tuple[tuple[TaskRecord, ...], int]:
    """Run the tasks that have no record. Returns the record of each task, in order, and how many were run."""
    records = _kept_records(staging)
    numbers = range(len(job.tasks))
    left = [number for number in numbers if number not in records]
    for record in run(writer, job.tasks, left):
        records[record.task] = record
    return tuple(records[number] for number in numbers), len(left)


def _kept_records(staging: Staging) -> dict[int, TaskRecord]:
    """The records that count, by task. The others are removed.

    A record whose files are not there any more does not count: housekeeping of a table may have removed them.
    """
    records = staging.records()
    kept = {record.task: record for record in staging.whole(list(records.values()))}
    for number in records.keys() - kept.keys():
        staging.forget(records[number])
    return kept
