"""A time after which nothing is waited for: questions are repeated until then, and threads are joined until then.

Rules of the file:

- The clock is passed in, in monotonic seconds.
- The last error is raised as it is. Who asks knows best what it means.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

__all__ = ["Clock", "Deadline", "join_all", "retry"]

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

Clock: TypeAlias = Callable[[], float]
"""Monotonic seconds: `time.monotonic`, unless a test passes another clock."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of `clock`, in seconds."""

    at_s: float
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, timeout_s: float, clock: Clock = time.monotonic) -> Deadline:
        """The deadline that is `timeout_s` from now."""
        return cls(clock() + timeout_s, clock)

    @property
    def left_s(self) -> float:
        """How many seconds are left, at least 0."""
        return max(self.at_s - self.clock(), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.clock() >= self.at_s


def join_all(threads: Collection[threading.Thread], until: Deadline) -> int:
    """Wait for threads to end, together no longer than the deadline. Return how many still run.

    The current thread is not waited for. If it is one of `threads`, it still runs.
    """
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(until.left_s)
    return sum(thread.is_alive() for thread in threads)


def retry(
    ask: Callable[[], T], error_type: type[E], *, until: Deadline, pause_s: float, may_pass: Callable[[E], bool]
) -> T:
    """Call `ask` until it succeeds, and return its result.

    If `ask` raises an `error_type` that `may_pass` accepts, `retry` sleeps `pause_s` seconds and calls it again. It
    raises the error at once if `may_pass` refuses it, or if the deadline `until` was over when `ask` failed.
    """
    while True:
        try:
            return ask()
        except error_type as error:
            if not may_pass(error) or until.is_over:
                raise
        time.sleep(pause_s)
