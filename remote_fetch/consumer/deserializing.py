"""RemoteDeserializingConsumer: confluent_kafka's DeserializingConsumer over a RemoteConsumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from confluent_kafka import DeserializingConsumer

from remote_fetch.consumer.consumer import RemoteConsumer

__all__ = ["RemoteDeserializingConsumer"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    _Parent = DeserializingConsumer
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

    class _Parent(DeserializingConsumer, Generic[K, V]):
        """The current parent class. ddtrace replaces it by a class that is not generic."""


class RemoteDeserializingConsumer(_Parent[K, V], RemoteConsumer):  # type: ignore[misc]  # of __exit__
    """`confluent_kafka.DeserializingConsumer` that reads tiered data from the store; see `RemoteConsumer`.

    Takes the configuration of both: `key.deserializer`, `value.deserializer`, their builders, and the keys of
    remote-fetch. The class is generic in the types of keys and values, like its parent.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        DeserializingConsumer.__init__(self, conf)  # it calls RemoteConsumer's, by the method resolution order
