"""AsyncRemoteDeserializingConsumer: confluent_kafka's AsyncDeserializingConsumer over a RemoteConsumer.

Rules of the file:

- The parent builds, calls and closes deserializers.
- The parent's constructor makes a consumer that connects to nothing. It is replaced before the application sees it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka.aio import AsyncDeserializingConsumer

from remote_fetch.consumer.aio import AIORemoteConsumer

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

__all__ = ["AsyncRemoteDeserializingConsumer"]

_DESERIALIZERS = ("key.deserializer", "value.deserializer")


class _Builder:
    """Calls a builder with the application's configuration, and keeps the configuration that the builder returns."""

    def __init__(self, builder: Any, configuration: Mapping[str, Any]) -> None:
        self._builder = builder
        self._configuration = configuration
        self.remaining: Mapping[str, Any] = configuration

    async def build(self, shell: dict[str, Any], is_key: bool) -> Any:
        """Call the builder with the application's configuration, and keep the configuration that it returns.

        Return `shell` in its place, because the parent makes a temporary consumer of it.
        """
        built = self._builder.build(dict(self._configuration), is_key)
        if inspect.isawaitable(built):
            built = await built
        if not (isinstance(built, tuple) and len(built) == 2 and isinstance(built[1], dict)):
            return built  # the parent refuses it with its own message
        deserializer, self.remaining = built
        return deserializer, shell


class AsyncRemoteDeserializingConsumer(AsyncDeserializingConsumer[K, V], AIORemoteConsumer):
    """`confluent_kafka.aio.AsyncDeserializingConsumer` that reads tiered data from the store; see `RemoteConsumer`.

        consumer = await AsyncRemoteDeserializingConsumer[str, User]({...})

    Takes the parent's arguments and `observer`. `conf` may have the keys of remote-fetch. The class is generic in the
    types of keys and values, like its parent. Raises the errors of `RemoteConsumer`, and ValueError as the parent does.
    """

    async def _begin(self, conf: dict[str, Any], **kwargs: Any) -> None:
        theirs = {f"{name}{kind}" for name in _DESERIALIZERS for kind in ("", ".builder")}
        configuration = {name: value for name, value in conf.items() if name not in theirs}
        deserializers = {name: conf[name] for name in theirs & conf.keys()}
        builders = []
        for name in (f"{name}.builder" for name in _DESERIALIZERS):
            if deserializers.get(name) is not None:
                deserializers[name] = builder = _Builder(deserializers[name], configuration)
                builders.append(builder)
        await AsyncDeserializingConsumer.__init__(self, {**deserializers, "group.id": "none"}, max_workers=1)
        self._consumer.close()
        self.executor.shutdown(wait=False)
        for builder in builders:  # the consumer gets the keys that no builder took out
            configuration = {name: value for name, value in builder.remaining.items() if name in configuration}
        try:
            AIORemoteConsumer.__init__(self, configuration, **kwargs)
        except BaseException:
            self._closed = True
            with contextlib.suppress(Exception):
                await self.close()  # closes the deserializers that were built
            raise

    __init__ = _begin  # the parent awaits `__init__`, but a type checker refuses a coroutine of that name
