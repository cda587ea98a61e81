"""AIORemoteConsumer beside AIOConsumer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.aio import AIOConsumer, AsyncDeserializingConsumer

from remote_fetch import AIORemoteConsumer, AsyncRemoteDeserializingConsumer
from remote_fetch.errors import ConfigError
from tests.contract.kinds import KINDS, Consumers
from tests.contract.material import TIMEOUT_S, Material, read


def make(consumers: Consumers, **more: Any) -> Any:
    """To be called in a running loop."""
    made = AIOConsumer if consumers.kind.enabled is None else AIORemoteConsumer
    return made(consumers.config(**more), max_workers=4)


async def read_all(consumer: Any, count: int) -> list[Message]:
    messages: list[Message] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(messages) < count:
            messages += await consumer.consume(count - len(messages), 0.1)
    return messages


def test_a_group_whose_callbacks_assign(consumers: Consumers, material: Material) -> None:
    """Calls of a callback run in another thread than the call that it interrupts."""
    plain = consumers.plain()
    plain.assign(material.both(0))
    expected = sorted(read(plain, 2 * material.end), key=lambda one: (one.partition(), one.offset()))

    async def run() -> tuple[list[Message], list[TopicPartition]]:
        consumer = make(consumers)
        revoked: list[TopicPartition] = []

        async def on_assign(_: Any, partitions: list[TopicPartition]) -> None:
            assert {one.topic for one in partitions} == {material.topic}
            await consumer.assign([TopicPartition(one.topic, one.partition, 0) for one in partitions])
            assert len(await consumer.assignment()) == 2

        async def on_revoke(_: Any, partitions: list[TopicPartition]) -> None:
            revoked.extend(partitions)

        await consumer.subscribe([material.topic], on_assign=on_assign, on_revoke=on_revoke)
        messages = await read_all(consumer, 2 * material.end)
        await consumer.commit(asynchronous=False)
        committed = await consumer.committed(material.both())
        await consumer.close()
        assert len(revoked) == 2
        return messages, committed

    messages, committed = asyncio.run(run())
    assert sorted(messages, key=lambda one: (one.partition(), one.offset())) == expected
    assert [one.offset for one in committed] == [material.end, material.end]


def test_calls_at_the_same_time(consumers: Consumers, material: Material) -> None:
    """Each waits for the one before it, whatever is awaited with what."""

    async def run() -> list[int]:
        consumer = make(consumers)
        await consumer.assign([material.at(0)])
        offsets: list[int] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(offsets) < material.end:
                several = [consumer.consume(7, 0.1), consumer.position([material.at()]), consumer.consume(5, 0.1)]
                first, _, second = await asyncio.gather(*several)
                offsets += sorted(message.offset() for message in (*first, *second))
        (position,) = await consumer.position([material.at()])
        assert position.offset == material.end
        await consumer.close()
        return offsets

    assert asyncio.run(run()) == list(range(material.end))


def test_deserialized(consumers: Consumers, material: Material) -> None:
    """By deserializers that are awaited, and by such that are not."""
    plain = consumers.plain()
    plain.assign([material.at(0)])
    expected = [(str(one.key()), len(one.value() or b"")) for one in read(plain, material.end)]
    made: Any = AsyncDeserializingConsumer if consumers.kind.enabled is None else AsyncRemoteDeserializingConsumer

    async def key(key: bytes | None, _: Any) -> str:
        return str(key)

    def value(value: bytes | None, _: Any) -> int:
        return len(value or b"")

    async def run() -> list[tuple[str, int]]:
        config = {**consumers.config(), "key.deserializer": key, "value.deserializer": value}
        async with await made(config, max_workers=4) as consumer:
            await consumer.assign([material.at(0)])
            messages: list[Any] = []
            async with asyncio.timeout(TIMEOUT_S):
                while not messages:
                    messages = [one for one in [await consumer.poll(0.1)] if one is not None]
            messages += await read_all(consumer, material.end - 1)
            return [(one.key(), one.value()) for one in messages]

    assert asyncio.run(run()) == expected


def test_callbacks_of_the_configuration(consumers: Consumers, material: Material) -> None:
    """They are called in the loop."""

    async def run() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []

        async def stats_cb(text: str) -> None:
            assert asyncio.get_running_loop() is loop
            told.append(json.loads(text))

        loop = asyncio.get_running_loop()
        consumer = make(consumers, statistics_interval_ms=50, stats_cb=stats_cb)
        await consumer.assign([material.at(0)])
        await read_all(consumer, material.end)
        async with asyncio.timeout(TIMEOUT_S):
            while not told:
                await consumer.poll(0.1)
        await consumer.close()
        return told

    assert "brokers" in asyncio.run(run())[-1]


@pytest.mark.parametrize("kind", [one for one in KINDS if one.enabled], ids=lambda kind: kind.name)
def test_what_was_read_from_where(consumers: Consumers, material: Material) -> None:
    async def run() -> dict[str, Any]:
        async with make(consumers) as consumer:
            await consumer.assign([material.at(0)])
            await read_all(consumer, material.end)
            found: dict[str, Any] = consumer.remote_metrics()
            return found

    metrics = asyncio.run(run())
    assert metrics["broker-records-total"] == material.end - material.tier_end
    assert metrics["remote-fetch-requests-total"] > 0


@pytest.mark.parametrize("kind", [one for one in KINDS if one.enabled is not None], ids=lambda kind: kind.name)
def test_a_wrong_configuration(consumers: Consumers) -> None:
    async def run() -> None:
        make(consumers, fetch_remote_enabled="perhaps")

    with pytest.raises(ConfigError, match=r"fetch\.remote\.enabled"):
        asyncio.run(run())
