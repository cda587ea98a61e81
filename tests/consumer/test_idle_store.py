"""The thread that stores positions while the application makes no call."""

from __future__ import annotations

import gc
import threading

import pytest

from remote_fetch.consumer.idle_store import IdleStore
from tests.eventually import eventually


class Store:
    """Counts the calls. The first `failures` of them fail."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = threading.Semaphore(0)
        self._failures = failures

    def store(self) -> None:
        if self._failures:
            self._failures -= 1
            raise RuntimeError("once")
        self.calls.release()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "remote-fetch-positions"]


def test_it_stores_again_and_again_until_it_is_closed() -> None:
    store = Store()
    idle = IdleStore(store.store, 0.01)
    assert threads() == []
    for _ in range(2):
        idle.start()
    assert len(threads()) == 1
    for _ in range(3):
        assert store.calls.acquire(timeout=30)
    idle.close(30)
    assert threads() == []


def test_it_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(failures=2)
    idle = IdleStore(store.store, 0.01)
    idle.start()
    assert store.calls.acquire(timeout=30)
    idle.close(30)
    assert [record.getMessage() for record in caplog.records] == [
        "positions cannot be stored between two calls of the application"
    ]


def test_it_ends_with_the_object_that_it_stores_for() -> None:
    store = Store()
    idle = IdleStore(store.store, 0.01)
    idle.start()
    del store
    gc.collect()
    assert eventually(lambda: not threads())
    idle.close(0)


def test_nothing_runs_if_nothing_is_to_be_stored() -> None:
    store = Store()
    idle = IdleStore(store.store, None)
    idle.start()
    assert threads() == []
    idle.close(0)
