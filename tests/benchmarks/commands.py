"""Runs a command as a process of its own, and tells what it printed or took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Taken", "printed", "taken"]

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 1800


class Taken(NamedTuple):
    """Wall time and CPU of a command, with those of the processes that it started and waited for."""

    wall_s: float
    cpu_s: float


def printed(module: str, *arguments: str, timeout_s: float) -> str:
    """Run a module of Python. Raises RuntimeError with the end of its messages where it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


def taken(command: Sequence[str], lines: int) -> Taken:
    """Run a command that prints so many lines. Raises ValueError for another number."""
    # An installed package has its bytecode. A shell that forbids writing it would have each start compile the source.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began_s = os.times(), time.monotonic()
    done = subprocess.run(command, capture_output=True, check=False, timeout=_TIMEOUT_S, env=environment)
    wall_s, after = time.monotonic() - began_s, os.times()
    if (found := len(done.stdout.splitlines())) != lines:
        raise ValueError(f"{command}: {found} lines, not {lines}: {done.stderr[-500:].decode(errors='replace')}")
    user_s, system_s = after.children_user - before.children_user, after.children_system - before.children_system
    return Taken(wall_s, user_s + system_s)
