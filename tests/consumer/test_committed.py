"""The group is asked beside the application's thread, a few times, and not while the consumer is being closed."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.committed import Committed

ASKED = [TopicPartition("t", 0), TopicPartition("t", 1)]
_TIMEOUT_S = 10


class Group:
    """A librdkafka whose answers are given one after the other; an error is raised. `may_answer` holds them back."""

    def __init__(self, *answers: list[int] | int) -> None:
        self._answers = list(answers)
        self.may_answer = threading.Event()
        self.questions = 0

    def __call__(self, partitions: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        self.questions += 1
        assert self.may_answer.wait(_TIMEOUT_S)
        answer = self._answers.pop(0)
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return [
            TopicPartition(one.topic, one.partition, offset) for one, offset in zip(partitions, answer, strict=True)
        ]


def ask(group: Group) -> tuple[Committed, threading.Event]:
    rung = threading.Event()
    committed = Committed(group, rung.set)
    committed.ask(ASKED)
    return committed, rung


def offsets(committed: Committed) -> list[list[int]]:
    return [[one.offset for one in found] for _, found in committed.take()]


def test_the_application_goes_on_until_the_group_has_answered() -> None:
    group = Group([7, 9])
    committed, rung = ask(group)
    assert committed.take() == []
    group.may_answer.set()
    assert rung.wait(_TIMEOUT_S)
    assert offsets(committed) == [[7, 9]]
    assert committed.take() == []


def test_a_group_that_does_not_answer_is_asked_again_a_few_times() -> None:
    group = Group(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, [7, 9])
    group.may_answer.set()
    committed, rung = ask(group)
    assert rung.wait(_TIMEOUT_S)
    assert offsets(committed) == [[7, 9]]
    silent = Group(*[KafkaError._TIMED_OUT] * 9)
    silent.may_answer.set()
    committed, rung = ask(silent)
    assert rung.wait(_TIMEOUT_S)
    assert offsets(committed) == [[]]
    assert silent.questions == 3


def test_a_refusal_is_no_answer() -> None:
    group = Group(KafkaError.GROUP_AUTHORIZATION_FAILED)
    group.may_answer.set()
    committed, rung = ask(group)
    assert rung.wait(_TIMEOUT_S)
    assert offsets(committed) == [[]]
    assert group.questions == 1


def test_a_commit_that_waits_comes_after_the_answer() -> None:
    group = Group([7, 9])
    committed, _ = ask(group)
    threading.Timer(0.05, group.may_answer.set).start()
    committed.wait()
    assert offsets(committed) == [[7, 9]]


def test_after_close_the_group_is_not_asked_again() -> None:
    group = Group(KafkaError._TIMED_OUT)
    committed, _ = ask(group)
    committed.close()
    group.may_answer.set()
    committed.wait()
    assert group.questions == 1
    assert committed.take() == []
