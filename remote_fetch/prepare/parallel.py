"""Questions and small GETs that do not wait for each other, asked at the same time.

Rules of the file: what is asked has deadlines of its own; answers and errors come in the order of the questions; no
thread outlives the questions but one that hangs in somebody else's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from remote_fetch.fetch.pool import DaemonPool
from remote_fetch.session.session import Session

__all__ = ["TIMEOUT_MS", "all_at_once", "threads_of"]

S = TypeVar("S")
T = TypeVar("T")

TIMEOUT_MS = 600_000
"""Every question and every GET has a deadline of its own; this one is for what nobody has thought of."""
_THREADS = 8
_CLOSE_WAIT_MS = 1000


@contextmanager
def threads_of(session: Session) -> Iterator[DaemonPool]:
    """A few threads that may use the session."""
    session.share_locator()
    pool = DaemonPool(_THREADS, "remote-fetch-plan")
    try:
        yield pool
    finally:
        pool.close(_CLOSE_WAIT_MS)


def all_at_once(session: Session, make: Callable[[S], T], items: Sequence[S]) -> tuple[T, ...]:
    """What `make` makes of each, in order. Raises the error of the first for which it raises one."""
    if len(items) < 2:
        return tuple(map(make, items))
    with threads_of(session) as pool:
        calls = [pool.submit(partial(make, one)) for one in items]
        return tuple(call.wait(TIMEOUT_MS) for call in calls)
