"""The `Authorization` header as credentials for the brokers: a value that is never printed.

Rules of the file:

- Pure. Neither a message nor a representation has a part of the header.
- Characters that could break out of a SASL message (NUL, controls) are refused before any broker sees them.
- The name in a token is read without a check, for limits and log lines. The brokers alone judge the token.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remote_fetch.service.refusals import Refusal
from remote_fetch.session.principals import PASSWORD_MECHANISMS, TOKEN_MECHANISM

__all__ = ["Credentials", "challenge", "parse_authorization", "parse_mechanisms"]

_MAX_NAME_CHARS = 256
_MAX_PASSWORD_CHARS = 1024
_MAX_TOKEN_CHARS = 12 << 10
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters of a bearer token (RFC 6750, section 2.1)."""
_TOKEN_LIFE_MS = 3_600_000
"""Told to librdkafka, which wants to know when to renew a token. The connection ends after one answer."""
_UNPROVABLE = (
    "a client certificate (mTLS) or a Kerberos ticket (GSSAPI, Negotiate) cannot be handed on to the brokers, "
    "so the service cannot ask them for you"
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that a client has shown.

    `name` is the user, or the subject of a token as the token has it, "" if it has none.
    `secret` is the password or the token. It is in no representation.
    """

    mechanism: str
    name: str
    secret: str = field(repr=False)

    @property
    def is_token(self) -> bool:
        """Whether it is a token, whose name is what the client says."""
        return self.mechanism == TOKEN_MECHANISM

    def key_bytes(self, *more: str) -> bytes:
        """All that tells these credentials from others, with `more` texts, without ambiguity. Holds the secret."""
        parts = [part.encode() for part in (self.mechanism, self.name, self.secret, *more)]
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    def properties(self, now_s: float) -> Mapping[str, Any]:
        """librdkafka's properties of a connection with these credentials. They hold the secret."""
        if not self.is_token:
            return {"sasl.mechanism": self.mechanism, "sasl.username": self.name, "sasl.password": self.secret}
        secret, expires_s = self.secret, now_s + _TOKEN_LIFE_MS / 1000

        def give_token(config: str) -> tuple[str, float]:
            return secret, expires_s

        return {"sasl.mechanism": TOKEN_MECHANISM, "oauth_cb": give_token}


def parse_mechanisms(text: str) -> tuple[str, ...]:
    """The SASL mechanisms of a comma list. Raises ValueError that says which are possible."""
    found = tuple(dict.fromkeys(part.strip().upper() for part in text.split(",") if part.strip()))
    offered = (*PASSWORD_MECHANISMS, TOKEN_MECHANISM)
    strange = [name for name in found if name not in offered]
    if strange or not found:
        raise ValueError(f"{', '.join(strange) or 'nothing'}: choose among {', '.join(offered)}")
    if sum(name in PASSWORD_MECHANISMS for name in found) > 1:
        raise ValueError(f"{', '.join(found)}: passwords go to the brokers by one mechanism; name one of them")
    return found


def parse_authorization(headers: Sequence[bytes], mechanisms: Collection[str]) -> Credentials:
    """The credentials of a request, by its `Authorization` headers. `mechanisms` are those of the service.

    Raises Refusal (401) for none, several, malformed ones, and schemes that the service cannot use.
    """
    by_password = next((name for name in mechanisms if name in PASSWORD_MECHANISMS), None)
    offered = _challenges(mechanisms)
    if not headers:
        raise _unauthorized(f"credentials are needed, as the brokers take them ({offered}); {_UNPROVABLE}", mechanisms)
    if len(headers) > 1:
        raise _unauthorized("the request has several Authorization headers", mechanisms)
    scheme, _, value = headers[0].decode("latin-1").partition(" ")
    if scheme.lower() == "basic" and by_password is not None:
        return _of_basic(by_password, value.strip(), mechanisms)
    if scheme.lower() == "bearer" and TOKEN_MECHANISM in mechanisms:
        return _of_bearer(value.strip(), mechanisms)
    if scheme.lower() == "negotiate":
        raise _unauthorized(f"Negotiate is refused: {_UNPROVABLE}; use {offered}", mechanisms)
    raise _unauthorized(f"this scheme of Authorization is not taken here; use {offered}", mechanisms)


def _of_basic(mechanism: str, value: str, mechanisms: Collection[str]) -> Credentials:
    try:
        name, _, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        raise _unauthorized("Authorization: Basic is not base64 of UTF-8", mechanisms) from None
    if not name or not password:
        raise _unauthorized("Authorization: Basic has to be USER:PASSWORD", mechanisms)
    if len(name) > _MAX_NAME_CHARS or len(password) > _MAX_PASSWORD_CHARS:
        raise _unauthorized(
            f"a user name has at most {_MAX_NAME_CHARS} characters, a password {_MAX_PASSWORD_CHARS}", mechanisms
        )
    if not name.isprintable() or any(ord(character) < 32 or ord(character) == 127 for character in password):
        raise _unauthorized("a user name or password with control characters", mechanisms)
    return Credentials(mechanism, name, password)


def _of_bearer(token: str, mechanisms: Collection[str]) -> Credentials:
    if len(token) > _MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise _unauthorized(f"Authorization: Bearer is no token of at most {_MAX_TOKEN_CHARS} characters", mechanisms)
    return Credentials(TOKEN_MECHANISM, _subject(token), token)


def _subject(token: str) -> str:
    """The `sub` of a JSON Web Token, unchecked; "" if the token is none, or has none."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))) if len(parts) == 3 else {}
        subject = claims.get("sub") if isinstance(claims, dict) else None
    except (ValueError, RecursionError):
        return ""
    return subject if isinstance(subject, str) and subject.isprintable() and len(subject) <= _MAX_NAME_CHARS else ""


def _challenges(mechanisms: Collection[str]) -> str:
    schemes = ["Basic with user and password"] * any(name in PASSWORD_MECHANISMS for name in mechanisms)
    return " or ".join([*schemes, *["Bearer with a token"] * (TOKEN_MECHANISM in mechanisms)])


def _unauthorized(message: str, mechanisms: Collection[str]) -> Refusal:
    return Refusal(401, "UNAUTHENTICATED", message, headers=challenge(mechanisms))


def challenge(mechanisms: Collection[str]) -> dict[str, str]:
    """The header of a 401 that names the schemes which the service takes."""
    schemes = ['Basic realm="remote-fetch", charset="UTF-8"'] * any(name in PASSWORD_MECHANISMS for name in mechanisms)
    schemes += ['Bearer realm="remote-fetch"'] * (TOKEN_MECHANISM in mechanisms)
    return {"WWW-Authenticate": ", ".join(schemes)}
