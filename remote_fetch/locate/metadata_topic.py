"""The metadata-topic locator: segments as the brokers' own `__remote_log_metadata` tells them (KIP-405).

Rules of the file: of that topic only the partitions that matter are read, between their watermarks, and then followed;
no answer is given before the end that was there at the question has been reached; a topic that is not there, or may
not be read, is said clearly and once, and then nothing is tiered as far as this reader knows. Identity is the topic id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from remote_fetch.errors import UnknownTopic, Unlocatable
from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate.cluster import Cluster, is_refusal
from remote_fetch.locate.timeline import Timeline, TimelineBuilder
from remote_fetch.locate.topics import split_topic
from remote_fetch.model import IsolationLevel, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

__all__ = ["METADATA_TOPIC", "MetadataTopicLocator"]

METADATA_TOPIC = "__remote_log_metadata"

_CONSUME_MESSAGES = 10_000
_POLL_S = 0.2
_EOF = KafkaError._PARTITION_EOF


@dataclass(frozen=True, slots=True)
class _Replay:
    """One topic's timelines in the making, and the next offset to read in each metadata partition."""

    builder: TimelineBuilder
    read_to: dict[int, int]


class MetadataTopicLocator:
    """Timelines from the metadata topic of `metadata`, for topics of `cluster`; often the two are one cluster.

    `metadata` None: nothing is to be located, as no storage is configured. `say` hears, once, why nothing can be.
    """

    def __init__(
        self, cluster: Cluster, metadata: Cluster | None, *, timeout_ms: int, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._timeout_ms = timeout_ms
        self._say = say
        self._replays: dict[Uuid | None, _Replay] = {}
        self._count: int | None = None
        self._is_unreadable = False

    def partitions(self, topic: str | None) -> tuple[TopicIdPartition, ...]:
        """The partitions of a topic that exists (NAME or NAME:ID), tiered or not.

        Raises UnknownTopic when there is no such topic or it has another id; KafkaException when the broker refuses.
        """
        if topic is None:
            replay = self._replay(None)
            self._catch_up(replay, range(self._partition_count()))
            return replay.builder.partitions()
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

    def _read_for(self, partitions: Iterable[TopicIdPartition]) -> None:
        if self._metadata is None or self._is_unreadable:
            return
        try:
            count = self._partition_count()
            wanted: dict[Uuid, set[int]] = {}
            for one in partitions:
                wanted.setdefault(one.topic_id, set()).add(metadata_partition(one.topic_id, one.partition, count))
            for topic_id, numbers in wanted.items():
                self._catch_up(self._replay(topic_id), numbers)
        except Unlocatable as error:
            self._is_unreadable = True
            self._say(f"{error}: everything comes through the broker")

    def _replay(self, topic_id: Uuid | None) -> _Replay:
        if topic_id not in self._replays:
            self._replays[topic_id] = _Replay(TimelineBuilder(None if topic_id is None else [topic_id]), {})
        return self._replays[topic_id]

    def _partition_count(self) -> int:
        """How many partitions the metadata topic has. Raises Unlocatable if it is not there or may not be read."""
        if self._count is not None:
            return self._count
        if self._metadata is None:
            raise Unlocatable("no remote storage is configured")
        try:
            described = self._metadata.describe(METADATA_TOPIC)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Unlocatable(
                    f"there is no topic {METADATA_TOPIC}: tiered storage is off, or its metadata is kept elsewhere",
                    hint="If it lives on another cluster, name it with remote.locator.bootstrap.servers",
                ) from None
            if is_refusal(error):
                raise _denied() from None
            raise
        if not described.may_read:
            # Asked for here because a consumer that may not read just never hears anything.
            raise _denied()
        self._count = len(described.partitions)
        return self._count

    def _catch_up(self, replay: _Replay, numbers: Iterable[int]) -> None:
        """Read the metadata partitions up to the ends they have now. Raises Unlocatable when that takes too long."""
        if self._metadata is None:
            return
        consumer = self._metadata.consumer(IsolationLevel.READ_UNCOMMITTED)
        ends: dict[int, int] = {}
        starts = []
        for number in numbers:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(METADATA_TOPIC, number), timeout=self._timeout_ms / 1000
            )
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

    def _consume(self, consumer: Consumer, replay: _Replay, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + self._timeout_ms / 1000
        while ends:
            # Not more than can be left: `consume` waits until it has as many as it was asked for.
            left = sum(end - replay.read_to.get(number, 0) for number, end in ends.items())
            messages = consumer.consume(max(1, min(left, _CONSUME_MESSAGES)), timeout=_POLL_S)
            for message in messages:
                _take(message, replay, ends)
            if messages:
                deadline = time.monotonic() + self._timeout_ms / 1000
            elif time.monotonic() > deadline:
                raise Unlocatable(f"no answer from {METADATA_TOPIC} within {self._timeout_ms} ms")


def _take(message: Any, replay: _Replay, ends: dict[int, int]) -> None:
    error, number, offset = message.error(), message.partition(), message.offset()
    if error is not None and error.code() != _EOF:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise _denied()
        if error.fatal():
            raise KafkaException(error)
        return  # librdkafka goes on by itself; the caller's deadline bounds how long
    if error is None:
        replay.builder.apply(message.value(), key=message.key(), offset=offset)
        offset += 1
    # At the end of a partition the offset is one past it, also where the last records were compacted away.
    replay.read_to[number] = max(replay.read_to.get(number, 0), offset)
    if offset >= ends.get(number, offset + 1):
        del ends[number]


def _denied() -> Unlocatable:
    return Unlocatable(
        f"this principal may not read {METADATA_TOPIC}",
        hint=f"Grant READ on the topic {METADATA_TOPIC}, or read through the broker",
    )
