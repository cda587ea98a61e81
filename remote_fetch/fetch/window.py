"""The limit of concurrent GETs: halved after the store throttles, one more for each round without a refusal.

Rules of the file:

- One burst of refusals halves the limit once, however many refusals it has.
- The limit is never below one and never above the number of the pool's threads.
"""

from __future__ import annotations

import threading
import time

__all__ = ["Window"]


class Window:
    """Lets at most `size` calls be between `enter` and `leave`; the store's answers change `size`. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._changed = threading.Condition()
        self._most = most
        self._size = most
        self._inside = 0
        self._answers = 0
        self._narrowed_at = 0.0
        self._closed = False

    @property
    def size(self) -> int:
        """The limit now."""
        return self._size

    def enter(self) -> None:
        """Wait for a place."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._inside < self._size)
            self._inside += 1

    def leave(self) -> None:
        """Give the place back."""
        with self._changed:
            self._inside -= 1
            self._changed.notify()

    def answered(self) -> None:
        """Count a GET that succeeded. As many of them as the limit raise it by one."""
        if self._size == self._most:
            return
        with self._changed:
            self._answers += 1
            if self._answers >= self._size < self._most:
                self._size, self._answers = self._size + 1, 0
                self._changed.notify()

    def throttled(self, began_at: float) -> None:
        """Lower the limit: the store throttled a GET that began at `began_at` (`time.monotonic`)."""
        with self._changed:
            self._answers = 0
            if began_at >= self._narrowed_at:  # one that left before only says again what is known
                self._size = max(1, self._size // 2)
                self._narrowed_at = time.monotonic()

    def close(self) -> None:
        """Release all that wait; from now on `enter` does not wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
