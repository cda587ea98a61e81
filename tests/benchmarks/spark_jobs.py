"""The jobs of the Spark benchmark: each reads a whole topic. Their rows and their cost.

Rules of the file:

- A job makes a new DataFrame each time, so that planning is part of it.
- All jobs have the same options for the records that they read.
- CPU is that of every process of the job: the driver's Python, its JVM, which runs the tasks too, Python workers, the
  broker.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from remote_fetch.spark import backfill
from tests.benchmarks.peers import broker_cpu_s
from tests.benchmarks.processes import watched
from tests.benchmarks.slow_store import LATENCY_OPTION, SlowLocalFetcher, SlowS3Fetcher
from tests.rig.rig import Rig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BACKFILL",
    "DEFAULT",
    "OURS",
    "TUNED",
    "TUNED_PARQUET",
    "Contents",
    "Cost",
    "SparkJob",
    "jobs_of",
    "measure",
]

DEFAULT, TUNED, OURS = "kafka, default", "kafka, tuned", "kafka_remote"
TUNED_PARQUET, BACKFILL = "kafka, tuned, to Parquet", "backfill to Parquet"
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_TUNING: Mapping[str, str] = MappingProxyType(
    {
        "kafka.max.partition.fetch.bytes": str(16 << 20),
        "kafka.fetch.max.bytes": str(64 << 20),
        "kafka.max.poll.records": "20000",
        "kafka.receive.buffer.bytes": str(4 << 20),
    }
)
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Contents:
    """The rows of a job: their number, the sum of their offsets, and all of their columns in one checksum."""

    rows: int
    offsets: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one job. `python_s` is the driver's and the workers', `tasks_s` the JVM's CPU time in tasks alone."""

    wall_s: float
    jvm_s: float
    python_s: float
    workers_s: float
    tasks_s: float
    broker_s: float

    @property
    def total_s(self) -> float:
        """All CPU time."""
        return self.jvm_s + self.python_s + self.broker_s

    @property
    def executor_s(self) -> float:
        """CPU time of tasks: the JVM's threads that run them, and Python workers."""
        return self.tasks_s + self.workers_s


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A job over a topic. `prepare` has to go before `run`; `contents` does the job too, and looks at what it gives."""

    name: str
    run: Callable[[SparkSession, str], None]
    prepare: Callable[[], None]
    contents: Callable[[SparkSession, str], Contents]


def jobs_of(rig: Rig, folder: Path, s3: Mapping[str, str], latency_ms: int, compression: str) -> Sequence[SparkJob]:
    """The jobs, in the order in which they take turns: those that are compared, and then ours once more from S3 if `s3`
    says where that is, and with a latency from each of the two stores with each GET taking longer by it. All Parquet is
    compressed alike.
    """
    common = {"kafka.bootstrap.servers": rig.bootstrap, "kafka.isolation.level": "read_committed"}
    tuned = {**common, **_TUNING}
    local = {**common, "remote.storage.url": str(rig.remote)}
    ours = partial(_ours, folder=folder, compression=compression)
    jobs = [
        _to_noop(DEFAULT, "kafka", common),
        _to_noop(TUNED, "kafka", tuned),
        _to_noop(OURS, "kafka_remote", local),
        _to_parquet(TUNED_PARQUET, partial(_write_parquet, tuned, compression), folder),
        _to_parquet(BACKFILL, partial(_backfill, local, compression), folder),
    ]
    stores: dict[str, tuple[dict[str, str], type]] = {"": (local, SlowLocalFetcher)}
    if s3:
        stores[", S3"] = ({**common, **s3}, SlowS3Fetcher)
        jobs += ours(", S3", {**common, **s3})
    if latency_ms:
        for suffix, (options, fetcher) in stores.items():
            jobs += ours(f"{suffix}, {latency_ms} ms a GET", {**options, **_slow(fetcher, latency_ms)})
    return jobs


def _ours(suffix: str, options: Mapping[str, str], folder: Path, compression: str) -> list[SparkJob]:
    return [
        _to_noop(OURS + suffix, "kafka_remote", options),
        _to_parquet(BACKFILL + suffix, partial(_backfill, options, compression), folder),
    ]


def _slow(fetcher: type, latency_ms: int) -> dict[str, str]:
    return {
        "remote.storage.fetcher.class": f"{fetcher.__module__}:{fetcher.__name__}",
        "remote.storage.fetcher.class.path": str(_ROOT),
        f"remote.storage.options.{LATENCY_OPTION}": str(latency_ms),
    }


def measure(spark: SparkSession, rig: Rig, job: SparkJob, topic: str) -> Cost:
    """Run a job once."""
    group = uuid4().hex
    spark.sparkContext.setJobGroup(group, job.name)
    job.prepare()
    broker_s, own_s = broker_cpu_s(rig.nodes[1].pid), broker_cpu_s(os.getpid())
    gateway: Any = spark.sparkContext._gateway
    with watched(gateway.proc.pid) as usage:
        began_s = time.perf_counter()
        job.run(spark, topic)
        wall_s = time.perf_counter() - began_s
    broker_s = broker_cpu_s(rig.nodes[1].pid) - broker_s
    own_s = max(broker_cpu_s(os.getpid()) - own_s - usage.watcher_s, 0.0)
    return Cost(
        wall_s, usage.root_s, own_s + usage.descendants_s, usage.descendants_s, _tasks_s(spark, group), broker_s
    )


# ------------------------------------------------------------------------------------------------------------- the jobs


def _to_noop(name: str, source: str, options: Mapping[str, str]) -> SparkJob:
    def frame(spark: SparkSession, topic: str) -> DataFrame:
        return spark.read.format(source).options(**options, subscribe=topic, startingOffsets="earliest").load()

    def run(spark: SparkSession, topic: str) -> None:
        frame(spark, topic).write.format("noop").mode("overwrite").save()

    return SparkJob(name, run, lambda: None, lambda spark, topic: _contents(frame(spark, topic)))


def _to_parquet(name: str, write: Callable[[SparkSession, str, str], None], folder: Path) -> SparkJob:
    """A job that writes; its preparation removes what it wrote the last time."""
    target = folder / name.replace(", ", "-").replace(" ", "-")

    def run(spark: SparkSession, topic: str) -> None:
        write(spark, topic, str(target))

    def prepare() -> None:
        shutil.rmtree(target, ignore_errors=True)

    def contents(spark: SparkSession, topic: str) -> Contents:
        prepare()
        run(spark, topic)
        return _contents(spark.read.parquet(str(target)))

    return SparkJob(name, run, prepare, contents)


def _write_parquet(options: Mapping[str, str], compression: str, spark: SparkSession, topic: str, target: str) -> None:
    frame = spark.read.format("kafka").options(**options, subscribe=topic, startingOffsets="earliest").load()
    frame.write.option("compression", compression).parquet(target)


def _backfill(options: Mapping[str, str], compression: str, spark: SparkSession, topic: str, target: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        backfill(spark, topic, to=target, options=options, columns=_COLUMNS, compression=compression)


def _contents(frame: DataFrame) -> Contents:
    columns = ", ".join(_COLUMNS)
    (row,) = frame.selectExpr("count(*)", "sum(offset)", f"bit_xor(xxhash64({columns}))").collect()
    return Contents(*row)


def _tasks_s(spark: SparkSession, group: str) -> float:
    """CPU seconds of the JVM's threads in the tasks of a job group, by Spark's own count."""
    context: Any = spark.sparkContext
    scala = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    return sum(int(scala.statusStore().lastStageAttempt(stage).executorCpuTime()) for stage in stages) / 1e9
