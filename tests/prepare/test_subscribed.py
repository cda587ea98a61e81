"""Topics and partitions of a subscription: what the cluster says, and what a locator adds."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.cluster import Topic
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.prepare.subscribed import partitions_of, topic_name, topic_names
from remote_fetch.session.brokers import Brokers

OLD, NEW = Uuid.parse("QLApBZWFQSKI4X0PbZaiMg"), Uuid.parse("WXST0t26SzS7_9Vez8dCjg")


def locator(*partitions: TopicIdPartition) -> KnownTimelines:
    return KnownTimelines(Timeline(partition, (), ()) for partition in partitions)


def brokers(topics: dict[str, tuple[Uuid | None, Collection[int]]], code: int | None = None) -> Brokers:
    """Brokers whose cluster knows these topics. It answers a question about another topic with `code`."""

    def describe(name: str) -> Topic:
        if name not in topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART if code is None else code))
        topic_id, numbers = topics[name]
        return Topic(name, topic_id, tuple(numbers), may_read=True)

    cluster = SimpleNamespace(describe=describe, names=lambda: tuple(topics))
    return Brokers(cast(Any, cluster), cast(Any, None), None)


def test_the_name_of_a_topic_is_the_text_before_the_id() -> None:
    assert topic_name("orders") == topic_name(f"orders:{OLD}") == "orders"
    with pytest.raises(UnknownTopic, match="not a topic name"):
        topic_name("../orders")


def test_topic_names_come_from_the_cluster_and_without_one_from_the_locator() -> None:
    tiered = locator(TopicIdPartition(OLD, "b", 0), TopicIdPartition(OLD, "b", 1), TopicIdPartition(NEW, "a", 0))
    assert list(topic_names(brokers({"c": (OLD, [0])}), tiered)) == ["c"]
    assert list(topic_names(None, tiered)) == ["a", "b"]


def test_partitions_without_segments_are_the_clusters() -> None:
    tiered = TopicIdPartition(OLD, "orders", 1)
    found = partitions_of(brokers({"orders": (OLD, [0, 1])}), locator(tiered), "orders")
    assert found == (TopicIdPartition(OLD, "orders", 0), tiered)
    assert partitions_of(brokers({"orders": (OLD, [0])}), locator(), "orders") == (TopicIdPartition(OLD, "orders", 0),)


def test_an_old_topic_of_the_same_name_is_no_part_of_the_new_one() -> None:
    old = TopicIdPartition(OLD, "orders", 0)
    assert partitions_of(brokers({"orders": (NEW, [0])}), locator(old), "orders") == (
        TopicIdPartition(NEW, "orders", 0),
    )
    assert partitions_of(brokers({"orders": (NEW, [0])}), locator(old), f"orders:{OLD}") == (old,)


def test_a_bucket_alone_and_a_cluster_without_topic_ids_leave_it_to_the_locator() -> None:
    tiered = TopicIdPartition(OLD, "orders", 3)
    assert partitions_of(None, locator(tiered), "orders") == (tiered,)
    assert partitions_of(brokers({"orders": (None, [0, 3])}), locator(tiered), "orders") == (tiered,)


def test_an_unknown_topic_is_named_and_other_errors_are_the_brokers_own() -> None:
    with pytest.raises(UnknownTopic, match="the cluster has no topic 'orders'"):
        partitions_of(brokers({}), locator(), "orders")
    with pytest.raises(KafkaException) as refused:
        partitions_of(brokers({}, KafkaError.TOPIC_AUTHORIZATION_FAILED), locator(), "orders")
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
