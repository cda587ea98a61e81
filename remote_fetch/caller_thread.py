"""A daemon thread that makes calls one after the other, so that a call that hangs holds up no other thread.

Rules of the file:

- A call's result or error goes to its future.
- The thread ends after the calls before `end`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

__all__ = ["CallerThread"]

_Result = TypeVar("_Result")


class CallerThread:
    """Makes calls in a thread of this `name`."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], _Result]) -> Future[_Result]:
        """Make a call after those before it."""
        future: Future[_Result] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # the caller of result() gets it
                future.set_exception(error)

        self._calls.put(run)
        return future

    def end(self) -> None:
        """End the thread after the calls so far."""
        self._calls.put(None)

    def _run(self) -> None:
        for run in iter(self._calls.get, None):
            run()
