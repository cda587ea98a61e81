"""AsyncRemoteDeserializingConsumer without a broker: what its builders get, and which deserializers it closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka.aio import AsyncDeserializingConsumer

from remote_fetch import AsyncRemoteDeserializingConsumer
from remote_fetch.consumer.aio import AIORemoteConsumer
from remote_fetch.errors import ConfigError

CONFIG: dict[str, Any] = {"group.id": "g", "registry.url": "http://r", "fetch.remote.enabled": False}


class Deserializer:
    is_closed = False

    def __call__(self, value: bytes | None, _: Any) -> bytes | None:
        return value

    def close(self) -> None:
        self.is_closed = True


class Builder:
    """Takes `registry.url` out of the configuration, as the builders of Schema Registry do."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.deserializer = Deserializer()

    def build(self, configuration: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        self.given = {**configuration, "is_key": is_key}
        del configuration["registry.url"]
        return self.deserializer, configuration


class AsyncBuilder(Builder):
    async def build(self, configuration: dict[str, Any], is_key: bool) -> Any:  # type: ignore[override]
        return super().build(configuration, is_key)


def metrics_of(configuration: dict[str, Any]) -> Any:
    """The metrics of a new consumer, which is closed."""

    async def run() -> Any:
        async with await AsyncRemoteDeserializingConsumer(configuration, max_workers=2) as consumer:
            assert isinstance(consumer, AsyncDeserializingConsumer)
            assert isinstance(consumer, AIORemoteConsumer)
            assert await consumer.poll(0) is None
            assert await consumer.consume(1, 0) == []
            return consumer.remote_metrics()

    return asyncio.run(run())


@pytest.mark.parametrize("kind", [Builder, AsyncBuilder])
def test_a_builder_gets_the_configuration_and_the_consumer_the_remaining_keys(kind: type[Builder]) -> None:
    key, value = kind(), kind()
    configuration = {**CONFIG, "key.deserializer.builder": key, "value.deserializer.builder": value}
    assert metrics_of(configuration)["group"] == "g"
    assert (key.given, value.given) == ({**CONFIG, "is_key": True}, {**CONFIG, "is_key": False})
    assert key.deserializer.is_closed
    assert value.deserializer.is_closed


def test_a_deserializer_of_the_application_is_not_closed() -> None:
    deserializer = Deserializer()
    assert metrics_of({"group.id": "g", "value.deserializer": deserializer})["group"] == "g"
    assert not deserializer.is_closed


def test_a_built_deserializer_is_closed_if_the_configuration_is_wrong() -> None:
    builder = Builder()
    with pytest.raises(ConfigError, match=r"fetch\.remote\.enabled"):
        metrics_of({**CONFIG, "fetch.remote.enabled": "perhaps", "value.deserializer.builder": builder})
    assert builder.deserializer.is_closed


@pytest.mark.parametrize("built", [None, ("a deserializer", "no configuration")])
def test_the_parent_refuses_a_wrong_result_of_a_builder(built: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Builder, "build", lambda *_: built)
    with pytest.raises(ValueError, match=r"value\.deserializer\.builder"):
        metrics_of({**CONFIG, "value.deserializer.builder": Builder()})


def test_it_is_generic_in_keys_and_values_as_its_parent_is() -> None:
    async def run() -> None:
        consumer = await AsyncRemoteDeserializingConsumer[str, int]({"group.id": "g"})
        await consumer.close()

    asyncio.run(run())
