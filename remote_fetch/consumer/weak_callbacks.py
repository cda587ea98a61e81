"""Callbacks of the application that the session calls, and that keep no consumer alive.

A callback may be a method of an object that has the consumer. The session is held by its threads, so a callback that
the session holds would never be garbage-collected, nor would the consumer.

Rules of the file:

- The consumer itself holds the callbacks, as the parent does.
- Stand-ins of the same callback are equal, because consumers with equal settings share clients (design note 0013). A
  shared client calls the stand-in of the first consumer, also after that consumer has gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

from remote_fetch.config import Config

__all__ = ["weakly", "with_weak_callbacks"]


class _StandIn:
    """Calls the callback as long as a consumer holds it, and then does nothing.

    Each `object.method` makes a new method of the same function and object, so both are referenced. Python has one
    plain reference for each object. So equal stand-ins have the same references, and stay equal when these are dead.
    """

    def __init__(self, callback: Callable[..., Any]) -> None:
        parts = (callback.__func__, callback.__self__) if isinstance(callback, MethodType) else (callback,)
        self._references: tuple[weakref.ref[Any], ...] = tuple(map(weakref.ref, parts))
        self._key = tuple(map(id, self._references))

    def __call__(self, *arguments: Any) -> Any:
        callback, *owner = parts = [reference() for reference in self._references]
        return None if callback is None or parts[-1] is None else callback(*owner, *arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StandIn) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def weakly(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The stand-in for a callback. The callback itself if Python can hold it only in the usual way."""
    try:
        return _StandIn(callback)
    except TypeError:
        return callback


def with_weak_callbacks(config: Config) -> Config:
    """The configuration with stand-ins for its callbacks: `oauth_cb`, and those below `remote.locator.`."""
    given = {**config.ours(), **config.librdkafka}
    return Config.parse({name: weakly(value) if callable(value) else value for name, value in given.items()})
