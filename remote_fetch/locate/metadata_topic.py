"""The metadata-topic locator: segments as the brokers' own `__remote_log_metadata` tells them (KIP-405).

Rules of the file: of that topic only the partitions that matter are read, between their watermarks, and then followed;
no answer is given before the end that was there at the question has been reached; a topic that is not there, or may
not be read, is said clearly and once, and then nothing more is tiered as far as this reader knows; whatever else goes
wrong with it is no reason to end a read, for the broker can answer. Identity is the topic id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from remote_fetch.errors import UnknownTopic, Unlocatable
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate.cluster import Cluster, is_passing, is_refusal
from remote_fetch.locate.timeline import Timeline, TimelineBuilder
from remote_fetch.locate.topics import sorted_partitions, split_topic
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid

__all__ = ["METADATA_TOPIC", "MetadataTopicLocator"]

T = TypeVar("T")

METADATA_TOPIC = "__remote_log_metadata"

_CONSUME_MESSAGES = 10_000
_POLL_S = 0.2
_RETRY_S = 0.1
_EOF = KafkaError._PARTITION_EOF


@dataclass(frozen=True, slots=True)
class _Replay:
    """One topic's timelines in the making, and the next offset to read in each metadata partition."""

    builder: TimelineBuilder
    read_to: dict[int, int]

    @classmethod
    def of(cls, topic_id: Uuid | None) -> _Replay:
        return cls(TimelineBuilder(None if topic_id is None else [topic_id]), {})


class _Unreadable(Unlocatable):
    """Nothing will change for as long as this reader lives: the topic is not there, or may not be read."""


class MetadataTopicLocator:
    """Timelines from the metadata topic of `metadata`, for topics of `cluster`; often the two are one cluster.

    `metadata` None: nothing is to be located, as no storage is configured. `say` hears, once, why nothing can be, and
    `recovered` is called when it can again.
    """

    def __init__(
        self,
        cluster: Cluster,
        metadata: Cluster | None,
        *,
        timeout_ms: int,
        say: Callable[[str], None],
        recovered: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._timeout_ms = timeout_ms
        self._say = say
        self._recovered = recovered
        self._replays: dict[Uuid | None, _Replay] = {}
        self._count: int | None = None
        self._is_unreadable = False
        self._is_failing = False

    def partitions(self, topic: str | None) -> tuple[TopicIdPartition, ...]:
        """The partitions of a topic that exists (NAME or NAME:ID), tiered or not.

        Raises UnknownTopic when there is no such topic or it has another id; KafkaException when the broker refuses;
        for all topics Unlocatable when the metadata topic cannot be read, for then there is nothing to say.
        """
        if topic is None:
            try:
                self._catch_up(None, range(self._partition_count()))
            except KafkaException as error:
                raise _unlocatable(error) from None
            return sorted_partitions(self._replay(None).builder.partitions())
        name, topic_id = split_topic(topic)
        try:
            described = self._cluster.describe(name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UnknownTopic(f"the cluster has no topic {name!r}", topic=name) from None
            raise
        if described.topic_id is None:
            raise UnknownTopic(f"the brokers tell no topic id of {name!r}: they are older than Kafka 2.8", topic=name)
        if topic_id not in (None, described.topic_id):
            raise UnknownTopic(
                f"topic {name!r} has the id {described.topic_id} now, not {topic_id}: it was deleted and made again"
            )
        found = tuple(TopicIdPartition(described.topic_id, name, number) for number in described.partitions)
        self._read_for(found)
        return found

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition, as far as `partitions` or `refresh` has read."""
        known = self._replays.get(partition.topic_id) or self._replay(None)
        return known.builder.build(partition)

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """The same, after reading the metadata topic to the end that it has now."""
        self._read_for([partition])
        return self.timeline(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """As `refresh`: metadata records tell where segments end."""
        return self.refresh(partition)

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Never: metadata records tell where segments end."""
        return False

    def measure(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata) -> Timeline:
        """As `timeline`: metadata records tell where segments end."""
        return self.timeline(partition)

    def _read_for(self, partitions: Iterable[TopicIdPartition]) -> None:
        if self._metadata is None or self._is_unreadable:
            return
        try:
            count = self._partition_count()
            wanted: dict[Uuid, set[int]] = {}
            for one in partitions:
                wanted.setdefault(one.topic_id, set()).add(metadata_partition(one.topic_id, one.partition, count))
            for topic_id, numbers in wanted.items():
                self._catch_up(topic_id, numbers)
        except (Unlocatable, KafkaException) as error:
            reason = _unlocatable(error) if isinstance(error, KafkaException) else error
            self._is_unreadable = isinstance(reason, _Unreadable)
            if self._is_unreadable or not self._is_failing:
                self._say(f"{reason}: what has not been located comes through the broker")
            self._is_failing = True
        else:
            if self._is_failing:
                self._recovered()
            self._is_failing = False

    def _replay(self, topic_id: Uuid | None) -> _Replay:
        return self._replays.setdefault(topic_id, _Replay.of(topic_id))

    def _metadata_cluster(self) -> Cluster:
        if self._metadata is None:
            raise Unlocatable("no remote storage is configured")
        return self._metadata

    def _partition_count(self) -> int:
        """How many partitions the metadata topic has.

        Raises Unlocatable if it may not be read, KafkaException with the broker's error.
        """
        if self._count is not None:
            return self._count
        described = self._patiently(lambda: self._metadata_cluster().describe(METADATA_TOPIC))
        if not described.may_read:
            # Asked for because a consumer that may not read just never hears anything.
            raise _denied()
        self._count = len(described.partitions)
        return self._count

    def _catch_up(self, topic_id: Uuid | None, numbers: Iterable[int]) -> None:
        """Read the metadata partitions up to the ends they have now.

        Raises Unlocatable when that takes too long or may not be, KafkaException with the broker's error.
        """
        consumer = self._metadata_cluster().catcher()  # made first, so that it connects while the bounds are asked for
        replay = self._replay(topic_id)
        bounds = self._bounds(numbers)
        if any(replay.read_to.get(number, 0) > high for number, (_, high) in bounds.items()):
            # The topic was made anew, or an election cut it off: what was read is not what is there.
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
        # An explicit offset each: asking librdkafka for "the beginning" costs half a second.
        consumer.assign(starts)
        try:
            self._consume(consumer, replay, ends)
        finally:
            consumer.unassign()

    def _bounds(self, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Where each of these metadata partitions begins and ends; the end is exclusive."""
        wanted = frozenset(numbers)

        def ask() -> dict[int, tuple[int, int]]:
            try:
                return self._metadata_cluster().ends(METADATA_TOPIC, wanted)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    self._metadata_cluster().describe(METADATA_TOPIC)  # raises if the whole topic is gone
                raise

        return self._patiently(ask) if wanted else {}

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer to a question, asked again while a leader changes or brokers are away; its last error after that.

        What is not located comes through the broker, for all of a read: too high a price for a moment's change.
        """
        deadline = time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return ask()
            except KafkaException as error:
                if not is_passing(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_S)

    def _consume(self, consumer: Consumer, replay: _Replay, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + self._timeout_ms / 1000
        while ends:
            # Not more than can be left: `consume` waits until it has as many as it was asked for.
            left = sum(end - replay.read_to.get(number, 0) for number, end in ends.items())
            if _take(consumer.consume(max(1, min(left, _CONSUME_MESSAGES)), timeout=_POLL_S), replay, ends):
                deadline = time.monotonic() + self._timeout_ms / 1000
            elif time.monotonic() > deadline:
                self._count = None
                self._partition_count()  # raises if that is because the right to read was taken away
                raise Unlocatable(f"no answer from {METADATA_TOPIC} within {self._timeout_ms} ms")


def _take(messages: Iterable[Any], replay: _Replay, ends: dict[int, int]) -> bool:
    """Apply what a consumer gave; whether any came from the topic, and was not librdkafka's news about a connection."""
    apply = replay.builder.apply
    reached: dict[int, int] = {}
    try:
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                apply(message.value(), key=message.key(), offset=offset)
                reached[message.partition()] = offset + 1
            elif error.code() == _EOF:
                # It is one past the end, also where the last records were compacted away.
                reached[message.partition()] = offset
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise _denied()
            elif error.fatal():
                raise KafkaException(error)
            # Anything else librdkafka gets over by itself; the caller's deadline bounds how long.
    finally:
        for number, offset in reached.items():
            replay.read_to[number] = max(replay.read_to.get(number, 0), offset)
            if offset >= ends.get(number, offset + 1):
                del ends[number]
    return bool(reached)


def _denied() -> Unlocatable:
    return _Unreadable(
        f"this principal may not read {METADATA_TOPIC}",
        hint=f"Grant READ on the topic {METADATA_TOPIC}, or read through the broker",
    )


def _unlocatable(error: KafkaException) -> Unlocatable:
    """What the error of the cluster that keeps the metadata topic means here."""
    if is_refusal(error):
        return _denied()
    if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
        return _Unreadable(
            f"there is no topic {METADATA_TOPIC}: tiered storage is off, or its metadata is kept elsewhere",
            hint="If it lives on another cluster, name it with remote.locator.bootstrap.servers",
        )
    return Unlocatable(f"{METADATA_TOPIC} cannot be read: {error.args[0].str()}")
