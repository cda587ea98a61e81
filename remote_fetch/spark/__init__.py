"""PySpark: `spark.read.format("kafka_remote")` reads what `format("kafka")` reads, from the store.

The public names are loaded when they are first used; PySpark only with `register`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from remote_fetch.spark.planning import JobPlan
    from remote_fetch.spark.registration import Registered
    from remote_fetch.tables.report import TableReport
    from remote_fetch.tables.write_task import Transform

__all__ = ["backfill", "plan", "register"]


def register(spark: SparkSession) -> Registered:
    """Make `format("kafka_remote")` known to a session, and warn of settings that make it slow.

    Not needed if remote-fetch is installed on driver and executors: then Spark finds the format. The `report` of the
    result sums up the cost of the session's reads that begin after this call. Over Spark Connect it stays empty, and
    each task only logs. A task that runs twice is counted twice.

    Raises:
        MissingExtra: PySpark is not installed.
        ConfigError: PySpark is older than 4.1.
    """
    from remote_fetch.errors import MissingExtra  # noqa: PLC0415 - nothing is loaded before it is used

    try:
        from remote_fetch.spark.registration import register_source  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyspark"):
            raise
        raise MissingExtra("PySpark is not installed", extra="spark") from None
    return register_source(spark)


def backfill(
    spark: SparkSession,
    topic: str,
    *,
    to: str | PathLike[str],
    options: Mapping[str, Any],
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    columns: Sequence[str] | None = None,
    partition_by: Sequence[str] = (),
    compression: str | None = None,
    transform: Transform | None = None,
    to_options: Mapping[str, Any] | None = None,
    job_id: str | None = None,
    row_group_bytes: int = 32 << 20,
) -> TableReport:
    """Write a topic's records to Parquet files or into a table on Spark's executors. No row sees the JVM.

    The rows are those of `read_arrow`. Readers see nothing in the target before all of it is there. The same call again
    resumes a job that failed, by its saved plan. If the job is done it does nothing, or, for a table, it adds what came
    since. Works over Spark Connect.

    Args:
        topic: A topic's name; NAME:ID if several topic ids share the name.
        to: As `export_topic`. A directory belongs to one job, and is absent or empty when the job begins. Executors
            and driver write there, and beside it while the job runs.
        options: The options of `format("kafka_remote")` without the topic. `kafka.isolation.level`
            is read_uncommitted if it is not given, as in Spark's Kafka source.
        format: "parquet", "iceberg" or "delta".
        columns: Which columns, in which order; None: all but leaderEpoch, as in `read_arrow`.
        partition_by: One directory for each value of these columns, or of "day" and "hour" of `timestamp` in UTC.
        compression: "zstd", "snappy", "gzip", "lz4_raw", "uncompressed" or "none"; None: the session's
            `spark.sql.parquet.compression.codec`, as for `DataFrameWriter.parquet`.
        transform: A function from an Arrow RecordBatch to another one, or to a Table. It runs on the executors, and
            once on the driver with an empty batch: all its results must have the schema of that one.
        to_options: As `export_topic`. They travel to the executors with the job.
        job_id: The job's name, not for tables; None: a hash of the arguments. One driver at a time may run a job.
        row_group_bytes: The size of a row group as Arrow data, and the most that an executor's task buffers.

    Prints a line a minute on stderr, then the report, and returns it. Raises ConfigError for wrong arguments and for a
    target of another job, MissingExtra, TableRefused, planning's errors, and PySpark's for a task that failed finally.
    """
    from remote_fetch.spark.backfill_job import run_backfill  # noqa: PLC0415 - nothing is loaded before it is used
    from remote_fetch.spark.backfill_request import BackfillRequest  # noqa: PLC0415 - as above

    request = BackfillRequest(
        topic=topic,
        to=to,
        options=options,
        format=format,
        columns=columns,
        partition_by=partition_by,
        compression=compression,
        transform=transform,
        to_options=to_options,
        job_id=job_id,
        row_group_bytes=row_group_bytes,
    )
    done = run_backfill(spark, request)
    print(done)  # noqa: T201 - the caller has waited for this report
    return done


def plan(options: Mapping[str, Any]) -> JobPlan:
    """Plan a batch read with these options: tasks, bytes, GETs, and the offsets left to the broker. Print it.

    Reads metadata only, and needs no Spark.

    Args:
        options: The options of `format("kafka_remote")`.

    Raises:
        RemoteFetchError: any error that the read would raise before its first record.
    """
    from remote_fetch.spark.options import parse_options  # noqa: PLC0415 - nothing is loaded before it is used
    from remote_fetch.spark.patience import ask_once  # noqa: PLC0415 - as above
    from remote_fetch.spark.planning import plan_batch  # noqa: PLC0415 - as above

    source = parse_options(options)
    return ask_once(lambda: plan_batch(source))
