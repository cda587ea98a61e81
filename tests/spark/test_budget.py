"""A budget that Spark's tasks divide among them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.spark import register
from remote_fetch.spark.budgets import split_among, tasks_at_once
from tests.session.test_budget import WITHIN, write_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = "fetch.remote.max.bytes.per.second"
PROCESSES = "fetch.remote.budget.processes"


def test_the_part_of_a_task() -> None:
    assert split_among({LIMIT: "100"}, lambda: 8) == {LIMIT: "100", PROCESSES: "8"}
    assert split_among({LIMIT: "100", PROCESSES: "3"}, lambda: 8) == {LIMIT: "100", PROCESSES: "3"}
    assert split_among({LIMIT: "100"}, lambda: None) == {LIMIT: "100"}
    assert split_among({"other": "1"}, lambda: 1 // 0) == {"other": "1"}


def test_the_tasks_of_a_session(spark: SparkSession) -> None:
    assert tasks_at_once(spark) == spark.sparkContext.defaultParallelism == 2


@pytest.mark.scheduled
def test_a_minute_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Eight partitions on two cores: 252 MB at 4 MB a second."""
    limit = 4_000_000
    bucket = write_topic(tmp_path / "tier", 30)
    registered = register(spark)
    options = {"subscribe": "large", "remote.storage.url": str(bucket), "fetch.remote.bucket.only": "true"}

    def read(**more: str) -> None:
        frame = spark.read.format("kafka_remote").options(**options, **more).load()
        frame.select("offset").write.format("noop").mode("overwrite").save()

    read()  # starts the workers
    before, began = registered.report, time.monotonic()
    read(**{LIMIT: str(limit)})
    took_s = time.monotonic() - began
    size_bytes = registered.report.remote_bytes - before.remote_bytes
    print(f"{size_bytes / took_s:.0f} a second, of {limit}, in {took_s:.0f} s")
    assert took_s > 50
    assert limit * (1 - 3 * WITHIN) <= size_bytes / took_s <= limit * (1 + WITHIN)  # a task takes a while to begin
