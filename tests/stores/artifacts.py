"""The store servers' programs, built once from pinned versions into a folder of the checkout; and why there are none.

Rules of the file:

- A program that exists is complete.
- A build holds a lock, so that parallel test processes build a program once.
- A failed build is a BuildError with its output. A missing tool is MissingTool.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["BuildError", "MissingTool", "azurite", "fake_gcs_server", "missing_tool", "moto", "versitygw"]

VERSITYGW = "v1.8.0"
FAKE_GCS_SERVER = "v1.56.1"
AZURITE = "3.35.0"
"""The newest that Node.js 20 runs without a warning."""
MOTO = "5.1.16"

_FOLDER = Path(__file__).parents[2] / ".rig"
_BUILD_TIMEOUT_S = 900
_QUICK_BUILD = {"CGO_ENABLED": "0", "GOGC": "400"}
"""The compiler looks for garbage less often, and no C is compiled. Programs are optimised unless GOFLAGS forbids it."""
_OUTPUT_CHARS = 3000


class MissingTool(Exception):
    """The servers cannot be built here; the message names the tool that is missing."""


class BuildError(Exception):
    """The tools are there, but a build failed; the message ends with its output."""


def missing_tool(*tools: str) -> str | None:
    """Why servers that need these tools cannot be built on this machine, None if they can."""
    for tool in tools:
        if shutil.which(tool) is None:
            return f"the stores' servers need {tool}, which is not on this machine"
    return None


def versitygw() -> Path:
    """An S3 server that checks signatures, over a directory. Raises MissingTool."""
    return _go("github.com/versity/versitygw/cmd/versitygw", VERSITYGW)


def fake_gcs_server() -> Path:
    """A server of Google's JSON API. Raises MissingTool."""
    # Google's client is among its libraries. This is how the client leaves out what only gRPC to Google itself needs.
    return _go("github.com/fsouza/fake-gcs-server", FAKE_GCS_SERVER, "-tags=disable_grpc_modules")


def azurite() -> Path:
    """Microsoft's emulator of Azure's blobs. Raises MissingTool."""
    program = _FOLDER / f"azurite-{AZURITE}" / "node_modules" / ".bin" / "azurite-blob"
    with _to_be_built(program, "node", "npm") as folder:
        if folder is not None:
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
            _build(["npm", "install", "--prefix", str(folder), *options, f"azurite@{AZURITE}"])
    return program


def moto() -> Path:
    """The packages of an S3 server that needs nothing but Python, in a folder of their own."""
    packages = _FOLDER / f"moto-{MOTO}"
    with _to_be_built(packages / "moto") as folder:
        if folder is not None:
            options = ["--quiet", "--disable-pip-version-check", "--target", str(folder)]
            _build([sys.executable, "-m", "pip", "install", *options, f"moto[server]=={MOTO}"])
    return packages


def _go(package: str, version: str, *options: str) -> Path:
    name = package.rpartition("/")[2]
    program = _FOLDER / f"{name}-{version}" / name
    with _to_be_built(program, "go") as folder:
        if folder is not None:
            command = ["go", "install", "-ldflags=-s -w", *options, f"{package}@{version}"]
            _build(command, {**_QUICK_BUILD, "GOBIN": str(folder)})
    return program


@contextmanager
def _to_be_built(program: Path, *tools: str) -> Iterator[Path | None]:
    """A new folder to build in, which then becomes the program's; None where there is nothing to do."""
    final = _FOLDER / program.relative_to(_FOLDER).parts[0]
    if program.exists():
        yield None
        return
    reason = missing_tool(*tools)
    if reason is not None:
        raise MissingTool(reason)
    _FOLDER.mkdir(exist_ok=True)
    with open(_FOLDER / f"{final.name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():  # another process was faster
            yield None
            return
        partial = final.with_name(f"{final.name}.{os.getpid()}")
        try:
            partial.mkdir()
            yield partial
            partial.rename(final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _build(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-_OUTPUT_CHARS:]}")
