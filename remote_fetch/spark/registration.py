"""How a session learns of the format, and the accumulator in which its tasks add up their reports.

Rules of the file:

- Each session has its own data source class and its own accumulator.
- The process keeps no state.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import AnalysisException

from remote_fetch.errors import ConfigError
from remote_fetch.observe import Report
from remote_fetch.spark.budgets import tasks_at_once
from remote_fetch.spark.classic import context_of
from remote_fetch.spark.settings import settings_advice, worker_advice
from remote_fetch.spark.source import KafkaRemoteDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Registered", "register_source"]

_OLDEST = (4, 1)
_IMPORT_S = 20.0


class _Sum(AccumulatorParam[Report]):
    """Adds up reports."""

    def zero(self, value: Report) -> Report:
        return Report()

    def addInPlace(self, value1: Report, value2: Report) -> Report:
        return value1 + value2


class Registered:
    """The result of `register`.

    `hints` are sentences on settings of the session that make it slow. Each was a warning too.
    """

    def __init__(self, totals: Accumulator[Report] | None, hints: tuple[str, ...]) -> None:
        self._totals = totals
        self.hints = hints

    @property
    def report(self) -> Report:
        """The cost of all tasks that have ended; empty over Spark Connect."""
        return Report() if self._totals is None else self._totals.value


def register_source(spark: SparkSession) -> Registered:
    """As `remote_fetch.spark.register`."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _OLDEST:
        raise ConfigError(f"kafka_remote needs PySpark 4.1 or later, not {pyspark.__version__}", key="pyspark")

    def setting(name: str) -> str | None:
        value: Any = spark.conf.get(name, None)
        return None if value is None else str(value)

    advice = (*settings_advice(setting), *worker_advice(_workers_python(spark), sys.executable, _can_import))
    for text in advice:
        warnings.warn(text, stacklevel=3)
    accumulator = _accumulator(spark)
    at_once = tasks_at_once(spark)

    class RegisteredSource(KafkaRemoteDataSource):
        """The source of one session. Spark pickles a class made in a function together with its attributes."""

        totals = accumulator
        tasks_at_once = at_once

    _register(spark, RegisteredSource)
    return Registered(accumulator, advice)


def _register(spark: SparkSession, source: type[KafkaRemoteDataSource]) -> None:
    """Register a source, also if another session of the driver has the format.

    Spark looks for the name in the active session, and refuses it for this one if it is there.
    """
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        active = type(spark).getActiveSession()
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS" or active is None:
            raise
        spark.createDataFrame([], "a int")  # PySpark makes the session of this call the active one
        try:
            spark.dataSource.register(source)
        finally:
            active.createDataFrame([], "a int")


def _workers_python(spark: SparkSession) -> str | None:
    """The Python of the session's workers (PYSPARK_PYTHON), as this machine finds it; None over Spark Connect."""
    context = context_of(spark)
    return None if context is None else shutil.which(context.pythonExec)


def _can_import(python: str) -> bool:
    """Whether this Python has the package. Without an answer in time: yes, for the workers will tell."""
    words = [python, "-c", "import pyarrow, remote_fetch.decode.run_decoder"]
    try:
        return subprocess.run(words, capture_output=True, timeout=_IMPORT_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return True


def _accumulator(spark: SparkSession) -> Accumulator[Report] | None:
    """The accumulator of the tasks' reports; None over Spark Connect, which has no accumulators."""
    context = context_of(spark)
    return None if context is None else context.accumulator(Report(), _Sum())
