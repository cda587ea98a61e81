"""The queries of a consumer: ends of the log, offsets of times, the cluster, its own place in the group."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.contract.kinds import Consumers
from tests.contract.material import TIMEOUT_S, Material, poll_until, read

pytestmark = pytest.mark.switched_off


def test_the_ends_of_the_log(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    assert consumer.get_watermark_offsets(material.at()) == (0, material.end)
    assert consumer.get_watermark_offsets(partition=material.at(), timeout=TIMEOUT_S, cached=False) == (0, material.end)
    trimmed = TopicPartition(material.trimmed, 0)
    assert consumer.get_watermark_offsets(trimmed, TIMEOUT_S) == (material.log_start, material.end)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("start", [30, 110])
def test_the_ends_of_the_log_as_last_heard(
    consumers: Consumers, material: Material, start: int, isolation: str
) -> None:
    consumer = consumers(isolation_level=isolation)
    assert consumer.get_watermark_offsets(material.at(), cached=True) == (-1001, -1001)
    consumer.assign([material.at(start)])
    read(consumer, 3)
    assert consumer.get_watermark_offsets(material.at(), cached=True) == (0, material.end)
    assert consumer.get_watermark_offsets(material.at(partition=1), cached=True) == (-1001, -1001)


@pytest.mark.parametrize("partition", [TopicPartition("nowhere", 0), None])
def test_the_ends_of_no_log(consumers: Consumers, material: Material, partition: TopicPartition | None) -> None:
    with pytest.raises(KafkaException) as caught:
        consumers().get_watermark_offsets(partition or material.at(partition=7), TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def in_time(consumer: Consumer, wanted: TopicPartition) -> TopicPartition:
    """The answer to a question for a time, asked again while the broker says that its search in the tier took too long.

    It says so after half a minute, whatever consumer has asked; seen from a broker on a busy machine.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        (found,) = consumer.offsets_for_times([wanted], timeout=TIMEOUT_S)
        if found.error is None or found.error.code() != KafkaError.REQUEST_TIMED_OUT or time.monotonic() > deadline:
            return found


def test_offsets_for_times(consumers: Consumers, material: Material) -> None:
    """In the tier, past it, and past the end."""
    plain, consumer = consumers.plain(), consumers()
    given = [material.at(1_700_000_000_000 + seconds * 1000) for seconds in (-100, 10, 60, 1_000_000)]
    for one in given:
        expected, found = in_time(plain, one), in_time(consumer, one)
        assert (found, found.offset, found.error) == (expected, expected.offset, None)


def test_committed(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumers.plain().commit(offsets=[material.at(42)], asynchronous=False)
    found = consumer.committed([*material.both(), TopicPartition("nowhere", 0)], timeout=TIMEOUT_S)
    assert [(one.offset, one.error) for one in found] == [(42, None), (-1001, None), (-1001, None)]
    assert consumer.committed([], TIMEOUT_S) == []


def test_topics(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    assert {material.topic, material.local} <= set(consumer.list_topics(timeout=TIMEOUT_S).topics)
    (found,) = consumer.list_topics(material.topic).topics.values()
    assert sorted(found.partitions) == [0, 1]
    (found,) = consumer.list_topics(topic="nowhere", timeout=TIMEOUT_S).topics.values()
    assert found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_cluster(consumers: Consumers) -> None:
    plain = consumers.plain()
    assert consumers().cluster_id(timeout=TIMEOUT_S) == plain.cluster_id(TIMEOUT_S)


def test_the_member(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    assert consumer.memberid() is None
    alone = consumer.consumer_group_metadata()
    assert isinstance(alone, bytes)
    assert consumers.group.encode() in alone
    consumer.subscribe([material.topic])
    poll_until(consumer, "an assignment", consumer.assignment)
    member = consumer.memberid()
    assert isinstance(member, str)
    joined = consumer.consumer_group_metadata()
    assert isinstance(joined, bytes)
    assert member.encode() in joined


def test_credentials(consumers: Consumers) -> None:
    consumers().set_sasl_credentials("user", "password")  # whether they work nobody asks here: that they are taken
