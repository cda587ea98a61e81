"""A broker that authenticates its clients: SASL over TLS with SCRAM, PLAIN and tokens, and ACLs for all of them.

Rules of the file:

- A client of the plain listener is the administrator. Only tests use it.
- Every principal of `USERS` exists under each mechanism, with the same name and password. A principal has no
  permission without a grant (tests/rig/acls.py).
- Tokens are unsecured JSON Web Tokens, which Kafka's own validator for developers accepts.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tests.rig.certificates import Certificates

__all__ = ["USERS", "add_users", "client", "properties", "token_of"]

USERS = {"service": "service-secret", "reader": "reader-secret", "stranger": "stranger-secret"}
"""The principals and their passwords."""

_LISTENER = "listener.name.sasl_ssl"
_MODULES = "org.apache.kafka.common.security"
_TIMEOUT_S = 150
_LIFE_S = 3600


def properties(certificates: Certificates) -> dict[str, str]:
    """The broker's properties."""
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        f"{_LISTENER}.ssl.keystore.type": "PEM",
        f"{_LISTENER}.ssl.keystore.location": str(certificates.both),
        f"{_LISTENER}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};",
        f"{_LISTENER}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{_LISTENER}.oauthbearer.sasl.jaas.config": (
            f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }


def add_users(bootstrap: str) -> None:
    """Give every principal its SCRAM credentials, and wait until the broker has them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password.encode(), b"salt" + name.encode()
        )
        for name, password in USERS.items()
    ]
    for done in admin.alter_user_scram_credentials(changes).values():
        done.result(_TIMEOUT_S)


def client(bootstrap: str, authority: Path, user: str, mechanism: str) -> dict[str, Any]:
    """A client's configuration. `user` need not exist."""
    common = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(authority),
    }
    if mechanism == "OAUTHBEARER":
        return {**common, "oauth_cb": token_of(user)}
    return {**common, "sasl.username": user, "sasl.password": USERS.get(user, "wrong")}


def token_of(user: str) -> Callable[[str], tuple[str, float]]:
    """An `oauth_cb` that gives unsecured tokens of a principal."""

    def give(config: str) -> tuple[str, float]:
        now_s = time.time()
        expires_s = now_s + _LIFE_S
        claims = {"sub": user, "iat": now_s, "exp": expires_s}
        parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
        return b".".join((*parts, b"")).decode(), expires_s

    return give
