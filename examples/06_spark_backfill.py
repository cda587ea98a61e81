"""A topic's history as Parquet files: Spark's executors read the store and write, and no row passes through the JVM.

    python 06_spark_backfill.py BOOTSTRAP_SERVERS TIER_URL TOPIC TARGET

`make broker` prints an address, a directory and a topic to try it on. TARGET is a new directory, or a URL. Needs Java
17 and the extra `spark`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from remote_fetch.spark import backfill

if len(sys.argv) != 5:
    sys.exit(__doc__)
bootstrap_servers, tier_url, topic, target = sys.argv[1:]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python is this one

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)


def with_size(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One more column: how long the value is. Runs on the executors, for a few thousand records at a time."""
    values: Any = batch.column("value")
    return batch.append_column("value_bytes", pc.binary_length(values))


# The same call again does nothing; after a crash it goes on with what is left.
done = backfill(
    spark,
    topic,
    to=target,
    partition_by=["partition", "day"],
    transform=with_size,
    options={
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "remote.storage.url": tier_url,
    },
)

largest = spark.read.parquet(target).agg({"value_bytes": "max"}).first()
print(f"{done.rows} rows in {done.files} files, the largest value has {largest[0] if largest else 0} bytes")
spark.stop()
