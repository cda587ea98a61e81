"""A clock that a test moves."""

from __future__ import annotations


class Clock:
    """Monotonic seconds, which stand still until a test moves them."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Move the clock, in place of `time.sleep`."""
        self.now_s += seconds
