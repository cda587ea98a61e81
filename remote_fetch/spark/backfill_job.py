"""`backfill`: a topic's history into files or a table, scheduled by Spark, without a row passing through the JVM.

Rules of the file:

- The driver plans, hands out tasks and commits; it reads no record.
- The same call again is the same job: it resumes a job that failed, and does nothing if the job is done.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from remote_fetch.amounts import human_bytes
from remote_fetch.spark.backfill_request import BackfillRequest, CheckedRequest
from remote_fetch.spark.budgets import split_among, tasks_at_once
from remote_fetch.spark.job_description import described
from remote_fetch.spark.job_watch import watched
from remote_fetch.spark.limits import FAIL_ON_DATA_LOSS_HINT
from remote_fetch.spark.patience import BATCH_AWAY_S, ask_patiently
from remote_fetch.spark.planning import plan_backfill, subscribed
from remote_fetch.spark.wave import Wave
from remote_fetch.tables.directory_job import run_directory_job
from remote_fetch.tables.formats import TABLES, open_table
from remote_fetch.tables.job import JobSpec
from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.parquet_files import check_compression
from remote_fetch.tables.report import TableReport
from remote_fetch.tables.saved_tasks import Reading
from remote_fetch.tables.table_job import run_table_job
from remote_fetch.tables.target import Target
from remote_fetch.tables.tasks import Task
from remote_fetch.tables.write_task import TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_backfill"]

_LOG = logging.getLogger("remote_fetch")
_WAVE_BYTES = 16 << 20
"""The most bytes of pickled tasks in one Spark job; Spark Connect bounds the size of a message."""
_CODEC_SETTING = "spark.sql.parquet.compression.codec"


def run_backfill(spark: SparkSession, request: BackfillRequest) -> TableReport:
    """As `remote_fetch.spark.backfill`, without printing.

    If no broker answers the driver, it begins the call again, as long as a batch asks. The job goes on where it was.
    """
    checked = request.check()
    return ask_patiently(lambda: _run_checked(spark, request, checked), _LOG.warning, away_s=BATCH_AWAY_S)


def _run_checked(spark: SparkSession, request: BackfillRequest, checked: CheckedRequest) -> TableReport:
    if request.format in TABLES:
        with closing(open_table(request.format, checked.url, request.to_options)) as table:
            return run_table_job(table, _spec(spark, request, checked))
    target = Target(checked.url, checked.job_id, request.to_options)
    return run_directory_job(target, checked.url, _spec(spark, request, checked))


def _spec(spark: SparkSession, request: BackfillRequest, checked: CheckedRequest) -> JobSpec:
    source, at_once = checked.source, partial(tasks_at_once, spark)
    return JobSpec(
        topic=request.topic,
        fingerprint=checked.fingerprint,
        columns=checked.columns,
        schema=checked.schema,
        transform=request.transform,
        partition_by=tuple(request.partition_by),
        compression=lambda: checked.compression or _sessions_compression(spark),
        row_group_bytes=request.row_group_bytes,
        reading=Reading(
            split_among(source.config, at_once),
            source.isolation,
            lambda session: subscribed(session, source.subscription),
        ),
        plan=partial(plan_backfill, source, at_once),
        run=partial(_run, spark),
        loss_hint=FAIL_ON_DATA_LOSS_HINT,
        typed=checked.typed,
    )


def _sessions_compression(spark: SparkSession) -> str:
    """The session's codec for Parquet. Raises ConfigError for one that a backfill does not write."""
    return check_compression(str(spark.conf.get(_CODEC_SETTING)), "a backfill", _CODEC_SETTING)


def _run(
    spark: SparkSession, writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]
) -> Iterator[TaskRecord]:
    """Run the tasks with these numbers on the executors; yields the record of each."""
    with watched(writer.target.finished, [task.size_bytes for task in tasks]):
        yield from _run_waves(spark, _waves(writer, tasks, numbers), tasks, len(numbers))


def _run_waves(spark: SparkSession, waves: Iterator[Wave], tasks: Sequence[Task], wanted: int) -> Iterator[TaskRecord]:
    from pyspark.sql.functions import udf  # noqa: PLC0415 - a caller with a session has PySpark

    done = 0
    for wave in waves:
        # One row for each partition, and one task for each row. A UDF is the one way to run Python that works in
        # classic sessions and over Spark Connect, and needs no pandas. It has effects, so it is not deterministic:
        # Spark must not evaluate it twice.
        run = udf(wave.__call__, "string", useArrow=False).asNondeterministic()
        frame = spark.range(0, len(wave.tasks), 1, len(wave.tasks)).select(run("id"))
        with described(spark, _description(wave, tasks, done, wanted)):
            rows = frame.collect()
        done += len(rows)
        yield from (TaskRecord.load(row[0]) for row in rows)


def _description(wave: Wave, tasks: Sequence[Task], done: int, wanted: int) -> str:
    """The text of a wave in Spark's UI: how much it reads, and which tasks of this run it has."""
    size_bytes = sum(tasks[number].size_bytes for number in wave.numbers)
    topics = sorted({part.opened.partition.topic for number in wave.numbers for part in tasks[number].parts})
    return (
        f"remote-fetch: backfill of {', '.join(topics)}, {human_bytes(size_bytes)}, "
        f"tasks {done + 1} to {done + len(wave.numbers)} of {wanted}"
    )


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
