"""Requests for committed offsets: in a thread of their own, a few attempts, none after `close`."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.committed import CommittedOffsets, Start

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
_TIMEOUT_S = 60


class Group:
    """Gives its answers in turn, and raises those that are errors. It answers once `may_answer` is set."""

    def __init__(self, *answers: list[int] | int | Exception) -> None:
        self._answers = list(answers)
        self.may_answer = threading.Event()
        self.requests = 0

    def __call__(self, partitions: Sequence[TopicPartition], timeout_s: float) -> list[Start]:
        self.requests += 1
        assert self.may_answer.wait(_TIMEOUT_S)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return [
            Start(partition.topic, partition.partition, offset)
            for partition, offset in zip(partitions, answer, strict=True)
        ]


def request(group: Group) -> tuple[CommittedOffsets, threading.Event]:
    notified = threading.Event()
    committed = CommittedOffsets(group, notified.set)
    committed.request(PARTITIONS)
    return committed, notified


def answers(committed: CommittedOffsets) -> list[list[int]]:
    return [[partition.offset for partition in found] for _, found in committed.take_answers()]


def test_a_request_does_not_wait_for_the_answer() -> None:
    group = Group([7, 9])
    committed, notified = request(group)
    assert committed.take_answers() == []
    group.may_answer.set()
    assert notified.wait(_TIMEOUT_S)
    assert answers(committed) == [[7, 9]]
    assert committed.take_answers() == []


def test_there_are_three_attempts_if_the_group_does_not_answer() -> None:
    group = Group(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, [7, 9])
    group.may_answer.set()
    committed, notified = request(group)
    assert notified.wait(_TIMEOUT_S)
    assert answers(committed) == [[7, 9]]
    silent = Group(*[KafkaError._TIMED_OUT] * 9)
    silent.may_answer.set()
    committed, notified = request(silent)
    assert notified.wait(_TIMEOUT_S)
    assert answers(committed) == [[]]
    assert silent.requests == 3


@pytest.mark.parametrize(
    "error",
    [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_coordinator_that_has_moved_is_asked_again(error: int) -> None:
    """librdkafka (2.16) tells the application of this error, asks no more, and never reads the partition."""
    group = Group(error, error, [7, 9])
    group.may_answer.set()
    committed, notified = request(group)
    assert notified.wait(_TIMEOUT_S)
    assert answers(committed) == [[7, 9]]


def test_after_a_refusal_there_is_no_further_attempt() -> None:
    group = Group(KafkaError.GROUP_AUTHORIZATION_FAILED)
    group.may_answer.set()
    committed, notified = request(group)
    assert notified.wait(_TIMEOUT_S)
    assert answers(committed) == [[]]
    assert group.requests == 1


def test_an_error_of_any_class_leaves_the_question_to_librdkafka(caplog: pytest.LogCaptureFixture) -> None:
    """As confluent_kafka raises it for a consumer that is closed."""
    group = Group(RuntimeError("Consumer closed"))
    group.may_answer.set()
    committed, notified = request(group)
    assert notified.wait(_TIMEOUT_S)
    assert answers(committed) == [[]]
    assert "Consumer closed" in caplog.text


def test_wait_returns_after_the_answer() -> None:
    group = Group([7, 9])
    committed, _ = request(group)
    threading.Timer(0.05, group.may_answer.set).start()
    committed.wait()
    assert answers(committed) == [[7, 9]]


def test_wait_ends_after_its_time() -> None:
    group = Group([7, 9])
    committed, notified = request(group)
    committed.wait(0)
    assert answers(committed) == []
    group.may_answer.set()
    assert notified.wait(_TIMEOUT_S)


def test_after_close_there_is_no_further_attempt() -> None:
    group = Group(KafkaError._TIMED_OUT)
    committed, _ = request(group)
    committed.close()
    group.may_answer.set()
    committed.wait()
    assert group.requests == 1
    assert committed.take_answers() == []
