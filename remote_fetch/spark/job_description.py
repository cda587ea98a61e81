"""The text with which Spark's UI shows the jobs of a backfill.

Rules of the file:

- The user's own description is back afterwards, also after an error.
- Spark Connect has no descriptions. There a block runs without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from remote_fetch.spark.classic import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["described"]

_PROPERTY = "spark.job.description"


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs that this thread starts inside the block."""
    context: Any = context_of(spark)
    if context is None:
        yield
        return
    before: str | None = context.getLocalProperty(_PROPERTY)
    context.setLocalProperty(_PROPERTY, text)
    try:
        yield
    finally:
        context.setLocalProperty(_PROPERTY, before)  # None removes it
