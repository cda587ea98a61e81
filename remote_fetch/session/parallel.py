"""Runs questions to brokers and small GETs at the same time, if they do not depend on each other.

Rules of the file:

- Each question has its own deadline. Answers and errors come in the order of the questions.
- No thread outlives the questions, except one that hangs in the code of a plug-in or an SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from remote_fetch.errors import StorageTimeout
from remote_fetch.fetch.pool import Call, DaemonPool

__all__ = ["all_at_once", "result_of", "threads"]

S = TypeVar("S")
T = TypeVar("T")

_TIMEOUT_MS = 600_000
"""The last resort: each question and each GET has its own, shorter deadline."""
_THREADS = 8
_CLOSE_WAIT_MS = 1000


@contextmanager
def threads() -> Iterator[DaemonPool]:
    """A pool of a few threads, which is closed at the end."""
    pool = DaemonPool(_THREADS, "remote-fetch-plan")
    try:
        yield pool
    finally:
        pool.close(_CLOSE_WAIT_MS)


def result_of(call: Call[T]) -> T:
    """The result of a call of the pool, or its error. Raises StorageTimeout after ten minutes without either."""
    try:
        return call.wait(_TIMEOUT_MS)
    except StorageTimeout:
        if call.is_done:
            raise  # it is the call's own error
        text = f"questions to the store or to brokers took longer than {_TIMEOUT_MS // 1000} s"
        raise StorageTimeout(text) from None


def all_at_once(make: Callable[[S], T], items: Sequence[S]) -> tuple[T, ...]:
    """The result of `make` for each item, in order. Raises the error of the first item that fails."""
    if len(items) < 2:
        return tuple(map(make, items))
    with threads() as pool:
        calls = [pool.submit(partial(make, item)) for item in items]
        return tuple(map(result_of, calls))
