"""The clients of confluent_kafka as this package makes them: none of them ends in a thread of librdkafka.

Rules of the file:

- librdkafka (2.16) aborts the process if a client ends in one of the client's own threads. Such a thread runs Python's
  code: that of an AdminClient completes futures, that of any client calls `oauth_cb`. There the last reference may go,
  and there Python's collector may run. Then a new thread ends the client. The same holds for the `close` of a consumer,
  because a stream that is dropped there closes its consumers.
- A forked child has none of the threads of its parent's clients. To end such a client, librdkafka would wait for ever,
  or abort the process. So a child closes and ends none of them.
- The consumer class is that of confluent_kafka's C module, not `confluent_kafka.Consumer`: tracers (OpenTelemetry,
  ddtrace) and patches of a site replace that name. A replaced class would trace the reading of `__remote_log_metadata`,
  or would make a RemoteConsumer inside of a RemoteConsumer, for ever.
- `confluent_kafka.admin.AdminClient` is taken from its own module, because the C module has only its base class.
  Tracers do not replace it.
- Ruff refuses the other names in this package.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka import admin, cimpl

__all__ = ["AdminClient", "Consumer", "Producer"]

_OWN_REFERENCES = 2
"""Those of the list that holds a client, and of `sys.getrefcount`."""
_CLOSE_S = 10.0
"""How long a close in a thread that Python did not make waits for the new thread."""
_PAUSE_S = 0.1
_PAUSES = 300
"""How often the new thread waits for other references to go: half a minute."""


class _EndsElsewhere:
    """Hands a client that ends to a new thread, unless the thread that ends it was made by Python."""

    _is_inherited = False
    """Whether this is a forked child, and its parent process made the client."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls, *args, **kwargs)
        _CLIENTS.add(self)
        return self

    def __del__(self, *, is_exit: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_exit():  # the modules may be gone, and so may this one. Threads that Python did not make wait for ever
            return
        if not _is_pythons_thread():
            _thread.start_new_thread(_end, ([self],))

    def _enter_child(self) -> None:
        """Become a client of the parent process, in a forked child. A reference that nothing takes back keeps it.

        The end of the interpreter does not take it back either.
        """
        self._is_inherited = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


_CLIENTS: weakref.WeakSet[_EndsElsewhere] = weakref.WeakSet()


def _enter_child() -> None:
    for client in _CLIENTS:
        client._enter_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)


def _is_pythons_thread() -> bool:
    """Whether Python made the current thread."""
    own = (thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread))
    return threading.get_ident() in own


def _end(held: list[_EndsElsewhere]) -> None:
    """Hold a client until nothing else does. Else the thread that has handed it over could be the last to hold it.

    A client may hold itself, for example by a callback of an object that has the client. Then the collector ends it.
    """
    for _ in range(_PAUSES):
        if sys.getrefcount(held[0]) <= _OWN_REFERENCES:
            return
        time.sleep(_PAUSE_S)
    held.clear()
    gc.collect()


class AdminClient(_EndsElsewhere, admin.AdminClient):
    """As confluent_kafka's."""


class Consumer(_EndsElsewhere, cimpl.Consumer):
    """As that of confluent_kafka's C module."""

    def close(self) -> None:
        """As the parent's. In a thread that Python did not make, a new thread closes, and this waits a bounded time.

        If it is the client's own thread, the close waits until this has returned. A forked child closes nothing.
        """
        if self._is_inherited:
            return
        if _is_pythons_thread():
            super().close()
            return
        closing = threading.Thread(target=super().close, name="remote-fetch-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)


class Producer(_EndsElsewhere, cimpl.Producer):
    """As that of confluent_kafka's C module."""
