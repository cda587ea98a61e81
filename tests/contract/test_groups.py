"""Subscriptions and rebalances: callbacks and what may be done in them, under each protocol."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.contract.kinds import Consumers, unique
from tests.contract.material import TIMEOUT_S, Material, call_until_it_raises, committed, offsets_of, poll_until, read

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of each protocol of a group."""
    return PROTOCOLS[request.param]


def assign(consumer: Consumer, protocol: dict[str, Any], partitions: list[TopicPartition]) -> None:
    """Assign inside a callback, as the protocol has it."""
    if protocol == PROTOCOLS["eager"]:
        consumer.assign(partitions)
    else:
        consumer.incremental_assign(partitions)


def assert_all_read(consumer: Consumer, material: Material, start: int = 0) -> None:
    found = offsets_of(read(consumer, 2 * (material.end - start)))
    for partition in (0, 1):
        assert [offset for number, offset in found if number == partition] == list(range(start, material.end))


def test_a_subscription(consumers: Consumers, material: Material, protocol: dict[str, Any]) -> None:
    consumer = consumers(**protocol)
    assert consumer.memberid() in ("", None) or protocol == PROTOCOLS["consumer"]
    consumer.subscribe([material.topic])
    assert_all_read(consumer, material)
    assert sorted(consumer.assignment()) == material.both()
    assert consumer.memberid()
    consumer.unsubscribe()
    poll_until(consumer, "no assignment", lambda: not consumer.assignment())
    assert consumer.poll(0.2) is None


@pytest.mark.parametrize("count", [5, 6])
def test_no_record_comes_before_the_callback_of_an_unsubscription(
    consumers: Consumers, material: Material, protocol: dict[str, Any], count: int
) -> None:
    """Also after a `consume` of a store's record, or of librdkafka's empty answer: both sides take turns."""
    consumer = consumers(**protocol)
    revoked: list[Any] = []
    consumer.subscribe([material.topic], on_revoke=lambda _, partitions: revoked.append(partitions))
    deadline = time.monotonic() + TIMEOUT_S
    while count and time.monotonic() < deadline:
        count -= len(consumer.consume(1, 0.1))
    consumer.unsubscribe()
    assert poll_until(consumer, "the callback", lambda: revoked) == []


@pytest.mark.parametrize("method", ["poll", "consume"])
def test_no_record_of_a_revoked_partition_comes_in_the_callback(
    consumers: Consumers, material: Material, protocol: dict[str, Any], method: str
) -> None:
    """Its next owner gets the records that come after a commit of the callback."""
    found: list[Any] = []

    def on_revoke(who: Consumer, partitions: list[TopicPartition]) -> None:
        who.commit(asynchronous=False)
        found.append(who.poll(0.2) if method == "poll" else who.consume(1, 0.2) or None)
        found.append(sum(max(one.offset, 0) for one in who.position(partitions)))

    consumer = consumers(**protocol, enable_auto_commit=False)
    consumer.subscribe([material.topic], on_revoke=on_revoke)
    read(consumer, 5)
    consumer.unsubscribe()
    poll_until(consumer, "the callback", lambda: len(found) == 2)
    assert found == [None, 5]


def test_a_regular_expression(consumers: Consumers, material: Material, protocol: dict[str, Any]) -> None:
    consumer = consumers(**protocol)
    consumer.subscribe([f"^{re.escape(material.topic[:-1])}.*"])
    assert_all_read(consumer, material)


@pytest.mark.switched_off
def test_another_subscription_replaces_the_first(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.subscribe([material.topic])
    read(consumer, 5)
    consumer.subscribe([material.local])
    there = [TopicPartition(material.local, 0)]
    messages = poll_until(consumer, "the other topic", lambda: consumer.assignment() == there)
    messages += read(consumer, 1)
    assert next(message.offset() for message in messages if message.topic() == material.local) == 0
    consumer.unsubscribe()
    consumer.subscribe([material.topic])
    poll_until(consumer, "the first topic", lambda: sorted(consumer.assignment()) == material.both())


@pytest.mark.switched_off
def test_callbacks_get_the_consumer_and_partitions(
    consumers: Consumers, material: Material, protocol: dict[str, Any]
) -> None:
    calls: list[tuple[str, Any, list[TopicPartition]]] = []
    consumer = consumers(**protocol)
    consumer.subscribe(
        [material.topic],
        on_assign=lambda who, partitions: calls.append(("assign", who, partitions)),
        on_revoke=lambda who, partitions: calls.append(("revoke", who, partitions)),
        on_lost=lambda who, partitions: calls.append(("lost", who, partitions)),
    )
    assert_all_read(consumer, material)
    consumer.unsubscribe()
    poll_until(consumer, "the revocation", lambda: calls[-1][0] == "revoke")
    assert [name for name, _, partitions in calls if partitions] == ["assign", "revoke"]
    for _, who, partitions in calls:
        assert who is consumer
        assert {type(one) for one in partitions} <= {TopicPartition}
        assert not partitions or sorted(partitions) == material.both()


def test_assigning_other_offsets(consumers: Consumers, material: Material, protocol: dict[str, Any]) -> None:
    def on_assign(who: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            one.offset = 90
        assign(who, protocol, partitions)

    consumer = consumers(**protocol)
    consumer.subscribe([material.topic], on_assign)
    assert_all_read(consumer, material, 90)


def test_offsets_that_are_set_and_not_assigned(
    consumers: Consumers, material: Material, protocol: dict[str, Any]
) -> None:
    """A callback that only looks at its partitions has assigned nothing."""
    consumer = consumers(**protocol)

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            one.offset = 90

    consumer.subscribe([material.topic], on_assign=on_assign)
    assert_all_read(consumer, material)


def test_what_a_callback_may_do(consumers: Consumers, material: Material, protocol: dict[str, Any]) -> None:
    seen: dict[str, Any] = {}

    def on_assign(who: Consumer, partitions: list[TopicPartition]) -> None:
        assign(who, protocol, partitions)
        seen["position"] = [one.offset for one in who.position(partitions)]
        seen["assignment"] = sorted(who.assignment())
        who.pause([material.at(partition=1)])
        who.commit(offsets=[material.at(77, 1)], asynchronous=False)

    for _ in range(3):
        consumer = consumers(**protocol)
        consumer.subscribe([material.topic], on_assign=on_assign)
        found = offsets_of(read(consumer, 120))
        if consumers.kind.enabled or found[0][0] == 0:
            break
        consumers.group = unique("contract")  # librdkafka by itself may lose a pause within the callback
    assert found == [(0, offset) for offset in range(120)]
    assert consumer.poll(0.2) is None
    consumer.resume([material.at(partition=1)])
    assert offsets_of(read(consumer, 1)) == [(1, 0)]
    assert seen == {"position": [-1001, -1001], "assignment": material.both()}
    assert committed(consumers, material.at(partition=1)) == 77


def test_unassigning_in_a_callback(consumers: Consumers, material: Material) -> None:
    calls = []

    def on_assign(who: Consumer, partitions: list[TopicPartition]) -> None:
        who.unassign()
        calls.append(partitions)

    consumer = consumers()
    consumer.subscribe([material.topic], on_assign=on_assign)
    poll_until(consumer, "the callback", lambda: calls)
    assert consumer.assignment() == []
    assert consumer.poll(0.3) is None


@pytest.mark.parametrize("method", ["poll", "consume"])
def test_an_error_in_on_assign(consumers: Consumers, material: Material, protocol: dict[str, Any], method: str) -> None:
    """The call raises the error of the callback, and the partitions are assigned."""

    def on_assign(_: Consumer, __: list[TopicPartition]) -> None:
        raise ZeroDivisionError("in a callback")

    consumer = consumers(**protocol)
    consumer.subscribe([material.topic], on_assign=on_assign)
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        call_until_it_raises(lambda: consumer.poll(0.1) if method == "poll" else consumer.consume(1, 0.1))
    poll_until(consumer, "the assignment", lambda: sorted(consumer.assignment()) == material.both())


def test_committing_when_revoked(consumers: Consumers, material: Material, protocol: dict[str, Any]) -> None:
    def on_revoke(who: Consumer, partitions: list[TopicPartition]) -> None:
        positions.extend(who.position(partitions))
        who.commit(offsets=[TopicPartition(one.topic, one.partition, 33) for one in partitions], asynchronous=False)

    positions: list[TopicPartition] = []
    consumer = consumers(**protocol, enable_auto_commit=False)
    consumer.subscribe([material.topic], on_revoke=on_revoke)
    assert_all_read(consumer, material)
    consumer.close()
    assert [one.offset for one in positions] == [material.end] * 2
    assert [committed(consumers, one) for one in material.both()] == [33, 33]


def test_a_second_member_comes_and_goes(consumers: Consumers, material: Material, protocol: dict[str, Any]) -> None:
    """No record is read twice or left out, because read offsets are committed when partitions move."""
    first, second = consumers(**protocol), consumers(**protocol)
    found: list[tuple[int, int]] = []

    def step() -> None:
        for consumer in (first, second):
            found.extend(offsets_of([one for one in [consumer.poll(0.02)] if one is not None]))

    def step_until(condition: Any) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            step()
            assert time.monotonic() < deadline

    first.subscribe([material.topic])
    step_until(lambda: len(found) >= 20)
    first.pause(first.assignment())  # else all is read before the second has come
    second.subscribe([material.topic])
    step_until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
    first.resume(first.assignment())
    step_until(lambda: len(set(found)) >= 80)
    second.close()
    found.extend(offsets_of(poll_until(first, "both", lambda: sorted(first.assignment()) == material.both())))
    first.resume(first.assignment())
    deadline = time.monotonic() + TIMEOUT_S
    while len(set(found)) < 2 * material.end:
        found.extend(offsets_of([one for one in [first.poll(0.05)] if one is not None]))
        assert time.monotonic() < deadline
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(material.end)]


def test_partitions_are_lost(consumers: Consumers, material: Material) -> None:
    """A member that does not poll for too long."""
    calls: list[tuple[str, int]] = []
    consumer = consumers(max_poll_interval_ms=6000, session_timeout_ms=6000)
    consumer.subscribe(
        [material.topic],
        on_revoke=lambda _, partitions: calls.append(("revoke", len(partitions))),
        on_lost=lambda _, partitions: calls.append(("lost", len(partitions))),
    )
    read(consumer, 5)
    member = consumer.memberid()
    deadline = time.monotonic() + TIMEOUT_S
    while consumer.memberid() == member:  # asking is no polling
        assert time.monotonic() < deadline
        time.sleep(0.1)
    poll_until(consumer, "the loss", lambda: calls)
    assert calls == [("lost", 2)]


def test_a_commit_of_no_member(consumers: Consumers, material: Material) -> None:
    """While a group has members, only they may commit."""
    member = consumers()
    member.subscribe([material.topic])
    read(member, 1)
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        consumers.plain().commit(offsets=[material.at(5)], asynchronous=False)
