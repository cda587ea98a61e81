"""The first contact: a client that a broker has answered, or one error that names address and cause."""

from __future__ import annotations

import gc
import logging
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch import read_arrow
from remote_fetch.errors import BrokerUnavailable, Cancelled
from remote_fetch.locate import contact
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.contact import first_contact, setup_timeout_s
from tests.failures.askers import asked_by

SOON = {"socket.connection.setup.timeout.ms": "1000"}


def closed_address() -> str:
    """An address at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


def test_a_wrong_address_is_one_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every face asks the cluster first; librdkafka's own lines would be hundreds."""
    address = closed_address()
    with pytest.raises(BrokerUnavailable) as raised:
        read_arrow("t", config={"bootstrap.servers": address, "remote.storage.url": str(tmp_path), **SOON})
    said = str(raised.value)
    assert f"bootstrap.servers={address}: " in said
    assert "Connection refused" in said
    assert "after" not in said, "how long each try took makes no cause of its own"
    assert capfd.readouterr() == ("", "")


def test_a_name_that_is_none() -> None:
    with pytest.raises(BrokerUnavailable, match=r"Failed to resolve 'nowhere\.\.invalid:1'"):
        first_contact({"bootstrap.servers": "nowhere..invalid:1", **SOON}, lambda: False)


def test_a_closed_session_does_not_wait() -> None:
    with pytest.raises(Cancelled):
        first_contact({"bootstrap.servers": closed_address()}, lambda: True)
    cluster = Cluster({"bootstrap.servers": closed_address()}, timeout_ms=1000, checks=True)
    cluster.close()
    with pytest.raises(Cancelled):
        cluster.names()


def test_threads_share_the_error_of_a_first_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each would wait in turn: consumers of one metadata topic for 30 s, 60 s, 90 s and so on."""
    contacts: list[str] = []
    all_have_asked = asked_by(monkeypatch, 3)

    def no_contact(*_: object) -> None:
        contacts.append(threading.current_thread().name)
        assert all_have_asked()
        raise BrokerUnavailable(f"contact {len(contacts)}", hint="Check")

    monkeypatch.setattr("remote_fetch.locate.clients.first_contact", no_contact)
    cluster = Cluster({}, timeout_ms=1000, checks=True)

    def error() -> tuple[str, str | None]:
        with pytest.raises(BrokerUnavailable) as raised:
            cluster.names()
        return raised.value.message, raised.value.hint

    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(error) for _ in range(3)]
        assert [each.result() for each in asked] == [("contact 1", "Check")] * 3
    assert error() == ("contact 2", "Check"), "a later question makes a contact of its own"


class Answering:
    """An AdminClient whose broker answers with an error, or with `hears` on its connections and then not at all."""

    made: int = 0

    def __init__(self, properties: Mapping[str, Any], answer: int | None, hears: tuple[int, str] | None) -> None:
        self.properties, self.answer, self.hears = properties, answer, hears
        self.asked = 0

    def describe_cluster(self, *, request_timeout: float) -> Answering:
        self.asked += 1
        return self

    def result(self) -> None:
        if self.answer is not None:
            raise KafkaException(KafkaError(self.answer))

    def poll(self, timeout: float) -> None:
        if self.hears is not None:
            self.properties["error_cb"](KafkaError(*self.hears))


def answering(
    monkeypatch: pytest.MonkeyPatch, answer: int | None, hears: tuple[int, str] | None = None
) -> Callable[..., Any]:
    def ask(**properties: Any) -> Any:
        monkeypatch.setattr(contact, "AdminClient", lambda given: Answering(given, answer, hears))
        return first_contact(properties, lambda: False)

    return ask


@pytest.mark.parametrize("answer", [None, KafkaError.CLUSTER_AUTHORIZATION_FAILED])
def test_an_answer_is_contact_also_a_refusal(monkeypatch: pytest.MonkeyPatch, answer: int | None) -> None:
    assert answering(monkeypatch, answer)().asked == 1


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._DESTROY_BROKER])
def test_a_client_whose_broker_has_died_does_not_keep_others_from_answering(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    made: list[Any] = []

    def make(properties: Mapping[str, Any]) -> Answering:
        made.append(Answering(properties, code if len(made) < 2 else None, None))
        return cast("Answering", made[-1])

    monkeypatch.setattr(contact, "AdminClient", make)
    monkeypatch.setattr(contact, "_SILENT_S", 0)
    assert cast(Any, first_contact(SOON, lambda: False)) is made[2]
    assert [client.asked for client in made] == [2, 1, 1], "the first one too: its connection may only be slow"


def test_no_other_client_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def make(properties: Mapping[str, Any]) -> Answering:
        made.append(Answering(properties, KafkaError._TIMED_OUT, None))
        return cast("Answering", made[-1])

    monkeypatch.setattr(contact, "AdminClient", make)
    with pytest.raises(BrokerUnavailable):
        first_contact({"socket.connection.setup.timeout.ms": 20}, lambda: False)
    assert len(made) == 1


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_refused_credentials_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    heard: list[KafkaError] = []
    ask = answering(monkeypatch, KafkaError._TIMED_OUT, (code, "b:1/bootstrap: refused (after 5ms in state AUTH_REQ)"))
    with pytest.raises(BrokerUnavailable, match=r"servers=b:1: b:1/bootstrap: refused\. Check the address") as raised:
        ask(**{"bootstrap.servers": "b:1", "error_cb": heard.append})
    assert raised.value.is_refusal
    assert [error.code() for error in heard] == [code], "the user's own callback hears of it too"


def test_a_callback_that_gives_no_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """confluent_kafka's constructor waits ten seconds for a token, and does not tell why there was none."""

    def make(_: Mapping[str, Any]) -> Answering:
        raise KafkaException(KafkaError(codes.pop(), "OAuth token not set within 10 seconds timeout"))

    codes = [KafkaError._INVALID_ARG, KafkaError.SASL_AUTHENTICATION_FAILED]
    monkeypatch.setattr(contact, "AdminClient", make)
    with pytest.raises(BrokerUnavailable, match=r"no token .*servers=b:1: OAuth token not set.*: call oauth_cb "):
        first_contact({"bootstrap.servers": "b:1"}, lambda: False)
    with pytest.raises(KafkaException):
        first_contact({"bootstrap.servers": "b:1"}, lambda: False)


@pytest.mark.parametrize(
    ("name", "advertised"),
    [
        ("b:1/bootstrap", None),
        ("sasl_ssl://b:1/bootstrap", None),
        ("a:1/7", None),
        ("sasl_ssl://b:1/8", None),
        ("c:1/9", None),
        ("inside:9092/1", "inside:9092"),
        ("sasl_ssl://inside:9092/1", "inside:9092"),
        ("[fd00::1]:9092/12", "[fd00::1]:9092"),
        ("GroupCoordinator", None),
    ],
)
def test_an_address_that_a_broker_has_told_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, advertised: str | None
) -> None:
    """As of a broker in a container: `bootstrap.servers` is right, and the broker sends clients elsewhere."""
    ask = answering(monkeypatch, KafkaError._TIMED_OUT, (KafkaError._TRANSPORT, f"{name}: Connection refused"))
    with pytest.raises(BrokerUnavailable) as raised:
        ask(**{"bootstrap.servers": "a:1, sasl_ssl://b:1,c:1", "socket.connection.setup.timeout.ms": 20})
    assert raised.value.hint is not None
    assert ("advertised.listeners" in raised.value.hint) == (advertised is not None)
    assert (advertised or "Check the address") in raised.value.hint


def test_a_long_wait_is_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The wait ends with a refusal, after some answers that are none."""
    errors = iter([*[KafkaError._TRANSPORT] * 5, KafkaError._AUTHENTICATION])

    class Late(Answering):
        def poll(self, timeout: float) -> None:
            self.properties["error_cb"](KafkaError(next(errors), "b:1/bootstrap: Connection refused"))

    monkeypatch.setattr(contact, "_SILENT_S", 0.0)
    monkeypatch.setattr(contact, "AdminClient", lambda given: Late(given, KafkaError._TIMED_OUT, None))
    with pytest.raises(BrokerUnavailable):
        first_contact({"bootstrap.servers": "b:1", "socket.connection.setup.timeout.ms": 60_000}, lambda: False)
    told = "waiting 60 s at most for a broker at b:1: b:1/bootstrap: Connection refused"
    assert caplog.record_tuples == [("remote_fetch.contact", logging.WARNING, told)]


def test_a_cause_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka adds the state of the connection, how many such errors it has left out, and a broker's id."""
    said = "Connection refused"
    reports = iter(
        (
            f"b:1/bootstrap: {said} (after 0ms in state CONNECT)",
            f"b:1/bootstrap: {said} (after 12ms in state CONNECT, 30 identical error(s) suppressed)",
            f"b:1/7: {said} (after 0ms in state CONNECT)",
        )
    )

    def made(properties: Mapping[str, Any]) -> Answering:
        client = Answering(properties, KafkaError._TIMED_OUT, None)

        def poll(timeout: float) -> None:
            for report in reports:
                properties["error_cb"](KafkaError(KafkaError._TRANSPORT, report))

        monkeypatch.setattr(client, "poll", poll)
        return client

    monkeypatch.setattr(contact, "AdminClient", made)
    with pytest.raises(BrokerUnavailable) as raised:
        first_contact({"socket.connection.setup.timeout.ms": 20}, lambda: False)
    assert str(raised.value).count(said) == 1
    assert "suppressed" not in str(raised.value)


def test_silence_has_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = answering(monkeypatch, KafkaError._TIMED_OUT)
    with pytest.raises(BrokerUnavailable, match=r"nothing was heard within 0\.02 s") as raised:
        ask(**{"socket.connection.setup.timeout.ms": 20})
    assert not raised.value.is_refusal
    assert setup_timeout_s({}) == 30


def test_a_listener_that_closes_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one with TLS does if the client has none. librdkafka says only that all brokers are down."""
    ask = answering(monkeypatch, KafkaError._TIMED_OUT, (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    with pytest.raises(BrokerUnavailable, match=r"each connection ended without an answer, as at .* TLS or SASL"):
        ask(**{"socket.connection.setup.timeout.ms": 20})


def test_an_error_that_the_caller_keeps_holds_no_client() -> None:
    """A client that outlives its cluster would ask a stopped broker again and again, and log that."""
    cluster = Cluster({"bootstrap.servers": closed_address(), "log_level": 0}, timeout_ms=300)
    client = weakref.ref(cluster.admin())
    gc.disable()
    try:
        with pytest.raises(KafkaException) as raised:
            cluster.describe("t")
        cluster.close()
        assert client() is None, raised.value
    finally:
        gc.enable()
