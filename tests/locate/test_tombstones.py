"""How long a reader of the metadata topic may be away."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.locate.tombstones import Tombstones
from tests.cases import each_of

DAY_MS = 86_400_000


@dataclass
class Asked:
    """Brokers that give these settings; None: they refuse."""

    settings: dict[str, str] | None
    times: int = 0

    def __call__(self) -> dict[str, str]:
        self.times += 1
        if self.settings is None:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return self.settings


COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "5000"}
CASES = [
    (COMPACTED, 5000, False),
    (COMPACTED, 5001, True),
    (COMPACTED, -60_000, False),
    (COMPACTED, -60_001, True),
    ({"cleanup.policy": "delete,compact", "delete.retention.ms": "5000"}, 5001, True),
    ({"cleanup.policy": "delete", "delete.retention.ms": "5000"}, 100 * DAY_MS, False),
    ({"cleanup.policy": "delete"}, -DAY_MS, False),
    (None, DAY_MS, False),
    (None, DAY_MS + 1, True),
    ({}, DAY_MS + 1, True),
    ({"cleanup.policy": "compact"}, DAY_MS, False),
    ({"cleanup.policy": "compact", "delete.retention.ms": "?"}, DAY_MS + 1, True),
]


@each_of("settings, age_ms, expected", CASES)
def test_an_absence_is_too_long(settings: dict[str, str] | None, age_ms: int, expected: bool) -> None:
    assert Tombstones(Asked(settings)).missed(10**12, 10**12 + age_ms) is expected


def test_the_brokers_are_asked_once_and_again_after_a_minute() -> None:
    brokers = Asked(COMPACTED)
    tombstones = Tombstones(brokers)
    for _ in range(3):
        assert not tombstones.missed(0, 100)
    assert brokers.times == 1
    brokers.settings = {"cleanup.policy": "delete"}
    assert tombstones.missed(0, 60_000)
    assert tombstones.missed(0, 60_100)
    assert not tombstones.missed(0, 60_101)
    assert not tombstones.missed(0, 120_000)
    assert brokers.times == 2


def test_other_errors_are_raised() -> None:
    def broken() -> dict[str, str]:
        raise ValueError("metadata")

    with pytest.raises(ValueError, match="metadata"):
        Tombstones(broken).missed(0, 1)
