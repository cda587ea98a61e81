"""Grants and denials on a rig with access control.

Rules of the file:

- An operation without a grant is denied.
- A change waits until the brokers have it.
"""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.rig.rig import Rig
from tests.rig.topics import admin

__all__ = ["allow", "deny", "revoke_all"]

_TIMEOUT_S = 150


def allow(rig: Rig, user: str, operation: str, topic: str) -> None:
    """Grant a principal READ, WRITE, DESCRIBE ... on a topic. `*` stands for every topic."""
    _add(rig, user, operation, topic, AclPermissionType.ALLOW)


def deny(rig: Rig, user: str, operation: str, topic: str) -> None:
    """Deny the operation. A denial is stronger than any grant."""
    _add(rig, user, operation, topic, AclPermissionType.DENY)


def revoke_all(rig: Rig, user: str) -> None:
    """Remove every rule about a principal."""
    client = admin(rig)
    wanted = _filter(user)
    client.delete_acls([wanted])[wanted].result(_TIMEOUT_S)
    rig.until(f"no rules about {user}", lambda: not client.describe_acls(wanted).result(_TIMEOUT_S))


def _add(rig: Rig, user: str, operation: str, topic: str, permission: AclPermissionType) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        permission,
    )
    client = admin(rig)  # an answer needs its client alive
    client.create_acls([binding])[binding].result(_TIMEOUT_S)
    rig.until("the rule to hold", lambda: binding in client.describe_acls(_filter(user)).result(_TIMEOUT_S))


def _filter(user: str) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.TOPIC,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        f"User:{user}",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
