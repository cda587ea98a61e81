"""AIORemoteConsumer: confluent_kafka's AIOConsumer over a RemoteConsumer.

Rules of the file:

- The parent has all asynchronous code.
- The parent's constructor makes a consumer of another class. It is replaced here before the application sees it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from confluent_kafka import cimpl
from confluent_kafka.aio import AIOConsumer

from remote_fetch.consumer.consumer import RemoteConsumer
from remote_fetch.consumer.remote import Gate
from remote_fetch.observe import Observer, ignore

__all__ = ["AIORemoteConsumer", "CallerGate"]


_WRAPPED = ("error_cb", "throttle_cb", "stats_cb", "on_commit", "logger")
"""Keys of callbacks. The parent wraps them, so that the threads of its executor can call them."""


class CallerGate:
    """Lets in one caller at a time. A caller that is inside may enter again, also in another thread.

    A callback runs within a call of the application, and may make a further call in another thread of the executor. A
    context variable of confluent_kafka, which has no public name, tells that both belong to one caller. The gate uses
    the same variable.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._caller: int | None = None
        self._entries = 0

    def acquire(self, blocking: bool = True) -> bool:
        """Enter. If `blocking` is false and another caller is inside, return False."""
        caller = _caller()
        with self._free:
            if not blocking and self._caller not in (None, caller):
                return False
            self._free.wait_for(lambda: self._caller in (None, caller))
            self._caller = caller
            self._entries += 1
            return True

    def release(self) -> None:
        """Leave."""
        with self._free:
            self._entries -= 1
            if not self._entries:
                self._caller = None
                self._free.notify()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _caller() -> int:
    identity = cimpl._reentry_identity_var.get(None)
    return threading.get_ident() if identity is None else int(identity)


class _Consumer(RemoteConsumer):
    _gate: Callable[[], Gate] = CallerGate


class AIORemoteConsumer(AIOConsumer):
    """`confluent_kafka.aio.AIOConsumer` that reads tiered data from the store; see `RemoteConsumer`.

    Takes the parent's arguments and `observer`. `consumer_conf` may have the keys of remote-fetch. Every method is the
    parent's. `remote_metrics` is not a coroutine, because it waits for nothing.

    Raises the errors of `RemoteConsumer`, and RuntimeError without a running event loop, as the parent does.
    """

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: Executor | None = None,
        observer: Observer = ignore,
    ) -> None:
        # The parent wraps these in the mapping that it gets. Its temporary consumer of this mapping does not connect.
        wrapped = {name: consumer_conf[name] for name in _WRAPPED if name in consumer_conf}
        shell = {**wrapped, "group.id": "none"}
        super().__init__(shell, max_workers, executor)
        self._consumer.close()
        wrapped.update((name, shell[name]) for name in wrapped)
        try:
            self._consumer = _Consumer({**consumer_conf, **wrapped}, observer=observer)
        except BaseException:
            if executor is None:
                self.executor.shutdown(wait=False)
            raise

    def remote_metrics(self) -> dict[str, Any]:
        """As `RemoteConsumer.remote_metrics`."""
        assert isinstance(self._consumer, RemoteConsumer)
        return self._consumer.remote_metrics()
