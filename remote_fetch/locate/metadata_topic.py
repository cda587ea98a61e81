"""The metadata-topic locator: finds segments in the brokers' own topic `__remote_log_metadata` (KIP-405).

Rules of the file:

- An answer comes only after the topic has been read to the end that it had at the question.
- If the topic does not exist or may not be read, that is reported once. No further segment is located for a minute.
  Then the topic is asked for again: it may have been created, or the right granted.
- Any other failure of the topic does not end a read, because the broker can answer.
- The identity of a topic is its id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from confluent_kafka import KafkaException

from remote_fetch.errors import BrokerUnavailable, Unlocatable
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.described import described_partitions
from remote_fetch.locate.locator import Locator
from remote_fetch.locate.metadata_replay import MetadataTopic
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.topics import sorted_partitions
from remote_fetch.locate.unreadable import Unreadable, unlocatable
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Notice

__all__ = ["MetadataTopicLocator"]

_REST_S = 60.0
"""How long a topic that does not exist, or may not be read, is not asked for."""


class MetadataTopicLocator(Locator):
    """Timelines from the metadata topic `topic`, for topics of `cluster`.

    `topic` None: no storage is configured, and no segment is located. `say` is called, once, with the reason why the
    metadata topic cannot be read. `recovered` is called when it can be read again, `remark` with reports of the cache.
    `failure` is the class of the error with which the last reading of the metadata topic failed, None if it did not.
    `is_elsewhere`: the metadata topic has brokers of its own. If these seem to be the wrong ones, `remark` is called.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: MetadataTopic | None,
        *,
        say: Callable[[str], None],
        recovered: Callable[[], None] = lambda: None,
        remark: Callable[[Notice], None] = lambda _: None,
        is_elsewhere: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._say = say
        self._recovered = recovered
        self._remark = remark
        self._remarked = 0
        self._is_elsewhere = is_elsewhere
        self._examined: set[Uuid] = set()
        self._clock = clock
        self._noting = threading.RLock()
        self._rest_until_s = float("-inf")
        # Not the errors themselves: their frames hold the clients.
        self._reported: type[Unlocatable] | None = None
        self.failure: type[Unlocatable] | None = None

    @property
    def answered_s(self) -> float:
        """When a broker last answered a question about the metadata topic (`time.monotonic`), 0 if none ever has."""
        return 0.0 if self._topic is None else self._topic.cluster.answered_s

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """All partitions of an existing topic (NAME or NAME:ID), tiered or not. `numbers` is ignored.

        Raises UnknownTopic if the topic does not exist or has another id, and KafkaException if the broker refuses.
        For all topics (None), raises Unlocatable if the metadata topic cannot be read. If no broker of the topics'
        cluster answers, and the metadata topic is there, that is BrokerUnavailable.
        """
        if topic is None:
            if self._topic is None:
                raise Unlocatable("no remote storage is configured")
            return sorted_partitions(self._read_all(self._topic))
        if self._topic is not None and not self._rests:
            self._topic.cluster.connect()  # over a slow line its clients need seconds, and so does the next question
        found = described_partitions(self._cluster, topic)
        self._read_for(found)
        if self._is_elsewhere and self.failure is None:
            self._examine(found)
        return found

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition, by the records that `partitions` or `refresh` has read."""
        return Timeline(partition, (), ()) if self._topic is None else self._topic.timeline(partition)

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `timeline`, after the metadata topic has been read to its current end."""
        self._read_for([partition])
        return self.timeline(partition)

    def _read_all(self, known: MetadataTopic) -> tuple[TopicIdPartition, ...]:
        """Read the whole metadata topic. A failure is raised, and not reported."""
        try:
            found = known.read_all()
        except (BrokerUnavailable, Unlocatable, KafkaException) as error:
            if isinstance(error, BrokerUnavailable) and known.cluster is self._cluster:
                raise
            reason = unlocatable(error, known.name)
            self.failure = type(reason)
            raise reason from None
        self.failure = None
        return found

    def _read_for(self, partitions: Iterable[TopicIdPartition]) -> None:
        if self._topic is None or self._rests:
            return
        try:
            self._topic.read_for(partitions)
        except (BrokerUnavailable, Unlocatable, KafkaException) as error:
            self._fail(unlocatable(error, self._topic.name))
        else:
            self._succeed()
        self.pass_on_remarks()

    @property
    def _rests(self) -> bool:
        return self._clock() < self._rest_until_s

    def _fail(self, reason: Unlocatable) -> None:
        """Report a failure, unless one was reported since the last success.

        That the topic does not exist or may not be read is reported after another failure, too.
        """
        with self._noting:  # threads that wait for one reading fail at the same moment
            is_unreadable = isinstance(reason, Unreadable)
            if self._reported is None or (is_unreadable and not issubclass(self._reported, Unreadable)):
                self._say(str(reason))
            self._reported = self.failure = type(reason)
            if is_unreadable:
                self._rest_until_s = self._clock() + _REST_S

    def _succeed(self) -> None:
        """Report the end of a failure, if one was reported."""
        with self._noting:
            self.failure = None
            if self._reported is not None:
                self._recovered()
                self._reported = None

    def _examine(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Report, once for each topic, that the metadata topic of another cluster has no record of a tiered topic."""
        name, topic_id, known = partitions[0].topic, partitions[0].topic_id, self._topic
        if known is None or topic_id in self._examined:
            return
        self._examined.add(topic_id)
        if any(known.timeline(partition).next_metadata_offset for partition in partitions):
            return
        # These questions are about the configuration. Brokers may refuse them.
        with suppress(BrokerUnavailable, KafkaException):
            ours, theirs = self._cluster.cluster_id(), known.cluster.cluster_id()
            if ours != theirs and self._cluster.is_tiered(name):
                text = (
                    f"{known.name} of cluster {theirs} has no record of the tiered topic {name} with the id {topic_id} "
                    f"of cluster {ours}: no segment has been copied yet, or remote.locator.bootstrap.servers names the "
                    "wrong brokers"
                )
                self._remark(Notice(text, is_warning=True))

    def pass_on_remarks(self) -> None:
        """Give new reports of the cache to `remark`."""
        with self._noting:
            remarks = () if self._topic is None else self._topic.remarks
            for each in remarks[self._remarked :]:
                self._remark(each)
            self._remarked = len(remarks)

    def take_credentials(self, topic: MetadataTopic | None) -> None:
        """Ask again, because the credentials have changed: from now on with another client of the same topic.

        None: the client is the same, and has them.
        """
        self._rest_until_s = float("-inf")
        if topic is not None:
            self._topic = topic
            self._remarked = 0
