"""A few threads that work for many feeds in turn, and the bell that tells the application's thread of news.

Rules of the file: at most one worker is in a feed; a feed whose queue is full costs nothing until it is taken from;
the threads know no consumer, so that one that is forgotten can be collected, and are daemons: `close` waits a bounded
time.
"""

from __future__ import annotations

import os
import queue
import threading
import time

from remote_fetch.consumer.feed import Feed

__all__ = ["Workers"]

_IDLE, _QUEUED, _BUSY = range(3)
_FEWEST_THREADS, _MOST_THREADS = 4, 16
_FEEDS_FOR_ONE_MORE = 32


def _threads_for(feeds: int) -> int:
    """Few, for they decode; of many partitions most wait for the store, so that a few more begin sooner."""
    return min(feeds, _FEWEST_THREADS + feeds // _FEEDS_FOR_ONE_MORE, _MOST_THREADS)


class Workers:
    """Runs feeds. `add`, `wake` and `drop` are the application's thread's; `wait` is where it waits."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Feed | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._states: dict[Feed, int] = {}
        self._news = threading.Event()
        self._closed = False
        self._pid = os.getpid()

    def add(self, feed: Feed) -> None:
        """Begin to work for a feed."""
        with self._lock:
            if self._closed:
                return
            self._states[feed] = _IDLE
            if len(self._threads) < _threads_for(len(self._states)):
                thread = threading.Thread(
                    target=self._work, name=f"remote-fetch-feed-{len(self._threads)}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
        self.wake(feed)

    def wake(self, feed: Feed) -> None:
        """Something was taken from a feed: there may be room again."""
        with self._lock:
            if self._states.get(feed) == _IDLE and feed.wants_work:
                self._states[feed] = _QUEUED
                self._queue.put(feed)

    def drop(self, feed: Feed) -> None:
        """Work no more for a feed; what it brings from now on is not seen."""
        feed.is_cancelled = True
        with self._lock:
            state = self._states.pop(feed, None)
        if state == _IDLE:
            feed.close()  # else the worker that meets it does

    def ring(self) -> None:
        """There is news: who waits looks."""
        self._news.set()

    def wait(self, timeout_s: float) -> None:
        """Until there is news from a feed, at most this long."""
        self._news.wait(timeout_s)
        self._news.clear()

    def _work(self) -> None:
        while (feed := self._queue.get()) is not None:
            with self._lock:
                if feed in self._states:
                    self._states[feed] = _BUSY
            if not feed.is_cancelled and feed.work():
                self._news.set()
            with self._lock:
                is_dropped = feed not in self._states
                if not is_dropped:
                    goes_on = feed.wants_work
                    self._states[feed] = _QUEUED if goes_on else _IDLE
                    if goes_on:
                        self._queue.put(feed)
            if is_dropped:
                feed.close()
            del feed

    def close(self, timeout_s: float) -> int:
        """End the threads, waiting at most this long. Returns how many were left behind."""
        if os.getpid() != self._pid:
            return 0  # after a fork the threads are the other process's, and so may the lock be
        with self._lock:
            self._closed = True
            feeds, self._states = list(self._states), {}
        for feed in feeds:
            feed.is_cancelled = True
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        return sum(thread.is_alive() for thread in self._threads)
