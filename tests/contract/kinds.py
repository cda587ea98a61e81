"""The three consumers under contract: the parent, RemoteConsumer switched off, RemoteConsumer switched on.

Rules of the file:

- The kinds differ only in their class and in the keys of remote-fetch.
- All consumers and producers of a test are closed at its end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, DeserializingConsumer

from remote_fetch import RemoteConsumer
from remote_fetch.consumer.deserializing import RemoteDeserializingConsumer
from tests.rig.rig import Rig
from tests.rig.topics import QUIET

__all__ = ["KINDS", "Consumers", "Kind", "unique"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the three. `enabled` is `fetch.remote.enabled`, None for the class that does not know the key."""

    name: str
    consumer: type[Consumer]
    deserializing: Callable[[dict[str, Any]], Any]
    enabled: bool | None

    def keys(self, rig: Rig) -> dict[str, Any]:
        """The keys of remote-fetch."""
        if self.enabled is None:
            return {}
        return {"fetch.remote.enabled": self.enabled, "remote.storage.url": str(rig.remote)}


KINDS = (
    Kind("plain", Consumer, DeserializingConsumer, None),
    Kind("off", RemoteConsumer, RemoteDeserializingConsumer, False),
    Kind("on", RemoteConsumer, RemoteDeserializingConsumer, True),
)


def unique(name: str) -> str:
    """A unique name, for a group or a topic."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


class Consumers:
    """Makes consumers of one kind. All consumers of a test are in the same group, `group`, which no other test uses."""

    def __init__(self, rig: Rig, kind: Kind) -> None:
        self.rig, self.kind = rig, kind
        self.group = unique("contract")
        self._made: list[Any] = []

    def config(self, **more: Any) -> dict[str, Any]:
        """A configuration: underscores of the names stand for dots, but in those of callbacks."""
        return {
            "bootstrap.servers": self.rig.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            **QUIET,
            **self.kind.keys(self.rig),
            **{name if callable(value) else name.replace("_", "."): value for name, value in more.items()},
        }

    def __call__(self, **more: Any) -> Consumer:
        """A consumer."""
        consumer: Consumer = self.keep(self.kind.consumer(self.config(**more)))
        return consumer

    def keep(self, consumer: Any) -> Any:
        """The consumer, which is closed when the test ends."""
        self._made.append(consumer)
        return consumer

    def plain(self, **more: Any) -> Consumer:
        """A `confluent_kafka.Consumer`, of whatever kind the others are: the one to ask what was committed."""
        keys = self.kind.keys(self.rig)
        config = {name: value for name, value in self.config(**more).items() if name not in keys}
        consumer: Consumer = self.keep(Consumer(config))
        return consumer

    def close(self) -> None:
        """Close the consumers that a test has left open."""
        for consumer in self._made:
            consumer.close()
