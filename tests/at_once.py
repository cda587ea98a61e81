"""Calls in several threads that begin together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from remote_fetch.caller_thread import CallerThread

__all__ = ["at_once"]

T = TypeVar("T")

_WAIT_S = 60


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make each call in a thread of its own, and return their results.

    Raises the error of the first that failed, and TimeoutError for one that does not end within a minute.
    """
    together = threading.Barrier(len(calls), timeout=_WAIT_S)

    def make(call: Callable[[], T]) -> T:
        together.wait()
        return call()

    threads = [CallerThread("at-once") for _ in calls]
    futures = [thread.submit(partial(make, call)) for thread, call in zip(threads, calls, strict=True)]
    for thread in threads:
        thread.end()
    return [future.result(_WAIT_S) for future in futures]
