"""Questions in slices, with a clock that the test moves."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.deadline import Deadline
from remote_fetch.locate import slices
from remote_fetch.locate.slices import Newcomer, ask_in_slices


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


def test_threads_wait_for_the_same_new_client() -> None:
    """Else the second silence, a moment after the first one, would replace the client before it is connected."""
    newcomer, client = Newcomer(), Leader(0)
    first, second = newcomer.turn(client, 3), newcomer.turn(client, 3)
    newcomer.note_silence(first)
    newcomer.note_silence(second)
    assert (first.is_last, second.is_last) == (False, False)
    third = newcomer.turn(client, 3)
    assert (third.slice_s, third.is_last) == (1.5, True)
    assert newcomer.turn(client, 15).slice_s == 15


def test_a_client_that_was_answered_is_replaced_after_its_first_silence() -> None:
    newcomer, client = Newcomer(), Leader(0)
    slow, quick = newcomer.turn(client, 3), newcomer.turn(client, 3)
    newcomer.note_silence(slow)
    newcomer.note_answer(quick)
    assert (newcomer.turn(client, 3).slice_s, newcomer.turn(client, 3).is_last) == (3, True)


def test_a_new_client_at_the_place_of_an_old_one_is_a_new_client() -> None:
    """CPython gives a new object the `id` of one that has just ended, so the next AdminClient often has it."""
    newcomer = Newcomer()
    newcomer.note_answer(newcomer.turn(Leader(0), 3))
    assert not newcomer.turn(Leader(0), 3).is_last


def test_a_client_that_stays_after_its_last_turn_is_a_newcomer_again() -> None:
    """Its owner may not replace it while it has an assignment."""
    newcomer, client = Newcomer(), Leader(0)
    newcomer.note_answer(newcomer.turn(client, 3))
    newcomer.note_silence(newcomer.turn(client, 3))
    assert not newcomer.turn(client, 3).is_last


def test_a_client_that_its_owner_drops_is_let_go() -> None:
    """It has threads and sockets, and ends with its last reference."""
    newcomer, client = Newcomer(), Leader(0)
    ended = weakref.ref(client)
    newcomer.note_answer(newcomer.turn(client, 3))
    del client
    assert ended() is None


def test_an_answer_to_an_old_client_is_none_to_the_new_one() -> None:
    newcomer = Newcomer()
    old = newcomer.turn(Leader(0), 3)
    new = newcomer.turn(Leader(0), 3)
    newcomer.note_answer(old)
    newcomer.note_silence(old)
    assert not newcomer.turn(new.client, 3).is_last
