"""Asks the brokers what their own disks hold of some partitions, through the channel beside librdkafka.

Rules of the file:

- A failure never ends a read: the facts are then unknown, and the reason is reported.
- The channel lives for one question. Its rest after a failure outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from remote_fetch.errors import MissingExtra
from remote_fetch.model import TopicIdPartition

if TYPE_CHECKING:
    from remote_fetch.locate.cluster import Cluster

__all__ = ["LocalLog", "LocalLogs"]

_CHANNEL_TIMEOUT_MS = 5_000
"""Longest wait of the channel that does not go through librdkafka. With wrong credentials its client waits so long."""


class LocalLog(NamedTuple):
    """The part of a log on brokers' disks: its first offset, and the bytes of the largest replica. None: unknown."""

    start_offset: int | None
    size_bytes: int | None


class LocalLogs:
    """Asks the brokers of one cluster. Thread-safe. Several threads may ask at the same time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rest_until_s = float("-inf")

    def ask(
        self, partitions: Sequence[TopicIdPartition], say: Callable[[str], None], *, sizes: bool = False
    ) -> dict[TopicIdPartition, LocalLog]:
        """The local log of each partition; empty without the extra `broker-api`. `sizes`: ask for the bytes too.

        After a question that failed as a whole, the brokers are not asked for a minute, and all is unknown.
        """
        from remote_fetch.locate.broker_channel import BrokerChannel  # noqa: PLC0415 - an extra is loaded for it

        try:
            channel = BrokerChannel(
                self._cluster.contact_properties,
                timeout_ms=_CHANNEL_TIMEOUT_MS,
                say=say,
                rest_until_s=self._rest_until_s,
            )
        except MissingExtra as error:
            say(error.message)
            return {}
        try:
            starts = channel.local_starts(partitions)
            known = channel.local_sizes(partitions) if sizes else {}
        finally:
            # A question of another thread may have failed since this one began.
            self._rest_until_s = max(self._rest_until_s, channel.rest_until_s)
            channel.close()
        return {partition: LocalLog(starts.get(partition), known.get(partition)) for partition in partitions}
