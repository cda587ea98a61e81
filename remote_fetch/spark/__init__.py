"""PySpark: `spark.read.format("kafka_remote")` reads what `format("kafka")` reads, from the store.

The public names are loaded when they are first used; PySpark only with `register`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from remote_fetch.spark.planning import JobPlan
    from remote_fetch.spark.source import Registered

__all__ = ["plan", "register"]


def register(spark: SparkSession) -> Registered:
    """Make `format("kafka_remote")` known to a session, and warn of settings that make it slow.

    Not needed where remote-fetch is installed on driver and executors: then Spark finds the format by itself. What
    registering adds is the result: its `report` sums up what the session's reads have cost so far (classic sessions;
    over Spark Connect it stays empty, and each task only logs). A task that runs twice is counted twice.

    Raises MissingExtra without PySpark, ConfigError for a PySpark older than 4.1.
    """
    from remote_fetch.errors import MissingExtra  # noqa: PLC0415 - nothing is loaded before it is used

    try:
        from remote_fetch.spark.source import register_source  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyspark"):
            raise
        raise MissingExtra('PySpark is not installed; pip install "remote-fetch[spark]"', extra="spark") from None
    return register_source(spark)


def plan(options: Mapping[str, Any]) -> JobPlan:
    """What a batch read with these options would do: its tasks, bytes, GETs, broker's part. Print it.

    Reads metadata only, and needs no Spark. Raises what the read itself would raise before its first record.
    """
    from remote_fetch.spark.options import parse_options  # noqa: PLC0415 - nothing is loaded before it is used
    from remote_fetch.spark.planning import plan_batch  # noqa: PLC0415 - as above

    return plan_batch(parse_options(options))
