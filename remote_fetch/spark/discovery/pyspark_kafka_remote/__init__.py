"""The package in which Spark looks for a format: `spark.read.format("kafka_remote")` works without a registration.

If PySpark does not know a format, it imports every installed package whose name begins with `pyspark_`, and takes the
class `DefaultSource` of each.
"""

from __future__ import annotations

from remote_fetch.spark.source import KafkaRemoteDataSource as DefaultSource

__all__ = ["DefaultSource"]
