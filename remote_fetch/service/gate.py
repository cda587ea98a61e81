"""The gate that every request passes: bounds on its size and time, errors as JSON, one log line, the counters.

Rules of the file:

- The log line has the path without its query, and nothing of a header. It has the principal's name once the brokers
  have taken the credentials. Characters that cannot be printed are escaped: no request writes a line of its own.
- A request with a body is refused, and its connection ends: the service reads no body.
- An error that is not expected is a 500 without its text. The log has the stack.
- `/healthz`, `/readyz` and `/metrics` are answered even if the service is full, of requests or of connections.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remote_fetch.amounts import one_line
from remote_fetch.service.answers import as_bytes
from remote_fetch.service.limits import Limits
from remote_fetch.service.metrics import Metrics
from remote_fetch.service.refusals import Refusal, overloaded
from remote_fetch.service.settings import MAX_HEADER_BYTES, MAX_QUERY_BYTES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ACCESS_LOG", "EXCESS", "Gate"]

ACCESS_LOG = "remote_fetch.service.access"
EXCESS = "excess"
"""The name in a request's state of a function, if the request's connection came when the most connections were open.

The function returns their number while too many are open, else None.
"""
_LOG = logging.getLogger("remote_fetch.service")
_ACCESS = logging.getLogger(ACCESS_LOG)
_SHOWN_CHARS = 300
_OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


class Gate:
    """The outermost ASGI application, around `app`.

    Handlers set two fields of a request's state for the log line and the counters: `route`, and `principal` once the
    brokers have taken it.
    """

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, request_timeout_s: float) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._timeout_s = request_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.monotonic()
        sent = _Sent(send)
        scope["path"] = _path_of(scope["path"])
        state: dict[str, Any] = scope.setdefault("state", {})
        try:
            await self._answer(scope, receive, sent)
        except asyncio.CancelledError:
            sent.status = sent.status or 499
            raise
        except Exception as error:
            if sent.status:
                raise
            await _response_to(error)(scope, receive, sent)
        finally:
            duration_s = time.monotonic() - began_s
            self._metrics.answered(state.get("route", "other"), sent.status, duration_s)
            _ACCESS.info("%s", _line(scope, state, sent.status, sent.size_bytes, duration_s))

    def unreadable(self, client: tuple[str, int] | None) -> None:
        """Count and log a request that is no HTTP. Its connection has answered it with 400."""
        self._metrics.answered("other", 400, 0.0)
        _ACCESS.info("%s", _line({"client": client, "method": "-", "path": "-"}, {}, 400, 0, 0.0))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["path"] in _OPEN
        most = scope["state"].get(EXCESS, lambda: None)()
        if most is not None and not is_open:
            refusal = overloaded(f"{most} connections are open, the most of this service")
            raise replace(refusal, headers={"Connection": "close"})
        with nullcontext() if is_open else self._limits.request():
            _check_size(scope)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._app(scope, receive, send)
            except TimeoutError:
                raise Refusal(503, "TIMED_OUT", f"no answer within {self._timeout_s:g} s", 1.0) from None


class _Sent:
    """`send`, with a note of what was sent. `status` 0: nothing yet."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.size_bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
        elif message["type"] == "http.response.body":
            self.size_bytes += len(message.get("body", b""))
        await self._send(message)


def _path_of(target: str) -> str:
    """The path of a request's target, which may be a whole URL (RFC 9112, 3.2.2)."""
    if not target.lower().startswith(("http://", "https://")):
        return target
    return "/" + "".join(target.split("/", 3)[3:])


def _refusal_response(refusal: Refusal) -> Response:
    """The answer of a refused request."""
    headers = {"Cache-Control": "no-store", **refusal.headers}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(math.ceil(refusal.retry_after_s), 1))
    body = as_bytes({"error": {"code": refusal.code, "message": refusal.message}})
    return Response(body, refusal.status, headers, "application/json")


def _response_to(error: Exception) -> Response:
    if isinstance(error, Refusal):
        return _refusal_response(error)
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "INVALID_REQUEST")
        return _refusal_response(Refusal(error.status_code, code, error.detail, headers=dict(error.headers or {})))
    _LOG.error("a request failed unexpectedly", exc_info=error)
    return _refusal_response(Refusal(500, "INTERNAL_ERROR", "the service failed; its log has the reason"))


def _check_size(scope: Scope) -> None:
    """Raise Refusal for a body (413), a long query (414) and long headers (431).

    h11 bounds only those headers that arrive in several pieces.
    """
    if len(scope["query_string"]) > MAX_QUERY_BYTES:
        raise Refusal(414, "QUERY_TOO_LONG", f"a query has at most {MAX_QUERY_BYTES} bytes")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        raise Refusal(431, "HEADERS_TOO_LONG", f"headers have at most {MAX_HEADER_BYTES} bytes")
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            raise Refusal(413, "BODY_REFUSED", "a request has no body here", headers={"Connection": "close"})


def _line(scope: Scope, state: dict[str, Any], status: int, size_bytes: int, duration_s: float) -> str:
    client = scope.get("client")
    words = (
        _printable(client[0] if client else "-"),
        _printable(state.get("principal") or "-"),
        scope["method"],
        _printable(scope["path"]),
        str(status),
        f"{size_bytes} B",
        f"{duration_s * 1000:.0f} ms",
    )
    return " ".join(words)


def _printable(text: str) -> str:
    shown = text[:_SHOWN_CHARS] + ("..." if len(text) > _SHOWN_CHARS else "")
    return one_line(shown).replace(" ", "%20")
