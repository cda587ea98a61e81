"""The CPU of a process and of its descendants, also of descendants that end during the measurement.

Rules of the file:

- Spark's Python workers come and go. Their parent ignores their end, so that the system does not add up their CPU.
- A thread looks twenty times a second. It misses the CPU that a process takes after the last look.
- The thread's own CPU is in the result, so that a caller can subtract it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Usage", "watched"]

_PERIOD_S = 0.05
_JOIN_TIMEOUT_S = 10


class Usage:
    """CPU seconds since the beginning: of the `root`, of its `descendants`, of the thread that looked."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._strangers: set[int] = set()
        self._start: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self.watcher_s = 0.0
        self.look()
        self._start = dict(self._last)

    @property
    def root_s(self) -> float:
        """Of the process itself."""
        return self._last[self._root] - self._start[self._root]

    @property
    def descendants_s(self) -> float:
        """Of all the others, from where they were at the beginning, or from their own."""
        return sum(cpu_s - self._start.get(pid, 0.0) for pid, cpu_s in self._last.items()) - self.root_s

    def look(self) -> None:
        """Note what each process has taken so far."""
        # In order of their ids, in which parents come before children unless the numbers began anew.
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
            if pid in self._strangers:
                continue
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if pid == self._root or pid in self._last or int(fields[1]) in self._last:
                self._last[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            else:
                self._strangers.add(pid)


@contextmanager
def watched(root: int) -> Iterator[Usage]:
    """The CPU of the process `root` and its descendants within the context; complete when the context has ended."""
    usage, done = Usage(root), threading.Event()

    def watch() -> None:
        while not done.wait(_PERIOD_S):
            usage.look()
        usage.watcher_s = time.thread_time()

    thread = threading.Thread(target=watch, name="processes", daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        done.set()
        thread.join(_JOIN_TIMEOUT_S)
        usage.look()
