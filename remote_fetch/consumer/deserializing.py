"""RemoteDeserializingConsumer: confluent_kafka's DeserializingConsumer over a RemoteConsumer."""

from __future__ import annotations

from typing import Any

from confluent_kafka import DeserializingConsumer

from remote_fetch.consumer.consumer import RemoteConsumer

__all__ = ["RemoteDeserializingConsumer"]


class RemoteDeserializingConsumer(DeserializingConsumer, RemoteConsumer):  # type: ignore[misc]  # of __exit__
    """`confluent_kafka.DeserializingConsumer` that reads tiered data from the store; see `RemoteConsumer`.

    Takes the configuration of both: `key.deserializer`, `value.deserializer` and their builders beside the keys of
    remote-fetch.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        DeserializingConsumer.__init__(self, conf)  # by method resolution order, RemoteConsumer's comes next
