"""Puts the broker's jars from Maven into a folder of the checkout, or tells which tool is missing for that.

Rules of the file:

- Only artifacts that `pom.xml` and `spark-pom.xml` name are downloaded.
- A folder that exists is complete. Of several processes one downloads, and the others wait.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["MissingTool", "class_archive", "formatted_folder", "is_installed", "jars", "missing_tool", "spark_jars"]

_HERE = Path(__file__).parent
_FOLDER = _HERE.parent.parent / ".rig"
_DOWNLOAD_TIMEOUT_S = 600
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Maven ends before optimising pays: half of its processor time."""


class MissingTool(Exception):
    """The rig cannot run here. The message names the missing tool."""


def missing_tool() -> str | None:
    """Why a real broker cannot be started on this machine, None if it can."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"a real broker needs {tool}, which is not on this machine"
    return None


def is_installed(version: str) -> bool:
    """Whether the folder with the jars of a Kafka version is there."""
    return (_FOLDER / f"kafka-{version}").is_dir()


def jars(version: str) -> Path:
    """The folder with the jars of a Kafka version. Maven fills it the first time. Raises MissingTool."""
    return _copied(f"kafka-{version}", "pom.xml", f"-Dkafka.version={version}")


def class_archive(version: str) -> Path:
    """The file for the classes that a broker of that version loads (tests/rig/class_archives.py makes it)."""
    return _FOLDER / f"kafka-{version}.jsa"


def formatted_folder(version: str, roles: str) -> Path:
    """The folder for what Kafka's tool writes into the log folder of a new node (Node.format makes it)."""
    return _FOLDER / f"kafka-{version}-{roles.replace(',', '-')}.formatted"


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
    _FOLDER.mkdir(exist_ok=True)
    with open(_FOLDER / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():  # else another process was faster
            _download(folder, pom, settings)
    return folder


def _download(folder: Path, pom: str, settings: Sequence[str]) -> None:
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(_HERE / pom), *settings]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    environment = {**os.environ, "MAVEN_OPTS": f"{_QUICK_JVM} {os.environ.get('MAVEN_OPTS', '')}"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False
    )
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise MissingTool(f"Maven could not bring {folder.name}: {(done.stdout + done.stderr)[-2000:]}")
    partial.rename(folder)
