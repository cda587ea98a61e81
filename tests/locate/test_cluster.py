"""What a Cluster does with answers that a broker cannot be made to give at will, and with its clients' settings.

Rules of the file: a consumer of a test's own stands in the cluster's place for one; real answers are in tests/rig.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from remote_fetch.locate.cluster import Cluster, _admin_properties, consumer_properties, is_refusal
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)
LEVEL = IsolationLevel.READ_UNCOMMITTED


class Answers:
    """A consumer that gives one answer after the other, the last one again and again; an error code is raised."""

    def __init__(self, *answers: int | TopicPartition) -> None:
        self.answers = list(answers)
        self.asked: list[TopicPartition] = []
        self.is_closed = False

    def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.asked += wanted
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return [answer]

    def close(self) -> None:
        self.is_closed = True


def cluster_with(answers: Any, timeout_ms: int = 5_000) -> Cluster:
    cluster = Cluster({}, timeout_ms=timeout_ms)
    cluster._consumers[LEVEL] = answers
    return cluster


def test_a_leader_that_is_not_ready_is_asked_again() -> None:
    not_ready = KafkaError.REPLICA_NOT_AVAILABLE
    answers = Answers(not_ready, not_ready, TopicPartition("t", 0, 42))
    cluster = cluster_with(answers)
    assert cluster.offset_for_time(PARTITION, -5, LEVEL) == 42
    assert [one.offset for one in answers.asked] == [0, 0, 0]
    cluster.close()
    assert answers.is_closed


def test_it_is_not_asked_for_ever() -> None:
    cluster = cluster_with(Answers(KafkaError.REPLICA_NOT_AVAILABLE), timeout_ms=150)
    with pytest.raises(KafkaException):
        cluster.offset_for_time(PARTITION, 1, LEVEL)


def test_another_error_is_not_asked_again() -> None:
    answers = Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicPartition("t", 0, 42))
    with pytest.raises(KafkaException):
        cluster_with(answers).offset_for_time(PARTITION, 1, LEVEL)


def test_an_error_inside_an_answer_counts_as_one() -> None:
    class Failed(TopicPartition):
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    with pytest.raises(KafkaException):
        cluster_with(Answers(Failed("t", 0, 42))).offset_for_time(PARTITION, 1, LEVEL)


def test_librdkafkas_end_is_no_offset() -> None:
    assert cluster_with(Answers(TopicPartition("t", 0, -1))).offset_for_time(PARTITION, 1, LEVEL) is None


def test_a_consumer_neither_commits_nor_resets_nor_makes_topics_whatever_the_user_set() -> None:
    theirs = {
        "bootstrap.servers": "b:1",
        "group.id": "mine",
        "enable.auto.commit": True,
        "auto.offset.reset": "latest",
        "allow.auto.create.topics": True,
        "isolation.level": "read_committed",
    }
    found = consumer_properties(theirs, LEVEL)
    assert found["group.id"] == "mine"
    assert found["isolation.level"] == "read_uncommitted"
    assert found["auto.offset.reset"] == "error"
    assert not any(
        found[name] for name in ("enable.auto.commit", "enable.auto.offset.store", "allow.auto.create.topics")
    )
    Consumer(found).close()
    assert consumer_properties({}, LEVEL)["group.id"] == "remote-fetch"


def test_an_administrators_client_gets_nothing_that_only_a_consumer_knows() -> None:
    theirs = {"bootstrap.servers": "b:1", "group.id": "mine", "fetch.min.bytes": 1, "sasl.username": "u"}
    assert _admin_properties(theirs) == {"bootstrap.servers": "b:1", "sasl.username": "u"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
    ],
)
def test_a_refusal_is_told_from_other_errors(code: int, expected: bool) -> None:
    assert is_refusal(KafkaException(KafkaError(code))) is expected
