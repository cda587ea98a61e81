"""RemoteDeserializingConsumer beside DeserializingConsumer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, DeserializingConsumer, Message
from confluent_kafka.error import ConsumeError, ValueDeserializationError

from tests.contract.kinds import Consumers
from tests.contract.material import Material, call_until_it_raises, committed, is_end, poll_through, read

pytestmark = pytest.mark.switched_off


def size(value: bytes | None, _: Any) -> int | None:
    """The class to which the tests deserialize."""
    return None if value is None else len(value)


def failing(value: bytes | None, _: Any) -> int:
    """A deserializer that does not like what it gets."""
    raise ValueError(f"not {value!r}")


def make(consumers: Consumers, **more: Any) -> Any:
    keys = {name.replace("__", "."): value for name, value in more.items()}
    return consumers.keep(consumers.kind.deserializing({**consumers.config(), **keys}))


def test_what_it_is(consumers: Consumers) -> None:
    consumer = make(consumers)
    assert isinstance(consumer, DeserializingConsumer)
    assert isinstance(consumer, Consumer)


def test_keys_and_values(consumers: Consumers, material: Material) -> None:
    plain = consumers.plain()
    plain.assign([material.at(0)])
    expected = [(size(one.key(), None), size(one.value(), None)) for one in read(plain, material.end)]
    consumer = make(consumers, key__deserializer=size, value__deserializer=size)
    consumer.assign([material.at(0)])
    messages: list[Any] = read(consumer, material.end)
    assert [(message.key(), message.value()) for message in messages] == expected
    assert {type(message) for message in messages} == {Message}
    assert [message.offset() for message in messages] == list(range(material.end))
    consumer.commit(messages[-1], asynchronous=False)


def test_without_deserializers(consumers: Consumers, material: Material) -> None:
    plain, consumer = consumers.plain(), make(consumers)
    for one in (plain, consumer):
        one.assign([material.at(90)])
    assert read(consumer, 30) == read(plain, 30)


@pytest.mark.parametrize("start", [0, 110])
def test_what_cannot_be_deserialized(consumers: Consumers, material: Material, start: int) -> None:
    consumer = make(consumers, value__deserializer=failing)
    consumer.assign([material.at(start)])
    with pytest.raises(ValueDeserializationError) as caught:
        call_until_it_raises(lambda: consumer.poll(0.1))
    message: Any = caught.value.kafka_message
    assert message.offset() == start


def test_an_error_is_raised(consumers: Consumers, material: Material) -> None:
    consumer = make(consumers, **{"enable.partition.eof": True})
    consumer.assign([material.at(118)])
    with pytest.raises(ConsumeError) as caught:
        poll_through(consumer, is_end)
    message: Any = caught.value.kafka_message
    assert is_end(message)


def test_consume_is_not_offered(consumers: Consumers) -> None:
    with pytest.raises(NotImplementedError):
        make(consumers).consume()


def test_closing(consumers: Consumers, material: Material) -> None:
    with make(consumers, value__deserializer=size) as consumer:
        consumer.assign([material.at(95)])
        read(consumer, 8)
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)
    assert committed(consumers, material.at()) == 103
