"""Answers of a registry that come slowly or do not end."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from remote_fetch.errors import RegistryUnavailable
from remote_fetch.typed import registry_http
from remote_fetch.typed.registry import Registry
from tests.typed.registry_double import registry_double

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def slow_server(head: bytes, piece: bytes) -> Iterator[str]:
    """Answers one request with a piece every 50 milliseconds, 200 of them at most."""
    done = threading.Event()

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(head)
            for _ in range(200):
                if done.wait(0.05):
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


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (HEAD + b"\r\n", b" "),
    ],
)
def test_an_answer_that_comes_byte_by_byte_ends_with_the_wait(head: bytes, piece: bytes) -> None:
    """Each byte is in time for the HTTP library."""
    with slow_server(head, piece) as url:
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


def test_a_client_of_another_make_stays_as_it_is() -> None:
    registry_http.bound_answers(object(), lambda: 1.0)
