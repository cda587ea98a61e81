"""What a broker is asked again and again while the store is read: may we, is it still that topic, where does it start.

Rules of the file: reading objects goes past the broker's own checks, so they are made here: permission and topic id
from time to time, the log start before each slice (KIP-405: it moves, also inside a segment). Without a broker there is
nothing to ask, and that was said before.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import OffsetOutOfRange, UnknownTopic
from remote_fetch.locate.cluster import Cluster
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import Notice, Observer

__all__ = ["LogGuard"]

_LOG_START_S = 0.5
"""How old a log start may be. What is deleted later counts as already fetched, as in a consumer's own buffers."""
_ASK_AGAIN_S = 60.0
"""How long a permission holds: as long as a consumer's metadata may be old by default, within a factor of a few."""


class LogGuard:
    """Asks one cluster about the topics of one read. `skips` tells that records gone in the meantime are passed over.

    Not thread-safe.
    """

    def __init__(self, cluster: Cluster, observer: Observer, *, skips: bool) -> None:
        self._cluster = cluster
        self._observer = observer
        self._skips = skips
        self._asked_at: dict[TopicIdPartition, float] = {}
        self._log_starts: dict[TopicIdPartition, tuple[float, int]] = {}

    def authorise(self, partition: TopicIdPartition) -> None:
        """Check that this principal may READ the topic, and that it is still the same topic.

        Raises KafkaException (TOPIC_AUTHORIZATION_FAILED) as the broker would, UnknownTopic for another topic id.
        """
        topic = TopicIdPartition(partition.topic_id, partition.topic, -1)
        if time.monotonic() - self._asked_at.get(topic, -_ASK_AGAIN_S) < _ASK_AGAIN_S:
            return
        described = self._cluster.describe(partition.topic)
        if not described.may_read:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, f"READ on topic {partition.topic}"))
        if described.topic_id not in (None, partition.topic_id):
            raise UnknownTopic(
                f"topic {partition.topic!r} has the id {described.topic_id} now: it was deleted and made again",
                topic=partition.topic,
                hint=f"What is read here is {partition.topic}:{partition.topic_id}",
            )
        self._asked_at[topic] = time.monotonic()

    def check(self, partition: TopicIdPartition, isolation: IsolationLevel, next_offset: int) -> int:
        """The offset to go on from: `next_offset`, or the log start where that has passed it and may be skipped to.

        Raises OffsetOutOfRange where records were deleted before they were read, and what `authorise` raises.
        """
        self.authorise(partition)
        log_start = self._log_start(partition, isolation)
        if log_start <= next_offset:
            return next_offset
        gone = f"offsets {next_offset} to {log_start - 1} are gone: the log starts at {log_start} now"
        if not self._skips:
            raise OffsetOutOfRange(
                gone,
                topic=partition.topic,
                partition=partition.partition,
                offset=next_offset,
                hint="They were deleted while they were being read; auto.offset.reset=earliest goes on after them",
            )
        self._observer(Notice(f"{partition.topic}-{partition.partition}: {gone}; going on from there", is_warning=True))
        return log_start

    def _log_start(self, partition: TopicIdPartition, isolation: IsolationLevel) -> int:
        now = time.monotonic()
        known = self._log_starts.get(partition)
        if known is None or now - known[0] > _LOG_START_S:
            known = (now, self._cluster.log_bounds(partition, isolation).log_start_offset or 0)
            self._log_starts[partition] = known
        return known[1]
