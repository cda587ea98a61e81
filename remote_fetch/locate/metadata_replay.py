"""The metadata topic as far as it has been read, for one reader or for all readers of a process with the same rights.

Rules of the file:

- Only the metadata partitions that are needed are read: first between their watermarks, then further on demand.
- One thread reads at a time, for all threads that wait. They share its result, or its error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.broker_errors import is_passing, is_refusal
from remote_fetch.deadline import Deadline, retry
from remote_fetch.errors import Unlocatable
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate.clients import Consumer
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.leases import Leases
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import TopicIdPartition, Uuid

__all__ = ["METADATA_TOPIC", "METADATA_TOPICS", "MetadataTopic", "Unreadable", "unlocatable"]

T = TypeVar("T")

METADATA_TOPIC = "__remote_log_metadata"

_CONSUME_MESSAGES = 2_000
"""Small, so that a reader releases the interpreter's lock often and the application's threads can run."""
_POLL_S = 0.2
_RETRY_S = 0.1
_EOF = KafkaError._PARTITION_EOF


@dataclass(frozen=True, slots=True)
class _Replay:
    """The builder of one topic's timelines, and the next offset to read in each metadata partition."""

    builder: TimelineBuilder
    read_to: dict[int, int]

    @classmethod
    def of(cls, topic_id: Uuid | None) -> _Replay:
        return cls(TimelineBuilder(None if topic_id is None else [topic_id]), {})


@dataclass(frozen=True, slots=True)
class _Failure:
    """A read that failed: its time, its metadata partitions, and its error."""

    at_s: float
    topic_id: Uuid | None
    numbers: frozenset[int]
    error: Unlocatable | KafkaException

    def answers(self, topic_id: Uuid | None, numbers: set[int], asked_s: float) -> bool:
        """Whether this failure also answers a question from `asked_s` about these metadata partitions."""
        return self.topic_id == topic_id and numbers <= self.numbers and self.at_s >= asked_s


class Unreadable(Unlocatable):
    """The topic does not exist or may not be read. That is final for this reader."""


class MetadataTopic:
    """The metadata topic of one cluster. Thread-safe."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._replays: dict[Uuid | None, _Replay] = {}
        self._count: int | None = None
        self._reading = threading.Lock()
        self._asking = threading.Lock()
        self._wanted: dict[Uuid | None, set[int]] = {}
        self._read_at_s: dict[tuple[Uuid | None, int], float] = {}
        self._failure: _Failure | None = None

    @property
    def answered_s(self) -> float:
        """The time of the last answer of a broker (`time.monotonic`), 0 if there was none."""
        return self._cluster.answered_s

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition, by the records read so far."""
        with self._reading:
            known = self._replays.get(partition.topic_id) or self._replay(None)
            return known.builder.build(partition)

    def read_for(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Read the records of these partitions to the current end. Raises Unlocatable and KafkaException."""
        count = self._partition_count()
        wanted: dict[Uuid, set[int]] = {}
        for partition in partitions:
            number = metadata_partition(partition.topic_id, partition.partition, count)
            wanted.setdefault(partition.topic_id, set()).add(number)
        for topic_id, numbers in wanted.items():
            self._read(topic_id, numbers)

    def read_all(self) -> tuple[TopicIdPartition, ...]:
        """Read the whole topic, and return the partitions that have records. Raises as `read_for`."""
        self._read(None, set(range(self._partition_count())))
        with self._reading:
            return self._replay(None).builder.partitions()

    def close(self) -> None:
        """Close the client."""
        self._cluster.close()

    def _read(self, topic_id: Uuid | None, numbers: set[int]) -> None:
        asked_s = time.monotonic()
        with self._asking:
            self._wanted.setdefault(topic_id, set()).update(numbers)
        with self._reading:
            # A reading that began after this call has reached the end that this call needs.
            if all(self._read_at_s.get((topic_id, number), 0.0) >= asked_s for number in numbers):
                return
            if self._failure is not None and self._failure.answers(topic_id, numbers, asked_s):
                # Else each thread would wait for the same error in turn, the last of n threads n times as long.
                raise self._failure.error.with_traceback(None)
            with self._asking:
                numbers |= self._wanted.pop(topic_id, set())
            began_s = time.monotonic()
            try:
                self._catch_up(topic_id, numbers)
            except (Unlocatable, KafkaException) as error:
                self._failure = _Failure(time.monotonic(), topic_id, frozenset(numbers), error)
                raise
            self._read_at_s.update({(topic_id, number): began_s for number in numbers})

    def _replay(self, topic_id: Uuid | None) -> _Replay:
        return self._replays.setdefault(topic_id, _Replay.of(topic_id))

    def _partition_count(self) -> int:
        """How many partitions the metadata topic has.

        Raises Unlocatable if this principal may not read it, and KafkaException with the broker's error.
        """
        if self._count is not None:
            return self._count
        described = self._patiently(lambda: self._cluster.describe(METADATA_TOPIC))
        if not described.may_read:
            # Checked here, because a consumer without the permission waits and gets no error.
            raise _denied()
        self._count = len(described.partitions)
        return self._count

    def _catch_up(self, topic_id: Uuid | None, numbers: Iterable[int]) -> None:
        """Read the metadata partitions to their current ends.

        Raises Unlocatable if it takes too long or is forbidden, and KafkaException with the broker's error.
        """
        consumer = self._cluster.catcher()  # made first: it connects while the bounds are looked up
        replay = self._replay(topic_id)
        bounds = self._bounds(numbers)
        if any(replay.read_to.get(number, 0) > high for number, (_, high) in bounds.items()):
            # The topic was created again, or an election cut it off. The records read before are not its records.
            bounds |= self._bounds(replay.read_to.keys() - bounds.keys())
            replay = self._replays[topic_id] = _Replay.of(topic_id)
        ends: dict[int, int] = {}
        starts = []
        for number, (low, high) in bounds.items():
            start = replay.read_to[number] = max(replay.read_to.get(number, low), low)
            if start < high:
                ends[number] = high
                starts.append(TopicPartition(METADATA_TOPIC, number, start))
        if not starts:
            return
        # Explicit offsets: librdkafka takes half a second to resolve "the beginning".
        consumer.assign(starts)
        try:
            self._consume(consumer, replay, ends)
        finally:
            consumer.unassign()

    def _bounds(self, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The first offset and the end (exclusive) of each of these metadata partitions."""
        wanted = frozenset(numbers)

        def ask() -> dict[int, tuple[int, int]]:
            try:
                return self._cluster.ends(METADATA_TOPIC, wanted)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    self._cluster.describe(METADATA_TOPIC)  # raises if the whole topic is gone
                raise

        return self._patiently(ask) if wanted else {}

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask until an answer comes, while a leader changes or brokers are away. Raises the last error at the deadline.

        Without an answer the whole read would go through the broker. A leader election is no reason for that.
        """
        deadline = Deadline.after(self._timeout_ms / 1000)
        return retry(ask, KafkaException, until=deadline, pause_s=_RETRY_S, may_pass=is_passing)

    def _consume(self, consumer: Consumer, replay: _Replay, ends: dict[int, int]) -> None:
        deadline = Deadline.after(self._timeout_ms / 1000)
        while ends:
            # At most the records that are left, because `consume` waits until it has as many as it wants.
            left = sum(end - replay.read_to.get(number, 0) for number, end in ends.items())
            if _take(consumer.consume(max(1, min(left, _CONSUME_MESSAGES)), timeout=_POLL_S), replay, ends):
                deadline = Deadline.after(self._timeout_ms / 1000)
                self._cluster.answered()
            elif deadline.is_over:
                self._cluster.replace(consumer)
                self._count = None
                self._partition_count()  # raises if the permission was taken away
                raise Unlocatable(f"no answer from {METADATA_TOPIC} within {self._timeout_ms} ms")


def _take(messages: Iterable[Any], replay: _Replay, ends: dict[int, int]) -> bool:
    """Apply the messages of a consumer. Return whether any came from the topic, not from librdkafka's connections."""
    apply = replay.builder.apply
    reached: dict[int, int] = {}
    try:
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                apply(message.value(), key=message.key(), offset=offset)
                reached[message.partition()] = offset + 1
            elif error.code() == _EOF:
                # This offset is one past the end, even if the last records were compacted away.
                reached[message.partition()] = offset
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise _denied()
            elif error.fatal():
                raise KafkaException(error)
            # librdkafka recovers from other errors. The deadline of the caller bounds how long.
    finally:
        for number, offset in reached.items():
            replay.read_to[number] = max(replay.read_to.get(number, 0), offset)
            if offset >= ends.get(number, offset + 1):
                del ends[number]
    return bool(reached)


def _denied() -> Unlocatable:
    return Unreadable(
        f"this principal may not read {METADATA_TOPIC}",
        hint=f"Grant READ on the topic {METADATA_TOPIC}, or read through the broker",
    )


def unlocatable(error: KafkaException) -> Unlocatable:
    """The error of the cluster that keeps the metadata topic, as Unlocatable."""
    if is_refusal(error):
        return _denied()
    if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
        return Unreadable(
            f"there is no topic {METADATA_TOPIC}: tiered storage is off, or its metadata is kept elsewhere",
            hint="If it lives on another cluster, name it with remote.locator.bootstrap.servers",
        )
    return Unlocatable(f"{METADATA_TOPIC} cannot be read: {error.args[0].str()}")


METADATA_TOPICS: Leases[MetadataTopic] = Leases()
"""The metadata topics that the consumers of this process share. Empty without consumers (design note 0013)."""
