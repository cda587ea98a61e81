"""A small pool of daemon threads for calls that may hang in the code of a plug-in or an SDK.

Rules of the file:

- A caller waits with its own deadline. If it stops waiting, a call that has begun goes on in its thread. Its result is
  kept for another `wait`, and dropped if the call was cancelled.
- `close` waits no longer than its timeout.
- The executor of the standard library does not fit: at interpreter exit it waits for its threads without a limit.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

from remote_fetch.deadline import Deadline, join_all
from remote_fetch.errors import Cancelled, StorageTimeout
from remote_fetch.fetch.budget import Place
from remote_fetch.fetch.window import Window

__all__ = ["Call", "DaemonPool", "Failure"]

T = TypeVar("T")
Failure: TypeAlias = tuple[str, str | None]
"""The message and the hint of an attempt that failed, without its traceback, which would keep its bytes."""

_STEP_S = 1.0
"""A caller waits in steps of so many seconds. If one ends a whole step too late, the process stood still."""
_CANCEL_CHECK_S = 0.1
"""How often a thread that waits for the turn of a call looks whether the call was cancelled."""


class Call(Generic[T]):
    """One submitted call: its result or its error, and its start time.

    It adds two things to the standard library's Future: a running call can be given up, and the deadline counts from
    the start of the call. `turn` makes what the call waits for when a thread has come to it. None: it may start then.
    A call that makes several attempts notes their `failures`. StorageTimeout tells the last one. It makes no other
    attempt after `given_up` is set: by `cancel`, and when the pool is closed.
    """

    def __init__(
        self,
        function: Callable[[], T],
        pool: DaemonPool,
        turn: Callable[[], Place] | None,
        failures: Sequence[Failure],
        given_up: threading.Event | None,
    ) -> None:
        self._function = function
        self.turn = turn
        self.given_up = threading.Event() if given_up is None else given_up
        self._pool = pool
        self._failures = failures
        self._future: Future[T] = Future()
        self._started_at: float | None = None

    def run(self) -> None:
        """Make the call, unless it was cancelled before. Only the pool calls this method."""
        if self._future.done():
            return
        self._started_at = time.monotonic()  # no thread is woken: `wait` computes its deadline again when it times out
        with suppress(InvalidStateError):  # the call was cancelled
            try:
                result = self._function()
            except BaseException as error:  # `wait` raises it
                self._future.set_exception(error)
            else:
                self._future.set_result(result)

    def cancel(self) -> None:
        """Let `wait` raise Cancelled. An attempt that has begun goes on, and its result is dropped."""
        self.given_up.set()
        with suppress(InvalidStateError):  # the call is done
            self._future.set_exception(Cancelled("the read was closed"))

    @property
    def is_done(self) -> bool:
        """Whether there is a result or an error, so that `wait` returns at once."""
        return self._future.done()

    def wait(self, timeout_ms: int) -> T:
        """Wait for the result, for at most `timeout_ms` after the start of the call.

        While the call is queued, `timeout_ms` counts from the last of these: the begin of `wait`, the last success in
        the pool, and the turn of a call that waits for one. So a queued call times out if all threads hang, but not if
        the pool is only busy. If the process stood still, for example after Ctrl-Z, the time begins again for all calls
        of the pool: answers may have come, and no thread has run to take them.

        Raises the error of the call, StorageTimeout after that time, and Cancelled after `cancel`.
        """
        asked_at = time.monotonic()
        while not self._future.done():
            queued_at = max(asked_at, self._pool.moved_s)
            began_at = queued_at if self._started_at is None else self._started_at
            now_s = time.monotonic()
            left_s = max(began_at, self._pool.resumed_s) + timeout_ms / 1000 - now_s
            if left_s <= 0:
                raise self._late(timeout_ms)
            step_s = min(left_s, _STEP_S)
            try:
                return self._future.result(step_s)
            except TimeoutError:  # this wait timed out; a TimeoutError of the call is raised below
                pass
            finally:
                if time.monotonic() - now_s > step_s + _STEP_S:
                    self._pool.resumed_s = time.monotonic()
        return self._future.result()

    def _late(self, timeout_ms: int) -> StorageTimeout:
        text, hint = f"no answer from the store within {timeout_ms} ms", None
        if self._failures:
            before, hint = self._failures[-1]
            text = f"{text}; the attempt before failed: {before}"
        return StorageTimeout(text, hint=hint or "Raise fetch.remote.read.timeout.ms or lower fetch.remote.range.bytes")

    def wait_or_cancel(self, timeout_ms: int) -> T:
        """As `wait`, if nothing else waits for the call: it is not made later if it has not begun in that time."""
        try:
            return self.wait(timeout_ms)
        finally:
            self.cancel()


class DaemonPool:
    """Runs at most `threads` calls at the same time, in the order of `submit`. A thread starts when it is needed.

    `window` may lower that number for a while. Times are of `time.monotonic`, 0 before the first: `progressed_s` is
    that of the last success of a call, `resumed_s` when a caller last noticed that the process had stood still.
    """

    def __init__(self, threads: int, name: str = "remote-fetch", window: Window | None = None) -> None:
        self._threads_max = threads
        self._window = window or Window(threads)
        self._name = name
        self._queue: queue.SimpleQueue[Call[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # for `_threads`, `_open`, `_closed`
        self._threads: list[threading.Thread] = []
        self._open: set[Call[Any]] = set()  # submitted, and not finished
        self._closed = False
        self._closing = threading.Event()
        self.progressed_s = self._turn_s = self.resumed_s = 0.0

    def submit(
        self,
        function: Callable[[], T],
        turn: Callable[[], Place] | None = None,
        failures: Sequence[Failure] = (),
        given_up: threading.Event | None = None,
    ) -> Call[T]:
        """Queue a call. After `close`, the call is cancelled at once. The other arguments are those of `Call`."""

        def counted() -> T:
            result = function()
            self.progressed_s = time.monotonic()
            return result

        call = Call(counted, self, turn, failures, given_up)
        with self._lock:
            if self._closed:
                call.cancel()
                return call
            if len(self._open) >= len(self._threads) < self._threads_max:
                thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
                thread.start()
                self._threads.append(thread)
            self._open.add(call)
            self._queue.put(call)
        return call

    @property
    def moved_s(self) -> float:
        """The time of the last success, or of the turn of a call that waits for it, whichever is last."""
        return max(self.progressed_s, self._turn_s)

    @property
    def is_busy(self) -> bool:
        """Whether a call is queued or under way."""
        return bool(self._open)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            self._window.enter()
            try:
                self._wait_for_turn(call)
                if self._closed:
                    call.cancel()
                call.run()
            finally:
                self._window.leave()
            with self._lock:
                self._open.discard(call)
            del call  # a result must not live on in an idle thread

    def _wait_for_turn(self, call: Call[Any]) -> None:
        """Wait until the turn of a call, if it has one. A call that is cancelled during the wait loses its turn."""
        if call.turn is None or call.is_done:
            return
        turn = call.turn()
        try:
            while not (call.is_done or self._closed) and (left_s := turn.wait_s()) > 0:
                pause_s = min(left_s, _CANCEL_CHECK_S)
                self._turn_s = max(self._turn_s, time.monotonic() + pause_s)
                if self._closing.wait(pause_s):
                    return
        finally:
            turn.leave()

    def end(self) -> None:
        """Let the threads end after their calls, and wait for none.

        It takes no lock, because the garbage collector may call it in a thread that holds the lock.
        """
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)

    def close(self, timeout_ms: int) -> int:
        """End the threads, and wait at most `timeout_ms` for calls under way. Return how many threads still run.

        `wait` raises Cancelled: for queued calls at once, for calls under way after that time.
        """
        with self._lock:
            self._closed = True
            self._closing.set()
            for one in self._open:
                one.given_up.set()
        self._window.close()
        while True:
            try:
                call = self._queue.get_nowait()
            except queue.Empty:
                break
            if call is not None:
                call.cancel()
                with self._lock:
                    self._open.discard(call)
        self.end()
        left = join_all(self._threads, Deadline.after(timeout_ms / 1000))
        with self._lock:
            left_behind = list(self._open)
        for call in left_behind:
            call.cancel()
        return left
