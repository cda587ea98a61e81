"""ListOffsets by the consumer of an isolation level: the ends of a partition, and the offset for a time.

Rules of the file:

- A consumer that may have lost its brokers is replaced.
- A question is asked in slices. There are two exceptions, which have the whole deadline:
  - A consumer that fetches. A broker answers one connection in order, and librdkafka drops a connection if one request
    has timed out. So a short question would break off a slow fetch, again and again.
  - The offset for a time. A leader may look for it in the tier, for half a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from remote_fetch.deadline import Deadline
from remote_fetch.failures.broker_errors import is_passing
from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate.clients import Clients
from remote_fetch.locate.slices import LEADER_LOOKUP_S, LEAST_S, Newcomer, ask_in_slices
from remote_fetch.model import IsolationLevel, LogBounds

__all__ = ["ConsumerOffsets"]

T = TypeVar("T")

_NO_ANSWER = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class ConsumerOffsets:
    """Asks the leaders of partitions by the consumers of `clients`. Thread-safe."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._newcomers = {isolation: Newcomer() for isolation in IsolationLevel}

    def bounds(self, wanted: TopicPartition, isolation: IsolationLevel, deadline: Deadline) -> LogBounds:
        """As `Cluster.log_bounds`. librdkafka gives the smaller offset first: if that may be the end, both are asked.

        Raises KafkaException. A partition without a leader is not waited for, because it may have been deleted.
        """

        def ask(consumer: Consumer, timeout_s: float) -> tuple[int, int]:
            return consumer.get_watermark_offsets(wanted, timeout=timeout_s)

        low, high = self._asked(wanted.topic, isolation, ask, deadline, may_pass=_may_be_told_later)
        self._clients.answered()
        if isolation is IsolationLevel.READ_COMMITTED and low < high:
            wanted.offset = OFFSET_END
            if 0 <= (end := self.listed(wanted, isolation, deadline)) < high:
                wanted.offset = OFFSET_BEGINNING
                low = max(low, self.listed(wanted, isolation, deadline))
                high = max(low, end)
        return LogBounds(low, high)

    def listed(self, wanted: TopicPartition, isolation: IsolationLevel, deadline: Deadline) -> int:
        """The offset that ListOffsets gives for a time or for the end, negative if there is none.

        Raises KafkaException.
        """

        def ask(consumer: Consumer, timeout_s: float) -> int:
            (found,) = consumer.offsets_for_times([wanted], timeout=timeout_s)
            if found.error is not None:
                raise KafkaException(found.error)
            return int(found.offset)

        is_time = wanted.offset >= 0
        return self._asked(wanted.topic, isolation, ask, deadline, may_pass=_may_be_listed_later, in_one=is_time)

    def _asked(
        self,
        topic: str,
        isolation: IsolationLevel,
        ask: Callable[[Consumer, float], T],
        deadline: Deadline,
        *,
        may_pass: Callable[[KafkaException], bool],
        in_one: bool = False,
    ) -> T:
        """The answer to a question for the leader of a partition. `in_one`: it may take the whole deadline.

        The client is replaced if no answer comes, and if it does not find the leader.
        """
        newcomer = self._newcomers[isolation]

        def ask_once(timeout_s: float) -> T:
            consumer = self._clients.consumer(isolation)
            turn = newcomer.turn(consumer, timeout_s)
            in_slice = deadline if in_one or consumer.assignment() else Deadline.after(turn.slice_s, deadline.clock)
            try:
                answer = ask(consumer, max(in_slice.left_s, LEAST_S))
            except KafkaException as error:
                code = error.args[0].code()
                if code in _NO_ANSWER and not consumer.assignment():  # a slow fetch may delay the answer
                    newcomer.note_silence(turn)
                    if turn.is_last:
                        self._clients.replace(consumer)
                if code != KafkaError._UNKNOWN_PARTITION:
                    raise
            else:
                newcomer.note_answer(turn)
                return answer
            self._look_up_leader(consumer, topic, in_slice)
            return ask(consumer, max(in_slice.left_s, LEAST_S))

        return ask_in_slices(ask_once, deadline, may_pass=may_pass)

    def _look_up_leader(self, consumer: Consumer, topic: str, in_slice: Deadline) -> None:
        """Make librdkafka look for the leader of a partition. Raises KafkaException, and replaces the client then.

        A broker that shuts down answers that the partition has no leader, or even that there is no broker. librdkafka
        (2.16) believes the first for fifteen minutes if it does not fetch the partition, and the second for ever.
        """
        try:
            consumer.list_topics(topic, timeout=max(min(LEADER_LOOKUP_S, in_slice.left_s), LEAST_S))
        except KafkaException:
            self._clients.replace(consumer)
            raise


def _may_be_told_later(error: KafkaException) -> bool:
    """Whether another leader may answer later, or the same one: it has died, or another one is being elected."""
    return is_passing(error) and error.args[0].code() != KafkaError._UNKNOWN_PARTITION


def _may_be_listed_later(error: KafkaException) -> bool:
    """Whether a new leader may answer ListOffsets later, when it knows the tier. Until then 3.9 answers UNKNOWN."""
    return is_passing(error) or error.args[0].code() == KafkaError.UNKNOWN
