"""Deadlines and repeated questions, with a clock of the test's."""

from __future__ import annotations

import threading

import pytest

from remote_fetch.deadline import Deadline, join_all, retry
from tests.clock import Clock


class Asked(Clock):
    """Each question takes one second."""

    def __init__(self, *answers: object) -> None:
        super().__init__()
        self.answers = list(answers)

    def ask(self) -> object:
        self.now_s += 1
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def asked(clock: Asked, timeout_s: float) -> object:
    deadline = Deadline.after(timeout_s, clock)
    return retry(clock.ask, OSError, until=deadline, pause_s=0, may_pass=lambda error: "later" in str(error))


def test_a_deadline_counts_down_and_not_below_0() -> None:
    clock = Clock()
    deadline = Deadline.after(2, clock)
    assert (deadline.left_s, deadline.is_over) == (2, False)
    clock.now_s += 3
    assert (deadline.left_s, deadline.is_over) == (0, True)


def test_a_question_is_repeated_until_there_is_an_answer() -> None:
    clock = Asked(OSError("later"), OSError("later"), 42)
    assert asked(clock, 10) == 42


def test_the_last_error_is_raised_after_the_deadline() -> None:
    clock = Asked(OSError("later 1"), OSError("later 2"), 42)
    with pytest.raises(OSError, match="later 2"):
        asked(clock, 2)
    assert clock.answers == [42]


@pytest.mark.parametrize("error", [OSError("never"), ValueError("later")])
def test_an_error_that_does_not_pass_is_raised_at_once(error: Exception) -> None:
    clock = Asked(error, 42)
    with pytest.raises(type(error)):
        asked(clock, 10)
    assert clock.answers == [42]


def test_threads_share_one_deadline_and_those_that_still_run_are_counted() -> None:
    released = threading.Event()
    threads = [threading.Thread(target=released.wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert join_all([*threads, threading.current_thread()], Deadline.after(0.01)) == 3
    finally:
        released.set()
    assert join_all(threads, Deadline.after(10)) == 0
