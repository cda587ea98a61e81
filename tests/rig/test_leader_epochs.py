"""Logs of two leaders on a real broker: records, positions, and offsets that name a leader epoch.

Rules of the file:

- One restart of the broker serves all tests, because it takes as much processor time as twenty of them. The fixture
  `epochs` writes to all topics before it and after it.
- Each test has topics of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, TopicPartition

from remote_fetch import RemoteConsumer
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.faults import leader_epoch, new_leader_epoch
from tests.rig.rig import Rig
from tests.rig.test_consumer_causes import first_of
from tests.rig.test_consumer_positions import MORE, position_at
from tests.rig.test_read import assert_equal_to_broker, config_of
from tests.rig.transactions import open_transaction

READ, NAMED, NAMED_LOCAL, OWN, MARKED = (f"epochs-{name}" for name in ("read", "named", "local", "own", "marked"))
OLD, NEW = 120, 40
"""How many records each leader has. In MARKED, the first one has all, and the second one their commit marker."""


class Epochs(NamedTuple):
    """The leader epochs of a topic."""

    old: int
    new: int


@pytest.fixture(scope="module")
def epochs(rig_43: Rig) -> Mapping[str, Epochs]:
    """Writes the topics, and restarts the broker in between."""
    for topic in (READ, NAMED, OWN, MARKED):
        topics.create_topic(rig_43, topic)
    topics.create_topic(rig_43, NAMED_LOCAL, remote_storage_enable="false", local_retention_ms="-2")
    written = (READ, NAMED, NAMED_LOCAL, OWN)
    for topic in written:
        topics.produce(rig_43, topic, OLD)
    with open_transaction(rig_43, MARKED, OLD) as transaction:
        old = {topic: leader_epoch(rig_43, topic, 0) for topic in (*written, MARKED)}
        new_leader_epoch(rig_43, READ)
        for topic, before in old.items():
            rig_43.until(f"a new leader of {topic}", lambda: leader_epoch(rig_43, topic, 0) > before)  # noqa: B023
        transaction.end(commit=True)
    found = {topic: Epochs(before, leader_epoch(rig_43, topic, 0)) for topic, before in old.items()}
    for topic in written:
        topics.produce(rig_43, topic, NEW, seed=1)
    for topic in (READ, NAMED, OWN, MARKED):
        topics.wait_tiered(rig_43, topic)
    return found


def test_the_records_of_both_leaders(rig_43: Rig, epochs: Mapping[str, Epochs]) -> None:
    found = {one.leader_epoch for one in topics.broker_records(rig_43, READ, 0, "read_uncommitted")}
    assert found == set(epochs[READ])
    assert_equal_to_broker(rig_43, READ)


@pytest.mark.parametrize("topic", of_a_change([NAMED, NAMED_LOCAL]))
def test_a_leader_epoch_that_the_log_has_no_more(rig_43: Rig, epochs: Mapping[str, Epochs], topic: str) -> None:
    """An application that keeps its offsets itself names the epoch, and the log was truncated before its offset.

    As librdkafka: it goes on behind the last record of that epoch, or raises the error of the policy.
    """
    old = epochs[topic].old
    places = [TopicPartition(topic, 0, OLD + 10, leader_epoch=epoch) for epoch in epochs[topic]]
    for policy, place, seeks in itertools.product(("earliest", "error"), places, (False, True)):
        found = []
        for more in ({}, {"fetch.remote.enabled": True, "fetch.remote.when": "always"}):
            consumer = RemoteConsumer({**config_of(rig_43), "group.id": topic, "auto.offset.reset": policy, **more})
            try:
                consumer.assign([TopicPartition(topic, 0, 7) if seeks else place])
                if seeks:
                    assert first_of(consumer) == 7
                    consumer.seek(place)
                found.append(first_of(consumer))
            finally:
                consumer.close()
        truncated = OLD if policy == "earliest" else KafkaError._AUTO_OFFSET_RESET
        assert found == 2 * [truncated if place.leader_epoch == old else OLD + 10]


def test_the_leader_epoch_of_the_first_record_of_a_leader(rig_43: Rig, epochs: Mapping[str, Epochs]) -> None:
    """An application may name a record's own offset and epoch. To a broker the log is not truncated there."""
    for more in MORE.values():
        consumer = RemoteConsumer({**config_of(rig_43), "group.id": OWN, "auto.offset.reset": "error", **more})
        try:
            consumer.assign([TopicPartition(OWN, 0, OLD, leader_epoch=epochs[OWN].new)])
            assert first_of(consumer) == OLD
            assert consumer.remote_metrics()["remote-fetch-fallbacks-by-reason"] == {}
        finally:
            consumer.close()


def test_a_position_after_a_marker_of_a_newer_leader(rig_43: Rig, epochs: Mapping[str, Epochs]) -> None:
    """A reader that goes on there compares its epoch with the log. An older one would look like a truncation."""
    expected = (OLD + 1, epochs[MARKED].new)
    for name, more in MORE.items():
        config = {**config_of(rig_43), "group.id": MARKED + name, "auto.offset.reset": "error", **more}
        consumer = RemoteConsumer(config)
        try:
            consumer.assign([TopicPartition(MARKED, 0, 0)])
            assert position_at(consumer, MARKED, OLD + 1) == expected
            consumer.commit(asynchronous=False)
            (committed,) = consumer.committed([TopicPartition(MARKED, 0)], 10)
            assert (committed.offset, committed.leader_epoch) == expected
        finally:
            consumer.close()
    topics.produce(rig_43, MARKED, 3)
    for name, more in MORE.items():
        config = {**config_of(rig_43), "group.id": MARKED + name, "auto.offset.reset": "error", **more}
        consumer = RemoteConsumer(config)
        try:
            consumer.assign([TopicPartition(MARKED, 0, OLD + 1, leader_epoch=epochs[MARKED].new)])
            assert first_of(consumer) == OLD + 1
        finally:
            consumer.close()
