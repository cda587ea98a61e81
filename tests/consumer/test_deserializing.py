"""RemoteDeserializingConsumer as a class, without a broker."""

from __future__ import annotations

from remote_fetch import RemoteDeserializingConsumer


def test_it_is_generic_in_keys_and_values_as_its_parent_is() -> None:
    consumer = RemoteDeserializingConsumer[str, int]({"group.id": "g"})
    assert type(consumer) is RemoteDeserializingConsumer
    consumer.close()
