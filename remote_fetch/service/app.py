"""The routes of the service, over its parts.

Rules of the file:

- A handler does three things: who asks, whether the brokers permit it, the answer. Each lies in a module of its own.
- An answer is made whole in a thread, bounded in size, before its first byte is sent. So a slow reader holds no thread.
- No cache on the way keeps an answer. A client may keep one without URLs, and asks whether it still holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from remote_fetch.errors import ConfigError
from remote_fetch.service.access import Access, Ask
from remote_fetch.service.answers import as_bytes
from remote_fetch.service.credentials import Credentials, parse_authorization
from remote_fetch.service.gate import Gate
from remote_fetch.service.limits import Limits
from remote_fetch.service.metrics import CONTENT_TYPE, Metrics
from remote_fetch.service.queries import parse_query, parse_segments
from remote_fetch.service.refusals import Refusal
from remote_fetch.service.settings import ServiceSettings
from remote_fetch.service.timelines import Timelines
from remote_fetch.service.vend import Vending
from remote_fetch.service.work import Workers
from remote_fetch.session.principals import Answer, ask_as, connection_properties
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Service", "ask_through"]

_READY_S = 3.0
"""How long `/readyz` waits for a reading of the metadata that is under way."""
_OK = {"Cache-Control": "no-store"}
_AGAIN = {"Cache-Control": "private, no-cache"}
"""For answers without URLs: a client may keep them, and asks by their tag whether they still hold."""
_LOCATORS = (None, "metadata-topic", "listing", "snapshot")


class Service:
    """One service over an open session, whose caller closes it. `app` is the ASGI application.

    `ask` asks the brokers as a principal. Raises ConfigError if the session's storage cannot vend access safely.
    """

    def __init__(self, session: Session, settings: ServiceSettings, ask: Ask) -> None:
        if session.config.settings.locator not in _LOCATORS:
            raise ConfigError(
                f"remote.locator={session.config.settings.locator}: the service needs all segments of all topics",
                key="remote.locator",
                hint="Leave it out, to read them from the brokers' metadata topic",
            )
        session.vendor.check()
        self._settings = settings
        self.metrics = Metrics()
        self._workers = Workers(settings.threads, "answers", settings.max_requests)
        self._askers = Workers(settings.asks, "asks", settings.max_requests)
        self._reader = Workers(1, "metadata", 2)
        clock = time.monotonic
        self._limits = Limits(rate=settings.rate, at_once=settings.at_once, most=settings.max_requests, clock=clock)
        self.access = Access(ask, settings, self._askers, clock=clock, count=self.metrics.asked)
        self.timelines = Timelines(
            session, self._reader, refresh_ms=settings.refresh_ms, clock=clock, took=self.metrics.read
        )
        self._vending = Vending(session, self.metrics, settings.url_lifetime_s)
        self.metrics.watch(lambda: self._limits.under_way, lambda: self.timelines.age_s)
        routes = [
            Route("/v1/storage", self._storage, methods=["GET"]),
            Route("/v1/topics/{topic}/partitions/{partition}/segments", self._segments, methods=["GET"]),
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/readyz", self._readyz, methods=["GET"]),
            Route("/metrics", self._metrics_text, methods=["GET"]),
        ]
        handlers = {HTTPException: _raised, Exception: _raised}
        inner = Starlette(routes=routes, lifespan=self._life, exception_handlers=handlers)
        inner.router.redirect_slashes = False
        self.app = Gate(inner, self._limits, self.metrics, settings.request_timeout_s)

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        first = asyncio.create_task(self._first_reading())
        try:
            yield
        finally:
            first.cancel()
            with suppress(asyncio.CancelledError):
                await first
            self.close()

    def close(self) -> None:
        """Let no more work begin. May be called twice."""
        for workers in (self._workers, self._askers, self._reader):
            workers.close()

    async def _first_reading(self) -> None:
        """Read the metadata at once, so that the first request finds it."""
        with suppress(Refusal):
            await self.timelines.fresh()

    def _credentials(self, request: Request) -> Credentials:
        given = [value for name, value in request.scope["headers"] if name == b"authorization"]
        return parse_authorization(given, self._settings.mechanisms)

    def _let_in(self, room: ExitStack, request: Request, credentials: Credentials) -> None:
        """Note the authenticated principal for the log line. With a token, apply the principal's own limits too.

        A principal may have many tokens, and the limits of a request by its credentials are those of one token. The
        request counts until `room` ends. Raises Refusal (429).
        """
        request.state.principal = credentials.name or "(token)"
        if credentials.is_token and credentials.name:
            room.enter_context(self._limits.of(credentials.name))

    async def _storage(self, request: Request) -> Response:
        request.state.route = "storage"
        credentials = self._credentials(request)
        with ExitStack() as room:
            room.enter_context(self._limits.of(self.access.digest(credentials)))
            await self.access.authenticate(credentials, _origin(request))
            self._let_in(room, request, credentials)
            return Response(self._vending.storage(), headers=_OK, media_type="application/json")

    async def _segments(self, request: Request) -> Response:
        request.state.route = "segments"
        credentials = self._credentials(request)
        query = parse_segments(
            request.path_params["topic"], request.path_params["partition"], parse_query(request.scope["query_string"])
        )
        with ExitStack() as room:
            room.enter_context(self._limits.of(self.access.digest(credentials)))
            allowed = await self.access.may_read(credentials, query.topic, _origin(request))
            self._let_in(room, request, credentials)
            partition = allowed.partition(query.partition)
            await self.timelines.fresh()
            known = request.headers.get("if-none-match")
            body, tag = await self._workers.run(lambda: self._vending.segments(partition, query, known))
            headers = {**_AGAIN, "ETag": tag} if tag else _OK
            if body is None:
                return Response(status_code=304, headers=headers)
            return Response(body, headers=headers, media_type="application/json")

    async def _healthz(self, request: Request) -> Response:
        request.state.route = "healthz"
        return Response(as_bytes({"alive": True}), headers=_OK, media_type="application/json")

    async def _readyz(self, request: Request) -> Response:
        """Whether requests can be answered now: the metadata is read, which asks the brokers."""
        request.state.route = "readyz"
        try:
            async with asyncio.timeout(_READY_S):
                await self.timelines.fresh()
        except TimeoutError:
            raise Refusal(503, "NOT_READY", "the metadata is still being read", 1.0) from None
        age_s = self.timelines.age_s or 0.0
        body = as_bytes({"ready": True, "metadata_age_ms": round(age_s * 1000)})
        return Response(body, headers=_OK, media_type="application/json")

    async def _metrics_text(self, request: Request) -> Response:
        request.state.route = "metrics"
        return Response(self.metrics.text(), headers=_OK, media_type=CONTENT_TYPE)


def ask_through(properties: dict[str, object], settings: ServiceSettings) -> Ask:
    """The questions to the brokers that librdkafka's `properties` name, as other principals.

    Raises ConfigError if they cannot be asked so.
    """
    connection = connection_properties(properties)

    def ask(credentials: Credentials, topic: str | None) -> Answer:
        shown = credentials.properties(time.time())
        return ask_as(connection, shown, topic, timeout_ms=round(settings.ask_timeout_s * 1000))

    return ask


def _origin(request: Request) -> str:
    """The client's address: that of the proxy, unless `--proxies` names it."""
    return "" if request.client is None else request.client.host


async def _raised(request: Request, error: Exception) -> Response:
    """Raise the error again, so that Starlette does not answer it. The Gate answers all errors, its own ones too."""
    raise error
