"""A wait for something that other threads bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

from remote_fetch.deadline import Deadline

__all__ = ["eventually"]


def eventually(condition: Callable[[], bool], timeout_s: float = 60) -> bool:
    """Whether the condition becomes true within that time."""
    until = Deadline.after(timeout_s)
    while not condition():
        if until.is_over:
            return False
        time.sleep(0.001)
    return True
