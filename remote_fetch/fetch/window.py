"""The limit of concurrent GETs. It is halved if the store throttles, and grows by one after each round without that.

Rules of the file:

- A burst of throttled GETs halves the limit once.
- The limit is never below one and never above the number of the pool's threads.
"""

from __future__ import annotations

import threading
import time

__all__ = ["Window"]


class Window:
    """Allows `size` calls at a time between `enter` and `leave`. The store's answers change `size`. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._changed = threading.Condition()
        self._most = most
        self.size = most
        self._inside = 0
        self._answers = 0
        self._narrowed_at = 0.0
        self._closed = False

    def enter(self) -> None:
        """Wait until fewer than `size` calls are under way, and count one more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._inside < self.size)
            self._inside += 1

    def leave(self) -> None:
        """Count one call less, and wake a call that waits in `enter`."""
        with self._changed:
            self._inside -= 1
            self._changed.notify()

    def answered(self) -> None:
        """Count a successful GET. After `size` successful GETs the limit rises by one."""
        if self.size == self._most:
            return
        with self._changed:
            self._answers += 1
            if self._answers >= self.size < self._most:
                self.size, self._answers = self.size + 1, 0
                self._changed.notify()

    def throttled(self, began_at: float) -> None:
        """Lower the limit: the store throttled a GET that began at `began_at` (`time.monotonic`)."""
        with self._changed:
            self._answers = 0
            if began_at >= self._narrowed_at:  # a GET that began earlier belongs to the same burst
                self.size = max(1, self.size // 2)
                self._narrowed_at = time.monotonic()

    def close(self) -> None:
        """Release all waiting calls. From now on `enter` does not wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
