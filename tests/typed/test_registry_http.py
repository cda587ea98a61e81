"""Answers of a registry that come slowly or do not end."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2
import pytest

from remote_fetch.errors import RegistryUnavailable
from remote_fetch.typed import registry_http
from remote_fetch.typed.registry import Registry
from tests.typed.registry_double import registry_double

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def slow_server(head: bytes, piece: bytes, pause_s: float = 0.05) -> Iterator[str]:
    """Answers one request with a piece after each pause, 200 of them at most."""
    done = threading.Event()

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(head)
            for _ in range(200):
                if done.wait(pause_s):
                    return
                try:
                    connection.sendall(piece)
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize("read_bytes", [0, 65536])
def test_a_server_of_another_protocol_is_named(read_bytes: int) -> None:
    """Such as a broker, which closes the connection of an HTTP request, and perhaps has not read it."""
    done = threading.Event()

    def close_each() -> None:
        while not done.is_set():
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)
                if read_bytes:
                    connection.recv(read_bytes)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=close_each)
        thread.start()
        registry = Registry({"url": f"http://127.0.0.1:{server.getsockname()[1]}"}, 0.5)
        try:
            with pytest.raises(RegistryUnavailable, match="Perhaps another server than a registry is there"):
                registry.version("a", "latest")
        finally:  # else the process that fails here never ends
            registry.close()
            done.set()
            socket.create_connection(server.getsockname()).close()
            thread.join()


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (HEAD + b"\r\n", b" "),
        (HEAD + b"Name: ", b"a"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
)
def test_an_answer_that_comes_byte_by_byte_ends_with_the_wait(head: bytes, piece: bytes) -> None:
    """Each byte is in time for the HTTP library."""
    with slow_server(head, piece) as url:
        registry = Registry({"url": url}, 0.5)
        with pytest.raises(RegistryUnavailable, match="does not answer: ReadTimeout"):
            registry.version("a", "latest")
        registry.close()


def test_an_answer_with_interim_answers_without_end_ends_with_the_wait() -> None:
    """There is always something to read."""
    with slow_server(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5_000, pause_s=0.0) as url:
        registry = Registry({"url": url}, 0.5)
        with pytest.raises(RegistryUnavailable, match="does not answer: ReadTimeout"):
            registry.version("a", "latest")
        registry.close()


def test_an_answer_that_is_too_long_is_no_registrys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_http, "_MOST_BYTES", 4000)
    with registry_double() as double:
        double.register("short", json.dumps({"type": "string", "doc": "x" * 1000}))
        double.register("long", json.dumps({"type": "string", "doc": "x" * 4000}))
        registry = Registry({"url": double.url}, 5)
        assert registry.version("short", "latest").kind == "AVRO"
        with pytest.raises(RegistryUnavailable, match="not as a schema registry does: ValueError"):
            registry.version("long", "latest")
        registry.close()


def test_an_answer_that_was_compressed_unasked_is_not_unpacked() -> None:
    packed = gzip.compress(b'{"subject": "a", "id": 1, "version": 1, "schema": "\\"int\\""}')
    head = HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with slow_server(head, packed) as url:
        registry = Registry({"url": url}, 0.5)
        with pytest.raises(RegistryUnavailable, match="not as a schema registry does"):
            registry.version("a", "latest")
        registry.close()


def test_a_class_that_a_tracer_puts_in_the_place_of_the_librarys_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_http, "_MOST_BYTES", 4)

    class Traced(httpx2.Client):
        pass

    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers["Accept-Encoding"])
        return httpx2.Response(200, content=iter([b"12345"]))

    with Traced(transport=httpx2.MockTransport(answer)) as session:
        registry_http.bound_answers(SimpleNamespace(_rest_client=SimpleNamespace(session=session)), lambda: 60.0)
        with pytest.raises(ValueError, match="more than 4 bytes"):
            session.get("http://registry/")
    assert asked == ["identity"]


def test_a_client_of_another_make_stays_as_it_is() -> None:
    registry_http.bound_answers(object(), lambda: 1.0)
