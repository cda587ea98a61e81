"""Translates librdkafka's settings of a connection to kafka-python's: addresses, encryption, authentication.

Rules of the file:

- A setting without a counterpart is named, never dropped. No connection may be less protected than librdkafka's own.
- A setting counts only if librdkafka reads it under this protocol and mechanism.
- None and "" stand for no setting. Of two names of one setting the last that was set counts, as in librdkafka.
- Messages hold names of settings, never a value that could be a secret.
- kafka-python is not imported.
"""

from __future__ import annotations

import importlib.util
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remote_fetch.config.client import OTHER_NAMES
from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault

__all__ = ["PASSWORD_MECHANISMS", "TOKEN_MECHANISM", "given_settings", "map_properties", "tls_context"]

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms that take a user name and a password."""
TOKEN_MECHANISM = "OAUTHBEARER"
"""The SASL mechanism that takes a token."""


class _Secret(str):
    """A password with a masked repr, because the client's debug log prints its whole configuration."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


_ALIASES = {**OTHER_NAMES, "sasl.mechanisms": "sasl.mechanism"}
_PASSWORDS = {"sasl.username": "sasl_plain_username", "sasl.password": "sasl_plain_password"}
_SASL: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(PASSWORD_MECHANISMS, _PASSWORDS),
    "GSSAPI": {"sasl.kerberos.service.name": "sasl_kerberos_service_name"},
    TOKEN_MECHANISM: {},
}
_SASL_SEEN = frozenset({"sasl.mechanism", "sasl.oauthbearer.config"})
_SASL_OF = {
    "sasl.username": PASSWORD_MECHANISMS,
    "sasl.password": PASSWORD_MECHANISMS,
    "sasl.kerberos.": ("GSSAPI",),
    "sasl.oauthbearer.": (TOKEN_MECHANISM,),
    "enable.sasl.oauthbearer.": (TOKEN_MECHANISM,),
}
"""Prefixes of settings that librdkafka reads only for these mechanisms."""
_TLS_PREFIXES = ("ssl.", "ssl_", "enable.ssl.")
_TLS = frozenset(
    {
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
    }
)


def given_settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that librdkafka's `properties` have, each under one name: `bootstrap.servers`, `sasl.mechanism`."""
    return {_ALIASES.get(name, name): value for name, value in properties.items() if value is not None and value != ""}


def map_properties(properties: Mapping[str, Any], token_provider: type) -> dict[str, Any]:
    """kafka-python's settings for librdkafka's `properties`.

    `token_provider` is kafka-python's base class of token providers. Raises ConfigError without `bootstrap.servers`,
    if settings would be lost, and for files of keys and certificates that cannot be used.
    """
    given = given_settings(properties)
    servers = given.get("bootstrap.servers")
    if servers is None:
        raise ConfigError("a channel to the brokers needs bootstrap.servers", key="bootstrap.servers")
    protocol = str(given.get("security.protocol", "plaintext")).upper()
    settings: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in str(servers).split(",") if server.strip()],
        "client_id": str(given.get("client.id", "remote-fetch")),
        "security_protocol": protocol,
    }
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise _without_counterpart([f"security.protocol={protocol}"])
    lost: list[str] = []
    if protocol.startswith("SASL"):
        settings |= _map_sasl(given, token_provider, lost)
    if protocol.endswith("SSL"):
        lost += (name for name in given if name.startswith(_TLS_PREFIXES) and name not in _TLS)
    if lost:
        raise _without_counterpart(sorted(lost))
    if protocol.endswith("SSL"):
        try:
            settings["ssl_context"] = tls_context(given)
        except (OSError, ValueError) as error:  # a file of keys that is missing or not a file of keys
            raise ConfigError(f"the TLS settings cannot be used: {error}", key="ssl") from error
    return settings


def _without_counterpart(names: Sequence[str]) -> ConfigError:
    """The error about settings that would be lost: their names, or `name=value` if only that value would be."""
    return ConfigError(
        f"kafka-python has no counterpart of what is configured: {', '.join(names)}",
        key=names[0],
        hint="Use remote.locator=metadata-topic, which asks through librdkafka",
    )


def _map_sasl(given: Mapping[str, Any], token_provider: type, lost: list[str]) -> dict[str, Any]:
    mechanism = str(given.get("sasl.mechanism", "GSSAPI")).upper()
    if mechanism not in _SASL:
        lost.append(f"sasl.mechanism={mechanism}")
        return {}
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    names = _SASL[mechanism]
    for name, value in given.items():
        if name in names:
            settings[names[name]] = _Secret(value) if name == "sasl.password" else str(value)
        elif name == "sasl.oauthbearer.method" and str(value) == "default":
            continue
        elif _is_sasl(name, mechanism) and name not in _SASL_SEEN:
            lost.append(name)
    if mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
        lost.append("sasl.mechanism=GSSAPI (which needs the package gssapi)")
    if mechanism == TOKEN_MECHANISM:
        callback, config = given.get("oauth_cb"), str(given.get("sasl.oauthbearer.config", ""))
        if callable(callback):
            settings["sasl_oauth_token_provider"] = _provider_of(callback, config, token_provider)
        elif not lost:
            lost.append("sasl.mechanism=OAUTHBEARER without oauth_cb")
    return settings


def _is_sasl(name: str, mechanism: str) -> bool:
    """Whether librdkafka reads a setting for this mechanism. An unknown setting counts as read."""
    if not name.startswith(("sasl.", "enable.sasl.")):
        return False
    return all(mechanism in readers for prefix, readers in _SASL_OF.items() if name.startswith(prefix))


def _provider_of(callback: Callable[[str], tuple[Any, ...]], config: str, token_provider: type) -> Any:
    """An `oauth_cb` as a token provider of kafka-python, which calls it for each connection and keeps no token."""

    def answer_of_callback() -> tuple[Any, ...]:
        try:
            return callback(config)
        except Exception as error:  # the application's callback may raise any class; kafka-python logs its text
            raise ValueError(f"oauth_cb gave no token: it raised {type(error).__name__}") from None

    class TokenProvider(token_provider):  # type: ignore[misc]
        def token(self) -> str:
            return str(answer_of_callback()[0])

        def extensions(self) -> dict[str, str]:
            answer = answer_of_callback()
            return dict(answer[3]) if len(answer) > 3 else {}

    return TokenProvider()


def tls_context(given: Mapping[str, Any]) -> ssl.SSLContext:
    """The TLS settings of `given_settings`. Raises ValueError that names the files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if str(given.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(given.get("enable.ssl.certificate.verification", True)).lower() in ("false", "f", "no", "0"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    authorities = given.get("ssl.ca.location", "probe")
    if authorities != "probe":
        is_folder = Path(authorities).is_dir()
        with _naming(f"ssl.ca.location={authorities}"):
            context.load_verify_locations(**{"capath" if is_folder else "cafile": str(authorities)})
    elif "ssl.ca.pem" not in given:
        context.load_default_certs()
    if "ssl.ca.pem" in given:
        with _naming("ssl.ca.pem"):
            # Python takes only ASCII. Comments between the certificates may have other characters.
            text = str(given["ssl.ca.pem"]).encode("ascii", "replace").decode("ascii")
            context.load_verify_locations(cadata=text)
    if "ssl.crl.location" in given:
        with _naming(f"ssl.crl.location={given['ssl.crl.location']}"):
            context.load_verify_locations(cafile=str(given["ssl.crl.location"]))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if "ssl.certificate.location" in given:
        password = str(given.get("ssl.key.password", ""))  # never None: OpenSSL would ask at the terminal
        files = [f"{key}={given[key]}" for key in ("ssl.certificate.location", "ssl.key.location") if key in given]
        with _naming(*files):
            context.load_cert_chain(given["ssl.certificate.location"], given.get("ssl.key.location"), password)
    if "ssl.cipher.suites" in given:
        context.set_ciphers(str(given["ssl.cipher.suites"]))
    return context


@contextmanager
def _naming(*settings: str) -> Iterator[None]:
    """Raise a fault with the settings to which it belongs. Python's error names neither a setting nor a file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{', '.join(settings)}: {file_fault(error)}") from error
