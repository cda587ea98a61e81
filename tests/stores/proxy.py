"""A TCP proxy on loopback that counts what a server is asked, and breaks what it answers: it stalls, or cuts the
connection, after so many bytes.

Rules of the file:

- Bytes are passed on unchanged, because requests may be signed.
- Every thread ends when the proxy is closed.
- A fault breaks only the bytes that come after it was set.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

__all__ = ["Fault", "Proxy", "proxy_of"]

_CHUNK_BYTES = 64 << 10
_JOIN_S = 20
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes `close` send a reset."""


class Fault(NamedTuple):
    """The fault of each connection after so many bytes of answers."""

    kind: Literal["stall", "cut"]
    after_bytes: int


class Proxy:
    """In front of the server at `server_port`. `fault` may be set and taken away at any time; `asked` are the request
    lines so far, `most_connections` how many were open at once."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.fault: Fault | None = None
        self.broken = 0
        self.asked: list[str] = []
        self.most_connections = 0
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Break off everything and end the threads."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets, threads = list(self._sockets), list(self._threads)
        for one in sockets:
            _close(one)
        for thread in threads:
            thread.join(_JOIN_S)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                return
            with self._lock:
                self._sockets |= {client, server}
                self.most_connections = max(self.most_connections, len(self._sockets) // 2)
            self._start(self._pass_on, client, server)
            self._start(self._answer, server, client)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                if data.startswith((b"GET ", b"HEAD ", b"POST ")):  # a request fits into one piece
                    self.asked.append(data.partition(b"\r\n")[0].decode())
                server.sendall(data)
        self._ended(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        seen: Fault | None = None
        left_bytes = 0
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                fault = self.fault
                if fault is not seen:
                    seen, left_bytes = fault, 0 if fault is None else fault.after_bytes
                if fault is None or len(data) <= left_bytes:
                    left_bytes -= len(data)
                    client.sendall(data)
                    continue
                client.sendall(data[:left_bytes])
                self.broken += 1
                if fault.kind == "stall":
                    self._closed.wait()
                else:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                break
        self._ended(client)

    def _ended(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(one)
        _close(one)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def proxy_of(server_port: int) -> Iterator[Proxy]:
    """A proxy, closed at the end."""
    proxy = Proxy(server_port)
    try:
        yield proxy
    finally:
        proxy.close()
