"""A few threads that work for many feeds in turn, and the event that wakes the application's thread.

Rules of the file:

- At most one thread works for a feed at a time.
- A feed whose queue is full takes no time of a thread until records are taken from it.
- The threads hold no reference to a consumer, so that a forgotten consumer is garbage-collected.
- The threads are daemons. `close` waits for them a bounded time.
"""

from __future__ import annotations

import os
import queue
import threading
from contextlib import suppress

from remote_fetch.consumer.feed import Feed
from remote_fetch.deadline import Deadline, join_all

__all__ = ["Workers"]

_IDLE, _QUEUED, _BUSY = range(3)
_FEWEST_THREADS, _MOST_THREADS = 4, 16
_FEEDS_FOR_ONE_MORE = 32


def _threads_for(feeds: int) -> int:
    """The number of threads: few, because they decode. With many feeds a few more, because most wait for the store."""
    return min(feeds, _FEWEST_THREADS + feeds // _FEEDS_FOR_ONE_MORE, _MOST_THREADS)


class Workers:
    """Runs feeds. The application's thread calls `add`, `wake`, `drop` and `wait`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Feed | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # for `_threads`, `_states`
        self._states: dict[Feed, int] = {}
        # A lock of C that `notify` releases and `wait` acquires. In an `Event`, a handler of a signal that raises may
        # leave the lock inside of it acquired, so that the next `notify` and `wait` never return.
        self._news = threading.Lock()
        self._news.acquire()
        self._has_news = False
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
                thread.start()  # a handler of a signal may raise when the thread runs already
                self._threads.append(thread)
        self.wake(feed)

    def wake(self, feed: Feed) -> None:
        """Queue the feed for a worker if it has room. To be called after records were taken from it."""
        with self._lock:
            if self._states.get(feed) == _IDLE and feed.wants_work:
                self._states[feed] = _QUEUED
                self._queue.put(feed)

    def drop(self, feed: Feed) -> None:
        """Stop working for a feed. Call this again if a handler of a signal has ended it."""
        feed.cancel()
        with self._lock:
            if self._states.get(feed) != _IDLE:  # if a thread works for the feed, that thread closes it
                self._states.pop(feed, None)
                return
        feed.close()
        with self._lock:
            self._states.pop(feed, None)

    def notify(self) -> None:
        """End the current or the next `wait`, because a feed has records or an ending, or an answer has come."""
        self._has_news = True
        with suppress(RuntimeError):  # raised if no `wait` has taken the lock since the last `notify`
            self._news.release()

    def take_news(self) -> bool:
        """Whether `notify` was called since the last call of this method. Its cause can be seen by now."""
        if not self._has_news:  # nothing is written then, so that a `notify` of this moment counts next time
            return False
        self._has_news = False
        return True

    def wait(self, timeout_s: float) -> None:
        """Wait for `notify`, at most this long."""
        self._news.acquire(timeout=max(0.0, timeout_s))

    def _work(self) -> None:
        while (feed := self._queue.get()) is not None:
            with self._lock:
                if feed in self._states:
                    self._states[feed] = _BUSY
            if not feed.is_cancelled and feed.work():
                self.notify()
            with self._lock:
                is_dropped = feed not in self._states
                if not is_dropped:
                    wants_work = feed.wants_work
                    self._states[feed] = _QUEUED if wants_work else _IDLE
                    if wants_work:
                        self._queue.put(feed)
            if is_dropped:
                feed.close()
            del feed
        self._queue.put(None)  # each thread tells the next one to end, also one that `add` does not know

    def end(self) -> None:
        """Let the threads end, and wait for none.

        It takes no lock, because the garbage collector may call it in a thread that holds the lock.
        """
        if os.getpid() != self._pid:
            return  # after a fork: the threads are in the parent process
        self._closed = True
        feeds, self._states = list(self._states), {}
        for feed in feeds:
            feed.cancel()
        self._queue.put(None)

    def close(self, timeout_s: float) -> int:
        """End the threads, and wait for them at most this long. Returns how many still run."""
        if os.getpid() != self._pid:
            return 0  # as in `end`, and a thread may have held the lock
        with self._lock:
            self.end()
        return join_all(self._threads, Deadline.after(timeout_s))
