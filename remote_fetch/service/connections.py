"""A connection of uvicorn's HTTP server with bounds on time, which uvicorn itself has only for idle ones.

Rules of the file:

- A request has to arrive within `headers_timeout_s` of the connection, or of the answer before it. Under TLS the
  handshake has that time too, and the request has it after the handshake.
- An answer has to leave within `drain_timeout_s`. A reader of one byte a second is cut off, whatever it has read.
- Under TLS asyncio does not tell how much of an answer is still to be sent. The selector does: while bytes wait in
  asyncio, the loop watches for the moment when the socket takes more.
- A connection that was closed and has sent all is aborted. Most TLS clients do not answer the end of a connection, and
  asyncio waits 30 seconds for them.
- Bytes leave at once. uvicorn sends head and body apart, and a body would wait until the client acknowledges the head
  (40 ms). asyncio leaves the sockets of `socket.create_server` as they are, because these do not name their protocol.
- Between the two the request is the application's, which has a deadline of its own.
- A connection beyond the most of the service ends the one that has been idle for longest. If no connection is idle,
  the Gate refuses its requests, and the others go on. uvicorn's own limit (`limit_concurrency`) would refuse the
  requests of all connections while too many are open.
- A TLS handshake may end after the service has stopped to listen. Its connection ends at once: the end of the service
  would wait for a request.
- A connection that is cut off keeps no memory: `abort` drops what was not sent.
- A client may end its own direction after a request, as `nc -N` does. It gets the answer, and then the end. Under TLS
  asyncio does not allow that.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import select
import selectors
import socket
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from remote_fetch.service.gate import EXCESS

__all__ = ["TimedLoop", "TimedProtocol", "timed_protocol"]

_LOG = logging.getLogger("remote_fetch.service")
_LOOK_S = 1.0
_ENDING_LOOK_S = 0.1
_QUIET_S = 10.0


class TimedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with a bound in seconds on the TLS handshakes of its servers. uvicorn has no option for it.

    If the process has no file left for a connection, asyncio reports that hundreds of times a second. Once is logged.
    """

    def __init__(self, handshake_timeout_s: float) -> None:
        self._watched = selectors.DefaultSelector()
        super().__init__(self._watched)
        self._handshake_timeout_s = handshake_timeout_s
        self._quiet_until_s = 0.0
        self._servers: list[asyncio.Server] = []

    @property
    def is_ending(self) -> bool:
        """Whether a server of this loop takes no new connections any more."""
        return not all(server.is_serving() for server in self._servers)

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As asyncio's."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self._handshake_timeout_s
        server = await super().create_server(*arguments, **options)
        # From Python 3.12 on it waits for connections in their TLS handshake too. uvicorn waits for all others itself.
        server.wait_closed = _return_at_once  # type: ignore[method-assign]
        self._servers.append(server)
        return server

    def keeps_bytes(self, connection: TransportSocket) -> bool:
        """Whether asyncio has bytes for a socket that the kernel has not taken yet."""
        number = connection.fileno()
        key = None if number < 0 else self._watched.get_map().get(number)
        return key is not None and bool(key.events & selectors.EVENT_WRITE)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As asyncio's."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            super().call_exception_handler(context)
        elif self.time() >= self._quiet_until_s:
            self._quiet_until_s = self.time() + _QUIET_S
            _LOG.error("new connections have to wait: %s", error.strerror)


class TimedProtocol(H11Protocol):
    """One connection, with bounds on time. A timer checks it every second, or four times within the shorter timeout.

    The timer takes the more frequent of both.
    """

    headers_timeout_s: ClassVar[float]
    drain_timeout_s: ClassVar[float]
    max_connections: ClassVar[int]
    cut_off: ClassVar[Callable[[str], None]]
    unreadable: ClassVar[Callable[[tuple[str, int] | None], None]]
    loop: TimedLoop
    _socket: TransportSocket

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._look_s = min(_LOOK_S, self.headers_timeout_s / 4, self.drain_timeout_s / 4)
        self._timer: asyncio.TimerHandle | None = None
        self._answers = 0
        self._phase: tuple[str, int] = ("reading", 0)
        self._since_s = self._idle_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As asyncio's."""
        super().connection_made(transport)
        # A TLS transport forgets its socket before it reports the loss of the connection.
        self._socket = transport.get_extra_info("socket")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.loop.is_ending:
            transport.abort()
            return
        if len(self.connections) > self.max_connections and not self._end_an_idle_one():
            self.app_state = {**self.app_state, EXCESS: self._most_if_too_many}
        self._since_s = self._idle_since_s = self.loop.time()
        self._timer = self.loop.call_later(self._look_s, self._look)

    def _should_upgrade(self) -> bool:
        """No request changes its protocol, and its answer is a plain one (RFC 9110, 7.8).

        uvicorn's own rule logs two warnings for each such request, and Java's HTTP client sends one on each connection.
        """
        return False

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, unless a request waits for its answer: then its body is broken, and the Gate refuses a body.

        A connection has room for one answer to a request. The second one would be an error with a stack in the log.
        """
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
            type(self).unreadable(self.client)

    def shutdown(self) -> None:
        """As uvicorn's, and the connection is looked at more often from now on.

        Only if it is still open: after a second `close` asyncio cannot abort a TLS connection any more.
        """
        if self.transport.is_closing():
            return
        super().shutdown()
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio's."""
        if self._timer is not None:
            self._timer.cancel()
        # uvicorn forgets its timer if the client has reset the connection, and it would hold the TLS state (80 KB).
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """As asyncio's. Returns True if the connection stays open for an answer."""
        waits = self.scheme == "http" and self.cycle is not None and not self.cycle.response_complete
        if waits:
            self.cycle.keep_alive = False
        return waits

    def on_response_complete(self) -> None:
        """As uvicorn's: the answer is in the buffers."""
        self._answers += 1
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def _end_an_idle_one(self) -> bool:
        """End the connection that has been idle for longest. Returns False if no other connection is idle."""
        others = (one for one in self.connections if isinstance(one, TimedProtocol) and one is not self)
        idle = next((one for one in sorted(others, key=lambda one: one._idle_since_s) if one._is_idle()), None)
        if idle is not None:
            idle.shutdown()
        return idle is not None

    def _most_if_too_many(self) -> int | None:
        """The most connections of the service, if more are open now."""
        return self.max_connections if len(self.connections) > self.max_connections else None

    def _is_idle(self) -> bool:
        """Whether a new request may begin, and no byte of it has come, also none that the kernel still has."""
        return self._doing() == "reading" and not self.conn.trailing_data[0] and not _has_bytes(self._socket)

    def _look(self) -> None:
        """Abort the connection if it has been in one phase for too long."""
        now, phase = self.loop.time(), (self._doing(), self._answers)
        if phase != self._phase:
            self._phase, self._since_s = phase, now
        bounds = {"reading": self.headers_timeout_s, "writing": self.drain_timeout_s, "ended": 0.0}
        if now - self._since_s > bounds.get(phase[0], now):
            if phase[0] != "ended":
                type(self).cut_off(phase[0])
            self.transport.abort()
            return
        pause_s = min(_ENDING_LOOK_S, self._look_s) if self.transport.is_closing() else self._look_s
        self._timer = self.loop.call_later(pause_s, self._look)

    def _doing(self) -> str:
        if self.transport.get_write_buffer_size() > 0 or self.loop.keeps_bytes(self._socket):
            return "writing"
        if self.transport.is_closing():
            return "ended"
        is_idle = self.cycle is None or self.cycle.response_complete
        return "reading" if is_idle else "working"


async def _return_at_once() -> None:
    """Wait for nothing."""


def _has_bytes(connection: TransportSocket) -> bool:
    """Whether a socket can be read. A closed one cannot."""
    poll = select.poll()
    if connection.fileno() >= 0:
        poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def timed_protocol(
    *,
    headers_timeout_s: float,
    drain_timeout_s: float,
    max_connections: int,
    cut_off: Callable[[str], None],
    unreadable: Callable[[tuple[str, int] | None], None],
) -> type[asyncio.Protocol]:
    """The protocol class with these bounds, for `uvicorn.Config(http=...)`. `max_connections` may be open at once.

    `cut_off` is called for each connection that is aborted, with `reading` or `writing`: what it was too slow at.
    `unreadable` is called with the address of a client whose request was answered with 400, because it is no HTTP.
    """
    bounds = {
        "headers_timeout_s": headers_timeout_s,
        "drain_timeout_s": drain_timeout_s,
        "max_connections": max_connections,
        "cut_off": staticmethod(cut_off),
        "unreadable": staticmethod(unreadable),
    }
    return type("BoundedProtocol", (TimedProtocol,), bounds)
