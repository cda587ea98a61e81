"""The context of a Spark session, which a classic session has and Spark Connect lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["context_of"]


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a classic session; None over Spark Connect."""
    try:
        return spark.sparkContext
    except Exception:  # PySpark's type for this differs between versions
        return None
