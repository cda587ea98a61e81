"""AIORemoteConsumer: confluent_kafka's AIOConsumer over a RemoteConsumer.

Rules of the file: all that is asynchronous is the parent's. Its constructor makes a consumer of its own class, which is
replaced here before the application sees it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any

from confluent_kafka import cimpl
from confluent_kafka.aio import AIOConsumer

from remote_fetch.consumer.consumer import RemoteConsumer
from remote_fetch.observe import Observer, ignore

__all__ = ["AIORemoteConsumer", "CallerGate"]


_WRAPPED = ("error_cb", "throttle_cb", "stats_cb", "on_commit", "logger")
"""The parent makes these callable from the threads of its executor."""


class CallerGate:
    """Lets one caller in at a time, who may enter again. A caller is not a thread here.

    A callback runs within a call of the application, and may make a further call in another thread of the executor. The
    binding recognises both as one caller by a context variable; so does this gate. The variable has no public name.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._caller: int | None = None
        self._entries = 0

    def __enter__(self) -> None:
        caller = _caller()
        with self._free:
            self._free.wait_for(lambda: self._caller in (None, caller))
            self._caller = caller
            self._entries += 1

    def __exit__(self, *_: object) -> None:
        with self._free:
            self._entries -= 1
            if not self._entries:
                self._caller = None
                self._free.notify()


def _caller() -> int:
    identity = cimpl._reentry_identity_var.get(None)
    return threading.get_ident() if identity is None else int(identity)


class _Consumer(RemoteConsumer):
    _gate: Callable[[], AbstractContextManager[Any]] = CallerGate


class AIORemoteConsumer(AIOConsumer):
    """`confluent_kafka.aio.AIOConsumer` that reads tiered data from the store; see `RemoteConsumer`.

    Takes the parent's arguments, `consumer_conf` with the keys of remote-fetch, and `observer`. Every method is the
    parent's. `remote_metrics` is not a coroutine, for it waits for nothing.

    Raises as `RemoteConsumer` does; RuntimeError without a running event loop, as the parent does.
    """

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: Executor | None = None,
        observer: Observer = ignore,
    ) -> None:
        # The parent replaces these in the mapping that it gets, and makes a consumer of it that connects to nothing.
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
