"""Threads of ours: which there are, for tests that want none to be left."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["watch_threads"]


def watch_threads() -> Callable[[], list[threading.Thread]]:
    """Tells, whenever it is called, which threads of ours were started since now and run."""
    before = set(threading.enumerate())
    return lambda: [one for one in set(threading.enumerate()) - before if one.name.startswith("remote-fetch")]
