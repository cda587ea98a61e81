"""Finds the topics and partitions of a subscription, tiered or not.

Rules of the file:

- With brokers, the cluster tells which topics and partitions exist. The locator adds those that it knows.
- A bucket alone knows only partitions that have segments.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.described import described_topic
from remote_fetch.locate.locator import Locator
from remote_fetch.locate.topics import split_topic
from remote_fetch.model import TopicIdPartition
from remote_fetch.session.brokers import Brokers

__all__ = ["described_name", "partitions_of", "topic_name", "topic_names"]


def topic_name(topic: str) -> str:
    """The name in NAME or NAME:ID. Raises UnknownTopic if the text is malformed."""
    return split_topic(topic)[0]


def described_name(brokers: Brokers, topic: str) -> str:
    """The name of a topic (NAME or NAME:ID) that the brokers know. Raises UnknownTopic and KafkaException."""
    return described_topic(brokers.cluster, topic_name(topic)).name


def topic_names(brokers: Brokers | None, locator: Locator) -> Iterable[str]:
    """The names of all topics, sorted if they come from the locator.

    Raises the errors of the cluster and the locator.
    """
    if brokers is not None:
        return brokers.cluster.names()
    return sorted({partition.topic for partition in locator.partitions(None)})


def partitions_of(
    brokers: Brokers | None, locator: Locator, topic: str, numbers: tuple[int, ...] | None = None
) -> tuple[TopicIdPartition, ...]:
    """The partitions of a topic (NAME or NAME:ID), in the order of their numbers.

    The caller wants only the partitions of `numbers` (None: all), and the answer may have more. Raises UnknownTopic.
    """
    name, topic_id = split_topic(topic)
    described = None if brokers is None else described_topic(brokers.cluster, name)
    if described is None or described.topic_id is None or topic_id not in (None, described.topic_id):
        return locator.partitions(topic, numbers)
    try:
        located = locator.partitions(f"{name}:{described.topic_id}", numbers)
    except UnknownTopic:
        located = ()
    known = {partition.partition: partition for partition in located}
    return tuple(
        known.get(number, TopicIdPartition(described.topic_id, name, number)) for number in described.partitions
    )
