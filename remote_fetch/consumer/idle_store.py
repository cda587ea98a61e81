"""Stores positions for librdkafka's auto-commit while the application works between two calls, in a thread.

The parent stores a position whenever it gives a record. Here that would take longer than the rest of `poll`. So `poll`
and `consume` store positions every tenth of a second, and this thread stores the positions after that.

Rules of the file:

- The thread holds no reference to a consumer, so that a forgotten consumer is garbage-collected.
- The thread is a daemon. `close` waits for it a bounded time.
- It goes on after an error. Only the first one is logged.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

__all__ = ["IdleStore"]

_LOG = logging.getLogger("remote_fetch")


class IdleStore:
    """Calls `store`, a bound method, every `every_s` seconds, from the first `start` until `close`. None: never."""

    def __init__(self, store: Callable[[], None], every_s: float | None) -> None:
        self._store = weakref.WeakMethod(store)
        self._every_s = every_s
        self._open = threading.Lock()  # as in `Workers`, no `Event`: `close` releases it
        self._open.acquire()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if that was not done before."""
        if self._thread is None and self._every_s is not None:
            arguments = (self._store, self._every_s, self._open)
            self._thread = threading.Thread(target=_run, args=arguments, name="remote-fetch-positions", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End the thread, and wait for it at most this long."""
        with suppress(RuntimeError):  # raised if it was closed before
            self._open.release()
        if self._thread is not None:
            self._thread.join(timeout_s)


def _run(reference: weakref.WeakMethod[Callable[[], None]], every_s: float, is_open: threading.Lock) -> None:
    has_failed = False
    while not is_open.acquire(timeout=every_s):
        store = reference()
        if store is None:
            return
        try:
            store()
        except Exception:
            if not has_failed:
                _LOG.exception("positions cannot be stored between two calls of the application")
            has_failed = True
        del store
