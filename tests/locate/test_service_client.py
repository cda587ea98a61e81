"""The questions to a service: where credentials may go, what is asked again, and which URLs are believed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.errors import (
    Cancelled,
    ConfigError,
    CorruptSegment,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageUnavailable,
    UnsupportedFormat,
)
from remote_fetch.formats.service_answers import SegmentsPage
from remote_fetch.locate.service_client import ReadRefused, ServiceClient, Tagged
from remote_fetch.model import RemoteLogSegmentMetadata
from tests.cases import each_of
from tests.formats.test_service_answers import NAME, OTHER, PARTITION, SEGMENT
from tests.locate.scripted_service import Reply, ScriptedService, page, scripted_service, segment_json
from tests.locate.test_broker_settings import CERTIFICATE

PROPERTIES = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "me",
    "sasl.password": "s3cret",
}
PATH = "/v1/topics/orders/partitions/3/segments"
URL = f"https://bucket.store/prefix/{NAME}?signature=s3cret"


def client_of(url: str, timeout_ms: int = 30_000, **properties: Any) -> ServiceClient:
    given = PROPERTIES | {name.replace("_", "."): value for name, value in properties.items()}
    return ServiceClient(url, given, connect_timeout_ms=10_000, timeout_ms=timeout_ms, backoff_ms=10)


@contextmanager
def asking(answer: Callable[[str], Reply], timeout_ms: int = 30_000) -> Iterator[tuple[ScriptedService, ServiceClient]]:
    with scripted_service(answer) as service:
        client = client_of(service.url, timeout_ms)
        try:
            yield service, client
        finally:
            client.close()


def segments_of(client: ServiceClient, first_offset: int = 0) -> tuple[RemoteLogSegmentMetadata, ...]:
    found = client.segments(PARTITION, first_offset)
    assert found is not None
    return found.page.segments


def test_the_questions() -> None:
    def answer(path: str) -> Reply:
        if path == "/v1/storage":
            return Reply(body=b'{"layout": "plain"}')
        return Reply(body=page(PARTITION, [segment_json(SEGMENT, objects={NAME: URL})], stable_offset=5))

    with asking(answer) as (service, client):
        assert client.answered_s == 0
        assert client.layout() == ("plain", {})
        assert segments_of(client) == segments_of(client, 5) == (SEGMENT,)
        for refused in (False, True):
            assert client.locations(SEGMENT, refused=refused) == {NAME: URL}
        assert client.answered_s > 0
    vended = f"{PATH}?from=10&to=20&objects=all&segment={SEGMENT.segment_id.id}"
    assert [path for path, _ in service.asked] == ["/v1/storage", PATH, f"{PATH}?from=5", vended, vended]
    assert {headers["authorization"] for _, headers in service.asked} == {"Basic bWU6czNjcmV0"}


def test_a_timeline_that_is_known_is_not_sent_again() -> None:
    replies = [Reply(body=page(PARTITION, []), headers={"ETag": '"a"'}), Reply(304, b"")]
    with asking(lambda path: replies.pop(0)) as (service, client):
        assert client.segments(PARTITION) == Tagged(SegmentsPage((), (), ()), '"a"')
        assert client.segments(PARTITION, known_tag='"a"') is None
    assert [headers.get("if-none-match") for _, headers in service.asked] == [None, '"a"']


@each_of("tag", ["", "x" * 1000, "\xe4"])
def test_a_tag_that_cannot_be_sent_back(tag: str) -> None:
    with asking(lambda path: Reply(body=page(PARTITION, []), headers={"ETag": tag})) as (_, client):
        assert client.segments(PARTITION) == Tagged(SegmentsPage((), (), ()), "")


def test_not_modified_without_a_question() -> None:
    with asking(lambda path: Reply(304, b"")) as (_, client), pytest.raises(UnsupportedFormat):
        client.segments(PARTITION)


def test_other_credentials() -> None:
    with asking(lambda path: Reply(body=b'{"layout": "plain"}')) as (service, client):
        client.set_sasl_credentials("you", "other")
        client.layout()
    assert service.asked[0][1]["authorization"] == "Basic eW91Om90aGVy"


@each_of(
    ("status", "error"),
    [
        (401, StorageDenied),
        (403, ReadRefused),
        (404, SegmentNotFound),
        (400, UnsupportedFormat),
        (413, UnsupportedFormat),
        (302, UnsupportedFormat),
        (204, UnsupportedFormat),
    ],
)
def test_refusals_are_not_asked_again(status: int, error: type[RemoteFetchError]) -> None:
    body = json.dumps({"error": {"code": "SOME_CODE", "message": "as it is"}}).encode() if status >= 400 else b""
    headers = {"Location": "https://elsewhere/"} if status == 302 else {}
    with asking(lambda path: Reply(status, body, headers)) as (service, client), pytest.raises(error) as raised:
        client.segments(PARTITION)
    assert type(raised.value) is error
    assert len(service.asked) == 1
    assert status < 400 or "SOME_CODE: as it is" in str(raised.value)


@each_of("status", [429, 500, 502, 503])
def test_what_passes_is_asked_again(status: int) -> None:
    replies = [Reply(status), Reply(status), Reply(body=page(PARTITION, []))]
    with asking(lambda path: replies.pop(0)) as (service, client):
        assert segments_of(client) == ()
    assert len(service.asked) == 3


def test_retry_after_is_heeded() -> None:
    replies = [Reply(429, headers={"Retry-After": "0.4"}), Reply(body=page(PARTITION, []))]
    with asking(lambda path: replies.pop(0)) as (_, client):
        began_s = time.monotonic()
        client.segments(PARTITION)
        assert time.monotonic() - began_s >= 0.4


@each_of("text", ["31", "3600"])
def test_a_pause_that_is_longer_than_the_deadline_is_not_made(text: str) -> None:
    reply = Reply(429, headers={"Retry-After": text})
    with asking(lambda path: reply) as (service, client), pytest.raises(StorageThrottled):
        client.segments(PARTITION)
    assert len(service.asked) == 1


@each_of("text", ["", "soon", "-5", "nan", "inf", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_pause_that_is_not_understood(text: str) -> None:
    replies = [Reply(503, headers={"Retry-After": text}), Reply(body=page(PARTITION, []))]
    with asking(lambda path: replies.pop(0)) as (_, client):
        client.segments(PARTITION)


def test_the_last_error_comes_at_the_deadline() -> None:
    with asking(lambda path: Reply(503), timeout_ms=1500) as (service, client), pytest.raises(StorageUnavailable):
        client.segments(PARTITION)
    assert len(service.asked) > 1  # about seven times, on a slow machine fewer


def test_a_service_that_comes_back() -> None:
    with scripted_service(lambda path: Reply()) as gone:
        pass
    client = client_of(gone.url, 500)
    with pytest.raises(StorageUnavailable, match="refused"):
        client.segments(PARTITION)
    client.close()


def test_closing_ends_a_pause() -> None:
    with asking(lambda path: Reply(429, headers={"Retry-After": "50"}), timeout_ms=60_000) as (service, client):

        def close() -> None:
            while not service.asked:
                time.sleep(0.01)
            client.close()

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises((Cancelled, StorageThrottled)):
            client.segments(PARTITION)
        closer.join()
    assert len(service.asked) == 1


def test_a_segment_that_the_service_does_not_know() -> None:
    with asking(lambda path: Reply(body=page(PARTITION, []))) as (_, client), pytest.raises(SegmentNotFound):
        client.locations(SEGMENT, refused=False)


def test_an_answer_about_another_partition() -> None:
    with asking(lambda path: Reply(body=page(OTHER, []))) as (_, client):
        for ask in (lambda: client.segments(PARTITION), lambda: client.locations(SEGMENT, refused=False)):
            with pytest.raises(CorruptSegment, match="another partition"):
                ask()


def test_credentials_stay_at_home() -> None:
    """A URL of the service decides where they go."""
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1/path", "https://host:1/path"):
        client_of(url).close()


@each_of(
    ("url", "text"),
    [
        ("http://host:1", "in the clear"),
        ("http://localhost.example:1", "in the clear"),
        ("http://192.168.0.1:1", "in the clear"),
        ("https://me:s3cret@host", "user name"),
        ("https://host?a=s3cret", "query"),
        ("https://host#s3cret", "query"),
        ("ftp://host", "https://"),
        ("host:8443", "https://"),
        ("https://", "https://"),
        ("https://host:0", "https://"),
        ("https://host:s3cret", "is no URL"),
        ("https://[host", "is no URL"),
    ],
)
def test_an_address_that_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as raised:
        client_of(url)
    assert raised.value.key == "remote.locator.url"
    assert "s3cret" not in str(raised.value)


def test_an_authority_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"service: ssl\.ca\.location=.*none: No such file") as raised:
        client_of("https://host", ssl_ca_location=str(tmp_path / "none"))
    assert raised.value.key == "ssl.ca.location"
    client_of("http://127.0.0.1:1", ssl_ca_location=str(tmp_path / "none")).close()


@each_of("value", [None, ""])
def test_tls_settings_that_are_not_set(value: str | None) -> None:
    names = ("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.cipher.suites", "ssl.crl.location")
    client_of("https://host", **dict.fromkeys((name.replace(".", "_") for name in names), value)).close()


def test_the_certificate_is_always_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HTTP Basic sends the password itself, so librdkafka's switches for the brokers do not hold for the service."""
    made: list[Any] = []

    def channel(base: object, tls: object, *, connect_timeout_s: float) -> Channel:
        made.append(tls)
        return Channel()

    monkeypatch.setattr("remote_fetch.locate.service_client.HttpChannel", channel)
    file = tmp_path / "ca.pem"
    file.write_text(CERTIFICATE)
    off = {"enable.ssl.certificate.verification": "false", "ssl.endpoint.identification.algorithm": "none"}
    properties = {**PROPERTIES, **off, "ssl.ca.location": str(file)}
    ServiceClient("https://host", properties, connect_timeout_ms=1, timeout_ms=1, backoff_ms=1).close()
    (tls,) = made
    assert tls.check_hostname
    assert tls.verify_mode.name == "CERT_REQUIRED"
    assert [one["serialNumber"] for one in tls.get_ca_certs()] == ["01"]


class Channel:
    def close(self) -> None:
        pass
