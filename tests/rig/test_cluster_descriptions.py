"""Compares the answers of a real cluster about topics with those of another client, and with the changes made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.deadline import Deadline, retry
from remote_fetch.failures.broker_errors import is_passing, is_refusal
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid
from tests.rig.elections import paused
from tests.rig.faults import topic_id
from tests.rig.rig import Rig
from tests.rig.topics import QUIET, admin, create_topic, delete_records, delete_topic, offsets, produce, wait_tiered
from tests.rig.transactions import open_transaction

NewTopic = Callable[[str], str]

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture
def cluster(rig: Rig) -> Iterator[Cluster]:
    found = Cluster({"bootstrap.servers": rig.bootstrap, **QUIET}, timeout_ms=10_000)
    yield found
    found.close()


def test_a_topic_is_described_with_its_id(rig: Rig, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic("described")
    create_topic(rig, topic, 3)
    first = cluster.describe(topic)
    assert first == Topic(topic, Uuid.parse(topic_id(rig, topic)), (0, 1, 2), may_read=True)

    delete_topic(rig, topic)
    create_topic(rig, topic, 1)
    second = cluster.describe(topic)
    assert second.topic_id != first.topic_id
    assert second.partitions == (0,)


def test_a_topic_that_is_not_there_stays_away(rig: Rig, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic("absent")
    with pytest.raises(KafkaException) as caught:
        cluster.describe(topic)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert not is_refusal(caught.value)
    with pytest.raises(KafkaException):
        cluster.log_bounds(TopicIdPartition(Uuid(bytes(16)), topic, 0), COMMITTED)
    assert topic not in admin(rig).list_topics(timeout=10).topics


def test_a_broker_that_stands_still_gives_no_ends(rig: Rig, new_topic: NewTopic) -> None:
    """librdkafka's AdminClient then gives offset -1001 without an error. It must not make the log look empty."""
    topic = new_topic("still")
    create_topic(rig, topic, 1)
    produce(rig, topic, 50)
    partition = TopicIdPartition(Uuid.parse(topic_id(rig, topic)), topic, 0)
    cluster = Cluster({"bootstrap.servers": rig.bootstrap, **QUIET}, timeout_ms=2_000)
    with closing(cluster):
        cluster.describe(topic)
        assert cluster.log_bounds(partition, UNCOMMITTED) == LogBounds(0, 50)
        with paused(rig, 1):
            for ask in (lambda: cluster.log_bounds(partition, UNCOMMITTED), lambda: cluster.ends(topic, [0])):
                with pytest.raises(KafkaException) as caught:
                    ask()
                assert is_passing(caught.value)

        def are_known() -> bool:  # a leader that starts again may name another log start at first
            with suppress(KafkaException):
                return cluster.log_bounds(partition, UNCOMMITTED) == LogBounds(0, 50)
            return False

        rig.until("the ends", are_known)


@pytest.mark.scheduled
def test_the_ends_are_answered_again_after_a_restart(rig: Rig, cluster: Cluster, new_topic: NewTopic) -> None:
    """The ends are known after a restart. A broker that shuts down answers with no leader or no brokers.

    librdkafka does not ask again after such an answer.
    """
    topic = new_topic("restarted")
    create_topic(rig, topic, 12)
    partitions = [TopicIdPartition(Uuid(bytes(16)), topic, number) for number in range(12)]
    is_up = threading.Event()

    def keep_asking(partition: TopicIdPartition) -> LogBounds:
        while not is_up.is_set():
            with suppress(KafkaException):
                cluster.log_bounds(partition, COMMITTED)
            time.sleep(0.1)
        deadline = Deadline.after(45)
        return retry(
            lambda: cluster.log_bounds(partition, COMMITTED),
            KafkaException,
            until=deadline,
            pause_s=0.1,
            may_pass=is_passing,
        )

    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(keep_asking, partition) for partition in partitions]
        try:
            rig.restart()
        finally:
            is_up.set()
        assert [answer.result(90) for answer in answers] == [LogBounds(0, 0)] * 12


def test_log_bounds_move_with_the_log(rig: Rig, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic("bounds")
    create_topic(rig, topic)
    partition = TopicIdPartition(Uuid.parse(topic_id(rig, topic)), topic, 0)
    assert cluster.log_bounds(partition, COMMITTED) == LogBounds(0, 0)
    produce(rig, topic, 60)
    wait_tiered(rig, topic)
    assert cluster.log_bounds(partition, COMMITTED) == LogBounds(0, 60)
    delete_records(rig, topic, 0, 7)
    with open_transaction(rig, topic, 5):
        produce(rig, topic, 5)
        assert cluster.log_bounds(partition, UNCOMMITTED) == LogBounds(7, 70)
        assert cluster.log_bounds(partition, COMMITTED) == LogBounds(7, 60)
        delete_records(rig, topic, 0, 63)  # past the last stable offset
        assert cluster.log_bounds(partition, UNCOMMITTED) == LogBounds(63, 70)
        assert cluster.log_bounds(partition, COMMITTED) == LogBounds(63, 63)
    rig.until("the abort marker", lambda: cluster.log_bounds(partition, COMMITTED) == LogBounds(63, 71))
    found = offsets(rig, topic, 0)
    assert (found.earliest, found.latest) == (63, 71)


def test_an_offset_is_found_for_a_time(rig_43: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("times")
    create_topic(rig_43, topic)
    partition = TopicIdPartition(Uuid.parse(topic_id(rig_43, topic)), topic, 0)
    cluster = Cluster({"bootstrap.servers": rig_43.bootstrap, **QUIET}, timeout_ms=10_000)
    assert cluster.offset_for_time(partition, 0, UNCOMMITTED) is None
    produce(rig_43, topic, 30)  # a record a second from 1,700,000,000,000 on, give or take five
    found = cluster.offset_for_time(partition, 1_700_000_020_000, UNCOMMITTED)
    assert found is not None
    assert 14 <= found <= 26
    assert cluster.offset_for_time(partition, -1, UNCOMMITTED) == 0
    assert cluster.offset_for_time(partition, 1_800_000_000_000, UNCOMMITTED) is None
    cluster.close()
    absent = TopicIdPartition(Uuid(bytes(16)), new_topic("absent"), 0)
    cluster = Cluster({"bootstrap.servers": rig_43.bootstrap, **QUIET}, timeout_ms=2_000)
    with pytest.raises(KafkaException):
        cluster.offset_for_time(absent, 0, UNCOMMITTED)
    cluster.close()


def test_a_cluster_that_does_not_answer_is_given_up_in_time() -> None:
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, timeout_ms=1000)
    with pytest.raises(KafkaException) as caught:
        cluster.describe("anything")
    assert caught.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
    with pytest.raises(KafkaException):
        cluster.log_bounds(TopicIdPartition(Uuid(bytes(16)), "anything", 0), COMMITTED)
    cluster.close()
