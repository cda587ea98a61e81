"""A real schema registry with Confluent's API: Apicurio Registry, from Maven, as a process of its own on loopback.

Rules of the file:

- Maven brings the program the first time, into a folder of the checkout. A folder that exists is complete.
- The registry keeps its schemas in memory. Its process ends with the block.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.own_processes import killed_after
from tests.rig.artifacts import MissingTool, missing_tool
from tests.rig.ports import free_port

__all__ = ["apicurio"]

VERSION = "2.6.13.Final"
_FOLDER = Path(__file__).parent.parent.parent / ".rig"
_DOWNLOAD_TIMEOUT_S = 600
_START_TIMEOUT_S = 120
_LIFE_S = 600


@contextmanager
def apicurio() -> Iterator[str]:
    """A registry that runs, by its URL for Confluent's clients. Raises MissingTool."""
    jar, port = _program(), free_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    command = [
        "java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}",
        "-jar", str(jar),
    ]  # fmt: skip
    with (
        subprocess.Popen(command, cwd=jar.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
        killed_after(_LIFE_S, process),
    ):
        _wait(url, process)
        yield url


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(f"the registry did not start in {_START_TIMEOUT_S} s")


def _program() -> Path:
    folder = _FOLDER / f"apicurio-{VERSION}"
    jar = folder / f"apicurio-registry-app-{VERSION}-runner.jar"
    if folder.is_dir():
        return jar
    reason = missing_tool()
    if reason is not None:
        raise MissingTool(reason)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise MissingTool(f"Maven could not bring the registry: {(done.stdout + done.stderr)[-2000:]}")
    archive = next(partial.glob("*.tar.gz"))
    with tarfile.open(archive) as packed:
        packed.extractall(partial, filter="data")
    archive.unlink()
    try:
        partial.rename(folder)
    except OSError:  # another run was faster
        shutil.rmtree(partial, ignore_errors=True)
    return jar
