"""The clock of one consumer: `time.monotonic` unless a test passes another one.

Rules of the file:

- The consumer counts in seconds, and `Circuit` counts in milliseconds. Only this file converts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Clock", "to_milliseconds", "to_seconds"]

Clock: TypeAlias = Callable[[], float]
"""Monotonic seconds."""


def to_milliseconds(time_s: float) -> int:
    """Convert seconds of a `Clock` to the milliseconds that `Circuit` counts in."""
    return int(time_s * 1000)


def to_seconds(time_ms: int) -> float:
    """Convert milliseconds of a `Circuit` to seconds of a `Clock`."""
    return time_ms / 1000
