"""The one Spark of a test process: two threads in the driver's own process, a small heap, failed tasks tried again.

Rules of the file:

- The first test that asks for the session starts it. It is stopped at the end.
- Without Java, its tests are skipped with the reason.
- The benchmark has a session of the same settings.
- An example that makes a session is given this one. A process of its own takes 25 s of processor time.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rig.artifacts import missing_tool, spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUICK_JVM", "run_script", "session", "spark"]

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.log.level": "ERROR",
}


QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Tests end before optimising pays, a small heap needs no collector with threads of its own, and the jars are Spark's.

A small session takes 13 s of processor time with the first alone, 11 s with the second, and 9 s with all.
"""


@contextmanager
def session(
    master: str, warehouse: Path, *, driver_memory: str = "1g", java_options: str = ""
) -> Iterator[SparkSession]:
    """A session that runs this Python's workers and, where Maven is at hand, has Spark's own Kafka source."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(master).appName("remote-fetch")
        builder = builder.config("spark.sql.warehouse.dir", str(warehouse))
        builder = builder.config("spark.driver.memory", driver_memory)
        builder = builder.config("spark.driver.extraJavaOptions", java_options)
        if missing_tool() is None:
            builder = builder.config("spark.jars", ",".join(map(str, sorted(spark_jars().glob("*.jar")))))
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        made = builder.getOrCreate()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows `kafka_remote`."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java")
    from remote_fetch.spark import register

    warehouse = tmp_path_factory.mktemp("warehouse")
    with session("local[2,3]", warehouse, java_options=QUICK_JVM) as made:
        register(made)
        yield made


def run_script(spark: SparkSession, script: Path, *arguments: str) -> None:
    """Run a script that makes a session and stops it. It gets this session, which goes on."""
    with pytest.MonkeyPatch.context() as replaced:
        replaced.setattr(sys, "argv", [str(script), *arguments])
        replaced.setattr(spark, "stop", lambda: None)
        replaced.setattr(type(spark).Builder, "getOrCreate", lambda _builder: spark)
        runpy.run_path(str(script), run_name="__main__")
