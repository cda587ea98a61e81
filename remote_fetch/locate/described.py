"""The partitions of topics as the brokers describe them, tiered or not. For locators that have brokers.

Rules of the file:

- The identity of a topic is its id.
- If a name belongs to another id now, the topic is unknown.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import UnknownTopic
from remote_fetch.failures.broker_errors import is_refusal, refusal_of
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.topics import nearest_hint, split_topic
from remote_fetch.model import TopicIdPartition

__all__ = ["all_described_partitions", "described_partitions", "described_topic"]


def described_topic(cluster: Cluster, name: str) -> Topic:
    """A topic as the brokers describe it.

    Raises UnknownTopic if it does not exist, and KafkaException, which names the topic if a permission is missing.
    """
    try:
        return cluster.describe(name)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            hint = nearest_hint(name, _names(cluster))
            raise UnknownTopic(f"the cluster has no topic {name!r}", topic=name, hint=hint) from None
        if is_refusal(error):
            raise refusal_of("DESCRIBE", name, error.args[0].code()) from None
        raise


def _names(cluster: Cluster) -> tuple[str, ...]:
    """The topics of the cluster, for a hint. None of them if the brokers do not tell."""
    try:
        return cluster.names()
    except KafkaException:
        return ()


def described_partitions(cluster: Cluster, topic: str) -> tuple[TopicIdPartition, ...]:
    """All partitions of an existing topic (NAME or NAME:ID).

    Raises UnknownTopic if the topic does not exist or has another id, and KafkaException if the broker refuses.
    """
    name, topic_id = split_topic(topic)
    described = described_topic(cluster, name)
    if described.topic_id is None:
        raise UnknownTopic(f"the brokers report no id of {name!r}, because they are older than Kafka 2.8", topic=name)
    if topic_id not in (None, described.topic_id):
        raise UnknownTopic(
            f"topic {name!r} has the id {described.topic_id} now, not {topic_id}: it was deleted and made again"
        )
    return tuple(TopicIdPartition(described.topic_id, name, number) for number in described.partitions)


def all_described_partitions(cluster: Cluster) -> tuple[TopicIdPartition, ...]:
    """All partitions of the topics that this principal may READ. Raises KafkaException with the broker's error."""
    found: list[TopicIdPartition] = []
    for name in cluster.names():
        try:
            described = cluster.describe(name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue  # it was deleted in this moment
            raise
        topic_id = described.topic_id
        if described.may_read and topic_id is not None:
            found += (TopicIdPartition(topic_id, name, number) for number in described.partitions)
    return tuple(found)
