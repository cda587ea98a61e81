"""Arguments that are refused, before and after `close`: the same exceptions, and the same words where C says them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tests.contract.kinds import Consumers
from tests.contract.material import Material


class OwnPartition(TopicPartition):
    """A partition, yet not of the very class."""


class OwnMessage(Message):
    """A message, yet not of the very class."""


PARTITION = TopicPartition("nowhere", 0, 5)
FAILED = Message("nowhere", 0, 5, error=KafkaError(KafkaError._PARTITION_EOF))

LISTS = ("assign", "incremental_assign", "incremental_unassign", "pause", "resume", "position", "committed")
NO_LISTS = [None, "text", 5, (PARTITION,), PARTITION]
NO_PARTITIONS = [5, None, "text", OwnPartition("nowhere", 0, 5)]


@pytest.mark.parametrize("method", [*LISTS, "offsets_for_times"])
@pytest.mark.parametrize("argument", NO_LISTS, ids=lambda value: type(value).__name__)
def test_no_list_of_partitions(consumers: Consumers, method: str, argument: Any) -> None:
    with pytest.raises(TypeError, match="requires list of TopicPartition"):
        getattr(consumers(), method)(argument)


@pytest.mark.parametrize("method", [*LISTS, "offsets_for_times"])
@pytest.mark.parametrize("item", NO_PARTITIONS, ids=lambda value: type(value).__name__)
def test_a_list_of_something_else(consumers: Consumers, method: str, item: Any) -> None:
    with pytest.raises(TypeError, match=r"expected cimpl\.TopicPartition"):
        getattr(consumers(), method)([item])


@pytest.mark.parametrize("method", ["seek", "get_watermark_offsets"])
@pytest.mark.parametrize("item", [*NO_PARTITIONS, [PARTITION]], ids=lambda value: type(value).__name__)
def test_no_partition(consumers: Consumers, method: str, item: Any) -> None:
    with pytest.raises(TypeError, match=r"expected cimpl\.TopicPartition"):
        getattr(consumers(), method)(item)


@pytest.mark.parametrize("method", ["assign", "incremental_assign", "incremental_unassign"])
def test_assigning_takes_no_keyword(consumers: Consumers, method: str) -> None:
    with pytest.raises(TypeError):
        getattr(consumers(), method)(partitions=[])


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("assign", ()),
        ("close", (1,)),
        ("committed", ()),
        ("consume", (1, 0, 0)),
        ("get_watermark_offsets", ()),
        ("memberid", (1,)),
        ("pause", ()),
        ("poll", (0, 0)),
        ("position", ()),
        ("resume", ()),
        ("seek", ()),
        ("set_sasl_credentials", ("user",)),
        ("store_offsets", (None, None, None)),
        ("subscribe", ()),
        ("subscribe", (["a"], print, print, print, print)),
        ("unassign", (1,)),
        ("unsubscribe", (1,)),
        ("__exit__", ()),
    ],
)
def test_too_few_and_too_many(consumers: Consumers, method: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(consumers(), method)(*arguments)


@pytest.mark.parametrize("method", ["commit", "consume", "poll", "store_offsets", "subscribe", "seek", "pause"])
def test_an_unknown_keyword(consumers: Consumers, method: str) -> None:
    with pytest.raises(TypeError):
        getattr(consumers(), method)(unknown=1)


@pytest.mark.parametrize("topics", [None, "topic", 5, ("topic",)])
def test_subscribing_to_no_list(consumers: Consumers, topics: Any) -> None:
    with pytest.raises(TypeError, match="expected list of topic unicode strings"):
        consumers().subscribe(topics)


@pytest.mark.parametrize("topics", [[], [""], ["^("]])
def test_subscribing_to_nothing(consumers: Consumers, topics: list[str]) -> None:
    with pytest.raises(KafkaException, match="Failed to set subscription") as caught:
        consumers().subscribe(topics)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
@pytest.mark.parametrize("callback", [None, 5, "text"])
def test_a_callback_that_cannot_be_called(consumers: Consumers, name: str, callback: Any) -> None:
    keywords: Any = {name: callback}
    with pytest.raises(TypeError, match=f"{name} expects a callable"):
        consumers().subscribe(["topic"], **keywords)


@pytest.mark.parametrize("timeout", [None, "soon"])
def test_a_timeout_that_is_no_number(consumers: Consumers, timeout: Any) -> None:
    consumer = consumers()
    with pytest.raises(TypeError):
        consumer.poll(timeout)
    with pytest.raises(TypeError):
        consumer.consume(1, timeout)
    with pytest.raises(TypeError):
        consumer.get_watermark_offsets(PARTITION, timeout)


@pytest.mark.parametrize("count", [-1, 1_000_001])
def test_consuming_too_many(consumers: Consumers, count: int) -> None:
    with pytest.raises(ValueError, match=r"num_messages must be between 0 and 1000000 \(1M\)"):
        consumers().consume(count, 0)


@pytest.mark.parametrize("count", [None, "one", 1.5])
def test_consuming_no_number(consumers: Consumers, count: Any) -> None:
    with pytest.raises(TypeError, match=f"'{type(count).__name__}' object cannot be interpreted as an integer"):
        consumers().consume(count, 0)


class Three:
    """A number of another library's."""

    def __index__(self) -> int:
        return 3


@pytest.mark.parametrize("start", [30, 110])
def test_consuming_a_number_that_is_no_int(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    found = consumer.consume(Three(), 30)  # type: ignore[arg-type]
    assert [message.offset() for message in found] == [start, start + 1, start + 2]
    consumer.close()
    assert consumers.plain().committed([material.at()], 30)[0].offset == start + 3


@pytest.mark.parametrize("method", ["commit", "store_offsets"])
@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"message": 5}, TypeError, r"expected confluent_kafka\.cimpl\.Message"),
        ({"message": OwnMessage("nowhere", 0, 5)}, TypeError, r"expected confluent_kafka\.cimpl\.Message"),
        ({"offsets": 5}, TypeError, "requires list of TopicPartition"),
        ({"offsets": PARTITION}, TypeError, "requires list of TopicPartition"),
        ({"offsets": [5]}, TypeError, r"expected cimpl\.TopicPartition"),
        (
            {"message": Message("nowhere", 0, 5), "offsets": [PARTITION]},
            ValueError,
            "message and offsets are mutually exclusive",
        ),
        ({"message": FAILED}, KafkaException, "offsets for message with error: 'Broker: No more messages'"),
    ],
    ids=["message", "own message", "no list", "partition", "no partitions", "both", "failed message"],
)
@pytest.mark.parametrize("stores", [True, False])
def test_neither_message_nor_offsets(
    consumers: Consumers, method: str, keywords: dict[str, Any], error: type[Exception], says: str, stores: bool
) -> None:
    consumer = consumers(enable_auto_offset_store=stores)
    with pytest.raises(error, match=says):
        getattr(consumer, method)(**keywords)


@pytest.mark.parametrize("keywords", [{}, {"message": None}, {"message": None, "offsets": None}])
@pytest.mark.parametrize("stores", [True, False])
def test_storing_nothing(consumers: Consumers, keywords: dict[str, Any], stores: bool) -> None:
    with pytest.raises(ValueError, match="expected either message or offsets"):
        consumers(enable_auto_offset_store=stores).store_offsets(**keywords)


@pytest.mark.parametrize("keywords", [{"message": Message("nowhere", 0, 5)}, {"offsets": [PARTITION]}, {"offsets": []}])
def test_storing_where_the_consumer_does(consumers: Consumers, keywords: dict[str, Any]) -> None:
    with pytest.raises(KafkaException) as caught:
        consumers().store_offsets(**keywords)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert caught.value.args[0].str() == "StoreOffsets failed: Local: Invalid argument or configuration"


@pytest.mark.parametrize("arguments", [("user", None), (None, "password")])
def test_credentials_that_are_no_text(consumers: Consumers, arguments: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match="must be str, not None"):
        consumers().set_sasl_credentials(*arguments)


def test_a_topic_that_is_no_text(consumers: Consumers) -> None:
    topic: Any = 5
    with pytest.raises(TypeError, match="argument 1 must be str or None, not int"):
        consumers().list_topics(topic)
