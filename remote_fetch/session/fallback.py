"""Decides, in one place, whether the broker reads the offsets that the store does not give, and reports it.

Rules of the file:

- An error may fall back if its class says so (`RemoteFetchError.falls_back`), and if the session reads broker ranges.
- Without brokers, an error that a broker might mend says so, unless it has another hint.
- Each range that goes to the broker is reported by an event with the reason. Nothing falls back in silence.
"""

from __future__ import annotations

from collections.abc import Callable

from remote_fetch.errors import RemoteFetchError
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Fallback, Observer
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.session.brokers import Brokers

__all__ = ["ASK_A_BROKER", "SET_BROKERS", "FallbackRule"]

SET_BROKERS = "set bootstrap.servers (-b)"
"""The end of every hint that only a broker helps."""
ASK_A_BROKER = f"A broker may have these offsets: {SET_BROKERS}"
"""The hint of an error that a broker might mend, if none is configured."""


class FallbackRule:
    """Decides for one session. `explain` may look for the cause of a reason.

    `reader` reads the ranges that fall back. If it is None, nothing may fall back, and errors get `hint`.
    """

    def __init__(
        self, observe: Observer, explain: Callable[[str], None], brokers: Brokers | None, *, hint: str | None = None
    ) -> None:
        self.reader = None if brokers is None else brokers.reader
        self._observe = observe
        self._explain = explain
        self._hint = hint

    def allows(self, error: RemoteFetchError) -> bool:
        """Whether the broker may read the offsets that failed with `error`. If not, the caller raises it.

        If only a broker is missing, the error gets the hint first.
        """
        if self.reader is None and error.falls_back:
            error.at(hint=self._hint)
        return self.reader is not None and error.falls_back

    def to_broker(
        self, partition: TopicIdPartition, first_offset: int, last_offset: int, reason: str, detail: str = ""
    ) -> BrokerRange:
        """Report that the broker reads offsets [first_offset, last_offset], if there are any. Returns the step."""
        if first_offset <= last_offset:  # of an empty log, whose objects may be gone too, nothing is read
            self._observe(Fallback(partition, first_offset, last_offset, reason, detail))
            self._explain(reason)
        return BrokerRange(partition, first_offset, last_offset, reason, detail)

    def after(
        self, error: RemoteFetchError, partition: TopicIdPartition, first_offset: int, last_offset: int
    ) -> BrokerRange:
        """As `to_broker`, for offsets that failed with `error`. Raises `error` if they may not fall back."""
        if not self.allows(error):
            raise error
        return self.to_broker(partition, first_offset, last_offset, error.kind, str(error))
