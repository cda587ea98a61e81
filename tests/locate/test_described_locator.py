"""The partitions of a locator that sees only what is tiered, beside brokers."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.cluster import Topic
from remote_fetch.locate.described_locator import DescribedLocator
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.session.locators import beside_brokers

OLD, NEW = Uuid.parse("QLApBZWFQSKI4X0PbZaiMg"), Uuid.parse("WXST0t26SzS7_9Vez8dCjg")


def locator(
    topics: dict[str, tuple[Uuid | None, Collection[int]]], *tiered: TopicIdPartition, code: int | None = None
) -> DescribedLocator:
    """Over timelines of `tiered`, for a cluster of these topics. It answers about another topic with `code`."""

    def describe(name: str) -> Topic:
        if name not in topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART if code is None else code))
        topic_id, numbers = topics[name]
        return Topic(name, topic_id, tuple(numbers), may_read=True)

    cluster: Any = SimpleNamespace(describe=describe, names=lambda: tuple(topics))
    return DescribedLocator(KnownTimelines(Timeline(partition, (), ()) for partition in tiered), cluster)


def test_partitions_without_segments_are_the_clusters() -> None:
    tiered = TopicIdPartition(OLD, "orders", 1)
    other = TopicIdPartition(OLD, "orders", 0)
    assert locator({"orders": (OLD, [0, 1])}, tiered).partitions("orders") == (other, tiered)
    assert locator({"orders": (OLD, [0])}).partitions("orders", [0]) == (other,)


def test_an_old_topic_of_the_same_name_is_no_part_of_the_new_one() -> None:
    old = TopicIdPartition(OLD, "orders", 0)
    found = locator({"orders": (NEW, [0])}, old)
    assert found.partitions("orders") == (TopicIdPartition(NEW, "orders", 0),)
    assert found.partitions(f"orders:{OLD}") == (old,)


def test_all_topics_and_a_cluster_without_topic_ids_leave_it_to_the_other_locator() -> None:
    tiered = TopicIdPartition(OLD, "orders", 3)
    found = locator({"orders": (None, [0, 3]), "empty": (NEW, [0])}, tiered)
    assert found.partitions("orders") == found.partitions(None) == (tiered,)


def test_an_unknown_topic_is_named_and_other_errors_are_the_brokers_own() -> None:
    with pytest.raises(UnknownTopic, match="the cluster has no topic 'orders'"):
        locator({}, TopicIdPartition(OLD, "orders", 3)).partitions("orders")
    with pytest.raises(KafkaException) as refused:
        locator({}, code=KafkaError.TOPIC_AUTHORIZATION_FAILED).partitions("orders")
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_only_a_locator_that_sees_no_brokers_gets_one_around_it() -> None:
    tiered = KnownTimelines([])
    brokers: Any = SimpleNamespace(cluster=None)
    assert beside_brokers(tiered, None) is tiered
    assert isinstance(beside_brokers(tiered, brokers), DescribedLocator)
    other = cast(Any, SimpleNamespace())
    assert beside_brokers(other, brokers) is other
