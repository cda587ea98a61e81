"""Retries of a call inside a deadline.

Rules of the file:

- The deadline does not depend on the store's SDK.
- A call is repeated only after an error that is `retriable`, or if the process stood still.
- Pauses double and are jittered, so that many readers do not return at the same moment.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from remote_fetch.errors import RemoteFetchError, StorageTimeout

__all__ = ["RetryPolicy"]

T = TypeVar("T")

_STOOD_STILL = 1.5
"""SDKs wait for a store no longer than its limit. An attempt that takes this many limits was held up elsewhere."""


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

        After the first attempt that takes far longer than the deadline allows, the deadline counts again, and a
        StorageTimeout is retried too: the process stood still, for example after Ctrl-Z. If only the store did, the
        caller of a pool has set `given_up` before. A call that has no caller yet has one attempt more.
        """
        limit_s, pause_s = self.timeout_ms / 1000, self.backoff_ms / 1000
        deadline, stood_still = time.monotonic() + limit_s, False
        while True:
            began_s = time.monotonic()
            try:
                return function()
            except RemoteFetchError as error:
                now_s, may_pass = time.monotonic(), error.retriable
                if not stood_still and now_s - began_s > _STOOD_STILL * limit_s:
                    deadline, stood_still = now_s + limit_s, True
                    may_pass = may_pass or isinstance(error, StorageTimeout)
                jittered_s = pause_s * self.random.uniform(0.5, 1.5)
                if not may_pass or given_up.is_set() or now_s + jittered_s >= deadline:
                    raise
                on_retry(error)
                if given_up.wait(jittered_s):
                    raise
                pause_s *= 2
