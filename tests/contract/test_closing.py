"""The end of a consumer: `close`, the `with` statement, and what a closed one says."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.cases import each_of
from tests.contract.kinds import Consumers
from tests.contract.material import Material, poll_until, read

pytestmark = pytest.mark.switched_off

PARTITION = TopicPartition("nowhere", 0, 5)


@pytest.fixture
def closed(consumers: Consumers) -> Consumer:
    """A consumer that was closed, for all cases of a test."""
    consumer = consumers()
    consumer.close()
    return consumer


@each_of(
    ("method", "arguments"),
    [
        ("assign", ([],)),
        ("assign", ("text",)),
        ("assignment", ()),
        ("commit", ()),
        ("committed", ([PARTITION],)),
        ("consume", ()),
        ("consume", (0,)),
        ("consumer_group_metadata", ()),
        ("get_watermark_offsets", (PARTITION,)),
        ("incremental_assign", ([],)),
        ("incremental_unassign", ([],)),
        ("memberid", ()),
        ("offsets_for_times", ([PARTITION],)),
        ("pause", ([],)),
        ("poll", ()),
        ("position", ([],)),
        ("resume", ([],)),
        ("seek", (PARTITION,)),
        ("seek", ("text",)),
        ("store_offsets", ()),
        ("subscribe", (["topic"],)),
        ("unassign", ()),
        ("unsubscribe", ()),
    ],
)
def test_a_closed_consumer(closed: Consumer, method: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(RuntimeError, match=r"^Consumer closed$"):
        getattr(closed, method)(*arguments)


@each_of(
    ("method", "arguments"), [("list_topics", ()), ("cluster_id", ()), ("set_sasl_credentials", ("user", "password"))]
)
def test_a_closed_handle(closed: Consumer, method: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(RuntimeError, match=r"^Handle has been closed$"):
        getattr(closed, method)(*arguments)


def test_closing_twice(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign(material.both(0))
    read(consumer, 30)
    consumer.close()
    consumer.close()


def test_closing_while_it_reads(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign(material.both(0))
    consumer.poll(0)
    consumer.close()


def test_the_with_statement(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    with consumer as entered:
        assert entered is consumer
        consumer.assign([material.at(0)])
        read(consumer, 1)
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)


def test_the_with_statement_hides_no_error(consumers: Consumers) -> None:
    consumer = consumers()
    with pytest.raises(ZeroDivisionError), consumer:
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.assignment()


def test_a_closed_consumer_can_be_entered(consumers: Consumers) -> None:
    consumer = consumers()
    consumer.close()
    assert consumer.__enter__() is consumer
    assert consumer.__exit__(None, None, None) is None


def test_closing_revokes(consumers: Consumers, material: Material) -> None:
    revoked: list[Any] = []
    consumer = consumers()
    consumer.subscribe([material.topic], on_revoke=lambda who, partitions: revoked.append((who, partitions)))
    poll_until(consumer, "an assignment", consumer.assignment)
    consumer.close()
    ((who, partitions),) = revoked
    assert who is consumer
    assert sorted(partitions) == material.both()
