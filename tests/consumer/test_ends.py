"""The question where logs end, of a client that has only just connected: asked until all of it is answered."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer import remote
from remote_fetch.consumer.remote import ask_for_ends

END = -1
ASKED = [TopicPartition("topic", 0, END), TopicPartition("topic", 1, END)]
LOST = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Inner:
    """Gives the answers in turn, the last one again and again."""

    def __init__(self, *answers: list[int] | KafkaException) -> None:
        self.answers = list(answers)
        self.timeouts: list[float] = []

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.timeouts.append(timeout)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaException):
            raise answer
        return [
            TopicPartition(one.topic, one.partition, offset) for one, offset in zip(partitions, answer, strict=True)
        ]


def ends(inner: Any) -> list[int]:
    return [one.offset for one in ask_for_ends(inner, ASKED)]


def test_answered_at_once() -> None:
    inner = Inner([7, 0])
    assert ends(inner) == [7, 0]
    assert len(inner.timeouts) == 1


def test_asked_again_while_answers_are_missing() -> None:
    """A wait that is over looks like an answer: the offset that was asked with is still there."""
    inner = Inner(LOST, [END, END], [7, END], [7, 9])
    assert ends(inner) == [7, 9]
    first, *others = inner.timeouts
    assert [round(one / first) for one in others] == [2, 4, 8]


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_COMMITTED_S", 0.25)
    assert ends(Inner(LOST)) == []
    inner = Inner([7, END])
    assert ends(inner) == [7, END]
    first, *others = inner.timeouts
    assert [round(one / first) for one in others] == [2, 4, 8, 8], "twice as long each time, and never past the end"


def test_another_error_is_the_end_of_it() -> None:
    inner = Inner(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    assert ends(inner) == []
    assert len(inner.timeouts) == 1
