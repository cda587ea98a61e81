"""The partitions of a locator that sees only what is tiered, beside brokers."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    RemoteFetchError,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
    UnknownTopic,
)
from remote_fetch.locate.cluster import Topic
from remote_fetch.locate.described_locator import DescribedLocator
from remote_fetch.locate.last_offset import SegmentBytes
from remote_fetch.locate.listing import ListingLocator, Listings
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, Survey, TopicIdPartition, Uuid
from remote_fetch.observe import ignore
from remote_fetch.session.locator_kinds import beside_brokers

OLD, NEW = Uuid.parse("QLApBZWFQSKI4X0PbZaiMg"), Uuid.parse("WXST0t26SzS7_9Vez8dCjg")


def locator(
    topics: dict[str, tuple[Uuid | None, Collection[int]]], *tiered: TopicIdPartition, code: int | None = None
) -> DescribedLocator:
    """Over timelines of `tiered`, for a cluster of these topics. It answers about another topic with `code`."""
    return over(KnownTimelines(Timeline(partition, (), ()) for partition in tiered), topics, code=code)


def over(
    tiered: KnownTimelines, topics: dict[str, tuple[Uuid | None, Collection[int]]], *, code: int | None = None
) -> DescribedLocator:
    """As `locator`, over another locator."""

    def describe(name: str) -> Topic:
        if name not in topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART if code is None else code))
        topic_id, numbers = topics[name]
        return Topic(name, topic_id, tuple(numbers), may_read=True)

    cluster: Any = SimpleNamespace(describe=describe, names=lambda: tuple(topics))
    return DescribedLocator(tiered, cluster, lambda text: None)


def test_a_storage_without_any_segment_is_told_once() -> None:
    """It may be another one than the brokers write to. A storage with segments of other topics is in order."""
    told: list[str] = []
    cluster: Any = SimpleNamespace(describe=lambda name: Topic(name, NEW, (0,), may_read=True))
    other = RemoteLogSegmentMetadata(RemoteLogSegmentId(TopicIdPartition(OLD, "other", 0), OLD), 0, 9, 100)
    for listed in ([other], []):
        segments: dict[str | None, list[RemoteLogSegmentMetadata]] = {"orders": [], "other": listed, None: listed}
        listings = Listings(segments.__getitem__, survey=lambda: Survey("/tier", "it does not exist"))
        tiered = ListingLocator(listings, cast(SegmentBytes, None))
        found = DescribedLocator(tiered, cluster, told.append)
        for _ in range(2):
            assert found.partitions("orders") == (TopicIdPartition(NEW, "orders", 0),)
            assert len(told) == (not listed)
    assert "orders" in told[0]
    assert "/tier: it does not exist" in told[0]


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
    assert beside_brokers(tiered, None, ignore) is tiered
    assert isinstance(beside_brokers(tiered, brokers, ignore), DescribedLocator)
    other = cast(Any, SimpleNamespace())
    assert beside_brokers(other, brokers, ignore) is other


class Failing(KnownTimelines):
    """A locator over a store that gives `failure` to a listing. `asked` counts these."""

    def __init__(self, failure: RemoteFetchError | None, *tiered: TopicIdPartition) -> None:
        super().__init__(Timeline(partition, (), (), orphan_updates=7) for partition in tiered)
        self.failure, self.asked = failure, 0

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return super().partitions(topic, numbers)


PAIR = TopicIdPartition(NEW, "orders", 0), TopicIdPartition(NEW, "orders", 1)


@pytest.mark.parametrize("kind", [StorageUnavailable, StorageThrottled, StorageDenied, StorageTimeout, CorruptSegment])
def test_a_store_that_cannot_be_listed_leaves_the_clusters_partitions(kind: type[RemoteFetchError]) -> None:
    """It is asked once. Each timeline has its error, until it answers."""
    store = Failing(kind("injected"), *PAIR)
    found = over(store, {"orders": (NEW, [0, 1])})
    assert found.partitions("orders") == PAIR
    for partition in PAIR:
        with pytest.raises(kind, match=r"^injected$") as raised:
            found.timeline(partition)
        raised.value.at(topic="orders", partition=partition.partition)
    assert store.asked == 1
    store.failure = None
    assert found.partitions("orders") == PAIR
    assert [found.timeline(partition).orphan_updates for partition in PAIR] == [7, 7]


def test_what_the_brokers_do_not_tell_needs_the_store() -> None:
    found = over(Failing(StorageUnavailable("injected")), {"orders": (NEW, [0]), "old": (None, [0])})
    for topic in (None, f"orders:{OLD}", "old"):
        with pytest.raises(StorageUnavailable):
            found.partitions(topic)


def test_a_wrong_configuration_is_an_error_beside_brokers_too() -> None:
    with pytest.raises(ConfigError):
        over(Failing(ConfigError("injected")), {"orders": (NEW, [0])}).partitions("orders")


def test_the_failure_of_one_topic_is_not_anothers() -> None:
    store = Failing(StorageUnavailable("injected"), TopicIdPartition(OLD, "other", 0))
    found = over(store, {"orders": (NEW, [0])})
    found.partitions("orders")
    assert found.timeline(TopicIdPartition(OLD, "other", 0)).orphan_updates == 7
