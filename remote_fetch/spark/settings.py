"""Advice on the settings of Spark that decide how fast rows get from Python to the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["settings_advice", "worker_advice"]


def settings_advice(setting: Callable[[str], str | None]) -> Iterator[str]:
    """A sentence for each setting that slows the source down. `setting` gives a setting's value, None if unset."""
    if setting("spark.python.unix.domain.socket.enabled") != "true":
        yield (
            "spark.python.unix.domain.socket.enabled is not true: rows go to the JVM over TCP, which takes longer; "
            "set it when the session is made (PySpark 4.1 and later)"
        )
    if setting("spark.python.worker.reuse") == "false":
        yield "spark.python.worker.reuse is false: every task starts a Python process of its own; leave it true"
    if (setting("spark.sql.execution.arrow.maxBytesPerOutputBatch") or "-1") not in ("-1", "0"):
        yield (
            "spark.sql.execution.arrow.maxBytesPerOutputBatch is set: the JVM cuts each batch again, which takes "
            "several times as long; leave it unset"
        )


def worker_advice(worker: str | None, own: str, can_import: Callable[[str], bool]) -> Iterator[str]:
    """A sentence if Spark's Python workers run a Python that has no remote-fetch.

    - `worker` is the path of their Python on this machine. None: it is not here, so nothing is known.
    - `own` is the path of this process's Python.
    - `can_import` tells whether a Python has the package. It is not asked if both lie in the same folder.
    """
    if worker is None or Path(worker).parent == Path(own).parent or can_import(worker):
        return
    yield (
        f"Spark's Python workers run {worker}, where remote-fetch cannot be imported; set the environment variable "
        f"PYSPARK_PYTHON to a Python that has it, such as {own}, before the session is made"
    )
