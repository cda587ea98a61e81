"""`cat -G` without brokers: when a member ends, and which offsets it stores."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.cli.group import _group_config, _Member
from remote_fetch.cli.typed import typed_rows
from remote_fetch.consumer.consumer import RemoteConsumer
from remote_fetch.errors import ConfigError, UnknownTopic

Rebalanced = Callable[[Any, Iterable[TopicPartition]], None]


@dataclass(frozen=True)
class Message:
    """A record, or the end of a partition."""

    at: int
    number: int = 0
    code: int | None = None
    says: str | None = None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code, self.says)

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


def end(number: int) -> Message:
    return Message(9, number, KafkaError._PARTITION_EOF)


@dataclass
class Group:
    """The consumer of a member. Each `consume` takes the next step of the script: messages, or a rebalance."""

    script: Sequence[Sequence[Message] | tuple[str, Sequence[int]]]
    stored: list[tuple[int, int]] = field(default_factory=list)
    taken: int = 0

    def subscribe(self, topics: list[str], on_assign: Rebalanced, on_revoke: Rebalanced) -> None:
        self.called = {"assign": on_assign, "revoke": on_revoke}

    def consume(self, count: int, timeout: float) -> list[Message]:
        step = self.script[self.taken]
        self.taken += 1
        if isinstance(step, tuple):
            what, numbers = step
            self.called[what](self, [TopicPartition("topic", number) for number in numbers])
            return []
        return [*step]

    def store_offsets(self, message: Message) -> None:
        self.stored.append((message.partition(), message.offset() + 1))


def member_of(group: Group, *, exits: bool = True, stores: bool = True) -> _Member:
    return _Member(cast(RemoteConsumer, group), ["topic"], quiet=True, exits=exits, stores=stores)


def test_a_member_without_partitions_waits_for_some() -> None:
    """In a cooperative group the first assignment is empty. An eager rebalance takes all partitions for a while."""
    group = Group(
        [
            ("assign", []),
            ("assign", [0, 1]),
            [end(0)],
            ("revoke", [0, 1]),
            ("assign", [1]),
            [Message(0, 1)],
            [end(1)],
        ]
    )
    assert [batch.num_rows for batch in member_of(group).batches(None)] == [1]
    assert group.taken == len(group.script)


@pytest.mark.parametrize("stores", [True, False])
def test_offsets_of_printed_records_are_stored(stores: bool) -> None:
    group = Group([[Message(0), Message(5, 1), Message(1), Message(2), Message(6, 1)], [Message(3)]])
    member = member_of(group, stores=stores)
    batches = member.batches(6)
    assert next(batches).num_rows == 5
    assert group.stored == []
    member.printed(3)
    assert group.stored == ([(0, 2), (1, 6)] if stores else [])
    assert next(batches).num_rows == 1
    member.printed(1)
    assert group.stored[2:] == ([(0, 4)] if stores else [])


def test_records_before_an_error_are_printed_and_the_error_names_its_topic() -> None:
    """Records behind it are not: to store their offsets would pass over what the error is about."""
    failed = Message(1, 1, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    batches = member_of(Group([[Message(0), Message(0, 1), failed, Message(1)]])).batches(None)
    assert next(batches).num_rows == 2
    with pytest.raises(KafkaException, match=r"topic \[1\]: Broker: Topic authorization failed") as raised:
        next(batches)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_an_error_that_names_its_topic_is_kept() -> None:
    """A topic that is not there has no partition, though librdkafka gives the error one."""
    failed = Message(0, 0, KafkaError.UNKNOWN_TOPIC_OR_PART, "Subscribed topic not available: topic")
    with pytest.raises(KafkaException) as raised:
        next(member_of(Group([[failed]])).batches(None))
    assert raised.value.args[0].str() == failed.says


def test_topics_may_be_an_expression() -> None:
    """librdkafka takes a name that begins with ^ for one, as kcat says."""
    assert typed_rows({}, ["^orders-.*", "clicks"]) is None
    avro = {"value.format": "avro-confluent", "schema.registry.url": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match="several topics are read by one schema"):
        typed_rows(avro, ["^orders-.*"])  # no subject has the name of an expression
    with pytest.raises(UnknownTopic, match="is not a topic name"):
        typed_rows({}, ["orders-.*"])


def test_a_topic_that_is_not_utf8_never_comes_to_librdkafka() -> None:
    with pytest.raises(ConfigError, match="the name is not UTF-8"):
        _group_config(argparse.Namespace(), {"bootstrap.servers": "127.0.0.1:1"}, ["orders", "\udcff"])
