"""Limits on rate and on requests under way, for each principal and for all.

Rules of the file:

- One thread, that of the event loop, uses these objects.
- The clock is passed in, in monotonic seconds.
- The memory is bounded: the principal that was not seen for longest is forgotten first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from remote_fetch.recent import Recent
from remote_fetch.service.refusals import Refusal, overloaded

__all__ = ["Limits", "Slowdown"]

_MOST_PRINCIPALS = 10_000
_BURST_S = 2.0
"""A principal that has been quiet may ask at once what its rate gives in this time."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float
    under_way: int = 0


class Limits:
    """Lets requests in: `rate` a second and `at_once` under way for one principal, `most` under way for all."""

    def __init__(self, *, rate: float, at_once: int, most: int, clock: Callable[[], float]) -> None:
        self._rate, self._at_once, self._most = rate, at_once, most
        self._burst = max(rate * _BURST_S, 1.0)
        self._clock = clock
        self._buckets: Recent[Hashable, _Bucket] = Recent(_MOST_PRINCIPALS)
        self.under_way = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """The room of one request among all. Raises Refusal (503) if there is none."""
        if self.under_way >= self._most:
            raise overloaded(f"{self._most} requests are under way, the most of this service")
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    @contextmanager
    def of(self, principal: Hashable) -> Iterator[None]:
        """The room of one request of this principal. Raises Refusal (429) if it asks too often or too much at once."""
        now = self._clock()
        bucket = self._buckets[principal] = self._buckets.get(principal) or _Bucket(self._burst, now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at_s) * self._rate)
        bucket.at_s = now
        if bucket.tokens < 1:
            wait_s = (1 - bucket.tokens) / self._rate
            raise Refusal(429, "RATE_LIMITED", f"more than {self._rate:g} requests a second by one principal", wait_s)
        bucket.tokens -= 1
        if bucket.under_way >= self._at_once:
            raise Refusal(429, "TOO_MANY_AT_ONCE", f"more than {self._at_once} requests of one principal at once", 1.0)
        bucket.under_way += 1
        try:
            yield
        finally:
            bucket.under_way -= 1


@dataclass(slots=True)
class _Failed:
    count: int
    last_s: float
    until_s: float


class Slowdown:
    """Slows down wrong credentials of one `who`: each further failure doubles the wait, up to `most_s`.

    The first `free` failures cost nothing, because people mistype.
    """

    def __init__(
        self, *, free: int = 3, first_s: float = 0.5, most_s: float = 30.0, clock: Callable[[], float]
    ) -> None:
        self._free, self._first_s, self._most_s = free, first_s, most_s
        self._clock = clock
        self._failed: Recent[Hashable, _Failed] = Recent(_MOST_PRINCIPALS)

    def check(self, who: Hashable) -> None:
        """Raise Refusal (429) while `who` has to wait."""
        failed = self._failed.get(who)
        wait_s = 0.0 if failed is None else failed.until_s - self._clock()
        if wait_s > 0:
            raise Refusal(429, "TOO_MANY_FAILURES", "wrong credentials too often under this name", wait_s)

    def failed(self, who: Hashable) -> None:
        """Note that credentials of `who` were wrong."""
        now = self._clock()
        known = self._failed.get(who)
        is_recent = known is not None and now - known.last_s < 10 * self._most_s
        count = known.count + 1 if known is not None and is_recent else 1
        doublings = min(count - self._free - 1, 30)
        wait_s = 0.0 if doublings < 0 else min(self._first_s * 2.0**doublings, self._most_s)
        self._failed[who] = _Failed(count, now, now + wait_s)
