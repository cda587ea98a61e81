"""Where a consumer begins that begins at the end of a log, or counts from there, and what it gets once."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, Consumer, KafkaError, Message, TopicPartition

from tests.contract.kinds import Consumers, unique
from tests.contract.material import TAIL, TIMEOUT_S, Material, is_end, offsets_of, poll_through, poll_until, read
from tests.rig import topics
from tests.rig.rig import Rig

RECORDS = 30
_LATER = 7


@pytest.fixture
def topic(rig: Rig) -> str:
    """A topic of two partitions, each with a few records on the broker."""
    name = unique("ends")
    topics.create_topic(rig, name, 2)
    for partition in (0, 1):
        topics.produce(rig, name, RECORDS, partition=partition)
    return name


def pause_and_write(rig: Rig, consumer: Consumer, topic: str) -> None:
    """Pause partition 0, poll, write records into it, poll, and resume it."""
    consumer.pause([TopicPartition(topic, 0)])
    for _ in range(10):
        assert consumer.poll(0.1) is None
    topics.produce(rig, topic, _LATER, partition=0, seed=1)
    assert consumer.poll(0.3) is None
    consumer.resume([TopicPartition(topic, 0)])


def at_the_end(consumer: Consumer, topic: str) -> None:
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])


def at_the_committed_offset(consumer: Consumer, topic: str) -> None:
    consumer.assign([TopicPartition(topic, 0, OFFSET_STORED)])


def by_a_seek(consumer: Consumer, topic: str) -> None:
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read(consumer, RECORDS)
    consumer.pause([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0, OFFSET_END))


@pytest.mark.parametrize("begin", [at_the_end, at_the_committed_offset, by_a_seek])
def test_records_that_are_written_during_a_pause(
    consumers: Consumers, rig: Rig, topic: str, begin: Callable[[Consumer, str], None]
) -> None:
    """The end is where the log ended when the consumer began there."""
    consumer = consumers(auto_offset_reset="latest")
    begin(consumer, topic)
    pause_and_write(rig, consumer, topic)
    assert offsets_of(read(consumer, _LATER)) == [(0, RECORDS + number) for number in range(_LATER)]


@pytest.mark.parametrize("begin", [at_the_end, at_the_committed_offset])
def test_records_that_are_written_before_the_next_poll(
    consumers: Consumers, rig: Rig, topic: str, begin: Callable[[Consumer, str], None]
) -> None:
    consumer = consumers(auto_offset_reset="latest")
    begin(consumer, topic)
    time.sleep(3)
    topics.produce(rig, topic, _LATER, partition=0, seed=1)
    assert offsets_of(read(consumer, _LATER)) == [(0, RECORDS + number) for number in range(_LATER)]


def test_a_reset_of_one_partition_loses_no_record_of_another(consumers: Consumers, rig: Rig, topic: str) -> None:
    """Partition 1 is at the end, and has had no record. Partition 0 is reset while records of both are written."""
    consumer = consumers(auto_offset_reset="latest", enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, RECORDS - 1), TopicPartition(topic, 1, OFFSET_END)])
    found: list[Message] = []
    poll_until(consumer, "both ends", lambda: sum(map(is_end, found)) == 2, found)
    consumer.pause([TopicPartition(topic, 1)])
    consumer.seek(TopicPartition(topic, 0, 500))
    topics.produce(rig, topic, _LATER, partition=1, seed=1)
    assert is_end(poll_through(consumer, is_end)[-1])
    consumer.resume([TopicPartition(topic, 1)])
    assert offsets_of(read(consumer, _LATER)) == [(1, RECORDS + number) for number in range(_LATER)]
    (end,) = poll_through(consumer, is_end)
    assert (end.partition(), end.offset()) == (1, RECORDS + _LATER)
    assert consumer.poll(3) is None


def test_a_reset_commits_nothing_of_what_a_running_consume_holds(consumers: Consumers, topic: str) -> None:
    """Partition 1 has committed an offset out of the log. In such a group all partitions are assigned again."""
    both = [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 500)]
    consumers.plain(enable_auto_commit=False).commit(offsets=both, asynchronous=False)
    keys = {"partition_assignment_strategy": "range", "auto_commit_interval_ms": 100}
    consumer, other = consumers(auto_offset_reset="latest", **keys), consumers.plain()
    paused: list[TopicPartition] = []

    def on_assign(who: Consumer, partitions: list[TopicPartition]) -> None:
        who.assign(partitions)
        who.pause(partitions)
        paused.extend(partitions)

    consumer.subscribe([topic], on_assign=on_assign)
    poll_until(consumer, "the assignment", lambda: paused)
    consumer.resume(paused)
    committed: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.consume, 1_000, 3)
        while not running.done():
            committed += [partition.offset for partition in other.committed(both[:1], TIMEOUT_S) if not running.done()]
            time.sleep(0.1)
    assert set(committed) == {0}
    assert offsets_of(running.result()) == [(0, number) for number in range(RECORDS)]
    poll_until(consumer, "a commit", lambda: other.committed(both[:1], TIMEOUT_S)[0].offset == RECORDS)


def test_the_error_of_one_partition_comes_once_if_another_begins(consumers: Consumers, topic: str) -> None:
    consumer = consumers(auto_offset_reset="error")
    consumer.assign([TopicPartition(topic, 0, 500)])
    (error,) = poll_through(consumer, lambda message: True)
    assert (error.partition(), error.error().code()) == (0, KafkaError._AUTO_OFFSET_RESET)  # type: ignore[union-attr]
    consumer.incremental_assign([TopicPartition(topic, 1, 600)])
    (error,) = poll_through(consumer, lambda message: True)
    assert (error.partition(), error.error().code()) == (1, KafkaError._AUTO_OFFSET_RESET)  # type: ignore[union-attr]
    assert consumer.poll(4) is None


@pytest.mark.parametrize("method", ["seek", "assign"])
@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_an_offset_that_the_application_has_left_resets_nothing(
    consumers: Consumers, rig: Rig, topic: str, method: str, policy: str
) -> None:
    """librdkafka finds that records were deleted, and the application goes on elsewhere before it hears of that."""
    consumer = consumers(auto_offset_reset=policy)
    consumer.assign([TopicPartition(topic, 0, 10)])
    assert offsets_of(read(consumer, 3)) == [(0, 10), (0, 11), (0, 12)]
    consumer.pause([TopicPartition(topic, 0)])
    topics.delete_records(rig, topic, 0, 20)
    consumer.resume([TopicPartition(topic, 0)])
    time.sleep(1)
    there = TopicPartition(topic, 0, RECORDS - 3)
    consumer.seek(there) if method == "seek" else consumer.assign([there])
    time.sleep(1)
    assert offsets_of(read(consumer, 3)) == [(0, RECORDS - 3), (0, RECORDS - 2), (0, RECORDS - 1)]
    assert consumer.poll(1) is None
    topics.produce(rig, topic, 2, partition=0, seed=2)
    assert offsets_of(read(consumer, 2)) == [(0, RECORDS), (0, RECORDS + 1)]


def test_what_the_application_stored_outlasts_a_reset(consumers: Consumers, topic: str) -> None:
    keys = {"auto_offset_reset": "latest", "enable_auto_offset_store": False, "enable_auto_commit": False}
    consumer = consumers(enable_partition_eof=True, **keys)
    consumer.assign([TopicPartition(topic, 0, RECORDS - 2), TopicPartition(topic, 1, RECORDS - 2)])
    found: list[Message] = []
    poll_until(consumer, "both ends", lambda: sum(map(is_end, found)) == 2, found)
    for message in found:
        if not is_end(message):
            consumer.store_offsets(message)
    consumer.seek(TopicPartition(topic, 0, 500))
    poll_through(consumer, is_end)
    committed = consumer.commit(asynchronous=False)
    assert sorted((partition.partition, partition.offset) for partition in committed) == [(0, RECORDS), (1, RECORDS)]


@pytest.mark.parametrize("policy", ["earliest", "latest", "error"])
def test_counted_back_from_the_end_to_before_the_log(consumers: Consumers, material: Material, policy: str) -> None:
    """That is an offset out of the log, which the policy resets."""
    consumer = consumers(auto_offset_reset=policy, enable_partition_eof=True)
    back = material.end - material.log_start + 10
    consumer.assign([TopicPartition(material.trimmed, 0, TAIL - back)])
    (first,) = poll_through(consumer, lambda message: True)
    if policy == "earliest":
        assert (first.error(), first.offset()) == (None, material.log_start)
    elif policy == "latest":
        assert is_end(first)
    else:
        assert first.error() is not None
        assert (first.error().code(), first.offset()) == (KafkaError._AUTO_OFFSET_RESET, material.log_start - 10)  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_the_position_before_a_reset(consumers: Consumers, rig: Rig, topic: str, policy: str) -> None:
    """It stays until a record comes, and can be committed.

    A record that was read from the store before its deletion may still come.
    """
    consumer = consumers(auto_offset_reset=policy, enable_partition_eof=True, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0, RECORDS - 2)])
    read(consumer, 1)
    consumer.pause([TopicPartition(topic, 0)])
    topics.delete_records(rig, topic, 0, RECORDS)
    consumer.resume([TopicPartition(topic, 0)])
    *records, end = poll_through(consumer, is_end)
    assert is_end(end)
    assert offsets_of(records) in ([], [(0, RECORDS - 1)] if consumers.kind.enabled else [])
    (position,) = consumer.position([TopicPartition(topic, 0)])
    (committed,) = consumer.commit(asynchronous=False)
    assert (position.offset, committed.offset) == 2 * (RECORDS - 1 + len(records),)
