"""PySpark: `spark.read.format("kafka_remote")` reads what `format("kafka")` reads, from the store.

The public names are loaded when they are first used; PySpark only with `register`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from remote_fetch.spark.backfill_job import BackfillReport
    from remote_fetch.spark.planning import JobPlan
    from remote_fetch.spark.register import Registered
    from remote_fetch.spark.write_task import Transform

__all__ = ["backfill", "plan", "register"]


def register(spark: SparkSession) -> Registered:
    """Make `format("kafka_remote")` known to a session, and warn of settings that make it slow.

    Not needed where remote-fetch is installed on driver and executors: then Spark finds the format by itself. What
    registering adds is the result: its `report` sums up what the session's reads have cost so far (classic sessions;
    over Spark Connect it stays empty, and each task only logs). A task that runs twice is counted twice.

    Raises MissingExtra without PySpark, ConfigError for a PySpark older than 4.1.
    """
    from remote_fetch.errors import MissingExtra  # noqa: PLC0415 - nothing is loaded before it is used

    try:
        from remote_fetch.spark.register import register_source  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyspark"):
            raise
        raise MissingExtra('PySpark is not installed; pip install "remote-fetch[spark]"', extra="spark") from None
    return register_source(spark)


def backfill(
    spark: SparkSession,
    topic: str,
    *,
    to: str,
    options: Mapping[str, Any],
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    columns: Sequence[str] | None = None,
    partition_by: Sequence[str] = (),
    compression: str | None = None,
    transform: Transform | None = None,
    to_options: Mapping[str, Any] | None = None,
    job_id: str | None = None,
    row_group_bytes: int = 32 << 20,
) -> BackfillReport:
    """Write a topic's records to Parquet files: Spark's executors read the store and write, and no row sees the JVM.

    The rows are those of `read_arrow`. Nothing is seen in the target before all of it is there. The same call again
    goes on where one that failed has ended, by its plan, and does nothing where the job was done. Works over Connect.

    Args:
        spark: The session whose executors do the work.
        topic: A topic's name; NAME:ID where one name stands for several topic ids.
        to: The target, a directory or a URL that fsspec knows (`s3://bucket/orders`): one job's, and absent or empty
            when it begins. Executors and driver all write there, and beside it while the job is under way.
        options: Those of `format("kafka_remote")`, but for the topic: where to read and what. `kafka.isolation.level`
            is read_uncommitted if it is not given, as in Spark's Kafka source.
        format: "parquet".
        columns: Which columns, in which order; None: all but leaderEpoch, as in `read_arrow`.
        partition_by: A directory for each value of these: columns of what is written, or "day" and "hour" of
            `timestamp`, in UTC.
        compression: "zstd", "snappy", "gzip", "lz4_raw", "uncompressed" or "none"; None: the session's
            `spark.sql.parquet.compression.codec`, as for `DataFrameWriter.parquet`.
        transform: What makes of an Arrow RecordBatch another one, or a Table; run on the executors, and once on the
            driver with an empty batch, to learn the schema that all of them have to have.
        to_options: What the target's filesystem is made with. They travel to the executors with the job.
        job_id: The job's name; None: one that the arguments come to. One driver at a time may run a job.
        row_group_bytes: How many bytes of Arrow data make a row group, and how many an executor's task holds back.

    Prints the report, and returns it. Raises ConfigError for wrong arguments and for a target that is taken,
    MissingExtra without the target's SDK, what planning raises, and PySpark's error for a task that failed for good.
    """
    from remote_fetch.spark.backfill_job import run_backfill  # noqa: PLC0415 - nothing is loaded before it is used

    done = run_backfill(
        spark,
        topic,
        to=to,
        format=format,
        options=options,
        columns=columns,
        partition_by=partition_by,
        compression=compression,
        transform=transform,
        to_options=to_options,
        job_id=job_id,
        row_group_bytes=row_group_bytes,
    )
    print(done)  # noqa: T201 - a report is what whoever waited for the job wants to see
    return done


def plan(options: Mapping[str, Any]) -> JobPlan:
    """What a batch read with these options would do: its tasks, bytes, GETs, broker's part. Print it.

    Reads metadata only, and needs no Spark. Raises what the read itself would raise before its first record.
    """
    from remote_fetch.spark.options import parse_options  # noqa: PLC0415 - nothing is loaded before it is used
    from remote_fetch.spark.planning import plan_batch  # noqa: PLC0415 - as above

    return plan_batch(parse_options(options))
