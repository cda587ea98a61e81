"""The new topic where the brokers do not answer."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

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


def test_a_topic_that_the_target_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a topic to read would not say which of two clusters lacks it, nor that the user creates it."""

    def unknown(*_: object) -> None:
        raise UnknownTopic("the cluster has no topic 'new'", topic="new", hint="The nearest name is 'news'")

    monkeypatch.setattr(target, "described_topic", unknown)
    with closing(Target({"bootstrap.servers": "127.0.0.1:1"}, "new")) as new, pytest.raises(UnknownTopic) as failed:
        new.partitions()
    assert str(failed.value).startswith("the target 127.0.0.1:1 has no topic 'new'. The nearest name is 'news'")
    assert "create it" in str(failed.value)


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


@pytest.mark.parametrize("refusal", [None, KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION])
def test_a_topic_takes_any_timestamp_if_the_brokers_have_a_bound(
    monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    """Brokers before 3.6 refuse it, or the policy of a cluster. A setting of the user that they refuse is an error."""
    made: list[dict[str, str]] = []

    class Admin:
        def __init__(self, properties: dict[str, object]) -> None:
            pass

        def create_topics(self, topics: list[NewTopic], request_timeout: float) -> dict[str, Future[None]]:
            future: Future[None] = Future()
            config = dict(topics[0].config or {})
            if "wrong" in config or ("message.timestamp.after.max.ms" in config and refusal is not None):
                future.set_exception(KafkaException(KafkaError(refusal or KafkaError.INVALID_CONFIG)))
            else:
                made.append(config)
                future.set_result(None)
            return {topics[0].topic: future}

    monkeypatch.setattr(target, "AdminClient", Admin)
    with closing(Target({"bootstrap.servers": "127.0.0.1:1"}, "new")) as new:
        new._create(1, {"retention.ms": "5"}, -1)
        with pytest.raises(KafkaException):
            new._create(1, {"wrong": "5"}, -1)
    keeping = {"cleanup.policy": "delete", "retention.ms": "5", "retention.bytes": "-1"}
    assert made == [keeping | ({"message.timestamp.after.max.ms": str(2**63 - 1)} if refusal is None else {})]


def test_the_error_is_that_of_the_wrong_record() -> None:
    """The others of its batch are refused with it, and come first if they lie before it."""
    others = (KafkaError._INVALID_DIFFERENT_RECORD, KafkaError._PURGE_QUEUE)
    with closing(Target({"bootstrap.servers": "127.0.0.1:1"}, "new")) as new:
        for code in (*others, KafkaError.INVALID_TIMESTAMP, *others):
            new._delivered(KafkaError(code), None)  # type: ignore[arg-type]
        with pytest.raises(KafkaException) as caught:
            new._check()
    assert caught.value.args[0].code() == KafkaError.INVALID_TIMESTAMP


def test_a_producer_that_has_ended_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """While many records are sent, `produce` fails before the reports of the refused batch were taken."""
    fatal, refused = KafkaException(KafkaError(KafkaError._FATAL)), KafkaError(KafkaError.INVALID_RECORD)

    class Producer:
        def __init__(self, properties: dict[str, Any]) -> None:
            self._report = properties["on_delivery"]

        def produce(self, *_: object, **__: object) -> None:
            raise fatal

        def purge(self, *, in_flight: bool) -> None:
            pass

        def flush(self, timeout_s: float) -> int:
            self._report(refused, None)
            raise SystemError("returned a result with an exception set")

    monkeypatch.setattr(target, "Producer", Producer)
    with closing(Target({"bootstrap.servers": "127.0.0.1:1"}, "new")) as new:
        monkeypatch.setattr(new, "_batch_bytes", lambda: 1)
        with pytest.raises(KafkaException) as caught:
            new.write(0, None, b"v", [], 1)
    assert caught.value.args[0].code() == KafkaError.INVALID_RECORD


def test_a_producer_without_rights_says_so() -> None:
    """librdkafka drops the records of its queue, and the fatal error is only the cause of a SystemError."""
    denied = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    with closing(Target({"bootstrap.servers": "127.0.0.1:1"}, "new")) as new:
        new._delivered(KafkaError(KafkaError._PURGE_QUEUE), None)  # type: ignore[arg-type]
        with pytest.raises(KafkaException) as caught, new._own_errors():
            raise SystemError("returned a result with an exception set") from denied
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("settings", "properties", "size_bytes"),
    [
        ({"max.message.bytes": "20000", "segment.bytes": "1073741824"}, {}, 20_000),
        ({"max.message.bytes": "1048588", "segment.bytes": "8192"}, {}, 8_192),
        ({"max.message.bytes": "1048588"}, {}, 1_000_000),
        ({"max.message.bytes": "", "segment.bytes": "-1"}, {}, 1_000_000),
        (None, {}, 1_000_000),
        ({"max.message.bytes": "20000"}, {"batch.size": "4000"}, "4000"),
    ],
)
def test_batches_fit_the_topic(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str] | None, properties: dict[str, str], size_bytes: object
) -> None:
    """A broker refuses a batch that is larger, however small its records are. It may refuse the question too."""

    def topic_settings(name: str) -> dict[str, str]:
        if settings is None:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return settings

    made: list[dict[str, object]] = []
    monkeypatch.setattr(target, "Producer", made.append)
    with closing(Target({"bootstrap.servers": "127.0.0.1:1", **properties}, "new")) as new:
        monkeypatch.setattr(new._cluster, "topic_settings", topic_settings)
        new._opened()
    assert made[0]["batch.size"] == size_bytes


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
        monkeypatch.setattr(new, "_batch_bytes", lambda: 1)
        new.write(0, b"k", b"v", [], 1)
    assert calls == [False, "flush", True, "flush"]


def test_brokers_that_cannot_be_reached_and_cut_keys_are_said_once(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else says that a restore waits for its target. librdkafka would log each of its tries."""
    address = "127.0.0.1:6"  # of this test alone: clients of other tests may still write to stderr
    with closing(Target({"bootstrap.servers": address}, "new")) as new:
        monkeypatch.setattr(new, "_batch_bytes", lambda: 1_000)
        heard: list[str] = []
        hear = new._hear

        def noted(cause: str) -> None:
            heard.append(cause)
            hear(cause)

        monkeypatch.setattr(new, "_hear", noted)
        for _ in range(2):
            new.write(0, b"k", b"v", [("a\0b", b"x"), ("c", None)], 1)
        while len(heard) < 3:
            new._opened().poll(0.1)
    refused = f"{address}/bootstrap: Connect to ipv4#{address} failed: Connection refused"
    assert [record.getMessage() for record in caplog.records] == [
        "a header's key has a NUL, and librdkafka ends it there: the target has other keys",
        f"a broker of the target cannot be reached: {refused}",
    ]
    assert address not in capfd.readouterr().err
