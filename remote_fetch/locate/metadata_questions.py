"""Questions about the metadata topic, which are repeated while a leader changes or brokers are away.

Rules of the file:

- Without an answer the whole read would go through the broker. A leader election is no reason for that.
- Each question has a deadline.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.deadline import Deadline, retry
from remote_fetch.failures.broker_errors import is_of_no_topic, is_passing, is_unanswered
from remote_fetch.locate.answers import LogEnds
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.replay import Replay
from remote_fetch.locate.replay_cache import TopicOrigin
from remote_fetch.locate.unreadable import denied
from remote_fetch.model import NO_EPOCH, NO_ID, TopicIdPartition

__all__ = ["MetadataQuestions"]

T = TypeVar("T")

_RETRY_S = 0.1


class MetadataQuestions:
    """Asks the brokers of `cluster` about the topic `name`. `timeout_ms` bounds each question."""

    def __init__(self, cluster: Cluster, name: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._name = name
        self._timeout_ms = timeout_ms

    def describe(self) -> Topic:
        """The topic as it is now.

        Raises Unlocatable if this principal may not read it, and KafkaException with the broker's error.
        """
        found = self._patiently(lambda: self._cluster.describe(self._name))
        if not found.may_read:
            # Checked here, because a consumer without the permission waits and gets no error.
            raise denied(self._name)
        return found

    def origin_of(self, described: Topic) -> TopicOrigin | None:
        """The identity of the topic for the cache. None if the brokers do not tell it: then nothing is cached."""
        with contextlib.suppress(KafkaException):
            cluster_id = self._cluster.cluster_id()
            if cluster_id is not None and described.topic_id is not None:
                return TopicOrigin(cluster_id, described.topic_id, len(described.partitions))
        return None

    def bounds(self, numbers: Iterable[int], check_topic: Callable[[], None]) -> dict[int, LogEnds]:
        """The ends of each of these metadata partitions.

        If there may be no such partition, `check_topic` is called, which raises if the topic is gone or another one.
        """
        wanted = frozenset(numbers)

        def ask() -> dict[int, LogEnds]:
            try:
                return self._cluster.ends(self._name, wanted)
            except KafkaException as error:
                if not is_of_no_topic(error):
                    raise
                check_topic()
                # The topic is there, and a broker does not know the partition, or a leader, yet.
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, error.args[0].str())) from error

        return self._patiently(ask) if wanted else {}

    def led(self, numbers: Iterable[int]) -> set[int]:
        """Those of these metadata partitions that have a leader now.

        Raises KafkaException if a broker does not answer: each further question could wait as long.
        """
        found = set()
        for number in numbers:
            try:
                self._cluster.ends(self._name, {number})
            except KafkaException as error:
                if is_unanswered(error):
                    raise
            else:
                found.add(number)
        return found

    def still_holds(self, replay: Replay, bounds: Mapping[int, LogEnds]) -> bool:
        """Whether the log still has the last record that was read of each of these metadata partitions.

        An unclean election may have cut it off, and the log may have grown past its place since. A leader is asked if
        it is not the leader of that record, once. A leader never cuts off its own log.
        """
        for number, (_, _, epoch) in bounds.items():
            known = replay.epochs.get(number, NO_EPOCH)
            if known in (epoch, NO_EPOCH) or replay.confirmed.get(number) == epoch:
                continue
            partition = TopicIdPartition(NO_ID, self._name, number)  # brokers are asked by the name
            compare = partial(self._cluster.still_holds, partition, known, replay.read_to[number])
            if not self._patiently(compare):
                return False
            replay.confirmed[number] = epoch
        return True

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask until an answer comes. Raises an error that does not pass, and the last error at the deadline."""
        deadline = Deadline.after(self._timeout_ms / 1000)
        return retry(ask, KafkaException, until=deadline, pause_s=_RETRY_S, may_pass=is_passing)
