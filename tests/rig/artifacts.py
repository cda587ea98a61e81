"""Puts the broker's jars from Maven into a folder of the checkout, or tells which tool is missing for that.

Rules of the file:

- Only artifacts that `pom.xml` and `spark-pom.xml` name are downloaded.
- A folder that exists is complete.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["MissingTool", "jars", "missing_tool", "spark_jars"]

_HERE = Path(__file__).parent
_FOLDER = _HERE.parent.parent / ".rig"
_DOWNLOAD_TIMEOUT_S = 600


class MissingTool(Exception):
    """The rig cannot run here. The message names the missing tool."""


def missing_tool() -> str | None:
    """Why a real broker cannot be started on this machine, None if it can."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"a real broker needs {tool}, which is not on this machine"
    return None


def jars(version: str) -> Path:
    """The folder with the jars of a Kafka version. Maven fills it the first time. Raises MissingTool."""
    return _copied(f"kafka-{version}", "pom.xml", f"-Dkafka.version={version}")


def spark_jars() -> Path:
    """As `jars`, for the jars of Spark's own Kafka source."""
    return _copied("spark-kafka", "spark-pom.xml")


def _copied(name: str, pom: str, *settings: str) -> Path:
    folder = _FOLDER / name
    if folder.is_dir():
        return folder
    reason = missing_tool()
    if reason is not None:
        raise MissingTool(reason)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(_HERE / pom), *settings]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise MissingTool(f"Maven could not bring {name}: {(done.stdout + done.stderr)[-2000:]}")
    try:
        partial.rename(folder)
    except OSError:  # another run was faster
        shutil.rmtree(partial, ignore_errors=True)
    return folder
