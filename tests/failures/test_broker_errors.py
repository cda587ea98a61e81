"""Errors of brokers by what they mean for the next question."""

from __future__ import annotations

import runpy

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import MissingExtra
from remote_fetch.failures import broker_errors
from remote_fetch.failures.broker_errors import (
    asks_no_more,
    broker_says,
    end_of_truncated_epoch,
    is_refusal,
    is_truncation,
    lacks_epoch,
)


def test_an_older_confluent_kafka_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip leaves one there, with a warning only, if another package's file of requirements names it."""
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("2.5.0", 0x020500FF))
    with pytest.raises(
        MissingExtra, match=r"needs confluent-kafka 2\.16 or later, and the one here has librdkafka 2\.5"
    ):
        runpy.run_path(broker_errors.__file__)


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


TRUNCATED = (
    "Partition log truncation detected at offset 500 (leader epoch 0): broker end offset is 200 (offset leader epoch 0)"
)
NO_EPOCH = (
    "No epoch found less or equal to offset 500 (leader epoch 9): broker end offset is -1 (offset leader epoch -1)"
)


@pytest.mark.parametrize(
    ("text", "end", "is_truncated", "lacks"),
    [
        (f"{TRUNCATED}. Reset to INVALID.: Local: Partition log truncation detected (broker 2)", 200, True, False),
        (f"{NO_EPOCH}. Reset to INVALID.: Local: Partition log truncation detected (broker 2)", None, False, True),
        ("log in other words.: Local: Partition log truncation detected (broker 2)", None, True, False),
        ("fetch failed due to requested offset not available on the broker: Broker: Offset", None, False, False),
    ],
    ids=["truncated", "no epoch", "no offset", "out of range"],
)
def test_the_end_of_a_truncated_log_is_in_librdkafkas_text(
    text: str, end: int | None, is_truncated: bool, lacks: bool
) -> None:
    assert end_of_truncated_epoch(text) == end
    assert (is_truncation(text), lacks_epoch(text)) == (is_truncated, lacks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "this principal may not READ topic t",
            "the broker says: Broker: Topic authorization failed: this principal may not READ topic t",
        ),
        (None, "the broker says: Broker: Topic authorization failed"),
        ("Fetch failed: Broker: Topic authorization failed", None),
        ("Topic authorization failed.", None),  # a broker's own text, as of DescribeConfigs
    ],
)
def test_a_refusal_tells_that_it_is_one_and_of_what(text: str | None, said: str | None) -> None:
    error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, text))
    assert broker_says(error) == (said or f"the broker says: {text}")


def test_a_partition_without_a_leader_is_no_word_of_the_broker() -> None:
    error = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, "Failed to get watermark offsets"))
    assert broker_says(error).startswith("a partition has no leader, or it is gone: Failed to get watermark offsets. ")


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (KafkaError.NOT_COORDINATOR, 'Failed to fetch committed offsets for 0 partition(s) in group "g": x', True),
        (KafkaError._TRANSPORT, 'Failed to fetch committed offsets for partitions in group "g": x', True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, 'Failed to fetch committed offsets for partitions in "g": x', False),
        (KafkaError.NOT_COORDINATOR, 'Failed to fetch committed offset for group "g" topic t [0]: x', False),
        (KafkaError.NOT_COORDINATOR, "JoinGroup failed", False),
    ],
)
def test_librdkafka_asks_no_more_for_an_assignment(code: int, text: str, *, expected: bool) -> None:
    assert asks_no_more(KafkaError(code, text)) is expected
