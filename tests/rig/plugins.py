"""Compiles the rig's own storage managers from `java/`, if a test needs them.

Rules of the file:

- A plug-in is compiled only against the broker's own jars. No artifact is downloaded for it.
- If there is no Java compiler, MissingTool says so.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.rig.artifacts import MissingTool, jars

__all__ = ["compiled"]

_SOURCES = Path(__file__).parent / "java"
_TIMEOUT_S = 120


def compiled(name: str, folder: Path, version: str) -> Path:
    """The class path of the plug-in whose source is `java/NAME.java`, compiled into `folder`. Raises MissingTool."""
    if shutil.which("javac") is None:
        raise MissingTool("a plug-in of the rig needs javac, which is not on this machine")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-J-XX:TieredStopAtLevel=1", "-nowarn", "-cp", f"{jars(version)}/*", "-d", str(folder)]
    command.append(str(_SOURCES / f"{name}.java"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"javac refuses {name}.java: {done.stdout}{done.stderr}")
    return folder
