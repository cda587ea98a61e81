"""How a consumer is made: every form of its arguments, and what is refused, in the same words."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.cimpl import Consumer as Parent

from tests.cases import each_of
from tests.contract.kinds import Consumers

pytestmark = pytest.mark.switched_off

_WRONG = {"session.timeout.ms": "soon"}


def refused(consumers: Consumers, **more: Any) -> str:
    """The error of librdkafka for a configuration."""
    with pytest.raises(KafkaException) as caught:
        consumers(**more)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    return str(caught.value.args[0].str())


def test_a_dict(consumers: Consumers) -> None:
    config = consumers.config()
    before = dict(config)
    consumer = consumers.keep(consumers.kind.consumer(config))
    assert type(consumer) is consumers.kind.consumer
    assert isinstance(consumer, Consumer)
    assert isinstance(consumer, Parent)
    assert config == before


def test_keywords_win_over_the_dict(consumers: Consumers) -> None:
    make: Any = consumers.kind.consumer
    consumers.keep(make({**consumers.config(), **_WRONG}, **{"session.timeout.ms": 6000}))
    with pytest.raises(KafkaException):
        make(consumers.config(), **_WRONG)


def test_keywords_alone(consumers: Consumers) -> None:
    make: Any = consumers.kind.consumer
    consumers.keep(make(**consumers.config()))


def test_keywords_are_taken_as_they_are(consumers: Consumers) -> None:
    make: Any = consumers.kind.consumer
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        make(bootstrap_servers="127.0.0.1:1", group_id="g")


def test_a_logger_as_keyword(consumers: Consumers) -> None:
    make: Any = consumers.kind.consumer
    consumers.keep(make(consumers.config(), logger=logging.getLogger("contract")))


@each_of("argument", [1, None, "text", [("group.id", "g")], MappingProxyType({"group.id": "g"})])
def test_one_argument_that_is_no_dict(consumers: Consumers, argument: Any) -> None:
    with pytest.raises(TypeError, match="expected configuration dict"):
        consumers.kind.consumer(argument)


def test_no_argument_and_too_many(consumers: Consumers) -> None:
    make: Any = consumers.kind.consumer
    with pytest.raises(TypeError, match="expected configuration dict"):
        make()
    with pytest.raises(TypeError, match="expected tuple containing single dict"):
        make(consumers.config(), {})


@each_of("config", [{}, {"bootstrap.servers": "127.0.0.1:1"}])
def test_no_group(consumers: Consumers, config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Failed to create consumer: group\.id must be set"):
        consumers.kind.consumer({**consumers.kind.keys(consumers.rig), **config})


def test_an_unknown_key(consumers: Consumers) -> None:
    assert refused(consumers, no_such_key=1) == 'No such configuration property: "no.such.key"'


@each_of(
    ("key", "value", "says"),
    [
        ("session.timeout.ms", "soon", 'Invalid value for configuration property "session.timeout.ms"'),
        ("auto.offset.reset", "none", 'Invalid value "none" for configuration property "auto.offset.reset"'),
        ("isolation.level", "none", 'Invalid value "none" for configuration property "isolation.level"'),
        ("enable.auto.commit", "perhaps", 'Expected bool value for "enable.auto.commit": true or false'),
        ("enable.auto.offset.store", "perhaps", 'Expected bool value for "enable.auto.offset.store": true or false'),
        ("auto.offset.reset", None, 'Configuration property "auto.offset.reset" cannot be set to empty value'),
        (
            "enable.auto.offset.store",
            None,
            'Bool configuration property "enable.auto.offset.store" cannot be set to empty value',
        ),
        ("on_commit", 1, "on_commit requires a callable object"),
        (
            "default.topic.config",
            {"auto.offset.reset": "none"},
            'Invalid value "none" for configuration property "auto.offset.reset"',
        ),
    ],
)
def test_a_wrong_value(consumers: Consumers, key: str, value: Any, says: str) -> None:
    with pytest.raises(KafkaException) as caught:
        consumers.kind.consumer({**consumers.config(), key: value})
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert caught.value.args[0].str() == says


@each_of(("key", "error"), [("error_cb", TypeError), ("stats_cb", TypeError)])
def test_a_callback_that_cannot_be_called(consumers: Consumers, key: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"expected {key} property as a callable function"):
        consumers.kind.consumer({**consumers.config(), key: 1})


def test_topic_defaults_that_are_no_dict(consumers: Consumers) -> None:
    with pytest.raises(AttributeError, match="'int' object has no attribute 'keys'"):
        consumers.kind.consumer({**consumers.config(), "default.topic.config": 1})


@each_of(
    ("key", "value"),
    [
        ("auto.offset.reset", "EARLIEST"),
        ("auto.offset.reset", " smallest"),
        ("isolation.level", "READ_uncommitted"),
        ("enable.auto.offset.store", "T"),
        ("enable.auto.offset.store", "f"),
        ("enable.auto.commit", 0),
        ("client.id", None),
        ("default.topic.config", {"auto.offset.reset": "end"}),
    ],
)
def test_every_spelling_of_a_right_value(consumers: Consumers, key: str, value: Any) -> None:
    consumers.keep(consumers.kind.consumer({**consumers.config(), key: value}))


def test_made_twice(consumers: Consumers) -> None:
    consumer = consumers()
    with pytest.raises(RuntimeError, match="Consumer already initialized"):
        Consumer.__init__(consumer, consumers.config(group_id="another"))
    make: Any = type(consumer)
    with pytest.raises(RuntimeError, match="Consumer already initialized"):
        make.__init__(consumer, consumers.config(group_id="another"))
    assert consumer.poll(0) is None


def test_a_subclass_that_makes_nothing(consumers: Consumers) -> None:
    base: Any = consumers.kind.consumer

    class Lazy(base):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    with pytest.raises(RuntimeError, match="Consumer closed"):
        Lazy().poll(0)
    assert Lazy().close() is None
