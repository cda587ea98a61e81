"""Questions in slices, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.deadline import Deadline
from remote_fetch.locate import slices
from remote_fetch.locate.slices import ask_in_slices


class Leader:
    """Answers from a time on. Until then a question ends with an error after its timeout."""

    def __init__(self, answers_at_s: float, code: int = KafkaError._TIMED_OUT) -> None:
        self.now_s = 0.0
        self.answers_at_s = answers_at_s
        self.code = code
        self.timeouts: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def ask(self, timeout_s: float) -> str:
        self.timeouts.append(timeout_s)
        if self.now_s >= self.answers_at_s:
            return "the end"
        self.now_s += timeout_s
        raise KafkaException(KafkaError(self.code))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LEAST_S", 0)


def asked(leader: Leader, timeout_s: float = 30, may_pass: Callable[[KafkaException], bool] | None = None) -> str:
    deadline = Deadline.after(timeout_s, leader.clock)
    return (
        ask_in_slices(leader.ask, deadline)
        if may_pass is None
        else ask_in_slices(leader.ask, deadline, may_pass=may_pass)
    )


def test_an_answer_is_asked_for_once() -> None:
    leader = Leader(0)
    assert asked(leader) == "the end"
    assert leader.timeouts == [3]


def test_the_new_leader_is_asked_soon_after_it_is_elected() -> None:
    leader = Leader(answers_at_s=7)
    assert asked(leader) == "the end"
    assert leader.timeouts == [3, 3, 3, 3]


def test_a_broker_that_is_only_slow_has_half_of_the_deadline_for_one_answer() -> None:
    leader = Leader(answers_at_s=99)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        asked(leader)
    assert leader.timeouts == [3, 3, 3, 3, 3, 15]
    assert leader.now_s == 30


def test_a_short_deadline_is_not_exceeded() -> None:
    leader = Leader(answers_at_s=99)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        asked(leader, timeout_s=2)
    assert leader.timeouts == [2]


@pytest.mark.parametrize("code", [KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT])
def test_a_broken_connection_is_no_answer(code: int) -> None:
    assert asked(Leader(4, code)) == "the end"


def test_a_refusal_is_an_answer() -> None:
    leader = Leader(4, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        asked(leader)
    assert leader.timeouts == [3]


def test_the_caller_may_let_other_errors_pass() -> None:
    assert asked(Leader(4, KafkaError.OFFSET_NOT_AVAILABLE), may_pass=lambda _: True) == "the end"
