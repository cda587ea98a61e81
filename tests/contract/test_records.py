"""`poll` and `consume`: the records of the tier and past it, on both versions of Kafka, and how long the calls wait."""

from __future__ import annotations

import pickle
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.contract.kinds import Consumers
from tests.contract.material import TIMEOUT_S, Material, is_end, offsets_of, poll_through, read
from tests.rig.rig import Rig


@pytest.fixture(params=["rig_39", "rig_43"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """The oldest and the newest broker."""
    found: Rig = request.getfixturevalue(request.param)
    return found


def consume_until(consumer: Consumer, count: int, size: int) -> list[Message]:
    """Consume, `size` messages at a time, until there are so many."""
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        assert time.monotonic() < deadline
        got = consumer.consume(size, 0.1)
        assert len(got) <= size
        messages += got
    return messages


def through_the_broker(consumers: Consumers, partition: TopicPartition, **more: str) -> list[Message]:
    """The partition as the parent reads it, to its end."""
    consumer = consumers.plain(enable_partition_eof=True, **more)
    consumer.assign([TopicPartition(partition.topic, partition.partition, OFFSET_BEGINNING)])
    return poll_through(consumer, is_end)[:-1]


@pytest.mark.switched_off
def test_polled_messages_are_the_brokers(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(0)])
    messages = read(consumer, material.end)
    assert offsets_of(messages) == [(0, offset) for offset in range(material.end)]
    assert messages == through_the_broker(consumers, material.at())
    assert {type(message) for message in messages} == {Message}
    assert consumer.poll(0) is None
    if consumers.kind.enabled:  # else the test would say nothing
        assert consumer.remote_metrics()["broker-records-total"] == material.end - material.tier_end  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [1, 7, 1_000, 1_000_000])
def test_consumed_messages_are_the_brokers(consumers: Consumers, material: Material, size: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(0)])
    messages = consume_until(consumer, material.end, size)
    assert messages == through_the_broker(consumers, material.at())


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", "READ_UNCOMMITTED"])
def test_transactions(consumers: Consumers, material: Material, isolation: str) -> None:
    wanted = TopicPartition(material.transactional, 0, 0)
    expected = through_the_broker(consumers, wanted, isolation_level=isolation)
    consumer = consumers(isolation_level=isolation, enable_partition_eof=True)
    consumer.assign([wanted])
    messages = poll_through(consumer, is_end)
    assert messages[:-1] == expected
    assert messages[-1].offset() == material.transactional_end
    assert material.transactional_tier_end / 4 < len(expected) < material.transactional_end  # markers are no records


def test_two_partitions_each_in_order(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign(material.both(0))
    found = offsets_of(read(consumer, 2 * material.end))
    for partition in (0, 1):
        assert [offset for number, offset in found if number == partition] == list(range(material.end))


def test_poll_and_consume_in_turns(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(0)])
    messages: list[Message] = []
    while len(messages) < material.end:
        messages += read(consumer, min(3, material.end - len(messages)))
        if len(messages) < material.end:
            messages += consume_until(consumer, 1, 5)
    assert offsets_of(messages) == [(0, offset) for offset in range(material.end)]


def test_messages_can_be_pickled(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(material.tier_end - 20)])
    messages = read(consumer, 40)
    copies = pickle.loads(pickle.dumps(messages))
    assert copies == messages
    assert [message.headers() for message in copies] == [message.headers() for message in messages]
    assert [message.latency() for message in messages] == [None] * 40
    with pytest.raises(TypeError, match="unhashable"):
        hash(messages[0])


@pytest.mark.parametrize("takes", ["poll", "consume"])
@pytest.mark.parametrize("offset", ["the end", "in the tier"])
def test_the_event_of_the_end_comes_once(consumers: Consumers, material: Material, takes: str, offset: str) -> None:
    """Four seconds are more than twice the time after which RemoteConsumer repeats a hand-over without records."""
    consumer = consumers(enable_partition_eof=True)
    consumer.assign([material.at(material.end if offset == "the end" else material.tier_end - 1)])
    assert is_end(poll_through(consumer, is_end)[-1])
    later = [consumer.poll(4)] if takes == "poll" else consumer.consume(1, 4)
    assert [message for message in later if message is not None] == []


@pytest.mark.switched_off
def test_the_end_of_a_partition(consumers: Consumers, material: Material) -> None:
    consumer = consumers(enable_partition_eof=True)
    consumer.assign([material.at(material.tier_end - 5, 0), material.at(material.end, 1)])
    messages = poll_through(consumer, is_end) + poll_through(consumer, is_end)
    ends = [message for message in messages if is_end(message)]
    assert len(messages) == len(ends) + material.end - material.tier_end + 5
    for message in ends:
        assert (message.topic(), message.offset()) == (material.topic, material.end)
        assert (message.key(), message.headers(), message.timestamp()) == (None, None, (0, -1))
    assert sorted(message.partition() or 0 for message in ends) == [0, 1]
    # It is said again after a seek back.
    consumer.seek(material.at(material.tier_end - 1, 0))
    again = poll_through(consumer, is_end)
    assert offsets_of(again) == [(0, offset) for offset in range(material.tier_end - 1, material.end + 1)]


def test_nothing_to_read(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    assert consumer.poll(0) is None
    assert consumer.poll(timeout=0.05) is None
    assert consumer.consume(0, 0.05) == []
    assert consumer.consume(10, 0.05) == []
    assert consumer.consume(num_messages=10, timeout=0) == []
    assert consumer.consume(1_000_000, 0) == []
    consumer.assign([material.at(material.end)])
    assert consumer.poll(0.2) is None
    assert consumer.consume(10, 0.2) == []


def test_consume_waits_for_the_whole_timeout_or_for_all(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(material.tier_end - 5)])
    read(consumer, 1)
    assert len(consumer.consume(10, TIMEOUT_S)) == 10
    assert len(consumer.consume(14, TIMEOUT_S)) == 14
    began = time.monotonic()
    assert consumer.consume(1, 0.3) == []
    assert time.monotonic() - began >= 0.29  # a lower bound cannot fail on a slow machine


def test_poll_without_a_timeout_waits(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(material.tier_end - 1)])
    messages = [
        consumer.poll(),
        consumer.poll(-1),
        consumer.poll(timeout=-1),
        *consumer.consume(),
        *consumer.consume(2),
    ]
    assert [message.offset() for message in messages if message is not None] == [
        material.tier_end - 1 + number for number in range(6)
    ]


def test_consume_gives_errors_as_messages(consumers: Consumers, material: Material) -> None:
    consumer = consumers(enable_partition_eof=True)
    consumer.assign([material.at(material.end - 3)])
    messages = consume_until(consumer, 4, 100)
    assert [message.error() is None for message in messages] == [True, True, True, False]
    assert is_end(messages[-1])
