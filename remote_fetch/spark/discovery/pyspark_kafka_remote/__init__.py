"""The package in which Spark looks for a format: `spark.read.format("kafka_remote")` works without a registration.

PySpark imports every installed package whose name begins with `pyspark_`, at the first use of a format that it does not
know, and takes its class `DefaultSource`.
"""

from __future__ import annotations

from remote_fetch.spark.source import KafkaRemoteDataSource as DefaultSource

__all__ = ["DefaultSource"]
