"""Callbacks of the application and handlers of signals that raise: no record is lost or doubled, and `close` ends."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from remote_fetch import RemoteConsumer
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_consumer_traffic import OF_GROUPS, PROTOCOLS
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


class Alarm(BaseException):
    """Raised by a handler of a signal."""


class Alarms:
    """Sends signals to the main thread while `is_armed`, of which a handler raises Alarm, at most `most` times."""

    def __init__(self, most: int) -> None:
        self.is_armed = self._is_over = False
        self.raised, self._most = 0, most
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_armed, self._is_over = False, True
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._before)

    def _handle(self, *_: object) -> None:
        if self.is_armed and self.raised < self._most:
            self.is_armed = False
            self.raised += 1
            raise Alarm

    def _send(self) -> None:
        pauses = itertools.cycle((0.001, 0.004, 0.02))
        while not self._is_over:
            time.sleep(next(pauses))
            signal.pthread_kill(self._main, signal.SIGUSR1)


@pytest.mark.parametrize("protocol", OF_GROUPS)
def test_handlers_of_signals_raise(rig_43: Rig, topic: str, protocol: str) -> None:
    """The application goes on after each, as after a time limit. It gets each record once."""
    expected = topics.broker_records(rig_43, topic, 0, "read_committed")
    end, group = topics.offsets(rig_43, topic, 0).latest, f"signals-{protocol}"
    consumer = RemoteConsumer(
        {
            **config_of(rig_43),
            **PROTOCOLS[protocol],
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "fetch.remote.enabled": True,
            "fetch.message.max.bytes": 4_000,
            "statistics.interval.ms": 20,
            "stats_cb": str,
            "on_commit": lambda *_: None,
        }
    )
    consumer.subscribe([topic], on_assign=lambda *_: None, on_revoke=lambda *_: None)
    found: list[OracleRecord] = []
    deadline = time.monotonic() + _DEADLINE_S
    with Alarms(500) as alarms:
        for call in itertools.count():
            if consumer.position([TopicPartition(topic, 0)])[0].offset == end:
                break
            assert time.monotonic() < deadline, (found[-1:], alarms.raised)
            messages: list[Message | None] = []
            try:  # `suppress` would be a call: if an error was kept, one more may come in it
                alarms.is_armed = True
                messages += consumer.consume(5, 0.5) if call % 2 else [consumer.poll(0.5)]
            except Alarm:
                pass
            finally:
                alarms.is_armed = False
            found += [topics.oracle_record(message) for message in messages if message is not None]
    with suppress(Alarm):
        consumer.close()
    assert found == expected
    assert alarms.raised
    asking = Consumer({"bootstrap.servers": rig_43.bootstrap, "group.id": group})
    assert asking.committed([TopicPartition(topic, 0)], 30)[0].offset == end
    asking.close()


@pytest.mark.parametrize("protocol", OF_GROUPS)
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
