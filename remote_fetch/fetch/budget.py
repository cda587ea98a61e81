"""A budget of bytes and of GETs a second, for all readers of a process that share it.

Rules of the file:

- A GET lines up before it starts, and counts when it starts. One that is not made leaves the line, and counts nothing.
- A GET may start if the budget has room for those ahead of it in the line and for itself. It counts from that time on,
  because its thread may come later: else the rate of a busy process would be lower.
- Nothing is saved up: after a pause there is no burst.
- A GET that already runs is charged at once, and delays those in the line: another attempt, or bytes that came unasked.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Budget", "Place"]

_LATE_S = 0.1
"""How late a thread may come to its turn, so that the next GETs need not wait for the time that it lost."""


class Budget:
    """At most so many bytes and so many GETs a second. None: no limit. Thread-safe. `clock` counts seconds."""

    def __init__(
        self, bytes_per_second: float | None, gets_per_second: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._second_per_byte = 0.0 if bytes_per_second is None else 1 / bytes_per_second
        self._seconds_per_get = 0.0 if gets_per_second is None else 1 / gets_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._line: deque[Place] = deque()
        self._bytes_free_at = self._gets_free_at = 0.0

    def line_up(self, size_bytes: int) -> Place:
        """A place for one GET of so many bytes, behind those that are in the line. It has to leave the line."""
        with self._lock:
            place = Place(self, size_bytes, self._clock())
            self._line.append(place)
        return place

    def charge(self, size_bytes: int, gets: int = 0) -> None:
        """Count bytes and GETs of no place. Negative bytes have been counted, and did not come."""
        with self._lock:
            self._charge(self._clock() - _LATE_S, size_bytes, gets)  # a thread that is late keeps its time

    def _charge(self, now: float, size_bytes: int, gets: int) -> None:
        self._bytes_free_at = max(now, self._bytes_free_at) + size_bytes * self._second_per_byte
        self._gets_free_at = max(now, self._gets_free_at) + gets * self._seconds_per_get

    def wait_s(self, place: Place) -> float:
        """As `Place.wait_s`."""
        with self._lock:
            now = self._clock()
            bytes_at, gets_at = self._bytes_free_at, self._gets_free_at
            for other in self._line:
                due_at = max(bytes_at, gets_at, other.since, now - _LATE_S)
                if other is place:
                    break
                bytes_at = due_at + other.size_bytes * self._second_per_byte
                gets_at = due_at + self._seconds_per_get
            if due_at <= now:
                self._line.remove(place)
                due_at = max(self._bytes_free_at, self._gets_free_at, place.since, now - _LATE_S)
                self._charge(due_at, place.size_bytes, 1)
            return max(due_at - now, 0.0)

    def leave(self, place: Place) -> None:
        """As `Place.leave`."""
        with self._lock, suppress(ValueError):  # it started
            self._line.remove(place)

    def close(self) -> None:
        """Nothing is held."""


class Place:
    """The place of one GET in the line of a budget. It lined up at `since`, by the clock."""

    def __init__(self, budget: Budget, size_bytes: int, since: float) -> None:
        self._budget = budget
        self.size_bytes, self.since = size_bytes, since

    def wait_s(self) -> float:
        """The seconds until the GET may start, unless it moves up. 0: it may, has been counted, and left the line."""
        return self._budget.wait_s(self)

    def leave(self) -> None:
        """Leave the line, if the place is still in it."""
        self._budget.leave(self)
