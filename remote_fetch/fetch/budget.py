"""A budget of bytes and of GETs a second, for all readers of a process that share it.

Rules of the file:

- A GET reserves its place in time before it starts, and starts then.
- Nothing is saved up: after a pause there is no burst.
- A GET that already runs is charged at once, and delays those after it: another attempt, or bytes that came unasked.
- The place of a GET that is not made is given back, and so are the bytes of one that fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """At most so many bytes and so many GETs a second. None: no limit. Thread-safe. `clock` counts seconds."""

    def __init__(
        self,
        bytes_per_second: float | None,
        gets_per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._second_per_byte = 0.0 if bytes_per_second is None else 1 / bytes_per_second
        self._seconds_per_get = 0.0 if gets_per_second is None else 1 / gets_per_second
        self._clock = clock
        self._lock = threading.RLock()  # the garbage collector may give a place back in a thread that holds it
        self._bytes_free_at = self._gets_free_at = 0.0

    def reserve(self, size_bytes: int) -> float:
        """Take the place of one GET of so many bytes. Returns when it may start, by the clock: now or later."""
        with self._lock:
            now = self._clock()
            start = max(now, self._bytes_free_at, self._gets_free_at)
            self._charge(now, size_bytes, 1)
            return start

    def give_back(self, size_bytes: int) -> None:
        """Give the place of a GET of so many bytes back, which is not made. Those after it keep their places."""
        self.charge(-size_bytes, -1)

    def charge(self, size_bytes: int, gets: int = 0) -> None:
        """Count bytes and GETs without a reservation. Negative bytes were reserved, and did not come."""
        with self._lock:
            self._charge(self._clock(), size_bytes, gets)

    def _charge(self, now: float, size_bytes: int, gets: int) -> None:
        self._bytes_free_at = max(now, self._bytes_free_at) + size_bytes * self._second_per_byte
        self._gets_free_at = max(now, self._gets_free_at) + gets * self._seconds_per_get

    def close(self) -> None:
        """Nothing is held."""
