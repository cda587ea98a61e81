"""One GET: its deadline, the bounds of its answer, and what its failures are called."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from remote_fetch.deadline import Deadline
from remote_fetch.errors import (
    Cancelled,
    CorruptSegment,
    MissingExtra,
    RemoteFetchError,
    StorageConnectTimeout,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.locate import service_http
from remote_fetch.locate.service_http import MAX_ANSWER_BYTES, Answer, HttpChannel
from tests.cases import each_of
from tests.locate.scripted_service import Reply, ScriptedService, scripted_service

TIMEOUT_S = 0.5


@contextmanager
def channel_to(url: str, tls: ssl.SSLContext | None = None, connect_timeout_s: float = 30) -> Iterator[HttpChannel]:
    channel = HttpChannel(urlsplit(url), tls, connect_timeout_s=connect_timeout_s)
    try:
        yield channel
    finally:
        channel.close()


def get(channel: HttpChannel, path: str = "/x", timeout_s: float = 30) -> Answer:
    return channel.get(path, {"Authorization": "Basic abc"}, Deadline.after(timeout_s))


def answer_of(reply: Reply, timeout_s: float = 30) -> Answer:
    with scripted_service(lambda path: reply) as service, channel_to(service.url) as channel:
        return get(channel, timeout_s=timeout_s)


def test_answers_come_over_one_connection() -> None:
    with (
        scripted_service(lambda path: Reply(body=path.encode())) as service,
        channel_to(f"{service.url}/p/") as channel,
    ):
        assert channel.answered_s == 0
        assert [get(channel, f"/{number}").body for number in range(5)] == [b"/p/%d" % number for number in range(5)]
        assert channel.answered_s > 0
    assert service.connections == 1
    headers = service.asked[0][1]
    assert (headers["authorization"], headers["host"]) == ("Basic abc", service.url.removeprefix("http://"))


def test_a_redirect_is_an_answer() -> None:
    with scripted_service(lambda path: Reply(307, headers={"Location": "/y"})) as service:
        with channel_to(service.url) as channel:
            assert get(channel).status == 307
        assert len(service.asked) == 1


def test_a_compressed_answer() -> None:
    assert answer_of(Reply(body=gzip.compress(b"{}"), headers={"Content-Encoding": "GZIP"})).body == b"{}"
    body = gzip.compress(b"hello" * 100_000)
    assert answer_of(Reply(body=body, headers={"Content-Encoding": "gzip"})).body == b"hello" * 100_000


def test_an_answer_is_bounded() -> None:
    body = gzip.compress(bytes(MAX_ANSWER_BYTES + 1), 1)
    with pytest.raises(CorruptSegment, match="more than"):
        answer_of(Reply(body=body, headers={"Content-Encoding": "gzip"}))


def test_the_bound_is_that_of_a_plain_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_http, "MAX_ANSWER_BYTES", 1000)
    assert len(answer_of(Reply(body=bytes(1000))).body) == 1000
    with pytest.raises(CorruptSegment, match="more than"):
        answer_of(Reply(body=bytes(1001)))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(body=b"no gzip", headers={"Content-Encoding": "gzip"}), CorruptSegment),
        (Reply(body=b"x", headers={"Content-Encoding": "br"}), CorruptSegment),
        (Reply(body=gzip.compress(b"x" * 100)[:-8], headers={"Content-Encoding": "gzip"}), StorageUnavailable),
        (Reply(body=b"x" * 100, cut=50), StorageUnavailable),
        (Reply(drip_s=0.2), StorageTimeout),
    ],
)
def test_an_answer_that_does_not_come_whole(reply: Reply, error: type[RemoteFetchError]) -> None:
    with pytest.raises(error):
        answer_of(reply, timeout_s=TIMEOUT_S if reply.drip_s else 30)


@contextmanager
def sending(data: bytes) -> Iterator[str]:
    """The URL of a server that sends these bytes to its only client, and no more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                connection.recv(1 << 16)
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    assert not connection.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield "http://{}:{}".format(*listener.getsockname())
        finally:
            thread.join()


OK = b"HTTP/1.1 200 OK\r\n"


@each_of(
    "data",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",  # an alert of TLS
        b"<html>an answer of HTTP/0.9</html>",
        b"x" * 70_000,
        b"HTTP/2 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        OK + b"no header\r\ncontent-length: 2\r\n\r\n{}",
        OK + b"content-length: 2, 3\r\n\r\n{}",
        OK + b"content-length: 2, 2\r\n\r\n{}",
        OK + b"content-length: " + b"9" * 5_000 + b"\r\n\r\n{}",
        OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        OK + b"content-length: -5\r\n\r\n{}",
        OK + b"transfer-encoding: chunked\r\n\r\n" + b"1" * 70_000,
    ],
)
def test_an_answer_that_is_not_http(data: bytes) -> None:
    with sending(data) as url, channel_to(url) as channel:
        with pytest.raises(StorageUnavailable, match="the answer of the service is not HTTP") as raised:
            get(channel)
        assert raised.value.hint is not None
        assert "remote.locator.url" in raised.value.hint


@each_of(
    "data",
    [
        b"",
        OK,
        OK + b"content-type: application/json\r\n",
        OK + b"content-le",
        OK + b"transfer-encoding: chunked\r\n\r\n-5\r\n{}\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
)
def test_an_answer_that_breaks_off(data: bytes) -> None:
    with sending(data) as url, channel_to(url) as channel, pytest.raises(StorageUnavailable, match="broke off"):
        get(channel)


@each_of("head", [b"no header", b"X-\xff: y", b"Content-Length: 2"])
def test_a_line_that_is_no_header_behind_the_length(head: bytes) -> None:
    with sending(OK + b"Content-Length: 2\r\n" + head + b"\r\n\r\n{}") as url, channel_to(url) as channel:
        assert get(channel).body == b"{}"


def test_a_connection_that_broke_off_is_not_used_again() -> None:
    replies = [Reply(body=b"x" * 100, cut=50), Reply(body=b"whole")]
    with scripted_service(lambda path: replies.pop(0)) as service, channel_to(service.url) as channel:
        with pytest.raises(StorageUnavailable, match="broke off"):
            get(channel)
        assert get(channel).body == b"whole"


def test_a_server_that_does_not_answer() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        channel_to(f"http://127.0.0.1:{listener.getsockname()[1]}") as channel,
        pytest.raises(StorageTimeout),
    ):
        get(channel, timeout_s=TIMEOUT_S)


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with channel_to(f"http://127.0.0.1:{port}") as channel, pytest.raises(StorageUnavailable, match="refused"):
        get(channel, "/x?secret")


def test_an_address_that_does_not_accept() -> None:
    """The queue of connections that the server does not accept is full."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = "http://{}:{}".format(*full.getsockname())
        with channel_to(url, connect_timeout_s=TIMEOUT_S) as channel, pytest.raises(StorageConnectTimeout):
            get(channel)


def test_a_server_without_tls() -> None:
    with scripted_service(lambda path: Reply()) as service:
        url = service.url.replace("http:", "https:")
        with channel_to(url, ssl.create_default_context()) as channel, pytest.raises(StorageUnavailable, match="TLS"):
            get(channel)


def test_after_close() -> None:
    with scripted_service(lambda path: Reply()) as service:
        with channel_to(service.url) as channel:
            get(channel)
        with pytest.raises(Cancelled):
            get(channel)


def test_without_urllib3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "urllib3", None)
    with pytest.raises(MissingExtra, match=r"remote-fetch\[http\]") as raised, channel_to("http://127.0.0.1:1"):
        pass
    assert raised.value.extra == "http"


def test_a_script_notes_what_it_is_asked() -> None:
    service = ScriptedService(lambda path: Reply())
    assert (service.asked, service.connections) == ([], 0)
