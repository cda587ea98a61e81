"""Errors of brokers by what they mean for the next question."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.broker_errors import is_refusal


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
    ],
)
def test_is_refusal_recognizes_refusals(code: int, expected: bool) -> None:
    assert is_refusal(KafkaException(KafkaError(code))) is expected
