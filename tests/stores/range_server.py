"""An HTTP server for range requests on loopback, that fails on purpose: at the connection, in the answer, in the body.

Rules of the file:

- Standard library only, and no code of the package under test.
- `plan` decides about the fault of a request from the request alone.
- Every stall ends when the server is closed, so that no thread outlives it.
- The ranges are those of RFC 9110, section 14.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self, cast
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["NO_KEY", "Asked", "Fault", "FaultKind", "RangeServer", "stalled_connect"]

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
NO_KEY = b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>none</Message></Error>'
"""As S3 and Google say in XML that there is no such object."""
_STALL_S = 60.0
"""Longest stall: longer than any deadline of a test."""
_TRICKLE_S = 0.02
"""Pause between two bytes of a body that trickles: shorter than any timeout of a test."""


class FaultKind(StrEnum):
    """The fault of one request."""

    STATUS = "status"
    """An answer with `status` and no data."""
    STALL_ANSWER = "stall-answer"
    """The request is taken, and nothing comes back."""
    STALL_BODY = "stall-body"
    """Headers and half of the body, then nothing."""
    TRICKLE = "trickle"
    """One byte of the body after another, and never the last one."""
    DROP = "drop"
    """The connection is closed instead of an answer."""
    RESET = "reset"
    """The connection is reset in the middle of the body."""
    TRUNCATE = "truncate"
    """Half of the announced body, then an orderly end."""
    CORRUPT = "corrupt"
    """One byte in the middle differs."""
    SHORT_RANGE = "short-range"
    """A shorter range than was asked for, and it says so."""
    WRONG_RANGE = "wrong-range"
    """Another range of the same length, and it says so."""
    UNNAMED_RANGE = "unnamed-range"
    """The right bytes, without saying which range they are."""
    REFUSED_RANGE = "refused-range"
    """416 with the size of the object, for a range that the object has."""
    WHOLE = "whole"
    """200 with the whole object, as from a server that does not know ranges."""
    REDIRECT = "redirect"
    """On to `location`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. The other fields are for the kinds that have them: `retry_after` in seconds, `code` as Azure's."""

    kind: FaultKind
    status: int = 503
    retry_after: int | None = None
    location: str = ""
    body: bytes = b""
    code: str = ""


class Asked(NamedTuple):
    """One request: bytes [start, end) of an object, end -1 the end. `attempt` counts those that asked the same."""

    name: str
    start: int
    end: int
    attempt: int


Plan = Callable[[Asked], Fault | None]


class _Range(NamedTuple):
    status: int
    body: bytes
    content_range: str | None


@dataclass
class RangeServer:
    """Serves `files`, by their names below the root. A context manager; all fields may be changed while it runs.

    `signature`: what the query's `sig` has to be, else 403, as with a signed URL. `wanted_headers`: else 401.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    plan: Plan = lambda asked: None
    signature: str | None = None
    missing: bytes = b""
    """The body of the answer for an object that is not there."""
    wanted_headers: Mapping[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    etags: dict[str, str] = field(default_factory=dict)
    """The identity headers of files, by their names. Other files have none."""
    paths: list[str] = field(default_factory=list)
    """The paths of all requests, with their queries."""
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._attempts: Counter[tuple[str, int, int]] = Counter()
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        """Where it listens, without a closing slash."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def note(self, path: str, headers: Mapping[str, str], start: int, end: int) -> Asked:
        """Write a request down."""
        name = unquote(urlsplit(path).path).lstrip("/")
        with self._lock:
            asked = Asked(name, start, end, self._attempts[name, start, end])
            self._attempts[name, start, end] += 1
            self.asked.append(asked)
            self.paths.append(path)
            self.headers.append(dict(headers))
        return asked

    def refusal(self, path: str, headers: Mapping[str, str]) -> int | None:
        """The status if the request may not read, None if it may."""
        if any(headers.get(name) != value for name, value in self.wanted_headers.items()):
            return 401
        signed = parse_qs(urlsplit(path).query).get("sig", [None])[0]
        return 403 if self.signature is not None and signed != self.signature else None


class _Http(ThreadingHTTPServer):
    daemon_threads = False  # joined when the server is closed
    request_queue_size = 128
    owner: RangeServer

    def server_activate(self) -> None:
        """Listen, and remember who connects."""
        super().server_activate()
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        """One more connection."""
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def server_close(self) -> None:
        """Close every connection and join the threads."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that walked away is nothing to write about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        """Quiet."""

    def do_GET(self) -> None:
        """Answer a range, or misbehave."""
        owner = cast(_Http, self.server).owner
        headers = dict(self.headers.items())
        match = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(match[1]) if match else 0
        end = int(match[2]) + 1 if match and match[2] else -1
        asked = owner.note(self.path, headers, start, end)
        refusal = owner.refusal(self.path, headers)
        if refusal is not None:
            self._send(refusal, b"", {})
            return
        fault = owner.plan(asked)
        answer = _answer(owner.files.get(asked.name), match is not None, start, end)
        if fault is None and answer.status == 404:
            self._send(404, owner.missing, {})
        elif fault is None:
            self._send_range(answer)
        else:
            self._misbehave(fault, answer, asked)

    def _misbehave(self, fault: Fault, answer: _Range, asked: Asked) -> None:
        owner = cast(_Http, self.server).owner
        body = answer.body
        match fault.kind:
            case FaultKind.STATUS:
                more = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
                more |= {"x-ms-error-code": fault.code} if fault.code else {}
                self._send(fault.status, fault.body, more)
            case FaultKind.REDIRECT:
                self._send(302, b"", {"Location": fault.location})
            case FaultKind.STALL_ANSWER:
                owner.closing.wait(_STALL_S)
                self.close_connection = True
            case FaultKind.DROP:
                self.close_connection = True
            case FaultKind.STALL_BODY | FaultKind.TRUNCATE | FaultKind.RESET | FaultKind.TRICKLE:
                self._send_part(fault.kind, answer, owner.closing)
                self.close_connection = True
            case FaultKind.CORRUPT:
                at = len(body) // 2
                flipped = body[:at] + bytes(byte ^ 0x55 for byte in body[at : at + 1]) + body[at + 1 :]
                self._send_range(answer._replace(body=flipped))
            case FaultKind.UNNAMED_RANGE:
                self._send_range(answer._replace(content_range=None))
            case _:
                self._send_range(_other(fault.kind, owner.files.get(asked.name) or b"", asked, len(body)))

    def _send_part(self, kind: FaultKind, answer: _Range, closing: threading.Event) -> None:
        trickles = kind is FaultKind.TRICKLE
        self._send_range(answer, body_bytes=0 if trickles else len(answer.body) // 2)
        self.wfile.flush()
        if trickles:
            with suppress(OSError):  # the client went away
                for at in range(len(answer.body) - 1):
                    if closing.wait(_TRICKLE_S):
                        break
                    self.wfile.write(answer.body[at : at + 1])
                    self.wfile.flush()
        if trickles or kind is FaultKind.STALL_BODY:
            closing.wait(_STALL_S)
        if kind is FaultKind.RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _send_range(self, answer: _Range, body_bytes: int | None = None) -> None:
        more = {} if answer.content_range is None else {"Content-Range": answer.content_range}
        etag = cast(_Http, self.server).owner.etags.get(unquote(urlsplit(self.path).path).lstrip("/"))
        if etag is not None:
            more["ETag"] = etag
        self._send(answer.status, answer.body, more, body_bytes)

    def _send(self, status: int, body: bytes, more: Mapping[str, str], body_bytes: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:body_bytes])


def _answer(data: bytes | None, is_range: bool, start: int, end: int) -> _Range:
    if data is None:
        return _Range(404, b"", None)
    if not is_range:
        return _Range(200, data, None)
    if start >= len(data):
        return _Range(416, b"", f"bytes */{len(data)}")
    stop = len(data) if end < 0 else min(end, len(data))
    return _Range(206, data[start:stop], f"bytes {start}-{stop - 1}/{len(data)}")


def _other(kind: FaultKind, data: bytes, asked: Asked, size_bytes: int) -> _Range:
    """An answer to another question."""
    if kind is FaultKind.REFUSED_RANGE:
        return _Range(416, b"", f"bytes */{len(data)}")
    if kind is FaultKind.WHOLE:
        return _Range(200, data, None)
    start = asked.start + (1 if kind is FaultKind.WRONG_RANGE else 0)
    return _answer(data, True, start, start + max(size_bytes // 2 if kind is FaultKind.SHORT_RANGE else size_bytes, 1))


@contextmanager
def stalled_connect() -> Iterator[str]:
    """A URL on loopback where connections are neither taken nor refused: the queue of those that wait is full."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
