"""Threads of ours: which there are, for tests that want none to be left.

Rules of the file: Python does not know the native decoder's threads. Linux tells their names, of 15 characters at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["native_threads", "watch_threads"]

_TASKS = Path("/proc/self/task")
_DECODES_AHEAD = "remote-fetch-ahead"[:15]


def watch_threads() -> Callable[[], list[threading.Thread]]:
    """Tells, whenever it is called, which threads of ours were started since now and run."""
    before = set(threading.enumerate())
    return lambda: [one for one in set(threading.enumerate()) - before if one.name.startswith("remote-fetch")]


def native_threads() -> set[str]:
    """The ids of the native decoder's threads that run now. Empty on systems without `/proc`."""
    found = set()
    for task in _TASKS.glob("*"):
        with suppress(OSError):  # it has just ended
            if (task / "comm").read_text().startswith(_DECODES_AHEAD):
                found.add(task.name)
    return found
