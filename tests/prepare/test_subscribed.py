"""Topics of a subscription: from the cluster, or from a locator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.prepare.subscribed import topic_name, topic_names
from remote_fetch.session.brokers import Brokers

OLD, NEW = Uuid.parse("QLApBZWFQSKI4X0PbZaiMg"), Uuid.parse("WXST0t26SzS7_9Vez8dCjg")


def locator(*partitions: TopicIdPartition) -> KnownTimelines:
    return KnownTimelines(Timeline(partition, (), ()) for partition in partitions)


def brokers(*names: str) -> Brokers:
    """Brokers whose cluster knows these topics."""
    return Brokers(cast(Any, SimpleNamespace(names=lambda: names)), cast(Any, None), None)


def test_the_name_of_a_topic_is_the_text_before_the_id() -> None:
    assert topic_name("orders") == topic_name(f"orders:{OLD}") == "orders"
    with pytest.raises(UnknownTopic, match="not a topic name"):
        topic_name("../orders")


def test_topic_names_come_from_the_cluster_and_without_one_from_the_locator() -> None:
    tiered = locator(TopicIdPartition(OLD, "b", 0), TopicIdPartition(OLD, "b", 1), TopicIdPartition(NEW, "a", 0))
    assert list(topic_names(brokers("c"), tiered)) == ["c"]
    assert list(topic_names(None, tiered)) == ["a", "b"]
