"""ListOffsets by an AdminClient: the ends of partitions and their last leader epochs.

Rules of the file:

- The requests of one question run at once.
- The caller of `ends` gives the AdminClient, and replaces the client of a broker that has died.
- `bounds` only saves time. If it has no answer, the caller asks a consumer, which looks for another leader.
- An offset below 0 is no answer. librdkafka (2.16) gives -1001 and no error if a broker is silent, or if its connection
  breaks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel as ListedLevel
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from remote_fetch.failures.broker_errors import is_of_another_leader, is_unanswered
from remote_fetch.kafka_clients import AdminClient
from remote_fetch.locate.answers import LogEnds, epoch_of
from remote_fetch.locate.clients import Clients
from remote_fetch.locate.slices import LEADER_LOOKUP_S, ONE_ANSWER_S
from remote_fetch.model import IsolationLevel, LogBounds

__all__ = ["AdminOffsets"]

_EARLIEST, _LATEST = OffsetSpec.earliest, OffsetSpec.latest
_QUICK_ANSWER_S = 1.0
"""How long `bounds` waits. An answer takes milliseconds, so without one the leader is away or unknown."""
_REST_S = 10.0
"""How long `bounds` asks nothing after it had no answer. Else each question would first wait in vain."""
_LEVELS = {
    IsolationLevel.READ_UNCOMMITTED: ListedLevel.READ_UNCOMMITTED,
    IsolationLevel.READ_COMMITTED: ListedLevel.READ_COMMITTED,
}


class AdminOffsets:
    """Asks the leaders of partitions by the AdminClient of `clients`. Thread-safe."""

    def __init__(self, clients: Clients, *, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._timeout_s = timeout_s
        self._clock = clock
        self._rest_until_s = float("-inf")

    def ends(self, admin: AdminClient, name: str, numbers: Collection[int], timeout_s: float) -> dict[int, LogEnds]:
        """The ends of partitions, by their numbers. Raises KafkaException with the first error about any of them."""
        wanted = [TopicPartition(name, number) for number in sorted(numbers)]
        low, high = self._ask(admin, wanted, _EARLIEST, _LATEST, timeout_s=timeout_s)
        return {
            partition.partition: (int(start.offset), int(end.offset), epoch_of(end))
            for partition, start, end in zip(wanted, low, high, strict=True)
        }

    def latest_epoch(self, wanted: TopicPartition) -> int | None:
        """The leader epoch at the end of the log, None or `NO_EPOCH` if the broker does not give it."""
        found = self._answer(wanted, _LATEST)
        return None if found is None else epoch_of(found)

    def latest_time_ms(self, wanted: TopicPartition) -> int | None:
        """The largest timestamp on the leader's disk, None if the broker does not give it (MAX_TIMESTAMP, Kafka 3.0).

        Records before the log start and markers count too, if they are still on the disk.
        """
        found = self._answer(wanted, OffsetSpec.max_timestamp)
        return None if found is None or found.timestamp < 0 else int(found.timestamp)

    def _answer(self, wanted: TopicPartition, spec: Callable[[], OffsetSpec]) -> Any:
        """The answer about one partition, None if there is none."""
        try:
            ((found,),) = self._ask(self._clients.admin(), [wanted], spec, timeout_s=min(ONE_ANSWER_S, self._timeout_s))
        except KafkaException:
            return None
        return found

    def bounds(self, wanted: TopicPartition, isolation: IsolationLevel, timeout_s: float) -> LogBounds | None:
        """The log start offset, and the end for the isolation level. None: there is no answer, for whatever reason.

        To be called only if the AdminClient has been answered before. A new one may need 3 s until it knows the leader
        (librdkafka 2.16), and a new consumer needs 0.7 s.
        """
        if self._clock() < self._rest_until_s:
            return None
        timeout_s = min(timeout_s, _QUICK_ANSWER_S)
        began_s = self._clock()
        try:
            ((low,), (high,)) = self._ask(
                self._clients.admin(), [wanted], _EARLIEST, _LATEST, isolation=isolation, timeout_s=timeout_s
            )
        except KafkaException as error:
            if is_unanswered(error) or self._clock() - began_s >= timeout_s:
                self._rest_until_s = self._clock() + _REST_S
            return None
        return LogBounds(low.offset, max(low.offset, high.offset))

    def _ask(
        self,
        admin: AdminClient,
        wanted: list[TopicPartition],
        *specs: Callable[[], OffsetSpec],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_s: float,
    ) -> list[list[Any]]:
        """The answers for partitions of one topic, a list for each of `specs`.

        Raises KafkaException with the first error about any partition.
        """
        level = _LEVELS[isolation]
        requests = [
            admin.list_offsets(dict.fromkeys(wanted, spec()), isolation_level=level, request_timeout=timeout_s)
            for spec in specs
        ]
        asked = [answers[partition] for answers in requests for partition in wanted]
        try:
            found = iter(list(map(_checked, asked, wanted * len(specs))))  # no frame of Python's between, see `finally`
        except KafkaException as error:
            if is_of_another_leader(error) or is_unanswered(error):
                # After most of these errors librdkafka's AdminClient (2.16) keeps its cached leaders. Without a new
                # lookup it would give the same error for minutes, until the cache expires.
                with contextlib.suppress(KafkaException):
                    admin.list_topics(wanted[0].topic, timeout=min(LEADER_LOOKUP_S, timeout_s))
            raise
        finally:
            del requests, asked  # else a future, its error and this frame hold each other, and the client
        self._clients.answered()
        return [[next(found) for _ in wanted] for _ in specs]


def _checked(answer: Future[Any], partition: TopicPartition) -> Any:
    """The answer about a partition. Raises KafkaException."""
    try:
        found = answer.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError._NOENT:  # librdkafka's word for partitions of which it knows no leader
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, error.args[0].str())) from error
        raise
    finally:
        del answer  # as in `_ask`
    if found.offset < 0:
        text = f"no answer about the offsets of {partition.topic}-{partition.partition}"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
    return found
