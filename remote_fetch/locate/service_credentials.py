"""The `Authorization` of a client towards the service: the credentials that it has for the brokers.

Rules of the file:

- The service asks the brokers in the client's name, so it needs credentials that it can hand on: a user with a password
  (SASL PLAIN, SCRAM), or a token (OAUTHBEARER). Other ones are refused, with the reason.
- A token comes from the application's `oauth_cb`, called as confluent_kafka calls it, by one thread at a time.
- Messages hold names of settings, never their values.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError, StorageDenied
from remote_fetch.failures.shared_failure import SharedQuestion
from remote_fetch.locate.broker_settings import PASSWORD_MECHANISMS, TOKEN_MECHANISM, given_settings
from remote_fetch.locate.tokens import TokenCache

__all__ = ["ServiceCredentials"]

_USER, _PASSWORD = "sasl.username", "sasl.password"


class ServiceCredentials:
    """The credentials in librdkafka's `properties`. Raises ConfigError if the service can do nothing with them."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._tokens: TokenCache | None = None
        self._asking = SharedQuestion()
        self._basic = ""
        given = given_settings(properties)
        mechanism = _mechanism(given)
        if mechanism == TOKEN_MECHANISM:
            self._tokens = _tokens(given)
        elif mechanism in PASSWORD_MECHANISMS:
            self.set_password(_needed(given, _USER, mechanism), _needed(given, _PASSWORD, mechanism))
        elif mechanism == "GSSAPI":
            raise _refused(
                "sasl.mechanism",
                "GSSAPI (Kerberos) is a ticket for the brokers, which the service cannot use in the client's name",
            )
        else:
            raise _refused("sasl.mechanism", f"{mechanism} is not a mechanism that the service knows")

    def set_password(self, username: str, password: str) -> None:
        """Use another user and password from now on (`set_sasl_credentials`). Without effect beside a token."""
        if ":" in username:
            raise ConfigError("a user name with a colon cannot be sent by HTTP (RFC 7617)", key=_USER)
        self._basic = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")

    def authorization(self) -> str:
        """The header's value. Raises StorageDenied if `oauth_cb` gives no token that can be sent."""
        if self._tokens is None:
            return self._basic
        with self._asking.turn(StorageDenied):
            answer = _answer_of(self._tokens)
        token = str(answer[0])
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise StorageDenied("oauth_cb gave a token that cannot be sent by HTTP")
        if len(answer) > 3 and answer[3]:
            raise ConfigError(
                "oauth_cb gave SASL extensions, which the service cannot hand on to the brokers", key="oauth_cb"
            )
        return f"Bearer {token}"


def _answer_of(tokens: TokenCache) -> tuple[Any, ...]:
    try:
        return tokens.answer
    except Exception as error:  # the application's callback may raise any class; its text may hold a secret
        raise StorageDenied(f"oauth_cb gave no token for the service: it raised {type(error).__name__}") from None


def _mechanism(given: Mapping[str, Any]) -> str:
    """The mechanism that librdkafka would use. Raises ConfigError if it would use none."""
    protocol = str(given.get("security.protocol", "plaintext")).lower()
    if protocol.startswith("sasl"):
        return str(given.get("sasl.mechanism", "GSSAPI")).strip().upper()
    if protocol == "ssl":
        raise _refused(
            "security.protocol",
            "a client certificate (mTLS) proves itself to the brokers alone, and the service cannot show it to them",
        )
    raise _refused("security.protocol", f"{protocol} has no credentials that the service could hold against the ACLs")


def _needed(given: Mapping[str, Any], name: str, mechanism: str) -> str:
    if name not in given:
        raise ConfigError(f"remote.locator=service with sasl.mechanism={mechanism} needs {name}", key=name)
    return str(given[name])


def _tokens(given: Mapping[str, Any]) -> TokenCache:
    tokens = TokenCache.of(given)
    if tokens is not None:
        return tokens
    raise ConfigError(
        "remote.locator=service with sasl.mechanism=OAUTHBEARER needs oauth_cb",
        key="oauth_cb",
        hint="librdkafka keeps the tokens that it gets itself (sasl.oauthbearer.method=oidc, unsecured tokens, AWS): "
        "give the application's own callback, which returns (token, expiry)",
    )


def _refused(key: str, why: str) -> ConfigError:
    return ConfigError(
        f"remote.locator=service: {why}",
        key=key,
        hint="Use SASL PLAIN, SCRAM or OAUTHBEARER; remote.locator.security.protocol, remote.locator.sasl.mechanism, "
        "remote.locator.sasl.username and remote.locator.sasl.password set them for the service alone",
    )
