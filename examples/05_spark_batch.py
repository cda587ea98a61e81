"""A Spark batch over a topic's history: tiered records come from the store, the rest through the broker.

    python 05_spark_batch.py BOOTSTRAP_SERVERS TIER_URL TOPIC

`make broker` prints an address, a directory and a topic to try it on. Needs Java 17 and the extra `spark`.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import count_distinct, max_by

from remote_fetch.spark import plan, register

if len(sys.argv) != 4:
    sys.exit(__doc__)
bootstrap_servers, tier_url, topic = sys.argv[1:]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python is this one

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.python.unix.domain.socket.enabled", "true")  # rows go to the JVM without TCP
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
registered = register(spark)

# The options are those of format("kafka"); what is new is where the tier is.
options = {
    "kafka.bootstrap.servers": bootstrap_servers,
    "subscribe": topic,
    "startingOffsets": "earliest",
    "kafka.isolation.level": "read_committed",
    "remote.storage.url": tier_url,
}
print(plan(options))  # what will be read, before anything is

records = spark.read.format("kafka_remote").options(**options).load()
(summary,) = records.agg(count_distinct("partition", "offset"), max_by("timestamp", "offset")).collect()
print(f"{summary[0]} records, the last one of {summary[1]}")

report = registered.report
print(f"{report.remote_gets} GETs for {report.remote_bytes} bytes, {report.broker_records} records through the broker")
spark.stop()
