"""Asks brokers on behalf of the driver of a Spark read, again and again while none of them answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from remote_fetch.deadline import Deadline, retry
from remote_fetch.errors import BrokerUnavailable
from remote_fetch.failures.broker_errors import broker_says, is_unanswered

__all__ = ["BATCH_AWAY_S", "ask_once", "ask_patiently"]

T = TypeVar("T")

BATCH_AWAY_S = 180.0
"""How long brokers may be away from a batch or a backfill. Spark's Kafka source tries three times for a minute."""
_PAUSE_S = 0.2


def ask_once(ask: Callable[[], T]) -> T:
    """The answer to a question. Raises BrokerUnavailable if no broker answers."""
    try:
        return ask()
    except KafkaException as error:
        if not is_unanswered(error):
            raise
        raise BrokerUnavailable(broker_says(error)) from error


def ask_patiently(ask: Callable[[], T], say: Callable[[str], object], *, away_s: float) -> T:
    """The answer to a question, which is asked again for `away_s` seconds while no broker answers.

    `say` is called once, if that is so. Raises BrokerUnavailable in the end, and at once if a broker has refused the
    credentials or the certificate.
    """
    is_said = False

    def may_pass(error: BrokerUnavailable) -> bool:
        nonlocal is_said
        if not error.is_refusal and not is_said:
            is_said = True
            say(f"{error.message}; still asking")
        return not error.is_refusal

    return retry(
        lambda: ask_once(ask), BrokerUnavailable, until=Deadline.after(away_s), pause_s=_PAUSE_S, may_pass=may_pass
    )
