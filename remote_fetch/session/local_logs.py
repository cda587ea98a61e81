"""Asks the brokers what their own disks hold of some partitions, through the channel beside librdkafka.

Rules of the file:

- A failure never ends a read: the facts are then unknown, and each reason is reported once.
- A channel lives for one question. After a question that failed as a whole, the brokers are left alone for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from remote_fetch.errors import MissingExtra
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Notice, Observer

if TYPE_CHECKING:
    from remote_fetch.locate.cluster import Cluster

__all__ = ["LocalLog", "LocalLogs"]

_CHANNEL_TIMEOUT_MS = 5_000
"""Longest wait of the channel that does not go through librdkafka. With wrong credentials its client waits so long."""
_REST_S = 60.0
"""How long nothing is asked after a question that failed as a whole."""


class LocalLog(NamedTuple):
    """The part of a log on brokers' disks: its first offset, and the bytes of the largest replica. None: unknown."""

    start_offset: int | None
    size_bytes: int | None


@dataclass(slots=True)
class _Rest:
    """The time until which nothing is asked with some credentials."""

    until_s: float = float("-inf")


class LocalLogs:
    """Asks the brokers of `cluster` (None: there are none). Thread-safe. Several threads may ask at the same time."""

    def __init__(
        self, cluster: Cluster | None, observe: Observer, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._observe = observe
        self._clock = clock
        self._said: set[str] = set()
        self._rest = _Rest()

    def end_rest(self) -> None:
        """Ask again at once, with new credentials. A question with the old ones makes no later question rest."""
        self._rest = _Rest()

    def ask(
        self, partitions: Sequence[TopicIdPartition], otherwise: str, *, sizes: bool = False
    ) -> dict[TopicIdPartition, LocalLog]:
        """The local log of each partition; empty if it is not asked for. `sizes`: ask for the bytes too.

        The brokers are not asked without the extra `broker-api`, and for a minute after a question that failed as a
        whole. `otherwise` is the consequence if they do not tell. The reasons are warnings if `sizes` were wanted,
        because these are shown to a user.
        """
        rest = self._rest
        if self._cluster is None or self._clock() < rest.until_s:
            return {}

        def say(text: str) -> None:
            if text not in self._said:
                self._said.add(text)
                self._observe(Notice(f"{text}; {otherwise}", is_warning=sizes))

        from remote_fetch.locate.broker_channel import BrokerChannel  # noqa: PLC0415 - an extra is loaded for it

        try:
            channel = BrokerChannel(self._cluster.contact_properties, timeout_ms=_CHANNEL_TIMEOUT_MS, say=say)
        except MissingExtra as error:
            say(error.message)
            return {}
        try:
            starts = channel.local_starts(partitions)
            known = channel.local_sizes(partitions) if sizes else {}
        finally:
            if channel.has_failed:
                rest.until_s = self._clock() + _REST_S
            channel.close()
        return {partition: LocalLog(starts.get(partition), known.get(partition)) for partition in partitions}
