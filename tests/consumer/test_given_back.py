"""The memory of partitions that were assigned, read and given back. A long-lived member of a group meets many."""

from __future__ import annotations

import gc
import tracemalloc
from types import SimpleNamespace
from typing import Any

from confluent_kafka import TopicPartition

from remote_fetch.consumer.offsets import STORED
from remote_fetch.locate.locator import SharedLocator
from remote_fetch.model import LogBounds, TopicIdPartition, Uuid
from remote_fetch.plan.ranges import Reason
from remote_fetch.session.guard import LogGuard
from tests.consumer.fakes import Bench, live

_TOPICS = 400


class Cluster:
    """Describes every topic, and has a locator's methods: each topic has one partition, and no segment."""

    def describe(self, topic: str, **_: Any) -> Any:
        return SimpleNamespace(may_read=True, topic_id=_id_of(topic))

    def log_bounds(self, *_: Any, **__: Any) -> LogBounds:
        return LogBounds(0, 1_000)

    def partitions(self, topic: str, numbers: Any) -> tuple[TopicIdPartition, ...]:
        return (TopicIdPartition(_id_of(topic), topic, 0),)

    def refresh(self, partition: TopicIdPartition) -> Any:
        return SimpleNamespace(segments=())


def _id_of(topic: str) -> Uuid:
    return Uuid(topic.encode().ljust(16))


def test_of_a_partition_that_was_given_back_only_the_commit_of_librdkafka_stays() -> None:
    """librdkafka commits nothing before it for as long, also if the partition is assigned once more."""
    bench, cluster = Bench(), Cluster()
    locator = SharedLocator(cluster, by_partition=True)  # type: ignore[arg-type]
    guard = LogGuard(cluster, bench.events.append, skips=False, clock=bench.clock)  # type: ignore[arg-type]
    vars(bench.session).update(
        locator=locator,
        newest_timeline=lambda partition, *_, **__: locator.refresh(partition),
        brokers=SimpleNamespace(guard=guard),
        asks_local_starts=True,
        local_starts=lambda partitions: dict.fromkeys(partitions, 1_000),
        note_unusable=lambda _: None,
        configured_locator=SimpleNamespace(unlocated=None, is_off=False),
        surveyor=SimpleNamespace(explain=lambda *_, **__: None),
    )
    _read_and_give_back(bench, "first")
    tracemalloc.start()
    try:
        for number in range(_TOPICS):
            _read_and_give_back(bench, f"t{number}")
        gc.collect()
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size_bytes / _TOPICS < 280


def _read_and_give_back(bench: Bench, topic: str) -> None:
    bench.partitions.note_committed()
    bench.librdkafka.assigned = [TopicPartition(topic, 0, STORED)]
    bench.begin(bench.librdkafka.assigned)
    bench.group.answer(5)
    bench.run_due_work(after_s=10.0)  # answers of the guard and the brokers are outdated by then
    partition = bench.partitions.assigned[topic, 0]
    assert partition.feed is not None
    assert partition.feed.work()
    assert partition.feed.ending is not None
    assert partition.feed.ending.reason == Reason.NOT_TIERED
    partition.position.deliver(live(0, 1_000))
    bench.partitions.positions.store()
    bench.partitions.positions.prepare_to_leave(None)
    bench.partitions.positions.store()
    bench.partitions.drop(None)
    for feed in bench.workers.dropped:
        feed.close()
    for calls in (bench.workers.feeds, bench.workers.dropped, bench.librdkafka.calls, bench.events):
        calls.clear()
