"""How many GETs may be under way at once: fewer after the store has throttled, one more for each round that went well.

Rules of the file: halved once for each burst of refusals, however many of them come back; never below one, never above
what the pool has threads for.
"""

from __future__ import annotations

import threading
import time

__all__ = ["Window"]


class Window:
    """At most `size` calls pass between `enter` and `leave`; `size` follows what the store says. Thread-safe."""

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
        """How many may be under way now."""
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
        """A GET went well: after as many as are under way, there may be one more."""
        if self._size == self._most:
            return
        with self._changed:
            self._answers += 1
            if self._answers >= self._size < self._most:
                self._size, self._answers = self._size + 1, 0
                self._changed.notify()

    def throttled(self, began_at: float) -> None:
        """A GET that began at `began_at` (`time.monotonic`) was told to slow down."""
        with self._changed:
            self._answers = 0
            if began_at >= self._narrowed_at:  # one that left before only says again what is known
                self._size = max(1, self._size // 2)
                self._narrowed_at = time.monotonic()

    def close(self) -> None:
        """Let everybody pass: nobody waits any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
