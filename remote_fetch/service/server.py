"""Runs the service: a listening socket, TLS, uvicorn, and a graceful end.

Rules of the file:

- Without TLS the service listens on loopback alone, unless its owner says that a proxy in front has the TLS.
- SIGTERM and SIGINT end it: no new connection, requests under way end within `shutdown_timeout_s`, then the session
  is closed. So they do as soon as `say` has the URL. SIGHUP reads the certificate's files again, for new
  connections.
- No line of a log has a query or a header. uvicorn's own access log has queries, so it is off.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

import uvicorn

from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.hosts import is_loopback
from remote_fetch.service.app import Service
from remote_fetch.service.connections import TimedLoop, timed_protocol
from remote_fetch.service.settings import MAX_HEADER_BYTES, ServiceSettings, TlsFiles

__all__ = ["check_exposure", "configured", "run", "serve"]

_LOG = logging.getLogger("remote_fetch.service")
_BACKLOG = 512


def check_exposure(settings: ServiceSettings, *, insecure: bool) -> None:
    """Raise ConfigError if passwords would cross a network in the clear. `insecure`: the user allows that."""
    if settings.tls is not None or insecure or is_loopback(settings.host):
        return
    raise ConfigError(
        f"--listen {settings.host}:{settings.port}: without TLS the passwords of clients could be read on the way",
        key="--listen",
        hint="Give --tls-cert and --tls-key; or --insecure, if a proxy in front of the service has the TLS",
    )


def run(service: Service, settings: ServiceSettings, say: Callable[[str], None]) -> None:
    """Serve until a signal ends it. `say` gets the URL once the service listens. Raises ConfigError, OSError."""
    with _listening(settings) as listener:
        config = configured(service, settings)
        context = config.ssl
        scheme = "http" if context is None else "https"
        host, port = listener.getsockname()[:2]
        server = uvicorn.Server(config)
        with _signals(server, context, settings.tls):
            say(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
            serve(server, listener, settings)
    _LOG.info("the service has ended")


def serve(server: uvicorn.Server, listener: socket.socket, settings: ServiceSettings) -> None:
    """Serve on a listening socket until `server.should_exit`. As `Server.run`, which takes no loop of its caller."""
    with asyncio.Runner(loop_factory=partial(TimedLoop, settings.headers_timeout_s)) as runner:
        runner.run(server.serve(sockets=[listener]))


def configured(service: Service, settings: ServiceSettings) -> uvicorn.Config:
    """uvicorn's configuration, loaded. Raises ConfigError for files that are no certificate and key."""
    tls = settings.tls
    config = uvicorn.Config(
        service.app,
        loop="asyncio",
        http=timed_protocol(
            headers_timeout_s=settings.headers_timeout_s,
            drain_timeout_s=settings.drain_timeout_s,
            max_connections=settings.max_connections,
            cut_off=service.metrics.cut_off,
            unreadable=service.app.unreadable,
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=settings.proxies is not None,
        forwarded_allow_ips=settings.proxies or "",
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        if tls is None:
            raise
        raise ConfigError(
            f"--tls-cert {tls.certificate}, --tls-key {tls.key}: {file_fault(error)}", key="--tls-cert"
        ) from error
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    return config


@contextmanager
def _listening(settings: ServiceSettings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"--listen {settings.host}:{settings.port}: {error.strerror or error}", key="--listen"
        ) from None
    with listener:
        yield listener


@contextmanager
def _signals(server: uvicorn.Server, context: ssl.SSLContext | None, tls: TlsFiles | None) -> Iterator[None]:
    """Handle SIGHUP, and the signals that end the server.

    They may come before the server handles them, and uvicorn raises the one that ended it again after its end.
    """

    def reload(number: int, frame: FrameType | None) -> None:
        if context is None or tls is None:
            return
        try:
            # OpenSSL drops the old key before it finds that the new one does not fit, for example while only one of the
            # files was replaced. No TLS connection could be made after that.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
            context.load_cert_chain(tls.certificate, tls.key)
            _LOG.info("the certificate was read again")
        except (OSError, ssl.SSLError) as error:
            _LOG.error("the certificate was not read again, the old one stays: %s", file_fault(error))

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
        signal.SIGHUP: reload,
        signal.SIGTERM: server.handle_exit,
        signal.SIGINT: server.handle_exit,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
