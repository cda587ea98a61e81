"""A locator that sees only what is tiered, beside brokers: they tell which partitions a topic has.

Rules of the file:

- The brokers are asked for partitions alone. Segments are those of the other locator.
- Without the brokers' answer a read would leave out, in silence, each partition of which no segment is tiered yet.
- A storage without a segment of any topic is reported once: its URL may be wrong, and nothing else would say so.
- If the other locator cannot be asked, the brokers' answer stands. Its error is that of each timeline, where a read
  falls back, and the store is not asked again for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from copy import copy

from remote_fetch.errors import FallsBackError, RemoteFetchError, RetriableError, UnknownTopic
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.described import described_topic
from remote_fetch.locate.locator import Locator, LocatorOver
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.topics import EmptyStorage, split_topic
from remote_fetch.model import TopicIdPartition, Uuid

__all__ = ["DescribedLocator"]


class DescribedLocator(LocatorOver):
    """The timelines of `tiered`, for all partitions of the topics of `cluster`. `say` takes a sentence for the user."""

    def __init__(self, tiered: Locator, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._tiered = tiered
        self._cluster = cluster
        self._say: Callable[[str], None] | None = say
        self._failures: dict[Uuid, RemoteFetchError] = {}  # of the last `partitions` of each topic id

    def _asked(self, partition: TopicIdPartition) -> AbstractContextManager[Locator]:
        return nullcontext(self._tiered)

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """All partitions of an existing topic (NAME or NAME:ID), tiered or not.

        For all topics (None), and for an id that the topic no longer has: those that are tiered. Raises UnknownTopic if
        the topic does not exist, and KafkaException if the broker refuses. Raises the errors of the other locator if
        the brokers do not tell the partitions.
        """
        if topic is None:
            return self._tiered.partitions(None, numbers)
        name, topic_id = split_topic(topic)
        described = described_topic(self._cluster, name)
        if described.topic_id is None or topic_id not in (None, described.topic_id):
            return self._tiered.partitions(topic, numbers)
        located: tuple[TopicIdPartition, ...] = ()
        self._failures.pop(described.topic_id, None)
        try:
            located = self._tiered.partitions(f"{name}:{described.topic_id}", numbers)
        except UnknownTopic as error:
            if isinstance(error, EmptyStorage) and self._say is not None:
                self._say(str(error))
                self._say = None
        except (FallsBackError, RetriableError) as error:
            self._failures[described.topic_id] = error
        known = {partition.partition: partition for partition in located}
        return tuple(
            known.get(number, TopicIdPartition(described.topic_id, name, number)) for number in described.partitions
        )

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.timeline`. Raises the error of the last `partitions` of the topic, if the store gave one."""
        failure = self._failures.get(partition.topic_id)
        if failure is not None:
            raise copy(failure) from failure  # several threads may ask, and callers complete an error
        return self._tiered.timeline(partition)
