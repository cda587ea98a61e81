"""The service in a process of its own: TLS, its log, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.service.server import check_exposure, configured, run
from remote_fetch.service.settings import ServiceSettings, TlsFiles
from tests.eventually import eventually
from tests.rig.certificates import make_certificates
from tests.service.fakes import PASSWORD, SETTINGS, SigningBucket, basic, open_service
from tests.service.process import made_up_timeline, running

SEGMENTS = "/v1/topics/topic/partitions/0/segments"
_SOON_S = 60


def get(url: str, path: str, headers: dict[str, str], context: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Status and body of a GET."""
    place = urlsplit(url)
    assert place.hostname is not None
    connection = (
        http.client.HTTPConnection(place.hostname, place.port, timeout=_SOON_S)
        if context is None
        else http.client.HTTPSConnection(place.hostname, place.port, timeout=_SOON_S, context=context)
    )
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.slow
def test_tls_with_a_certificate_that_is_replaced_and_a_log_without_secrets(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "first")
    log = tmp_path / "log"
    options = ("--segments", "5", "--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    with running(*options, log=log) as (process, url):
        assert url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=files.authority)
        status, body = get(url, f"{SEGMENTS}?from=3&objects=log", basic(), trusting)
        assert status == 200
        assert len(json.loads(body)["segments"]) == 5
        assert get(url, SEGMENTS, basic(password="wr0ng-pass"), trusting)[0] == 401
        with pytest.raises(ssl.SSLError):
            get(url, "/healthz", {}, ssl.create_default_context())
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            get(url, "/healthz", {}, old)

        other = make_certificates(tmp_path / "other")
        files.certificate.write_bytes(other.certificate.read_bytes())
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "the certificate was not read again, the old one stays" in log.read_text())
        assert get(url, "/healthz", {}, trusting)[0] == 200
        files.key.write_bytes(other.key.read_bytes())
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "the certificate was read again" in log.read_text())
        assert get(url, "/healthz", {}, ssl.create_default_context(cafile=other.authority))[0] == 200

        process.send_signal(signal.SIGTERM)
        assert process.wait(_SOON_S) == 0
    lines = log.read_text()
    assert f"127.0.0.1 alice GET {SEGMENTS} 200 " in lines
    assert f"127.0.0.1 - GET {SEGMENTS} 401 " in lines
    for secret in (PASSWORD, "wr0ng-pass", basic()["Authorization"][6:], "5ecre7", "from=3"):
        assert secret not in lines


@pytest.mark.slow
def test_a_graceful_end(tmp_path: Path) -> None:
    """A request that is under way gets its answer; nothing new is taken."""
    with running("--segments", "5", "--request-timeout", "1.5", log=tmp_path / "log") as (process, url):
        answers: list[tuple[int, bytes]] = []
        waiting = threading.Thread(target=lambda: answers.append(get(url, SEGMENTS, basic("held"))))
        waiting.start()
        idle = socket.create_connection((str(urlsplit(url).hostname), urlsplit(url).port or 0))
        assert eventually(lambda: bool(answers) or _is_under_way(url))
        process.send_signal(signal.SIGTERM)
        assert eventually(lambda: not _listens(url))
        waiting.join()
        assert [status for status, _ in answers] == [503]
        assert b"TIMED_OUT" in answers[0][1]
        idle.close()
        assert process.wait(_SOON_S) == 0


def _is_under_way(url: str) -> bool:
    return b"remote_fetch_service_requests_under_way 1.0" in get(url, "/metrics", {})[1]


def _listens(url: str) -> bool:
    try:
        return get(url, "/healthz", {})[0] == 200
    except ConnectionError:
        return False


@pytest.mark.slow
def test_the_end_is_bounded(tmp_path: Path) -> None:
    """The request would be under way for longer than the test waits."""
    options = ("--segments", "5", "--shutdown-timeout", "1", "--request-timeout", str(3 * _SOON_S))
    with running(*options, log=tmp_path / "log") as (process, url):
        waiting = threading.Thread(target=lambda: _fails(url))
        waiting.start()
        assert eventually(lambda: _is_under_way(url))
        process.send_signal(signal.SIGTERM)
        assert process.wait(_SOON_S) == 0
        waiting.join()


@pytest.mark.slow
def test_an_idle_client_that_does_not_answer_the_end_of_tls(tmp_path: Path) -> None:
    """And one that never begins its handshake, for which asyncio waits 15 seconds since Python 3.12."""
    files = make_certificates(tmp_path / "tls")
    options = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key), "--shutdown-timeout", "50")
    with running("--segments", "5", *options, log=tmp_path / "log") as (process, url):
        trusting = ssl.create_default_context(cafile=files.authority)
        place = urlsplit(url)
        idle = http.client.HTTPSConnection(str(place.hostname), place.port, timeout=_SOON_S, context=trusting)
        idle.request("GET", "/healthz")
        assert idle.getresponse().read()
        with socket.create_connection((str(place.hostname), place.port or 0)):
            process.send_signal(signal.SIGTERM)
            assert process.wait(12) == 0
        idle.close()
        lines = (tmp_path / "log").read_text()
        assert "Traceback" not in lines
        assert "timeout graceful shutdown exceeded" not in lines


def _fails(url: str) -> None:
    try:
        get(url, SEGMENTS, basic("held"))
    except (OSError, http.client.HTTPException):
        return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_as_soon_as_the_url_is_said(number: signal.Signals) -> None:
    late: list[int] = []

    def again() -> None:
        late.append(number)
        os.kill(os.getpid(), number)

    timer = threading.Timer(_SOON_S, again)
    timer.start()
    with open_service(SigningBucket(), timelines=[made_up_timeline(1)]) as service:
        run(service, ServiceSettings(("PLAIN",), port=0), lambda url: signal.raise_signal(number))
    timer.cancel()
    assert late == []


def test_passwords_do_not_cross_a_network_in_the_clear(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "10.0.0.1", "::", "example.org"):
        with pytest.raises(ConfigError, match="without TLS"):
            check_exposure(ServiceSettings(("PLAIN",), host=host), insecure=False)
        check_exposure(ServiceSettings(("PLAIN",), host=host), insecure=True)
        check_exposure(ServiceSettings(("PLAIN",), host=host, tls=TlsFiles("a", "b")), insecure=False)
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        check_exposure(ServiceSettings(("PLAIN",), host=host), insecure=False)


def test_what_cannot_be_listened_on(tmp_path: Path) -> None:
    with open_service(SigningBucket(), timelines=[made_up_timeline(1)]) as service:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            settings = ServiceSettings(("PLAIN",), port=taken.getsockname()[1])
            with pytest.raises(ConfigError, match=r"--listen 127\.0\.0\.1:\d+: "):
                run(service, settings, print)
        (tmp_path / "no.pem").write_text("nothing")
        for name, fault in (("absent.pem", "No such file or directory"), ("no.pem", "")):
            files = TlsFiles(str(tmp_path / name), str(tmp_path / name))
            with pytest.raises(ConfigError, match=f"--tls-cert .*{name}: {fault}"):
                configured(service, ServiceSettings(("PLAIN",), port=0, tls=files))


def test_the_access_log_of_uvicorn_is_off() -> None:
    with open_service(SigningBucket(), timelines=[made_up_timeline(1)]) as service:
        config = configured(service, SETTINGS)
        assert config.access_log is False
        assert config.server_header is False
