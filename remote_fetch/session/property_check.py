"""Asks librdkafka whether it knows the configuration keys that do not belong to this package.

Rules of the file:

- Only names and values are checked. No connection is made.
- The check calls no callback and no logger of the application.
- The check requests no token. If the token server failed once, a reader that could connect later would be refused.
- confluent_kafka is imported only if there is anything to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from remote_fetch.config.client import MECHANISM_NAMES, takes_tokens, with_own, word_of
from remote_fetch.errors import ConfigError

__all__ = ["check_properties"]

_LEFT_OUT = ("bootstrap.servers", "metadata.broker.list", "debug", "logger")
"""Keys that are left out of the check. With them a client would connect, or write to the log."""
_FOR_A_TOKEN = (*MECHANISM_NAMES, "security.protocol", "sasl.oauthbearer.metadata.authentication.type")
"""Keys with which a new client requests a token. librdkafka requests it with the method `oidc`. confluent_kafka
requests it with a callback of the application, or with its own callback for AWS."""


def check_properties(properties: Mapping[str, Any], own: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raise ConfigError for a property that librdkafka does not know or whose value it refuses.

    `own` are those of the locator's client, which has the others too. The error then names their prefix.
    """
    _check(properties, "the configuration")
    if own:
        _check(with_own(properties, own), "a property under remote.locator.")


def _check(properties: Mapping[str, Any], what: str) -> None:
    if not properties:
        return
    _check_token_source(properties)
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only if there is something to check

    from remote_fetch.kafka_clients import Consumer  # noqa: PLC0415 - as above

    left_out = (*_LEFT_OUT, *_FOR_A_TOKEN) if _needs_token(properties) else _LEFT_OUT
    checked = {name: value for name, value in properties.items() if name not in left_out and not callable(value)}
    try:
        Consumer({"group.id": "remote-fetch-check", "log_level": 0, **checked}).close()
    except KafkaException as error:
        hint = "Keys that are not remote-fetch's own (`remote-fetch config keys`) are handed to librdkafka"
        is_sasl = word_of(properties, "security.protocol", "").startswith("sasl")
        if is_sasl and properties.keys().isdisjoint(MECHANISM_NAMES):
            hint = f"Without sasl.mechanism librdkafka takes GSSAPI: set it, such as to SCRAM-SHA-512 or PLAIN. {hint}"
        raise ConfigError(f"librdkafka refuses {what}: {error.args[0].str()}", hint=hint) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"librdkafka refuses {what}: {error}") from error


def _check_token_source(properties: Mapping[str, Any]) -> None:
    """Raise ConfigError if a client would wait for a token that nothing gives. librdkafka does not report that."""
    if not takes_tokens(properties):
        return
    is_given = (
        callable(properties.get("oauth_cb")),
        word_of(properties, "sasl.oauthbearer.method", "default") != "default",
        word_of(properties, "sasl.oauthbearer.metadata.authentication.type", "none") != "none",
        word_of(properties, "enable.sasl.oauthbearer.unsecure.jwt", "false") not in ("false", "f", "0"),
        "plugin.library.paths" in properties,  # a library may set a callback of its own
    )
    if not any(is_given):
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER: nothing gives tokens",
            key="sasl.mechanism",
            hint="Set sasl.oauthbearer.method=oidc and sasl.oauthbearer.token.endpoint.url, or oauth_cb in Python",
        )


def _needs_token(properties: Mapping[str, Any]) -> bool:
    mechanisms = {str(properties[name]).strip().upper() for name in MECHANISM_NAMES if name in properties}
    return "OAUTHBEARER" in mechanisms or callable(properties.get("oauth_cb"))
