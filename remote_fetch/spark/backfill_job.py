"""`backfill`: a topic's history into Parquet files, scheduled by Spark, without a row passing through the JVM.

Rules of the file:

- The driver plans, hands out tasks and commits; it reads no record.
- The same call again is the same job: it resumes a job that failed, and does nothing if the job is done.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remote_fetch.errors import ConfigError
from remote_fetch.observe import Report
from remote_fetch.spark.backfill_request import BackfillRequest, CheckedRequest
from remote_fetch.spark.job_records import Committed, TaskRecord
from remote_fetch.spark.parquet_files import check_compression
from remote_fetch.spark.planning import plan_batch
from remote_fetch.spark.saved_tasks import dump_tasks, load_tasks
from remote_fetch.spark.target import Target
from remote_fetch.spark.tasks import Task
from remote_fetch.spark.write_task import TaskWriter, Wave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BackfillReport", "run_backfill"]

_WAVE_BYTES = 16 << 20
"""The most bytes of pickled tasks in one Spark job; Spark Connect bounds the size of a message."""
_CODEC_SETTING = "spark.sql.parquet.compression.codec"


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """The result of a backfill. `cost` sums up the reading of all tasks that count, also of the job's earlier runs.

    `tasks_run` are those of this call; `seconds` is what this call took. Prints as a few lines.
    """

    job_id: str
    to: str
    tasks: int
    tasks_run: int
    rows: int
    files: int
    size_bytes: int
    cost: Report
    seconds: float

    def __str__(self) -> str:
        cost = self.cost
        fallbacks = ", ".join(f"{count} {reason}" for reason, count in cost.fallbacks.items()) or "none"
        return (
            f"{self.rows} rows in {self.files} files of {self.size_bytes} bytes in {self.to}\n"
            f"{self.tasks} tasks, {self.tasks_run} of them run now, {self.seconds:.1f} s; job {self.job_id}\n"
            f"from the store: {cost.remote_bytes + cost.index_bytes} bytes with {cost.remote_gets + cost.index_gets} "
            f"GETs; from the broker: {cost.broker_bytes} bytes of {cost.broker_records} records; fallbacks: {fallbacks}"
            + "".join(f"\n{end}" for end in cost.ends.values())
        )


def run_backfill(spark: SparkSession, request: BackfillRequest) -> BackfillReport:
    """As `remote_fetch.spark.backfill`, without printing."""
    began_s = time.monotonic()
    checked = request.check()
    target = Target(checked.url, checked.job_id, request.to_options)
    done = _finished(target, checked.url)
    if done is not None:
        return _report(done, checked.url, 0, began_s)
    tasks = _tasks(target, checked)
    writer = TaskWriter(
        target,
        checked.source.config,
        checked.columns,
        request.transform,
        checked.schema,
        tuple(request.partition_by),
        checked.compression or _sessions_compression(spark),
        request.row_group_bytes,
    )
    records = {number: record for number, record in target.records().items() if number < len(tasks)}
    left = [number for number in range(len(tasks)) if number not in records]
    for record in _run(spark, writer, tasks, left):
        records[record.task] = record
    done = _finished(target, checked.url)  # another driver may have committed while the tasks ran
    if done is not None:
        return _report(done, checked.url, len(left), began_s)
    committed = Committed(target.job_id, request.topic, tuple(records[number] for number in range(len(tasks))))
    target.commit(committed)
    return _report(committed, checked.url, len(left), began_s)


def _sessions_compression(spark: SparkSession) -> str:
    """The session's codec for Parquet. Raises ConfigError for one that a backfill does not write."""
    return check_compression(str(spark.conf.get(_CODEC_SETTING)), _CODEC_SETTING)


def _finished(target: Target, url: str) -> Committed | None:
    """The manifest of the job if it is done; finishes a commit that was begun. None if tasks are still to run.

    Raises ConfigError for a target that holds another job or other files.
    """
    done = target.committed()
    if done is not None:
        if done.job_id != target.job_id:
            raise ConfigError(
                f"{url} holds the backfill {done.job_id} of {done.topic}, and this one is {target.job_id}",
                key="to",
                hint="A target belongs to one job. Choose another target, remove this one, or pass job_id=... to "
                "resume that job",
            )
        target.clean_up()
        return done
    begun = target.decided()
    if begun is not None:
        target.complete(begun)
        return begun
    if not target.is_free():
        raise ConfigError(
            f"{url} is not empty, and was not written by backfill()",
            key="to",
            hint="A target belongs to one job: choose another",
        )
    return None


def _tasks(target: Target, checked: CheckedRequest) -> tuple[Task, ...]:
    """The tasks of the job: the saved ones if the job was begun before, else planned now and saved."""
    saved = target.plan()
    if saved is None:
        tasks = plan_batch(checked.source).tasks
        target.clean_up()  # records of another plan's tasks would count for these
        target.keep_plan(dump_tasks(tasks, checked.fingerprint))
        return tasks
    fingerprint, tasks = load_tasks(saved, checked.source)
    if fingerprint != checked.fingerprint:
        raise ConfigError(
            f"the job {target.job_id} was begun with other arguments: topic, options, columns, partition_by or the "
            "columns that transform gives",
            key="job_id",
            hint="Give another job_id to start a new job",
        )
    return tasks


def _run(
    spark: SparkSession, writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]
) -> Iterator[TaskRecord]:
    """Run the tasks with these numbers on the executors; yields the record of each."""
    from pyspark.sql.functions import udf  # noqa: PLC0415 - a caller with a session has PySpark

    for wave in _waves(writer, tasks, numbers):
        # One row for each partition, and one task for each row. A UDF is the one way to run Python that works in
        # classic sessions and over Spark Connect, and needs no pandas. It has effects, so it is not deterministic:
        # Spark must not evaluate it twice.
        run = udf(wave.__call__, "string", useArrow=False).asNondeterministic()
        for row in spark.range(0, len(wave.tasks), 1, len(wave.tasks)).select(run("id")).collect():
            yield TaskRecord.load(row[0])


def _waves(writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]) -> Iterator[Wave]:
    held: list[int] = []
    pickled: list[bytes] = []
    for number in numbers:
        task = pickle.dumps(tasks[number])
        if pickled and sum(map(len, pickled)) + len(task) > _WAVE_BYTES:
            yield Wave(writer, tuple(held), tuple(pickled))
            held, pickled = [], []
        held.append(number)
        pickled.append(task)
    if pickled:
        yield Wave(writer, tuple(held), tuple(pickled))


def _report(done: Committed, url: str, tasks_run: int, began_s: float) -> BackfillReport:
    files = [file for record in done.records for file in record.files]
    costs = (Report(**{**record.cost, "notices": tuple(record.cost["notices"])}) for record in done.records)
    return BackfillReport(
        done.job_id,
        url,
        len(done.records),
        tasks_run,
        sum(file.rows for file in files),
        len(files),
        sum(file.size_bytes for file in files),
        sum(costs, Report()),
        time.monotonic() - began_s,
    )
