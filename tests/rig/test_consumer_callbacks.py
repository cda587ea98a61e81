"""Callbacks of the application that raise: no record is lost or doubled, and `close` ends."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from remote_fetch import RemoteConsumer
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_consumer_traffic import PROTOCOLS
from tests.rig.test_read import ISOLATIONS, config_of
from tests.rig.topics import OracleRecord
from tests.rig.transactions import interleaved_transactions

TIERED, LOCAL = 60, 200
_DEADLINE_S = 180


@pytest.fixture(scope="module")
def topic(rig_43: Rig) -> str:
    """Records in the tier, then transactions and records that only the broker has."""
    topics.make_tiered(rig_43, "callbacks", TIERED, sizes=(300, 700))
    topics.set_config(rig_43, "callbacks", local_retention_ms=-2)
    interleaved_transactions(rig_43, "callbacks", (True, False))
    topics.produce(rig_43, "callbacks", LOCAL, seed=7, sizes=(300, 400))
    return "callbacks"


class Failing:
    """Callbacks of which every second call raises. `raised` has their names."""

    def __init__(self) -> None:
        self.raised: set[str] = set()
        self._calls = itertools.count()

    def named(self, name: str) -> Callable[..., None]:
        def callback(*_: Any) -> None:
            if name.startswith("on_") or next(self._calls) % 2:
                self.raised.add(name)
                raise KeyboardInterrupt if name == "log" else ValueError(name)

        return callback

    def log(self, *_: Any) -> None:
        self.named("log")()


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "assigned"])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_all_callbacks_raise(rig_43: Rig, topic: str, isolation: str, protocol: str) -> None:
    expected = topics.broker_records(rig_43, topic, 0, isolation)
    end = topics.offsets(rig_43, topic, 0).latest
    failing, group = Failing(), f"callbacks-{protocol}-{isolation}"
    consumer = RemoteConsumer(
        {
            **config_of(rig_43),
            **PROTOCOLS[protocol],
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "isolation.level": isolation,
            "fetch.remote.enabled": True,
            "fetch.message.max.bytes": 4_000,
            "statistics.interval.ms": 20,
            "log_level": 7,
            "debug": "fetch",
            "logger": failing,
            "stats_cb": failing.named("stats_cb"),
            "on_commit": failing.named("on_commit"),
        }
    )
    consumer.subscribe([topic], on_assign=failing.named("on_assign"), on_revoke=failing.named("on_revoke"))
    found: list[OracleRecord] = []
    deadline = time.monotonic() + _DEADLINE_S
    for call in itertools.count():
        if consumer.position([TopicPartition(topic, 0)])[0].offset == end:
            break
        assert time.monotonic() < deadline
        with suppress(ValueError, KeyboardInterrupt):
            messages = consumer.consume(5, 0.5) if call % 2 else [consumer.poll(0.5)]
            found += [topics.oracle_record(message) for message in messages if message is not None]
    with pytest.raises((ValueError, KeyboardInterrupt)):
        consumer.close()
    assert found == expected
    assert failing.raised == {"log", "on_assign", "on_commit", "on_revoke", "stats_cb"}
    asking = Consumer({"bootstrap.servers": rig_43.bootstrap, "group.id": group})
    assert asking.committed([TopicPartition(topic, 0)], 30)[0].offset == end
    asking.close()
