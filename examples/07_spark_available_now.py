"""A stream that catches up and ends: each run takes the records since the last run, first from the store.

    python 07_spark_available_now.py BOOTSTRAP_SERVERS TIER_URL TOPIC TARGET

`make broker` prints an address, a directory and a topic to try it on. TARGET is a directory for files and checkpoint.
Needs Java 17, and the extra `spark` with PySpark 4.2 or later.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from remote_fetch.spark import register

if len(sys.argv) != 5:
    sys.exit(__doc__)
bootstrap_servers, tier_url, topic, target = sys.argv[1:]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python is this one

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.python.unix.domain.socket.enabled", "true")  # rows go to the JVM without TCP
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
register(spark)

records = (
    spark.readStream.format("kafka_remote")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")  # only where there is no checkpoint yet
    .option("kafka.isolation.level", "read_committed")
    .option("remote.storage.url", tier_url)
    .option("maxBytesPerTrigger", 1 << 30)  # a micro-batch reads no more than this
    .load()
)
query = (
    records.select("partition", "offset", "timestamp", "key", "value")
    .writeStream.format("parquet")
    .option("checkpointLocation", f"{target}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{target}/files")
)
query.awaitTermination()

batches = [progress for progress in query.recentProgress if progress.numInputRows]
print(f"{spark.read.parquet(f'{target}/files').count()} records in all, {len(batches)} batches now")
spark.stop()
