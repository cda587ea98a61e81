"""The channel for locations: what it refuses, and brokers that do not answer. Its answers are in tests/rig."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from kafka.net.compat import KafkaNetClient

from remote_fetch.config import Config
from remote_fetch.errors import Cancelled, ConfigError, MissingExtra, Unlocatable
from remote_fetch.locate.broker_channel import load_kafka
from remote_fetch.locate.location_channel import LocationChannel, _NetConnection
from remote_fetch.locate.location_schema import load_schema
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid
from remote_fetch.session.session import Session
from tests.scan.bucket import Bucket

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)


def channel(timeout_ms: int = 300, **properties: Any) -> LocationChannel:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return LocationChannel(lambda: given, load_schema(None), timeout_ms=timeout_ms)


@pytest.fixture
def silent() -> Iterator[str]:
    """A broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def ask(asked: LocationChannel) -> None:
    asked.ask(PARTITION, 0, IsolationLevel.READ_COMMITTED)


def test_a_broker_that_does_not_answer(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call takes longer than its deadline, and after one that failed as a whole none is made for a while."""
    asked = channel(bootstrap_servers=silent)
    began_s = time.monotonic()
    with pytest.raises(Unlocatable, match="the brokers do not answer where offsets lie"):
        ask(asked)
    assert time.monotonic() - began_s < 20  # kafka-python itself waits for longer
    monkeypatch.setattr(asked, "_connected", lambda: pytest.fail("a call is made"))
    with pytest.raises(Unlocatable, match="do not answer"):
        ask(asked)
    with pytest.raises(Unlocatable, match="do not answer"):
        asked.earliest_local(PARTITION)
    asked.close()


def test_a_slow_step_of_the_client_is_no_warning(slow_names: None, caplog: pytest.LogCaptureFixture) -> None:
    """As of `BrokerChannel`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = channel(1000, bootstrap_servers=f"localhost:{server.getsockname()[1]}")
        with pytest.raises(Unlocatable, match="do not answer"):
            ask(asked)
        asked.close()
    assert [record for record in caplog.records if record.name == "kafka.net.selector"] == []


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    asked = channel(bootstrap_servers=address)
    with pytest.raises(Unlocatable, match="do not answer"):
        ask(asked)
    asked.close()


def test_after_new_credentials_it_is_tried_at_once(silent: str) -> None:
    asked = channel(bootstrap_servers=silent)
    with pytest.raises(Unlocatable):
        ask(asked)
    asked.reconnect()
    began_s = time.monotonic()
    with pytest.raises(Unlocatable, match="do not answer"):
        ask(asked)
    assert time.monotonic() - began_s > 0.1
    asked.close()


def test_a_question_under_way_with_old_credentials_does_not_hold_up_new_ones() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = channel(3000, bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}")
        with ThreadPoolExecutor(1) as pool:
            old = pool.submit(ask, asked)
            with server.accept()[0]:  # it is under way
                asked.reconnect()
                with pytest.raises(Unlocatable):
                    old.result()
        asked._timeout_ms = 300
        began_s = time.monotonic()
        with pytest.raises(Unlocatable):
            ask(asked)
        assert time.monotonic() - began_s > 0.1
        asked.close()


class Failing:
    """A connection whose questions fail, after `before` has run."""

    def __init__(self, why: str, before: Callable[[], None] = lambda: None) -> None:
        self.why = why
        self.before = before

    def send(self, *_: object) -> Future[object]:
        self.before()
        failed: Future[object] = Future()
        failed.set_exception(OSError(self.why))
        return failed

    def close(self) -> Future[None]:
        closed: Future[None] = Future()
        closed.set_result(None)
        return closed


def test_each_question_tells_the_failure_of_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = channel(bootstrap_servers="127.0.0.1:1")

    def fail_with_another() -> None:
        asked.reconnect()
        monkeypatch.setattr(asked, "_connection", Failing("refused"))
        with pytest.raises(Unlocatable, match="refused"):
            ask(asked)

    monkeypatch.setattr(asked, "_connection", Failing("closed", fail_with_another))
    with pytest.raises(Unlocatable, match="closed"):
        ask(asked)
    with pytest.raises(Unlocatable, match="refused"):  # the reason for which none is asked now
        ask(asked)


def test_a_closed_channel_asks_nothing() -> None:
    asked = channel(bootstrap_servers="127.0.0.1:1")
    asked.close()
    with pytest.raises(Cancelled):
        ask(asked)


def test_settings_that_would_be_lost_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no counterpart of what is configured: ssl\.keystore\.location"):
        channel(bootstrap_servers="b:9092", security_protocol="ssl", ssl_keystore_location="/k")
    with pytest.raises(ConfigError, match=r"^remote\.locator=broker: the TLS settings cannot be used"):
        channel(bootstrap_servers="b:9092", security_protocol="ssl", ssl_ca_location="/no/such/file")


def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka", None)
    with pytest.raises(MissingExtra, match=r"broker-api"):
        channel(bootstrap_servers="b:9092")


def test_a_session_without_brokers_has_no_such_locator() -> None:
    with pytest.raises(ConfigError, match=r"remote\.locator=broker needs bootstrap\.servers"):
        Session(Config.parse({"remote.locator": "broker"}), Bucket())


def test_a_look_for_the_leader_creates_no_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python lets a broker with auto.create.topics.enable create each topic whose leader it looks for."""

    class Unconnected(KafkaNetClient):  # type: ignore[misc]
        def check_version(self, *_: object, **__: object) -> None: ...

    monkeypatch.setattr("kafka.net.compat.KafkaNetClient", Unconnected)
    connection = _NetConnection(load_kafka(), {"bootstrap_servers": ["127.0.0.1:1"]}, 300)
    client = connection._open()
    client.cluster.add_topic("t")
    request = client.cluster.metadata_request()
    assert [topic.name for topic in request.topics] == ["t"]
    assert not request.allow_auto_topic_creation
    connection.close().result(10)
