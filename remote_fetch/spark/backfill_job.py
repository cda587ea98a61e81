"""`backfill`: a topic's history into Parquet files, scheduled by Spark, without a row passing through the JVM.

Rules of the file: the driver plans, hands out and commits; it opens no record. The same call again is the same job: it
goes on where the last one ended, and does nothing where that one was done.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remote_fetch.decode.columns import wanted_columns
from remote_fetch.errors import ConfigError
from remote_fetch.observe import Report
from remote_fetch.spark.job_records import Committed, TaskRecord
from remote_fetch.spark.options import SourceOptions, parse_options
from remote_fetch.spark.parquet_files import check_compression, check_partition_by
from remote_fetch.spark.planning import plan_batch
from remote_fetch.spark.saved_tasks import dump_tasks, load_tasks
from remote_fetch.spark.target import Target
from remote_fetch.spark.tasks import Task
from remote_fetch.spark.write_task import TaskWriter, Transform, Wave, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BackfillReport", "run_backfill"]

_WAVE_BYTES = 16 << 20
"""How many bytes of tasks go out with one Spark job; over Spark Connect a message is bounded."""
_SUBSCRIBING = ("subscribe", "subscribepattern", "assign")
_NAMING = (
    *("starting", "ending", "kafka.isolation.level", "kafka.bootstrap.servers", "fetch.remote.bucket.only"),
    *("remote.storage.url", "assign"),
)
"""Options that say what is read, by how their names begin; the rest say how."""
_CODEC_SETTING = "spark.sql.parquet.compression.codec"


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What a backfill has done. `cost` sums up the reading of all tasks that count, of earlier runs of the job too.

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


def run_backfill(
    spark: SparkSession,
    topic: str,
    *,
    to: str,
    format: str,  # noqa: A002 - as Spark calls it
    options: Mapping[str, Any],
    columns: Sequence[str] | None,
    partition_by: Sequence[str],
    compression: str | None,
    transform: Transform | None,
    to_options: Mapping[str, Any] | None,
    job_id: str | None,
    row_group_bytes: int,
) -> BackfillReport:
    """As `remote_fetch.spark.backfill`, without printing."""
    began = time.monotonic()
    if format != "parquet":
        raise ConfigError(f"format={format!r}: a backfill writes 'parquet'", key="format")
    if row_group_bytes <= 0:
        raise ConfigError(f"row_group_bytes={row_group_bytes}: it has to be positive", key="row_group_bytes")
    asked = None if compression is None else check_compression(compression)
    parsed = _options(topic, options)
    wanted = wanted_columns(columns)
    schema = schema_of(wanted, transform)
    check_partition_by(schema, partition_by)
    fingerprint = _fingerprint(options, [topic, wanted, list(partition_by), str(schema)])
    url = to if "://" in to else os.path.abspath(to)
    target = Target(url, _checked_id(job_id) or fingerprint, to_options)
    done = _finished(target, url)
    if done is not None:
        return _report(done, url, 0, began)
    tasks = _tasks(target, parsed, fingerprint)
    codec = asked or _sessions_compression(spark)
    writer = TaskWriter(target, parsed.config, wanted, transform, schema, tuple(partition_by), codec, row_group_bytes)
    records = {number: record for number, record in target.records().items() if number < len(tasks)}
    left = [number for number in range(len(tasks)) if number not in records]
    for record in _run(spark, writer, tasks, left):
        records[record.task] = record
    done = _finished(target, url)  # by somebody else, meanwhile
    if done is not None:
        return _report(done, url, len(left), began)
    committed = Committed(target.job_id, topic, tuple(records[number] for number in range(len(tasks))))
    target.commit(committed)
    return _report(committed, url, len(left), began)


def _options(topic: str, options: Mapping[str, Any]) -> SourceOptions:
    for name in options:
        if name.lower() in _SUBSCRIBING:
            raise ConfigError(f"option '{name}': backfill is told its topic by its argument", key=name)
    return parse_options({**options, "subscribe": topic})


def _sessions_compression(spark: SparkSession) -> str:
    """How Spark itself would compress Parquet in this session. Raises ConfigError for what we have not."""
    return check_compression(str(spark.conf.get(_CODEC_SETTING)), _CODEC_SETTING)


def _fingerprint(options: Mapping[str, Any], more: Any) -> str:
    """A name for what a job reads and writes; it holds no secret, and no option that only says how."""
    said = {name.lower(): str(value) for name, value in options.items() if name.lower().startswith(_NAMING)}
    text = json.dumps([said, more], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _checked_id(job_id: str | None) -> str | None:
    if job_id is not None and not (job_id and all(one.isalnum() or one in "-_." for one in job_id)):
        raise ConfigError(f"job_id={job_id!r}: letters, digits, '-', '_' and '.' make one", key="job_id")
    return job_id


def _finished(target: Target, url: str) -> Committed | None:
    """What the job has put into its target, having ended a commit that was begun; None if it is still to be done.

    Raises ConfigError for a target that holds anything else.
    """
    done = target.committed()
    if done is not None:
        if done.job_id != target.job_id:
            raise ConfigError(
                f"{url} holds the backfill {done.job_id} of {done.topic}, and this one is {target.job_id}",
                key="to",
                hint="A target is one job's. Choose another, remove it, or give the job_id to have that job again",
            )
        target.clean_up()
        return done
    begun = target.decided()
    if begun is not None:
        target.complete(begun)
        return begun
    if not target.is_free():
        raise ConfigError(
            f"{url} is not empty, and no backfill of ours", key="to", hint="A target is one job's: choose another"
        )
    return None


def _tasks(target: Target, options: SourceOptions, fingerprint: str) -> tuple[Task, ...]:
    """The tasks of the job: as they were planned when it was begun, or planned now and kept."""
    kept = target.plan()
    if kept is None:
        tasks = plan_batch(options).tasks
        target.clean_up()  # records that another plan's tasks have left would count for these
        target.keep_plan(dump_tasks(tasks, fingerprint))
        return tasks
    made_from, tasks = load_tasks(kept, options)
    if made_from != fingerprint:
        raise ConfigError(
            f"the job {target.job_id} was begun with other arguments: topic, options, columns, partition_by or the "
            "columns that transform gives",
            key="job_id",
            hint="Give another job_id to begin anew",
        )
    return tasks


def _run(
    spark: SparkSession, writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]
) -> Iterator[TaskRecord]:
    """Do the tasks of these numbers, and give the record of each."""
    from pyspark.sql.functions import udf  # noqa: PLC0415 - whoever has a session has it

    for wave in _waves(writer, tasks, numbers):
        # One row a partition, and each row a task. Of all ways to run Python this one is there in classic sessions and
        # over Spark Connect, and needs no pandas. It has effects, so that Spark must not think of running it twice.
        run = udf(wave.__call__, "string", useArrow=False).asNondeterministic()
        for row in spark.range(0, len(wave.tasks), 1, len(wave.tasks)).select(run("id")).collect():
            yield TaskRecord.load(row[0])


def _waves(writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]) -> Iterator[Wave]:
    held: list[int] = []
    pickled: list[bytes] = []
    for number in numbers:
        one = pickle.dumps(tasks[number])
        if pickled and sum(map(len, pickled)) + len(one) > _WAVE_BYTES:
            yield Wave(writer, tuple(held), tuple(pickled))
            held, pickled = [], []
        held.append(number)
        pickled.append(one)
    if pickled:
        yield Wave(writer, tuple(held), tuple(pickled))


def _report(done: Committed, url: str, tasks_run: int, began: float) -> BackfillReport:
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
        time.monotonic() - began,
    )
