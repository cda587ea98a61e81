"""Connections that are slow, silent or too long, against a server in a thread of this process."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import logging
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from remote_fetch.service.connections import TimedLoop, TimedProtocol
from remote_fetch.service.metrics import Metrics
from remote_fetch.service.server import configured, serve
from remote_fetch.service.settings import TlsFiles
from tests.cases import each_of
from tests.eventually import eventually
from tests.rig.certificates import make_certificates
from tests.service.fakes import SETTINGS, SigningBucket, basic, open_service
from tests.service.process import made_up_timeline

SEGMENTS = "/v1/topics/topic/partitions/0/segments?objects=all"
WAIT_S = 60.0


@contextmanager
def serving(*, segments: int = 400, **settings: Any) -> Iterator[tuple[str, int]]:
    """The address of a server whose whole answer is 500 KB."""
    with open_service(SigningBucket(), timelines=[made_up_timeline(segments)]) as service:
        given = replace(SETTINGS, **settings)
        server = uvicorn.Server(configured(service, given))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)  # else the kernel takes a whole answer
            thread = threading.Thread(target=serve, args=(server, listener, given))
            thread.start()
            try:
                yield listener.getsockname()[:2]
            finally:
                server.should_exit = True
                thread.join()


def request(path: str = SEGMENTS) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic()['Authorization']}\r\n\r\n".encode()


def received_of(connection: socket.socket) -> bytes:
    """All that the server sends until it ends the connection."""
    connection.settimeout(WAIT_S)
    received = b""
    try:
        while piece := connection.recv(1 << 16):
            received += piece
    except (ConnectionError, ssl.SSLError):
        pass
    return received


def test_a_silent_connection_is_cut_off() -> None:
    with serving(headers_timeout_s=0.4) as address:
        began_s = time.monotonic()
        with socket.create_connection(address) as connection:
            assert received_of(connection) == b""
        assert time.monotonic() - began_s > 0.3


def test_a_silent_connection_is_cut_off_under_tls(tmp_path: Path) -> None:
    """Before its handshake and after it."""
    files = make_certificates(tmp_path / "tls")
    client = ssl.create_default_context(cafile=files.authority)
    with serving(headers_timeout_s=1.0, tls=TlsFiles(str(files.certificate), str(files.key))) as address:
        began_s = time.monotonic()
        with socket.create_connection(address) as connection:
            assert received_of(connection) == b""
        assert time.monotonic() - began_s > 0.7
        for _ in range(60):  # on a slow machine a handshake may take too long
            began_s = time.monotonic()
            with suppress(ConnectionError, ssl.SSLError):
                secured = client.wrap_socket(socket.create_connection(address), server_hostname="localhost")
                break
        with secured:
            assert received_of(secured) == b""
        assert time.monotonic() - began_s > 0.7


def test_a_request_that_drips_is_cut_off() -> None:
    with serving(headers_timeout_s=0.5) as address, socket.create_connection(address) as connection:
        try:
            for byte in request():
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        except ConnectionError:
            pass
        assert received_of(connection) == b""


def test_an_answer_that_is_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off = threading.Event()
    monkeypatch.setattr(Metrics, "cut_off", lambda metrics, at: cut_off.set())
    with serving(drain_timeout_s=0.5) as address:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
        with slow:
            slow.connect(address)
            slow.sendall(request())
            assert cut_off.wait(WAIT_S)
            assert 0 < len(received_of(slow)) < 300_000


def test_an_answer_that_is_not_read_is_dropped_under_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before uvicorn closes an idle connection, and if the answer was the last one of its connection."""
    files = make_certificates(tmp_path / "tls")
    client = ssl.create_default_context(cafile=files.authority)
    secured = TlsFiles(str(files.certificate), str(files.key))
    for request_bytes in (request(), request().replace(b"Host: x", b"Host: x\r\nConnection: close")):
        cut_off = threading.Event()
        monkeypatch.setattr(Metrics, "cut_off", lambda metrics, at, cut_off=cut_off: cut_off.set())
        with serving(drain_timeout_s=0.5, keep_alive_s=60, tls=secured) as address:
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
            with slow:
                slow.connect(address)
                with client.wrap_socket(slow, server_hostname="localhost") as connection:
                    connection.sendall(request_bytes)
                    assert cut_off.wait(WAIT_S)
                    assert 0 < len(received_of(connection)) < 300_000
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_closed_connection_is_still_bounded_at_the_end_of_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader has not taken its last answer when the service ends, and a second close would take its bound away."""
    files = make_certificates(tmp_path / "tls")
    client = ssl.create_default_context(cafile=files.authority)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
    with slow:
        with serving(drain_timeout_s=0.5, tls=TlsFiles(str(files.certificate), str(files.key))) as address:
            slow.connect(address)
            connection = client.wrap_socket(slow, server_hostname="localhost")
            connection.sendall(request().replace(b"Host: x", b"Host: x\r\nConnection: close"))
            assert connection.recv(1)
        connection.close()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_handshake_that_ends_after_the_service_has_stopped_to_listen(tmp_path: Path) -> None:
    """Its connection ends at once, while an answer under way still has its time."""
    files = make_certificates(tmp_path / "tls")
    client = ssl.create_default_context(cafile=files.authority)
    received: list[bytes] = []

    def listens() -> bool:
        try:
            socket.create_connection(address).close()
        except ConnectionError:
            return False
        return True

    def come_late() -> None:
        with under_way, late:
            assert eventually(lambda: not listens(), WAIT_S)
            with client.wrap_socket(late, server_hostname="localhost") as secured:
                received.append(received_of(secured))
            received.append(received_of(under_way))

    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
    thread = threading.Thread(target=come_late)
    with slow, serving(tls=TlsFiles(str(files.certificate), str(files.key)), headers_timeout_s=30.0) as address:
        late = socket.create_connection(address)
        slow.connect(address)
        under_way = client.wrap_socket(slow, server_hostname="localhost")
        under_way.sendall(request())
        assert under_way.recv(1)
        thread.start()
    thread.join()
    assert [bool(one) for one in received] == [False, True]


def test_an_answer_is_not_sent_while_asyncio_keeps_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has room for more, and asyncio has not come to write. The connection has to outlast that."""
    found: list[str] = []

    class Noting(TimedProtocol):
        def on_response_complete(self) -> None:
            super().on_response_complete()
            poll = select.poll()
            poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLOUT)
            assert poll.poll(WAIT_S * 1000)
            found.append(self._doing())

    monkeypatch.setattr("remote_fetch.service.connections.TimedProtocol", Noting)
    files = make_certificates(tmp_path / "tls")
    client = ssl.create_default_context(cafile=files.authority)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
    # Under 64 KB are left for asyncio. With more the end of TLS would wait behind them, and asyncio counts that.
    with reader, serving(segments=45, tls=TlsFiles(str(files.certificate), str(files.key))) as address:
        reader.connect(address)
        with client.wrap_socket(reader, server_hostname="localhost") as connection:
            connection.settimeout(WAIT_S)
            connection.sendall(request().replace(b"Host: x", b"Host: x\r\nConnection: close"))
            while connection.recv(1 << 16):
                pass
    assert found == ["writing"]


def test_a_tls_connection_that_is_lost_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its timer or a new connection, between asyncio's loss of it and the report of that."""
    found: list[str] = []

    class Noting(TimedProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            assert self.transport.get_extra_info("socket") is None
            found.append(self._doing())
            super().connection_lost(exc)

    monkeypatch.setattr("remote_fetch.service.connections.TimedProtocol", Noting)
    files = make_certificates(tmp_path / "tls")
    client = ssl.create_default_context(cafile=files.authority)
    with serving(tls=TlsFiles(str(files.certificate), str(files.key))) as address:
        with client.wrap_socket(socket.create_connection(address), server_hostname="localhost") as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert eventually(lambda: found == ["ended"], WAIT_S)


def test_a_reader_in_time_gets_all() -> None:
    bounds = {"drain_timeout_s": 2.5, "headers_timeout_s": 2.5}
    with serving(segments=40, **bounds) as address, socket.create_connection(address) as reader:
        reader.settimeout(WAIT_S)
        for _ in range(10):  # on one connection, which is older than both bounds in the end
            time.sleep(0.3)
            reader.sendall(request())
            answer = http.client.HTTPResponse(reader)
            answer.begin()
            assert answer.read().endswith(b"}")


def test_a_body_does_not_wait_for_the_acknowledgement_of_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Noting(TimedProtocol):
        def data_received(self, data: bytes) -> None:
            accepted = self.transport.get_extra_info("socket")
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            super().data_received(data)

    monkeypatch.setattr("remote_fetch.service.connections.TimedProtocol", Noting)
    with serving() as address, socket.create_connection(address) as connection:
        connection.settimeout(WAIT_S)
        connection.sendall(request("/healthz"))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    assert [bool(one) for one in seen] == [True]


def test_a_connection_that_was_reset_is_held_by_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[tuple[type, object]] = []

    class Noting(TimedProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.append((type(exc), self.timeout_keep_alive_task))

    monkeypatch.setattr("remote_fetch.service.connections.TimedProtocol", Noting)
    with serving() as address:
        client = http.client.HTTPConnection(*address, timeout=WAIT_S)
        with closing(client):
            assert status_of(client, "/healthz") == 200
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert eventually(lambda: bool(lost), WAIT_S)
    assert lost == [(ConnectionResetError, None)]


@each_of("protocol", [b"websocket", b"h2c"])
def test_a_request_for_another_protocol(protocol: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as address, socket.create_connection(address) as connection:
        connection.settimeout(WAIT_S)
        upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\n\r\n" % protocol
        connection.sendall(request("/healthz")[:-2] + upgrade)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@each_of(("target", "status"), [("http://x/healthz", b"200"), ("HTTPS://x:1/healthz?/", b"200"), ("http://x", b"404")])
def test_a_target_that_is_a_whole_url(target: str, status: bytes) -> None:
    with serving() as address, socket.create_connection(address) as connection:
        connection.settimeout(WAIT_S)
        connection.sendall(request(target))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 " + status)


def test_a_client_that_has_sent_all(caplog: pytest.LogCaptureFixture) -> None:
    """Its answer comes, and then the end. Without a request the end comes at once."""
    with serving(keep_alive_s=60) as address:  # longer than `received_of` waits
        for sent in (request(), request("/healthz") + request(), b""):
            with socket.create_connection(address) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                received = received_of(connection)
            assert received.count(b"HTTP/1.1 200 OK") == sent.count(b"GET "), sent
            assert received.endswith(b"}") is bool(sent)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_headers_that_are_too_long() -> None:
    """In one piece, and in pieces of which the last has not come."""
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000
    with serving() as address:
        for sent, status in ((head + b"\r\n\r\n", b"431"), (head, b"400")):
            with socket.create_connection(address) as connection:
                connection.settimeout(WAIT_S)
                connection.sendall(sent)
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 " + status)


def test_a_request_that_is_no_http(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and counted as all are."""
    caplog.set_level(logging.INFO, "remote_fetch.service.access")
    with serving() as address:
        with socket.create_connection(address) as connection:
            connection.sendall(b"\x16\x03\x01\r\n\r\n")
            assert received_of(connection).startswith(b"HTTP/1.1 400 ")
        assert [line for line in caplog.messages if " 400 " in line] == ["127.0.0.1 - - - 400 0 B 0 ms"]
        with closing(http.client.HTTPConnection(*address, timeout=WAIT_S)) as client:
            client.request("GET", "/metrics")
            counted = client.getresponse().read()
    assert b'remote_fetch_service_requests_total{route="other",status="400"} 1.0' in counted


def test_a_body_that_is_broken(caplog: pytest.LogCaptureFixture) -> None:
    """Its request gets one answer, that to a body."""
    caplog.set_level(logging.INFO, "remote_fetch.service.access")
    head = request("/healthz")[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    with serving() as address, socket.create_connection(address) as connection:
        connection.sendall(head + b"no size of a chunk\r\n")
        head, _, body = received_of(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"]["code"] == "BODY_REFUSED"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert [line.split()[4:6] for line in caplog.messages if "/healthz" in line] == [["413", f"{len(body)}"]]


def status_of(connection: http.client.HTTPConnection, path: str) -> int:
    """The status of the whole answer to a GET."""
    connection.request("GET", path, headers=basic())
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_connection_too_many_ends_the_one_that_is_idle_for_longest() -> None:
    with serving(max_connections=2) as address, ExitStack() as stack:
        clients = [http.client.HTTPConnection(*address, timeout=WAIT_S) for _ in range(3)]
        for client in clients:
            stack.callback(client.close)
        for client in clients:
            assert status_of(client, SEGMENTS) == 200
        for client in clients[1:]:
            assert status_of(client, SEGMENTS) == 200
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            status_of(clients[0], SEGMENTS)


def test_a_connection_too_many_while_none_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on, and the service tells its health."""
    all_have_come = threading.Event()

    class Late(TimedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            assert all_have_come.wait(WAIT_S)
            super().connection_made(transport)

    monkeypatch.setattr("remote_fetch.service.connections.TimedProtocol", Late)
    with serving(max_connections=2) as address, ExitStack() as stack:
        busy = [stack.enter_context(socket.create_connection(address)) for _ in range(2)]
        for connection in busy:
            connection.settimeout(WAIT_S)
            connection.sendall(request("/healthz")[:-4])
        for _ in range(2):  # the service has read the beginning of their requests when the second one comes
            more = http.client.HTTPConnection(*address, timeout=WAIT_S)
            stack.callback(more.close)
            more.connect()
            all_have_come.set()
            assert [status_of(more, path) for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]
            more.request("GET", SEGMENTS, headers=basic())
            refused = more.getresponse()
            assert refused.status == 503
            assert (refused.headers["Retry-After"], refused.headers["Connection"]) == ("1", "close")
            assert json.loads(refused.read())["error"]["code"] == "OVERLOADED"
        for connection in busy:
            connection.sendall(b"\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_connection_too_many_is_one_of_all_when_others_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked for the health first, so that it is still open."""
    lost = threading.Event()

    class Noting(TimedProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    monkeypatch.setattr("remote_fetch.service.connections.TimedProtocol", Noting)
    with serving(max_connections=1) as address, socket.create_connection(address) as busy:
        busy.sendall(request("/healthz")[:-4])
        with closing(http.client.HTTPConnection(*address, timeout=WAIT_S)) as more:
            assert status_of(more, "/healthz") == 200
            busy.close()
            assert lost.wait(WAIT_S)
            assert status_of(more, SEGMENTS) == 200


def test_no_file_is_left_for_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio reports it for each connection of the backlog, each second."""
    loop = TimedLoop(1.0)
    try:
        for number in (errno.EMFILE, errno.EMFILE, errno.ENFILE, errno.ECONNRESET):
            loop.call_exception_handler({"message": "accept", "exception": OSError(number, os.strerror(number))})
    finally:
        loop.close()
    assert caplog.messages == ["new connections have to wait: Too many open files", "accept"]


def test_an_address_that_a_proxy_gives(caplog: pytest.LogCaptureFixture) -> None:
    """Is believed of proxies that are named, and of nothing else; and it writes no line of its own."""
    caplog.set_level(logging.INFO, "remote_fetch.service.access")
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Forwarded-For: %s\r\n\r\n"
    for proxies, given, shown in (
        (None, b"10.9.8.7", "127.0.0.1"),
        ("10.0.0.0/8", b"10.9.8.7", "127.0.0.1"),
        ("127.0.0.0/8", b"192.0.2.7", "192.0.2.7"),
        ("127.0.0.0/8", b"a GET b", "a%20GET%20b"),
    ):
        caplog.clear()
        with serving(proxies=proxies) as address, socket.create_connection(address) as connection:
            connection.settimeout(WAIT_S)
            connection.sendall(head % given)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        assert [line.split()[0] for line in caplog.messages] == [shown]
