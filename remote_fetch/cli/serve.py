"""`remote-fetch serve`: give readers signed URLs of the segments that the brokers let them read.

Rules of the file:

- The configuration of the service (`-X`, `-F`, `--url` ...) is that of any reader. It holds the key to the bucket.
- Errors of the configuration end the command before the service listens.
- stderr has the log. stdout has one line, the URL, as soon as the service listens.
"""

from __future__ import annotations

import argparse
import logging
import sys
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from remote_fetch.cli.options import add_common_options, config_from, pairs_from
from remote_fetch.config.client import check_client, mechanism_of, of_librdkafka, with_own
from remote_fetch.errors import ConfigError, MissingExtra
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    from remote_fetch.service.settings import ServiceSettings

__all__ = ["add_options", "run"]

_LOGGERS = ("remote_fetch", "uvicorn")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_common_options(parser)
    _add_listening(parser.add_argument_group("listening"))
    _add_clients(parser.add_argument_group("clients"))
    _add_limits(parser.add_argument_group("limits"))


def _add_listening(group: Any) -> None:
    group.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:8090", help="the address (127.0.0.1:8090); port 0: any"
    )
    group.add_argument("--tls-cert", metavar="FILE", help="the certificate chain, PEM")
    group.add_argument("--tls-key", metavar="FILE", help="the private key, PEM")
    group.add_argument(
        "--insecure", action="store_true", help="listen without TLS: a proxy in front of the service has it"
    )
    group.add_argument(
        "--proxies", metavar="LIST", help="addresses and networks of proxies whose X-Forwarded-For is believed"
    )
    group.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="what stderr shows (info)"
    )
    group.add_argument(
        "--shutdown-timeout", type=int, default=20, metavar="S", help="how long requests may end after SIGTERM (20)"
    )


def _add_clients(group: Any) -> None:
    group.add_argument(
        "--mechanisms", metavar="LIST",
        help="how clients' credentials go to the brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 for Basic, OAUTHBEARER "
        "for Bearer, or one of each with a comma (default: sasl.mechanism)",
    )  # fmt: skip
    group.add_argument(
        "--client-property", dest="client_properties", metavar="KEY=VALUE", action="append", default=[],
        help="a librdkafka property of connections as a client, such as another bootstrap.servers; may be repeated",
    )  # fmt: skip
    group.add_argument("--url-lifetime", type=int, default=300, metavar="S", help="how long a signed URL is good (300)")
    group.add_argument(
        "--allowed-for", type=float, default=30.0, metavar="S", help="how long a yes of the brokers is believed (30)"
    )
    group.add_argument(
        "--refused-for", type=float, default=5.0, metavar="S", help="how long a no of the brokers is believed (5)"
    )
    group.add_argument(
        "--refresh-ms", type=int, default=1_000, metavar="MS", help="least time between readings of the metadata (1000)"
    )


def _add_limits(group: Any) -> None:
    group.add_argument("--rate", type=float, default=50.0, metavar="N", help="requests a second for a principal (50)")
    group.add_argument("--at-once", type=int, default=16, metavar="N", help="requests of a principal at once (16)")
    group.add_argument("--max-requests", type=int, default=512, metavar="N", help="requests at once (512)")
    group.add_argument("--max-connections", type=int, default=900, metavar="N", help="open connections (900)")
    group.add_argument("--threads", type=int, default=16, metavar="N", help="threads that make answers (16)")
    group.add_argument("--request-timeout", type=float, default=20.0, metavar="S", help="longest request (20)")


_LEAST: dict[str, float] = {
    "url_lifetime": 10, "allowed_for": 0, "refused_for": 0, "refresh_ms": 0, "rate": 0.1, "at_once": 1,
    "max_requests": 1, "max_connections": 2, "threads": 1, "request_timeout": 1, "shutdown_timeout": 1,
}  # fmt: skip
_MOST: dict[str, float] = {"url_lifetime": 3_600, "allowed_for": 600, "refused_for": 600, "threads": 256}


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    try:
        from remote_fetch.service import app, server  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(f"the service needs {error.name}", extra="service") from error
    config = config_from(arguments)
    _log_to_stderr(arguments.log_level)
    with Session.open(config, shared=True) as session:
        if session.brokers is None:
            raise ConfigError(
                "the service needs brokers, which say who may read what", key="bootstrap.servers", hint="Set -b"
            )
        of_clients = of_librdkafka(pairs_from(arguments.client_properties, "--client-property"))
        properties = with_own(session.config.librdkafka, of_clients)
        check_client(properties)
        settings = _settings(arguments, properties)
        server.check_exposure(settings, insecure=arguments.insecure)
        service = app.Service(session, settings, app.ask_through(properties, settings))
        server.run(service, settings, _say)
    return 0


def _say(url: str) -> None:
    print(url, flush=True)


def _settings(arguments: argparse.Namespace, properties: dict[str, Any]) -> ServiceSettings:
    from remote_fetch.service.credentials import parse_mechanisms  # noqa: PLC0415 - an extra
    from remote_fetch.service.settings import ServiceSettings, TlsFiles  # noqa: PLC0415 - as above

    for name, least in _LEAST.items():
        value, most = getattr(arguments, name), _MOST.get(name, float("inf"))
        if not least <= value <= most:
            option = f"--{name.replace('_', '-')}"
            at_most = "" if most == float("inf") else f", at most {most:g}"
            raise ConfigError(f"{option} {value:g}: give {least:g} or more{at_most}", key=option)
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise ConfigError("--tls-cert and --tls-key belong together", key="--tls-cert")
    mechanisms = arguments.mechanisms or mechanism_of(properties)
    if mechanisms is None:
        raise ConfigError(
            "clients' credentials go to the brokers by SASL, and no mechanism is named",
            key="--mechanisms",
            hint="Give --mechanisms, such as SCRAM-SHA-512",
        )
    host, port = _address(arguments.listen)
    try:
        parsed = parse_mechanisms(str(mechanisms))
    except ValueError as error:
        raise ConfigError(f"--mechanisms {error}", key="--mechanisms") from None
    return ServiceSettings(
        mechanisms=parsed,
        host=host,
        port=port,
        tls=None if arguments.tls_cert is None else TlsFiles(arguments.tls_cert, arguments.tls_key),
        proxies=_proxies(arguments.proxies),
        url_lifetime_s=arguments.url_lifetime,
        refresh_ms=arguments.refresh_ms,
        allowed_s=arguments.allowed_for,
        refused_s=arguments.refused_for,
        rate=arguments.rate,
        at_once=arguments.at_once,
        max_requests=arguments.max_requests,
        max_connections=arguments.max_connections,
        threads=arguments.threads,
        request_timeout_s=arguments.request_timeout,
        shutdown_timeout_s=arguments.shutdown_timeout,
    )


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    is_port = colon and port.isascii() and port.isdigit() and int(port) < 2**16
    if not is_port or not host:
        raise ConfigError("--listen: give HOST:PORT, such as 127.0.0.1:8090 or [::]:8090", key="--listen")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _proxies(text: str | None) -> str | None:
    """The list of `--proxies`, checked: `*` would let every client choose its address."""
    try:
        networks = [ip_network(part.strip()) for part in text.split(",")] if text is not None else []
    except ValueError as error:
        raise ConfigError(f"--proxies: {error}", key="--proxies") from None
    return ",".join(map(str, networks)) or None


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.propagate = False
        logger.addHandler(handler)
