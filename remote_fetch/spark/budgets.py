"""Splits a budget of bytes and GETs a second among the tasks that run at once.

Rules of the file:

- Each Python worker of Spark is a process with a budget of its own, so that each takes a part.
- A user who sets `fetch.remote.budget.processes` knows better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from remote_fetch.spark.classic import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["split_among", "tasks_at_once"]

_PROCESSES = "fetch.remote.budget.processes"
_LIMITS = ("fetch.remote.max.bytes.per.second", "fetch.remote.max.gets.per.second")
_CONNECT_SETTING = "spark.default.parallelism"


def tasks_at_once(spark: SparkSession) -> int | None:
    """How many tasks the session's executors run at the same time, as far as Spark tells. None: it does not."""
    context = context_of(spark)
    if context is not None:
        return context.defaultParallelism
    given = str(spark.conf.get(_CONNECT_SETTING, ""))
    return int(given) if given.isdecimal() and int(given) else None


def split_among(config: Mapping[str, str], tasks: Callable[[], int | None]) -> Mapping[str, str]:
    """The configuration of one of so many tasks. It is the same without a budget, and if their number is not known.

    `tasks` is called if there is a budget to split.
    """
    if _PROCESSES in config or not any(name in config for name in _LIMITS):
        return config
    count = tasks()
    return {**config, _PROCESSES: str(count)} if count else config
