"""Finds the topics of a subscription, tiered or not: with brokers, the cluster tells which topics exist."""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.locate.described import described_topic
from remote_fetch.locate.locator import Locator
from remote_fetch.locate.topics import split_topic
from remote_fetch.session.brokers import Brokers

__all__ = ["described_name", "topic_name", "topic_names"]


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
