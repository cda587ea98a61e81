"""The parts that the feeds of one consumer share: the session, the known topics, the circuit, the budget and the clock.

Rules of the file:

- The workers of feeds and the application's thread use it at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from remote_fetch.deadline import Clock
from remote_fetch.errors import RemoteFetchError, UnknownTopic
from remote_fetch.failures.shared_failure import SharedFailure
from remote_fetch.model import NO_ID, IsolationLevel, TopicIdPartition
from remote_fetch.session.circuit import Circuit
from remote_fetch.session.session import Session

__all__ = ["LOCAL_START_S", "FeedContext"]

_SMALLEST_SHARE_BYTES = 64 << 10
"""How many bytes a feed may request ahead at least."""
LOCAL_START_S = 30.0
"""How old a broker's answer about the offsets on its own disk may be."""

_MOST_NAMED = 16
"""How many topics are found for one request about local starts. This takes about as long as the request itself."""


@dataclass(slots=True)
class _Topic:
    """The partitions of a topic by number, empty until they are told."""

    partitions: dict[int, TopicIdPartition] = field(default_factory=dict)

    def hear(self, found: Iterable[TopicIdPartition]) -> None:
        """Take an answer."""
        self.partitions = {partition.partition: partition for partition in found}


class FeedContext:
    """The session, the known topics, the circuit, the budget and the clock of one consumer's feeds. Thread-safe."""

    def __init__(
        self,
        session: Session,
        isolation: IsolationLevel,
        max_bytes: int,
        queued_bytes: int,
        circuit: Circuit | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.session = session
        self.clock = clock
        self.isolation = isolation
        self._max_bytes, self._queued_bytes = max_bytes, queued_bytes
        self._readers = 1
        self._lock = threading.Lock()  # for `_circuit`
        self._circuit = circuit or Circuit()
        self._topics: dict[str, _Topic] = {}
        self._failures: dict[str, SharedFailure] = {}
        self._begun: set[str] = set()  # topics of feeds that have begun
        self._local_starts: dict[TopicIdPartition, tuple[float, int | None]] = {}
        self._asking = threading.Lock()  # for a request for local starts: `_local_starts`
        self._naming = threading.Lock()  # for a request for partitions: `_topics`, `_failures`

    def share_among(self, readers: int) -> None:
        """Divide the budget among this number of feeds. Running feeds use the new share after their current chunk."""
        self._readers = max(readers, 1)

    @property
    def share_bytes(self) -> int:
        """How many bytes one feed may request ahead."""
        return max(self._max_bytes // self._readers, _SMALLEST_SHARE_BYTES)

    @property
    def queued_bytes(self) -> int:
        """How many decoded bytes of one feed may wait in its queue, and as many in its scan. One chunk may always."""
        return self._queued_bytes // self._readers // 2

    def begin(self, topic: str) -> None:
        """Note that a feed of the topic begins, so that the next request for local starts is for this topic too."""
        self._begun.add(topic)

    def partition(self, topic: str, number: int) -> TopicIdPartition:
        """The partition with its topic id. Raises UnknownTopic and KafkaException."""
        known = self._known(topic).get(number) or self._found(topic).get(number)
        if known is None:
            raise UnknownTopic(f"topic {topic!r} has no partition {number}", topic=topic)
        return known

    def _known(self, topic: str) -> dict[int, TopicIdPartition]:
        """The partitions of a topic, if they were asked for after the last `forget`. Else none."""
        known = self._topics.get(topic)
        return {} if known is None else known.partitions

    def _found(self, topic: str) -> dict[int, TopicIdPartition]:
        """The partitions of a topic. Workers that want them at the same time share one answer, or its error."""
        before, asked_s = self._known(topic), self.clock()
        with self._naming:
            known = self._topics.setdefault(topic, _Topic())  # after a `forget` nothing reads it any more
            if not known.partitions or known.partitions is before:
                failure = self._failures.setdefault(topic, SharedFailure(self.clock))
                failure.check(asked_s)
                with failure.kept(RemoteFetchError, KafkaException):
                    # Only the names: each feed looks its own segments up.
                    known.hear(self.session.locator.partitions(topic, ()))
                del self._failures[topic]
            return known.partitions

    def known(self, topic: str, number: int) -> TopicIdPartition:
        """The partition, with its topic id if a former request told it. Makes no request."""
        return self._known(topic).get(number) or TopicIdPartition(NO_ID, topic, number)

    def forget(self, topic: str) -> None:
        """Forget the partitions of a topic, because another topic may have this name now.

        The answer to a question that is under way does not count later.
        """
        self._topics.pop(topic, None)
        self._begun.discard(topic)

    def local_start(self, partition: TopicIdPartition, max_age_s: float) -> int | None:
        """The offset from which on the broker reads the partition, as in `Session.local_starts`.

        An answer that is older than `max_age_s` is not believed. One request asks for all known partitions, also those
        of other topics, because each request needs new connections, which take seconds over a slow line. If the brokers
        did not tell of a topic, because it was deleted, it is left out of the requests for others.
        """
        with self._asking:
            known = self._local_starts.get(partition)
            if known is None or self.clock() - known[0] > max_age_s:
                if self.session.asks_local_starts:
                    self._name_begun()
                topics = tuple(self._topics.values())
                others = [each for topic in topics for each in topic.partitions.values() if each != partition]
                wanted = [partition, *(each for each in others if self._goes_along(each, partition))]
                found = self.session.local_starts(wanted)
                # Those of partitions that are not known any more are dropped.
                kept = {each: self._local_starts[each] for each in others if each in self._local_starts}
                self._local_starts = kept | {each: (self.clock(), found.get(each)) for each in wanted}
            return self._local_starts[partition][1]

    def _name_begun(self) -> None:
        """Find the partitions of some topics whose feeds have begun. An error is left to these feeds."""
        named = 0
        with suppress(KeyError):  # none is left, because a `forget` may take the last one at any time
            while named < _MOST_NAMED:
                topic = self._begun.pop()
                if not self._known(topic):
                    named += 1
                    with suppress(BaseException):  # as in `Lookups`
                        self._found(topic)

    def _goes_along(self, other: TopicIdPartition, partition: TopicIdPartition) -> bool:
        """Whether a request for the local start of a partition is also for this other one."""
        _, last_start = self._local_starts.get(other, (0.0, 0))
        return last_start is not None or other.topic_id == partition.topic_id

    def open_circuit(self) -> Circuit | None:
        """The circuit if it is open, which means that the storage is not used now. If it is closed, None."""
        circuit = self._circuit
        return circuit if circuit.is_open(self.clock()) else None

    def failed(self, reason: str) -> None:
        """Note a failure of the storage. It is not used for a while."""
        now_s = self.clock()
        with self._lock:
            if not self._circuit.is_open(now_s):
                self._circuit = self._circuit.failed(reason, now_s)

    def worked(self) -> None:
        """Note an answer of the storage."""
        with self._lock:
            self._circuit = self._circuit.worked()
