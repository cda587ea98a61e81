"""Topics as brokers describe them. The answers of real brokers are in tests/rig."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.described import all_described_partitions, described_partitions
from remote_fetch.model import TopicIdPartition, Uuid

ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


class Brokers:
    """A cluster with these topics. A name that is listed and not described was deleted in between."""

    def __init__(
        self, *topics: Topic, more: tuple[str, ...] = (), code: int = KafkaError.UNKNOWN_TOPIC_OR_PART
    ) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.more, self.code = more, code

    def names(self) -> tuple[str, ...]:
        return (*self.topics, *self.more)

    def describe(self, name: str) -> Topic:
        if name not in self.topics:
            raise KafkaException(KafkaError(self.code))
        return self.topics[name]


def cluster(*topics: Topic, more: tuple[str, ...] = (), code: int = KafkaError.UNKNOWN_TOPIC_OR_PART) -> Cluster:
    return cast(Cluster, Brokers(*topics, more=more, code=code))


def test_the_partitions_of_a_topic() -> None:
    brokers = cluster(Topic("t", ID, (0, 1), may_read=False))
    expected = (TopicIdPartition(ID, "t", 0), TopicIdPartition(ID, "t", 1))
    assert described_partitions(brokers, "t") == expected
    assert described_partitions(brokers, f"t:{ID}") == expected


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(UnknownTopic, match="has no topic 'u'"):
        described_partitions(cluster(), "u")
    with pytest.raises(UnknownTopic, match="was deleted and made again"):
        described_partitions(cluster(Topic("t", ID, (0,), may_read=True)), f"t:{OTHER_ID}")
    with pytest.raises(UnknownTopic, match=r"older than Kafka 2\.8"):
        described_partitions(cluster(Topic("t", None, (0,), may_read=True)), "t")


def test_a_misspelt_topic_gets_the_nearest_name() -> None:
    brokers = cluster(Topic("orders", ID, (0,), may_read=True), Topic("clicks", ID, (0,), may_read=True))
    with pytest.raises(UnknownTopic, match=r"has no topic 'oders'.*The nearest name is 'orders'"):
        described_partitions(brokers, "oders")
    with pytest.raises(UnknownTopic) as raised:
        described_partitions(brokers, "payments")
    assert raised.value.hint is None


def test_a_refusal_is_the_brokers_own() -> None:
    refusing = cluster(more=("t",), code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    asks: list[Callable[[], object]] = [
        lambda: described_partitions(refusing, "t"),
        lambda: all_described_partitions(refusing),
    ]
    for ask in asks:
        with pytest.raises(KafkaException) as raised:
            ask()
        assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException, match="this principal may not DESCRIBE topic t"):
        described_partitions(refusing, "t")


def test_all_topics_are_those_that_may_be_read() -> None:
    brokers = cluster(
        Topic("a", ID, (0, 1), may_read=True),
        Topic("b", OTHER_ID, (0,), may_read=False),
        Topic("c", None, (0,), may_read=True),
        more=("gone",),
    )
    assert all_described_partitions(brokers) == (TopicIdPartition(ID, "a", 0), TopicIdPartition(ID, "a", 1))
