"""Retries of a call inside a deadline.

Rules of the file:

- The deadline does not depend on the store's SDK.
- A call is repeated only after an error that is `retriable`.
- Pauses double and are jittered, so that many readers do not return at the same moment.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from remote_fetch.errors import RemoteFetchError

__all__ = ["RetryPolicy", "now_ms"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The time for one range with all attempts (`timeout_ms`), and the first pause between attempts (`backoff_ms`)."""

    timeout_ms: int
    backoff_ms: int
    random: random.Random = field(default_factory=random.Random, repr=False)

    def call(
        self, function: Callable[[], T], *, on_retry: Callable[[RemoteFetchError], None], given_up: threading.Event
    ) -> T:
        """Call `function` until it succeeds.

        Raises its last error if that is not `retriable`, if the next attempt would begin after the deadline, or if
        `given_up` is set. Before each pause `on_retry` is called with the error.
        """
        deadline = time.monotonic() + self.timeout_ms / 1000
        pause_s = self.backoff_ms / 1000
        while True:
            try:
                return function()
            except RemoteFetchError as error:
                jittered_s = pause_s * self.random.uniform(0.5, 1.5)
                if not error.retriable or given_up.is_set() or time.monotonic() + jittered_s >= deadline:
                    raise
                on_retry(error)
                if given_up.wait(jittered_s):
                    raise
                pause_s *= 2


def now_ms() -> int:
    """The time of the monotonic clock in milliseconds. Deadlines and pauses use this clock."""
    return int(time.monotonic() * 1000)
