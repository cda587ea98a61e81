"""The new topic where the brokers do not answer."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import BrokerUnavailable, UnknownTopic
from remote_fetch.restore import target
from remote_fetch.restore.target import Target
from tests.stores.range_server import stalled_connect


def test_a_wrong_address_is_one_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Of `--to` it is found as that of `-b` is. librdkafka's own lines would be thousands."""
    address = {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": "1000"}
    with closing(Target(address, "new")) as new, pytest.raises(BrokerUnavailable) as restored:
        new.open(1, {}, -1)
    with closing(Target(address, "new")) as new, pytest.raises(BrokerUnavailable) as replayed:
        new.partitions()
    for said in (str(restored.value), str(replayed.value)):  # librdkafka tells one cause or several
        assert "bootstrap.servers=127.0.0.1:1: " in said
        assert "--to of a target" in said
    assert capfd.readouterr() == ("", "")


def test_a_topic_that_is_not_made_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one of librdkafka, as of every other question."""

    def unknown(*_: object) -> None:
        raise UnknownTopic("no such topic")

    monkeypatch.setattr(target, "described_topic", unknown)
    monkeypatch.setattr(target, "_TIMEOUT_S", 0.3)
    with stalled_connect() as url:
        new = Target({"bootstrap.servers": url.partition("://")[2].rstrip("/"), "log_level": 0}, "new")
        with pytest.raises(KafkaException) as caught:
            new.open(1, {}, -1)
        new.close()
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_requests_under_way_are_not_dropped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka 2.16 prints a line "FATAL ... Purged in flight" for them, also if the user pressed Ctrl-C."""
    calls: list[object] = []

    class Producer:
        def __init__(self, properties: dict[str, object]) -> None:
            pass

        def produce(self, *_: object, **__: object) -> None:
            pass

        def purge(self, *, in_flight: bool) -> None:
            calls.append(in_flight)

        def flush(self, timeout_s: float) -> int:
            calls.append("flush")
            raise KafkaException(KafkaError(KafkaError._PURGE_QUEUE))

    monkeypatch.setattr(target, "Producer", Producer)
    with closing(Target({"bootstrap.servers": "127.0.0.1:1"}, "new")) as new:
        new.write(0, b"k", b"v", [], 1)
    assert calls == [False, "flush", True, "flush"]
