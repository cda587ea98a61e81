"""Threads of ours: which there are, for tests that want none to be left.

Rules of the file: Python does not know the native decoder's threads. Linux tells their names, of 15 characters at most.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

__all__ = ["native_threads", "tasks", "watch_threads"]

_TASKS = Path("/proc/self/task")
_DECODES_AHEAD = "remote-fetch-ahead"[:15]


def watch_threads() -> Callable[[], list[threading.Thread]]:
    """Tells, whenever it is called, which threads of ours were started since now and run."""
    before = set(threading.enumerate())
    return lambda: [one for one in set(threading.enumerate()) - before if one.name.startswith("remote-fetch")]


def tasks() -> set[str]:
    """The ids of all threads that run now, those that Python does not know too. Empty on systems without `/proc`."""
    return set(os.listdir(_TASKS)) if _TASKS.exists() else set()


def native_threads(besides: Collection[str] = ()) -> set[str]:
    """The ids of the native decoder's threads that run now, except those in `besides`.

    Each thread costs a read of a file. The fixture of all tests passes the threads that ran before the test.
    """
    found = set()
    for task in tasks().difference(besides):
        with suppress(OSError):  # it has just ended
            if (_TASKS / task / "comm").read_text().startswith(_DECODES_AHEAD):
                found.add(task)
    return found
