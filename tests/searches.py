"""How many examples a random search tries: one rule for all tests that search with Hypothesis.

Rules of the file:

- A search names the number of examples that finds the faults which it is for. REMOTE_FETCH_EXAMPLES multiplies all
  numbers: `make test FAST=1` and `make test` try fewer, the schedule tries all.
- No search has a deadline, and none may be too slow, because a machine may be busy.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["examples", "fewer", "take_time"]

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


def take_time() -> None:
    """Let all searches of this process follow these rules. One that names no number of examples has `fewer(100)`."""
    settings.register_profile("unhurried", examples(100))
    settings.load_profile("unhurried")


def fewer(count: int) -> int:
    """A number of examples, times REMOTE_FETCH_EXAMPLES, which may be a fraction."""
    return max(1, round(count * float(os.environ.get("REMOTE_FETCH_EXAMPLES", "1"))))


def examples(count: int) -> settings:
    """Hypothesis settings for as many examples as `fewer` gives."""
    return settings(deadline=None, max_examples=fewer(count), suppress_health_check=_SLOW)
