"""The positions of a RemoteConsumer, and its partitions after an error, are those of a plain consumer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from remote_fetch import RemoteConsumer
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_consumer_causes import first_of
from tests.rig.test_read import config_of
from tests.rig.transactions import open_transaction

_RECORDS = 20
MORE = {
    "plain": {"fetch.remote.enabled": "false"},
    "remote": {"fetch.remote.enabled": "true", "fetch.remote.when": "always"},
}
OF_A_CHANGE = of_a_change(list(MORE.values()), MORE["remote"])
"""tests/consumer/test_switched_off.py proves that a consumer that is switched off is its parent."""


@pytest.mark.parametrize("more", OF_A_CHANGE, ids=MORE)
def test_a_position_where_only_a_marker_is_left(
    rig_43: Rig, new_topic: Callable[[str], str], more: dict[str, str]
) -> None:
    """The group has committed the offset after the last record. An application may read until the log ends."""
    topic = new_topic("marker-alone")
    topics.create_topic(rig_43, topic)
    with open_transaction(rig_43, topic, _RECORDS) as transaction:
        transaction.end(commit=True)
    topics.wait_tiered(rig_43, topic)
    config = {**config_of(rig_43), "group.id": topic, "auto.offset.reset": "error", **more}
    consumer = RemoteConsumer(config)
    try:
        consumer.assign([TopicPartition(topic, 0, _RECORDS)])
        position_at(consumer, topic, _RECORDS + 1)
        consumer.commit(asynchronous=False)
        assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == _RECORDS + 1
    finally:
        consumer.close()


@pytest.mark.parametrize("more", OF_A_CHANGE, ids=MORE)
@pytest.mark.parametrize("is_incremental", [False, True])
def test_an_assignment_that_is_refused(
    rig_43: Rig, new_topic: Callable[[str], str], more: dict[str, str], is_incremental: bool
) -> None:
    """librdkafka has dropped the partitions of before. In a group whose rebalances are incremental it keeps them."""
    topic = new_topic("refused")
    topics.make_tiered(rig_43, topic, 120)
    strategy = {"partition.assignment.strategy": "cooperative-sticky"} if is_incremental else {}
    earliest = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = RemoteConsumer({**config_of(rig_43), **earliest, **strategy, **more})
    try:
        if is_incremental:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0, 0)])
        assert first_of(consumer) == 0
        with pytest.raises(KafkaException):
            consumer.assign(2 * [TopicPartition(topic, 0, 50)])
        assert len(consumer.assignment()) == int(is_incremental)
        if is_incremental:
            assert [first_of(consumer) for _ in range(119)] == list(range(1, 120))
        else:
            assert [consumer.poll(0.2) for _ in range(10)] == 10 * [None]
    finally:
        consumer.close()


@pytest.mark.parametrize("more", OF_A_CHANGE, ids=MORE)
@pytest.mark.parametrize("consumes", [False, True])
def test_a_static_member_that_another_one_has_fenced(
    rig_43: Rig, new_topic: Callable[[str], str], more: dict[str, str], *, consumes: bool
) -> None:
    """The other one gets its partitions, and librdkafka calls no callback."""
    topic = new_topic("fenced")
    topics.make_tiered(rig_43, topic, 1_000)
    member = {"group.id": topic, "group.instance.id": "one", "heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
    config = {**config_of(rig_43), **member, "auto.offset.reset": "earliest", **more}
    old, new = RemoteConsumer(config), RemoteConsumer(config)

    def next_of_old() -> Message | None:
        return next(iter(old.consume(1, 0.1)), None) if consumes else old.poll(0.1)

    try:
        old.subscribe([topic])
        assert first_of(old) == 0
        new.subscribe([topic])
        is_fatal, deadline_s = False, time.monotonic() + 150
        while not is_fatal and time.monotonic() < deadline_s:
            time.sleep(0.02)  # most records are still to come
            message = next_of_old()
            error = None if message is None else message.error()
            is_fatal = error is not None and error.code() == KafkaError._FATAL
        assert is_fatal
        assert [next_of_old() for _ in range(10)] == 10 * [None]
        with pytest.raises(KafkaException):
            old.seek(TopicPartition(topic, 0, 3))
        old.assign([TopicPartition(topic, 0, 3)])
        assert [next_of_old() for _ in range(10)] == 10 * [None]
        assert old.assignment() == []
        assert first_of(new) >= 0
    finally:
        old.close()
        new.close()


def position_at(consumer: RemoteConsumer, topic: str, offset: int) -> tuple[int, int | None]:
    """The position and its leader epoch, once the consumer has come to `offset`."""
    deadline_s = time.monotonic() + 150
    while time.monotonic() < deadline_s:
        consumer.poll(0.2)
        (position,) = consumer.position([TopicPartition(topic, 0)])
        if position.offset == offset:
            return position.offset, position.leader_epoch
    raise AssertionError(f"the position is {position.offset}")
