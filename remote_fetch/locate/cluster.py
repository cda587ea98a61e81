"""What a cluster says about topics: their ids, their ends, and whether this principal may read them.

Rules of the file: never the call that creates a topic that is not there; no consumer group is touched; every wait has a
deadline; what a broker refuses is the broker's own error. The clients are confluent_kafka's, made when first needed and
used by one thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid

__all__ = ["Cluster", "Topic"]

_ZERO_UUID = bytes(16)
_RETRY_S = 0.1
_GROUP = "remote-fetch"
"""librdkafka wants a group even of those who never join one."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it. `topic_id` None: the brokers are too old to have ids (before Kafka 2.8)."""

    name: str
    topic_id: Uuid | None
    partitions: tuple[int, ...]
    may_read: bool


class Cluster:
    """One Kafka cluster, seen through a client configuration (librdkafka's properties). Not thread-safe."""

    def __init__(self, properties: Mapping[str, Any], *, timeout_ms: int) -> None:
        self._properties = dict(properties)
        self._timeout_s = timeout_ms / 1000
        self._admin: AdminClient | None = None
        self._consumers: dict[IsolationLevel, Consumer] = {}

    def describe(self, name: str) -> Topic:
        """A topic's id, partitions, and whether this principal may READ it.

        Raises KafkaException with the broker's error: UNKNOWN_TOPIC_OR_PART, TOPIC_AUTHORIZATION_FAILED, _TIMED_OUT.
        """
        if self._admin is None:
            self._admin = AdminClient(_admin_properties(self._properties))
        answers = self._admin.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=self._timeout_s
        )
        found = answers[name].result()
        raw = _raw_uuid(found.topic_id)
        operations = found.authorized_operations
        return Topic(
            name,
            None if raw == _ZERO_UUID else Uuid(raw),
            tuple(sorted(partition.id for partition in found.partitions)),
            operations is None or AclOperation.READ in operations,
        )

    def log_bounds(self, partition: TopicIdPartition, isolation: IsolationLevel) -> LogBounds:
        """The log start offset, and the end that the isolation level may read: high watermark or last stable offset.

        Raises KafkaException with the broker's error.
        """
        wanted = TopicPartition(partition.topic, partition.partition)
        low, high = self.consumer(isolation).get_watermark_offsets(wanted, timeout=self._timeout_s)
        return LogBounds(low, high)

    def offset_for_time(self, partition: TopicIdPartition, timestamp_ms: int, isolation: IsolationLevel) -> int | None:
        """The first offset whose record is not before `timestamp_ms`, None if there is none (ListOffsets).

        Raises KafkaException with the broker's error.
        """
        wanted = TopicPartition(partition.topic, partition.partition, max(timestamp_ms, 0))
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                (found,) = self.consumer(isolation).offsets_for_times([wanted], timeout=self._timeout_s)
                if found.error is not None:
                    raise KafkaException(found.error)
                return found.offset if found.offset >= 0 else None
            except KafkaException as error:
                # A leader that is new, and has not read its own metadata topic yet, cannot look into the tier.
                if error.args[0].code() != KafkaError.REPLICA_NOT_AVAILABLE or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)

    def consumer(self, isolation: IsolationLevel) -> Consumer:
        """The consumer of an isolation level: it belongs to no group, commits nothing and resets nowhere."""
        if isolation not in self._consumers:
            self._consumers[isolation] = Consumer(consumer_properties(self._properties, isolation))
        return self._consumers[isolation]

    def close(self) -> None:
        """Close the clients."""
        consumers, self._consumers, self._admin = self._consumers, {}, None
        for consumer in consumers.values():
            consumer.close()


def consumer_properties(properties: Mapping[str, Any], isolation: IsolationLevel) -> dict[str, Any]:
    """A consumer's configuration for reads by assignment: what the user gave, and what must not be otherwise."""
    return {
        "group.id": _GROUP,
        **properties,
        "isolation.level": isolation.value,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "enable.partition.eof": True,
    }


_CONSUMER_ONLY = (
    "group.",
    "enable.",
    "auto.",
    "isolation.",
    "fetch.",
    "max.poll.",
    "max.partition.",
    "queued.",
    "session.",
)


def _admin_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only a consumer knows: librdkafka would warn of it."""
    return {name: value for name, value in properties.items() if not name.startswith(_CONSUMER_ONLY)}


def _raw_uuid(uuid: Any) -> bytes:
    mask = 2**64 - 1
    most: int = uuid.get_most_significant_bits() & mask
    least: int = uuid.get_least_significant_bits() & mask
    return ((most << 64) | least).to_bytes(16, "big")


def is_refusal(error: KafkaException) -> bool:
    """Whether a broker refused for want of permission."""
    return error.args[0].code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
