"""`auto.offset.reset`: where nothing is committed, and where what is wanted is not in the log."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, Message, TopicPartition

from tests.contract.kinds import Consumers
from tests.contract.material import Material, committed, is_end, offsets_of, poll_through, poll_until, read

BELOW, ABOVE = 10, 500
"""Before the start of the log of `trimmed`, and past its end."""

OFFSETS = {"missing": None, "below": BELOW, "above": ABOVE}


@pytest.fixture(params=OFFSETS)
def offset(request: pytest.FixtureRequest) -> int | None:
    """An offset that is not in the log, None for one that was never committed."""
    return OFFSETS[request.param]


def begin(consumers: Consumers, material: Material, offset: int | None, policy: str, how: str) -> tuple[object, ...]:
    """A consumer whose offset has to be reset, and its first message."""
    wanted = TopicPartition(material.trimmed, 0, OFFSET_INVALID if offset is None else offset)
    consumer = consumers(auto_offset_reset=policy, enable_partition_eof=True)
    if how == "assign":
        consumer.assign([wanted])
    else:
        if offset is not None:
            consumers.plain().commit(offsets=[wanted], asynchronous=False)
        consumer.subscribe([material.trimmed])
    return consumer, poll_through(consumer, lambda message: True)[0]


@pytest.mark.parametrize("how", ["assign", "subscribe"])
@pytest.mark.parametrize("policy", ["earliest", "smallest", "beginning"])
def test_to_the_earliest(consumers: Consumers, material: Material, offset: int | None, policy: str, how: str) -> None:
    consumer, first = begin(consumers, material, offset, policy, how)
    rest = read(consumer, material.end - material.log_start - 1)  # type: ignore[arg-type]
    assert offsets_of([first, *rest]) == [(0, number) for number in range(material.log_start, material.end)]  # type: ignore[list-item]


@pytest.mark.parametrize("how", ["assign", "subscribe"])
@pytest.mark.parametrize("policy", ["latest", "largest", "end"])
def test_to_the_latest(consumers: Consumers, material: Material, offset: int | None, policy: str, how: str) -> None:
    _, first = begin(consumers, material, offset, policy, how)
    assert is_end(first)  # type: ignore[arg-type]
    assert first.offset() == material.end  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["assign", "subscribe"])
def test_an_error(consumers: Consumers, material: Material, offset: int | None, how: str) -> None:
    _, first = begin(consumers, material, offset, "error", how)
    error = first.error()  # type: ignore[attr-defined]
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert (first.topic(), first.partition(), first.offset()) == (material.trimmed, 0, offset)  # type: ignore[attr-defined]


@pytest.mark.parametrize("offset", [BELOW, ABOVE])
def test_an_error_comes_once(consumers: Consumers, material: Material, offset: int) -> None:
    """Four seconds are more than twice the time after which RemoteConsumer repeats a hand-over without records."""
    consumer, _ = begin(consumers, material, offset, "error", "assign")
    second = consumer.poll(4)  # type: ignore[attr-defined]
    assert second is None, (second.error(), second.topic(), second.offset())


def test_the_errors_of_paused_partitions_without_a_committed_offset_come_once(
    consumers: Consumers, material: Material
) -> None:
    consumer = consumers(auto_offset_reset="error")

    def on_assign(who: Consumer, partitions: list[TopicPartition]) -> None:
        who.assign(partitions)
        who.pause(partitions)

    consumer.subscribe([material.topic], on_assign=on_assign)
    messages: list[Message] = []
    poll_until(consumer, "both errors", lambda: len(messages) == 2, messages)
    errors = [message.error() for message in messages]
    assert [error and error.code() for error in errors] == 2 * [KafkaError._AUTO_OFFSET_RESET]
    consumer.resume(consumer.assignment())
    assert consumer.poll(2) is None


@pytest.mark.parametrize("target", [BELOW, ABOVE])
@pytest.mark.parametrize("start", [70, 110])
@pytest.mark.parametrize("policy", ["earliest", "latest", "error"])
def test_a_seek_out_of_the_log(consumers: Consumers, material: Material, start: int, target: int, policy: str) -> None:
    consumer = consumers(auto_offset_reset=policy, enable_partition_eof=True)
    consumer.assign([TopicPartition(material.trimmed, 0, start)])
    read(consumer, 4)
    consumer.seek(TopicPartition(material.trimmed, 0, target))
    (message,) = poll_through(consumer, lambda message: True)
    error = message.error()
    if policy == "earliest":
        assert (error, message.offset()) == (None, material.log_start)
    elif policy == "latest":
        assert is_end(message)
    else:
        assert error is not None
        assert (error.code(), message.offset()) == (KafkaError._AUTO_OFFSET_RESET, target)


def test_the_policy_of_old(consumers: Consumers, material: Material) -> None:
    """The value in `default.topic.config` wins over the consumer's own."""
    config = {
        **consumers.config(),
        "default.topic.config": {"auto.offset.reset": "latest"},
        "enable.partition.eof": True,
    }
    consumer = consumers.keep(consumers.kind.consumer(config))
    consumer.assign([TopicPartition(material.trimmed, 0, BELOW)])
    (end,) = poll_through(consumer, lambda message: True)
    assert is_end(end)


def test_what_was_reset_is_committed(consumers: Consumers, material: Material) -> None:
    partition = TopicPartition(material.trimmed, 0)
    consumer = consumers()
    consumer.assign([TopicPartition(material.trimmed, 0, BELOW)])
    read(consumer, 5)
    consumer.commit(asynchronous=False)
    assert committed(consumers, partition) == material.log_start + 5
