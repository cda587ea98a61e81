"""Arguments that are refused, before and after `close`: the same exceptions, and the same words where C says them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.cases import each_of
from tests.contract.kinds import Consumers
from tests.contract.material import Material, committed, offsets_of, read

pytestmark = pytest.mark.switched_off


class OwnPartition(TopicPartition):
    """A partition, yet not of the very class."""


class OwnMessage(Message):
    """A message, yet not of the very class."""


PARTITION = TopicPartition("nowhere", 0, 5)
FAILED = Message("nowhere", 0, 5, error=KafkaError(KafkaError._PARTITION_EOF))

LISTS = ("assign", "incremental_assign", "incremental_unassign", "pause", "resume", "position", "committed")
NO_LISTS = [None, "text", 5, (PARTITION,), PARTITION]
NO_PARTITIONS = [5, None, "text", OwnPartition("nowhere", 0, 5)]


@pytest.fixture
def consumer(consumers: Consumers) -> Consumer:
    """A consumer for all cases of a test: each is refused, and leaves the consumer as it was."""
    return consumers()


@pytest.fixture(params=[True, False], ids=["stores", "does not store"])
def either(request: pytest.FixtureRequest, consumers: Consumers) -> Consumer:
    """A consumer that stores the offsets of what it delivers, and one that does not."""
    return consumers(enable_auto_offset_store=request.param)


@each_of("method", [*LISTS, "offsets_for_times"])
@each_of("argument", NO_LISTS, ids=lambda value: type(value).__name__)
def test_no_list_of_partitions(consumer: Consumer, method: str, argument: Any) -> None:
    with pytest.raises(TypeError, match="requires list of TopicPartition"):
        getattr(consumer, method)(argument)


@each_of("method", [*LISTS, "offsets_for_times"])
@each_of("item", NO_PARTITIONS, ids=lambda value: type(value).__name__)
def test_a_list_of_something_else(consumer: Consumer, method: str, item: Any) -> None:
    with pytest.raises(TypeError, match=r"expected cimpl\.TopicPartition"):
        getattr(consumer, method)([item])


@each_of("method", ["seek", "get_watermark_offsets"])
@each_of("item", [*NO_PARTITIONS, [PARTITION]], ids=lambda value: type(value).__name__)
def test_no_partition(consumer: Consumer, method: str, item: Any) -> None:
    with pytest.raises(TypeError, match=r"expected cimpl\.TopicPartition"):
        getattr(consumer, method)(item)


@each_of("method", ["assign", "incremental_assign", "incremental_unassign"])
def test_assigning_takes_no_keyword(consumer: Consumer, method: str) -> None:
    with pytest.raises(TypeError):
        getattr(consumer, method)(partitions=[])


@each_of(
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
def test_too_few_and_too_many(consumer: Consumer, method: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(consumer, method)(*arguments)


@each_of("method", ["commit", "consume", "poll", "store_offsets", "subscribe", "seek", "pause"])
def test_an_unknown_keyword(consumer: Consumer, method: str) -> None:
    with pytest.raises(TypeError):
        getattr(consumer, method)(unknown=1)


@each_of("topics", [None, "topic", 5, ("topic",)])
def test_subscribing_to_no_list(consumer: Consumer, topics: Any) -> None:
    with pytest.raises(TypeError, match="expected list of topic unicode strings"):
        consumer.subscribe(topics)


@each_of("topics", [[], [""], ["^("]])
def test_subscribing_to_nothing(consumer: Consumer, topics: list[str]) -> None:
    with pytest.raises(KafkaException, match="Failed to set subscription") as caught:
        consumer.subscribe(topics)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG


@each_of("name", ["on_assign", "on_revoke", "on_lost"])
@each_of("callback", [None, 5, "text"])
def test_a_callback_that_cannot_be_called(consumer: Consumer, name: str, callback: Any) -> None:
    keywords: Any = {name: callback}
    with pytest.raises(TypeError, match=f"{name} expects a callable"):
        consumer.subscribe(["topic"], **keywords)


class Whole:
    """A number of another library's."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


class Short:
    """A time of another library's."""

    def __float__(self) -> float:
        return 0.01


WAITS: list[Callable[[Consumer, Any], object]] = [
    lambda consumer, timeout: consumer.poll(timeout),
    lambda consumer, timeout: consumer.poll(timeout=timeout),
    lambda consumer, timeout: consumer.consume(1, timeout),
    lambda consumer, timeout: consumer.consume(timeout=timeout),
    lambda consumer, timeout: consumer.get_watermark_offsets(PARTITION, timeout, True),
    lambda consumer, timeout: consumer.get_watermark_offsets(PARTITION, timeout=timeout, cached=True),
]


@each_of("wait", WAITS)
@each_of("timeout", [None, "1", b"1", [], 1j, object()])
def test_a_timeout_that_is_no_number(consumer: Consumer, wait: Callable[..., object], timeout: Any) -> None:
    with pytest.raises(TypeError, match=f"must be real number, not {type(timeout).__name__}"):
        wait(consumer, timeout)


@each_of("wait", WAITS)
@each_of("timeout", [Decimal("0.01"), Fraction(1, 100), Short(), Whole(1), True, 0])
def test_a_timeout_that_is_no_float(consumer: Consumer, wait: Callable[..., object], timeout: Any) -> None:
    assert wait(consumer, timeout) in (None, [], (-1001, -1001))


def test_a_timeout_that_is_too_large_for_a_float(consumer: Consumer) -> None:
    with pytest.raises(OverflowError, match="int too large to convert to float"):
        consumer.poll(10**400)


@pytest.mark.parametrize("start", [30, 110])
def test_a_wrong_timeout_loses_no_record(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    assert offsets_of(read(consumer, 3)) == [(0, offset) for offset in range(start, start + 3)]
    timeout: Any = None
    with pytest.raises(TypeError, match="must be real number, not NoneType"):
        consumer.poll(timeout)
    assert offsets_of(read(consumer, 1)) == [(0, start + 3)]


@each_of("count", [-1, 1_000_001])
def test_consuming_too_many(consumer: Consumer, count: int) -> None:
    with pytest.raises(ValueError, match=r"num_messages must be between 0 and 1000000 \(1M\)"):
        consumer.consume(count, 0)


@each_of("count", [None, "one", 1.5])
def test_consuming_no_number(consumer: Consumer, count: Any) -> None:
    with pytest.raises(TypeError, match=f"'{type(count).__name__}' object cannot be interpreted as an integer"):
        consumer.consume(count, 0)


@pytest.mark.parametrize("start", [30, 110])
def test_consuming_a_number_that_is_no_int(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    found = consumer.consume(Whole(3), 30)  # type: ignore[arg-type]
    assert [message.offset() for message in found] == [start, start + 1, start + 2]
    consumer.close()
    assert committed(consumers, material.at()) == start + 3


@each_of("method", ["commit", "store_offsets"])
@each_of(
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
def test_neither_message_nor_offsets(
    either: Consumer, method: str, keywords: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        getattr(either, method)(**keywords)


@each_of("keywords", [{}, {"message": None}, {"message": None, "offsets": None}])
def test_storing_nothing(either: Consumer, keywords: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected either message or offsets"):
        either.store_offsets(**keywords)


@each_of("keywords", [{"message": Message("nowhere", 0, 5)}, {"offsets": [PARTITION]}, {"offsets": []}])
def test_storing_where_the_consumer_does(consumer: Consumer, keywords: dict[str, Any]) -> None:
    with pytest.raises(KafkaException) as caught:
        consumer.store_offsets(**keywords)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert caught.value.args[0].str() == "StoreOffsets failed: Local: Invalid argument or configuration"


@each_of("arguments", [("user", None), (None, "password")])
def test_credentials_that_are_no_text(consumer: Consumer, arguments: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match="must be str, not None"):
        consumer.set_sasl_credentials(*arguments)


def test_a_topic_that_is_no_text(consumer: Consumer) -> None:
    topic: Any = 5
    with pytest.raises(TypeError, match="argument 1 must be str or None, not int"):
        consumer.list_topics(topic)
