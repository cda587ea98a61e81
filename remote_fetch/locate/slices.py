"""Asks brokers a question in slices of its deadline, so that no broker that has died takes all of it.

librdkafka (2.16) ties a request to one broker. If that broker has died, the request waits until its own timeout, also
when another broker has become the leader, which takes seconds. Only the next request goes to the new leader.

Rules of the file:

- Each slice is one request, as long as the caller's `ask` makes one. A question that is answered is not repeated.
- The slices are short in the first half of the deadline. The second half is one slice, for brokers that are only slow.
- A client that gives no answer is replaced, because its broker may have died. A new client gets half a slice more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from weakref import ref

from confluent_kafka import KafkaException

from remote_fetch.deadline import Deadline, retry
from remote_fetch.failures.broker_errors import is_unanswered

__all__ = ["LEADER_LOOKUP_S", "LEAST_S", "ONE_ANSWER_S", "Newcomer", "ask_in_slices"]

T = TypeVar("T")

ONE_ANSWER_S = 3.0
"""How long one request waits at first. A controller needs 9 s by default to replace a leader that has died."""
LEADER_LOOKUP_S = 5.0
"""The longest wait for the leaders of a topic, which a client looks up after it has missed one."""
LEAST_S = 0.1
"""The shortest timeout of a request, and the pause between two slices."""


def ask_in_slices(
    ask: Callable[[float], T], deadline: Deadline, *, may_pass: Callable[[KafkaException], bool] = is_unanswered
) -> T:
    """The answer of `ask`, which takes the timeout of one slice in seconds.

    Raises KafkaException: at once if `may_pass` refuses the error, else the last error at the deadline.
    """
    half = Deadline.after(deadline.left_s / 2, deadline.clock)

    def ask_once() -> T:
        left_s = max(deadline.left_s, LEAST_S)
        return ask(left_s if half.is_over else min(ONE_ANSWER_S, left_s))

    return retry(ask_once, KafkaException, until=deadline, pause_s=LEAST_S, may_pass=may_pass)


@dataclass(frozen=True, slots=True)
class Turn:
    """One question of a client. `slice_s`: how long it waits. `is_last`: the client is replaced after a silence.

    `is_answered`: the client was answered before.
    """

    client: object
    slice_s: float
    is_last: bool
    is_answered: bool


class Newcomer:
    """Tells a client that is only connecting from one whose broker has died. Thread-safe.

    librdkafka (2.16) needs six round trips until the first answer of a new client. Over a line of more than half a
    second each new client would be replaced before it is connected, again and again.

    It knows the last client that has asked. Several threads may ask with it at the same time: the silences of questions
    that began before the first silence count as one. It does not keep a client alive that was replaced.
    """

    def __init__(self) -> None:
        self._client: Callable[[], object] = _none
        self._is_answered = self._was_silent = False

    def turn(self, client: object, timeout_s: float) -> Turn:
        """The next question of a client. After its first silence, a client that was never answered has half a slice."""
        if client is not self._client():
            self._client, self._is_answered, self._was_silent = ref(client), False, False
        is_spared = self._was_silent and not self._is_answered
        slice_s = timeout_s / 2 if is_spared and timeout_s <= ONE_ANSWER_S else timeout_s
        return Turn(client, slice_s, self._was_silent or self._is_answered, self._is_answered)

    def note_answer(self, turn: Turn) -> None:
        """Note that a question was answered."""
        if turn.client is self._client():
            self._is_answered = True

    def note_silence(self, turn: Turn) -> None:
        """Note that a question was not answered. A client that is not replaced then is a newcomer again."""
        if turn.client is self._client():
            self._client, self._was_silent = (_none if turn.is_last else self._client), True


def _none() -> None:
    pass
