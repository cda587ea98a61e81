"""The partitions of a topic that exists in a cluster, tiered or not.

Rules of the file: the identity of a topic is its id. A topic without one cannot be read from the store.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.topics import split_topic
from remote_fetch.model import TopicIdPartition

__all__ = ["existing_partitions"]


def existing_partitions(cluster: Cluster, topic: str) -> tuple[TopicIdPartition, ...]:
    """All partitions of a topic (NAME or NAME:ID) of the cluster.

    Raises UnknownTopic if the topic does not exist or has another id, and KafkaException if the broker refuses.
    """
    name, topic_id = split_topic(topic)
    try:
        described = cluster.describe(name)
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
    return tuple(TopicIdPartition(described.topic_id, name, number) for number in described.partitions)
