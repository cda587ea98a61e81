"""Commits: every form of them, stored offsets, and what is committed without being asked for."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tests.contract.kinds import Consumers, unique
from tests.contract.material import TIMEOUT_S, Material, committed, offsets_of, poll_until, read
from tests.rig.topics import QUIET, admin

STARTS = (30, 95, 110)
"""In the tier, over its end, and past it."""


@pytest.mark.switched_off
@pytest.mark.parametrize("start", STARTS)
def test_what_was_delivered(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers(enable_auto_commit=False)
    consumer.assign([material.at(start)])
    read(consumer, 8)
    (found,) = consumer.commit(asynchronous=False)
    assert (found.topic, found.partition, found.offset, found.error) == (material.topic, 0, start + 8, None)
    assert committed(consumers, material.at()) == start + 8
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == KafkaError._NO_OFFSET
    consumer.consume(1, TIMEOUT_S)
    consumer.commit(asynchronous=False)
    assert committed(consumers, material.at()) == start + 9


def test_nothing_to_commit(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    for assigned in ([], [material.at(30)]):
        consumer.assign(assigned)
        with pytest.raises(KafkaException) as caught:
            consumer.commit(asynchronous=False)
        assert caught.value.args[0].code() == KafkaError._NO_OFFSET
        assert consumer.commit() is None


@pytest.mark.switched_off
@pytest.mark.parametrize("start", STARTS)
def test_a_message(consumers: Consumers, material: Material, start: int) -> None:
    """Also a message that is not the last, and whose offset is below the committed one."""
    consumer = consumers(enable_auto_commit=False)
    consumer.assign([material.at(start)])
    messages = read(consumer, 8)
    for number in (5, 2):
        (found,) = consumer.commit(message=messages[number], asynchronous=False)
        assert (found.offset, found.leader_epoch) == (start + number + 1, messages[number].leader_epoch())
        assert committed(consumers, material.at()) == start + number + 1
    commit: Any = consumer.commit
    (found,) = commit(messages[7], None, False)
    assert found.offset == start + 8


def test_offsets(consumers: Consumers, material: Material) -> None:
    consumer = consumers(enable_auto_commit=False)
    consumer.assign([material.at(30)])
    read(consumer, 8)
    given = TopicPartition(material.topic, 1, 64, "why")
    (found,) = consumer.commit(offsets=[given], asynchronous=False)
    assert (found, found.offset) == (given, 64)
    both = consumer.committed(material.both(), TIMEOUT_S)
    assert [(one.offset, one.metadata) for one in both] == [(-1001, None), (64, "why")]
    with pytest.raises(KafkaException) as caught:
        consumer.commit(offsets=[TopicPartition("nowhere", 0, 5)], asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", ["asynchronous", "async", None])
def test_asynchronously(consumers: Consumers, material: Material, start: int, name: str | None) -> None:
    commits: list[Any] = []
    consumer: Any = consumers(enable_auto_commit=False, on_commit=lambda error, found: commits.append((error, found)))
    consumer.assign([material.at(start)])
    read(consumer, 8)
    consumer.pause([material.at()])  # what is committed is what is stored when the commit's turn has come
    assert consumer.commit(**({} if name is None else {name: True})) is None
    poll_until(consumer, "the commit", lambda: commits)
    ((error, (found,)),) = commits
    assert (error, found.offset, found.error) == (None, start + 8, None)
    assert committed(consumers, material.at()) == start + 8


def test_the_commit_callback_hears_of_failures(consumers: Consumers, material: Material) -> None:
    commits: list[Any] = []
    consumer = consumers(enable_auto_commit=False, on_commit=lambda error, found: commits.append((error, found)))
    consumer.assign([material.at(30)])
    consumer.commit(offsets=[TopicPartition("nowhere", 0, 5)])
    poll_until(consumer, "the commit", lambda: commits)
    ((error, (found,)),) = commits
    assert KafkaError.UNKNOWN_TOPIC_OR_PART in (error and error.code(), found.error and found.error.code())


@pytest.mark.switched_off
@pytest.mark.parametrize("start", STARTS)
def test_stored_offsets(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.assign([material.at(start)])
    messages = read(consumer, 8)
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == KafkaError._NO_OFFSET
    consumer.store_offsets(messages[2])
    consumer.commit(asynchronous=False)
    assert committed(consumers, material.at()) == start + 3
    consumer.store_offsets(offsets=[material.at(start + 6)])
    consumer.commit(asynchronous=False)
    assert committed(consumers, material.at()) == start + 6


def test_storing_what_is_not_assigned(consumers: Consumers, material: Material) -> None:
    consumer = consumers(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.assign([material.at(30)])
    read(consumer, 1)
    with pytest.raises(KafkaException) as caught:
        consumer.store_offsets(offsets=[material.at(5, 1)])
    assert caught.value.args[0].code() == KafkaError._STATE
    consumer.store_offsets(offsets=[material.at(5, 1), material.at(35)])
    assert [one.offset for one in consumer.commit(asynchronous=False)] == [35]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("end", ["close", "unassign", "unsubscribe", "interval", "with"])
def test_commits_of_its_own(consumers: Consumers, material: Material, start: int, end: str) -> None:
    interval_ms = 200 if end == "interval" else 3_600_000
    consumer = consumers(auto_commit_interval_ms=interval_ms)
    consumer.assign([material.at(start)])
    read(consumer, 8)
    if end == "close":
        consumer.close()
    elif end == "with":
        with consumer:
            pass
    elif end == "interval":
        poll_until(consumer, "a commit", lambda: committed(consumers, material.at()) >= start + 8)
        return  # by then more may have been read
    else:
        getattr(consumer, end)()
        if end == "unsubscribe":
            consumer.close()
    consumer.close()
    assert committed(consumers, material.at()) == start + 8


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("method", ["poll", "consume"])
def test_commits_of_its_own_while_the_application_works(
    consumers: Consumers, material: Material, start: int, method: str
) -> None:
    """The application makes no further call of the consumer."""
    consumer = consumers(auto_commit_interval_ms=200)
    consumer.assign([material.at(start)])
    read(consumer, 1)
    if method == "poll":
        read(consumer, 7)
    else:
        assert len(consumer.consume(7, TIMEOUT_S)) == 7
    deadline = time.monotonic() + TIMEOUT_S
    while committed(consumers, material.at()) < start + 8:
        assert time.monotonic() < deadline


@pytest.mark.switched_off
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("more", [{"enable_auto_commit": False}, {"enable_auto_offset_store": False}])
def test_no_commits_of_its_own(consumers: Consumers, material: Material, start: int, more: dict[str, Any]) -> None:
    consumer = consumers(**more)
    consumer.assign([material.at(start)])
    read(consumer, 8)
    consumer.close()
    assert committed(consumers, material.at()) == -1001


@pytest.mark.parametrize("start", STARTS)
def test_closing_does_not_take_a_commit_back(consumers: Consumers, material: Material, start: int) -> None:
    """At the end the parent's stored offset replaces an offset committed beyond the delivered records."""
    consumer = consumers(auto_commit_interval_ms=3_600_000)
    consumer.assign([material.at(start)])
    read(consumer, 4)
    consumer.commit(asynchronous=False)
    read(consumer, 3)
    consumer.close()
    assert committed(consumers, material.at()) == start + 7


@pytest.mark.parametrize(("start", "back"), [(60, 10), (110, 20), (110, 105)])
def test_a_seek_back(consumers: Consumers, material: Material, start: int, back: int) -> None:
    """`commit` without arguments only goes forwards, the commit of `close` goes where the consumer is."""
    consumer = consumers(auto_commit_interval_ms=3_600_000)
    consumer.assign([material.at(start)])
    read(consumer, 5)
    consumer.commit(asynchronous=False)
    consumer.seek(material.at(back))
    read(consumer, 3)
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == KafkaError._NO_OFFSET
    assert committed(consumers, material.at()) == start + 5
    consumer.close()
    assert committed(consumers, material.at()) == back + 3


@pytest.mark.parametrize("stores", [True, False], ids=["positions", "offsets of the application"])
@pytest.mark.parametrize("start", [60, 110])
def test_a_seek_back_before_what_another_consumer_has_committed(
    consumers: Consumers, material: Material, start: int, *, stores: bool
) -> None:
    """No commit goes back before the offset at which the consumer has begun, but that of the end of an assignment."""
    consumers.plain(enable_auto_commit=False).commit(offsets=[material.at(start)], asynchronous=False)
    consumer = consumers(auto_commit_interval_ms=200, enable_auto_offset_store=stores)
    consumer.assign([material.at()])
    assert [offset for _, offset in offsets_of(read(consumer, 2))] == [start, start + 1]
    consumer.seek(material.at(10))
    (*_, last) = read(consumer, 3)
    if not stores:
        consumer.store_offsets(last)
    consumer.pause([material.at()])
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == KafkaError._NO_OFFSET
    assert consumer.poll(0.5) is None
    assert committed(consumers, material.at()) in (start, start + 2)
    consumer.close()
    assert committed(consumers, material.at()) == 13


@pytest.mark.parametrize("auto_commits", [True, False])
def test_a_reset_of_a_committed_offset(consumers: Consumers, material: Material, *, auto_commits: bool) -> None:
    consumers.plain(enable_auto_commit=False).commit(offsets=[material.at(500)], asynchronous=False)
    consumer = consumers(enable_auto_commit=auto_commits, auto_commit_interval_ms=3_600_000)
    consumer.assign([material.at()])
    read(consumer, 3)
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == KafkaError._NO_OFFSET
    consumer.unassign()
    consumer.assign([material.at(20)])
    read(consumer, 3)
    if auto_commits:
        consumer.commit(asynchronous=False)
    else:
        with pytest.raises(KafkaException):
            consumer.commit(asynchronous=False)
        consumer.commit(offsets=[material.at(7)], asynchronous=False)
        read(consumer, 1)
        consumer.commit(asynchronous=False)
    assert committed(consumers, material.at()) == (23 if auto_commits else 24)


def test_a_group_that_was_deleted(consumers: Consumers, material: Material) -> None:
    consumers.plain(enable_auto_commit=False).commit(offsets=[material.at(60)], asynchronous=False)
    consumer = consumers(enable_auto_commit=False)
    consumer.assign([material.at()])
    read(consumer, 1)
    consumer.unassign()
    client = admin(consumers.rig)  # its requests end with it
    client.delete_consumer_groups([consumers.group])[consumers.group].result(TIMEOUT_S)
    consumer.assign([material.at()])
    assert [offset for _, offset in offsets_of(read(consumer, 3))] == [0, 1, 2]
    consumer.commit(asynchronous=False)
    assert committed(consumers, material.at()) == 3


@pytest.mark.parametrize("auto_commits", [True, False])
def test_another_consumer_commits_before_what_this_one_has_committed(
    consumers: Consumers, material: Material, *, auto_commits: bool
) -> None:
    consumer = consumers(enable_auto_commit=auto_commits, auto_commit_interval_ms=3_600_000)
    consumer.assign([material.at()])
    read(consumer, 30)
    consumer.commit(asynchronous=False)
    consumer.unassign()
    consumers.plain(enable_auto_commit=False).commit(offsets=[material.at(10)], asynchronous=False)
    consumer.assign([material.at()])
    assert [offset for _, offset in offsets_of(read(consumer, 3))] == [10, 11, 12]
    consumer.commit(asynchronous=False)
    assert committed(consumers, material.at()) == 13


def test_what_goes_on_where_another_ended(consumers: Consumers, material: Material) -> None:
    found: list[int | None] = []
    while len(found) < material.end:
        with consumers() as consumer:
            consumer.assign([material.at()])
            found += [
                message.offset() for message in read(consumer, 17 if len(found) < 102 else material.end - len(found))
            ]
            consumer.commit(asynchronous=False)
    assert found == list(range(material.end))


@pytest.mark.parametrize("start", STARTS)
def test_offsets_in_a_transaction(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers(enable_auto_commit=False)
    consumer.subscribe([material.topic], on_assign=lambda who, _: who.assign([material.at(start)]))
    messages = read(consumer, 5)
    producer = Producer(
        {"bootstrap.servers": consumers.rig.bootstrap, "transactional.id": unique("transaction"), **QUIET}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    offset = (messages[-1].offset() or 0) + 1
    group = consumer.consumer_group_metadata()
    assert isinstance(group, bytes)
    producer.send_offsets_to_transaction([material.at(offset)], group, TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    assert committed(consumers, material.at()) == start + 5
