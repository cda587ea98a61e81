"""The error of a question that threads ask in turn, one at a time: threads that waited for their turn share it.

Else each thread would wait for the same error in turn, the last of n threads n times as long.

Rules of the file:

- A thread notes the time before it waits for the lock. Only an error that came after that time answers it.
- The error is kept and raised as a copy, because the frames of an error hold clients with threads and sockets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy

__all__ = ["SharedFailure", "SharedQuestion"]


class SharedFailure:
    """The last error of one question. The lock that the threads wait for covers it. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._error: Exception | None = None
        self._failed_s = float("-inf")

    def check(self, asked_s: float) -> None:
        """Raise the last error, if it came after `asked_s`: then it answers a thread that has waited since."""
        if self._error is not None and self._failed_s > asked_s:
            raise copy(self._error)

    @contextmanager
    def kept(self, *kinds: type[Exception]) -> Iterator[None]:
        """Ask the question in this block. An error of these kinds is kept, until the next answer, and raised."""
        try:
            yield
        except kinds as error:
            self._error, self._failed_s = copy(error), self._clock()
            raise
        self._error = None


class SharedQuestion:
    """The lock under which threads ask one question in turn, with its SharedFailure."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._failure = SharedFailure()

    @contextmanager
    def turn(self, *kinds: type[Exception]) -> Iterator[None]:
        """Wait for a turn, and ask the question in this block. First it looks whether another thread has the answer.

        An error of these kinds is raised in the threads that have waited for it, too.
        """
        asked_s = time.monotonic()
        with self._asking:
            self._failure.check(asked_s)
            with self._failure.kept(*kinds):
                yield
