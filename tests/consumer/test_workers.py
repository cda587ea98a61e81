"""The threads of feeds, at their end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import count
from types import FrameType

import pytest

from remote_fetch.consumer.workers import Workers


class FakeFeed:
    """A feed that calls `looked_at` whenever a worker looks whether it wants work. The worker holds its lock then."""

    def __init__(self, looked_at: Callable[[], None]) -> None:
        self.looked_at = looked_at
        self.is_cancelled = False

    @property
    def wants_work(self) -> bool:
        self.looked_at()
        return not self.is_cancelled

    def work(self) -> bool:
        return True

    def cancel(self) -> None:
        self.is_cancelled = True

    def close(self) -> None:
        """Nothing to close."""


def test_the_garbage_collector_may_end_the_threads_inside_of_one_of_them() -> None:
    """It runs in any thread and at any time, and so does what it calls for a consumer that is forgotten."""
    workers, ended = Workers(), threading.Event()

    def collect() -> None:
        if threading.current_thread() is not threading.main_thread():
            workers.end()
            ended.set()

    workers.add(FakeFeed(collect))  # type: ignore[arg-type]
    assert ended.wait(30)
    assert workers.close(30) == 0


def test_no_feed_is_taken_after_the_end() -> None:
    workers = Workers()
    assert workers.close(30) == 0
    workers.add(FakeFeed(lambda: None))  # type: ignore[arg-type]
    assert workers.close(30) == 0


def test_a_thread_ends_whose_start_a_handler_of_a_signal_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` waits until the thread runs, and the handler may raise in this wait."""
    workers, started, start = Workers(), [], threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workers.add(FakeFeed(lambda: None))  # type: ignore[arg-type]
    assert workers.close(30) == 0
    started[0].join(30)
    assert not started[0].is_alive()


def test_a_wait_that_a_handler_of_a_signal_ended_keeps_nobody_waiting() -> None:
    """A profiler runs where a handler may run: when a function begins, and after a call of a function in C."""
    for place in count():
        workers, left = Workers(), place

        def raising(_frame: FrameType, event: str, _: object) -> None:
            nonlocal left
            left -= event in ("call", "c_return")
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(raising)
        try:
            workers.wait(0.001)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        notifying = threading.Thread(target=workers.notify, daemon=True)
        notifying.start()
        notifying.join(30)
        assert not notifying.is_alive(), place
        workers.wait(30)
        if left >= 0:
            assert place >= 2
            return
