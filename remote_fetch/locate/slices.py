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
from typing import TypeVar

from confluent_kafka import KafkaException

from remote_fetch.broker_errors import is_unanswered
from remote_fetch.deadline import Deadline, retry

__all__ = ["LEAST_S", "ONE_ANSWER_S", "Newcomer", "ask_in_slices"]

T = TypeVar("T")

ONE_ANSWER_S = 3.0
"""How long one request waits at first. A controller needs 9 s by default to replace a leader that has died."""
LEAST_S = 0.1
"""The shortest timeout of a request, and the pause between two slices."""


def ask_in_slices(
    ask: Callable[[float], T],
    deadline: Deadline,
    *,
    may_pass: Callable[[KafkaException], bool] = is_unanswered,
) -> T:
    """The answer of `ask`, which takes the timeout of one slice in seconds.

    Raises KafkaException: at once if `may_pass` refuses the error, else the last error at the deadline.
    """
    half = Deadline.after(deadline.left_s / 2, deadline.clock)

    def ask_once() -> T:
        left_s = max(deadline.left_s, LEAST_S)
        return ask(left_s if half.is_over else min(ONE_ANSWER_S, left_s))

    return retry(ask_once, KafkaException, until=deadline, pause_s=LEAST_S, may_pass=may_pass)


class Newcomer:
    """Tells a client that is only connecting from one whose broker has died. Thread-safe.

    librdkafka (2.16) needs six round trips until the first answer of a new client. Over a line of more than half a
    second each new client would be replaced before it is connected, again and again.
    """

    def __init__(self) -> None:
        self._answered: int | None = None
        self._spared: int | None = None

    def answers(self, client: object) -> None:
        """Note that a client was answered."""
        self._answered = id(client)

    def is_spared(self, client: object) -> bool:
        """Whether a client is kept after a silence: the first silence of a client that was never answered."""
        spared, self._spared = self._spared, None
        if id(client) in (self._answered, spared):
            return False
        self._spared = id(client)
        return True

    def slice_s(self, client: object, timeout_s: float) -> float:
        """How long this client may take to answer. A client that was spared gets half a slice more."""
        is_spared = self._spared == id(client) != self._answered
        return timeout_s / 2 if is_spared and timeout_s <= ONE_ANSWER_S else timeout_s
