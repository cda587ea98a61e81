"""Leases on objects that several readers of a process share: made for the first reader, closed with the last.

Rules of the file:

- Readers share an object only if every setting that decides what they may see is equal, credentials and callbacks too.
- Nothing is kept after the last reader.
- A forked process begins with no leases (design note 0013).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Leases", "key_of"]


class Closable(Protocol):
    """An object with `close`."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


@dataclass(slots=True)
class _Leased(Generic[T]):
    thing: T
    users: int


def key_of(properties: Mapping[str, Any]) -> Hashable:
    """A key that two client configurations share only if they are equal.

    A value that cannot be compared in a key is equal only to itself. It has to live as long as the key: the client that
    was made with it keeps it alive.
    """
    return frozenset((name, type(value), _identity(value)) for name, value in properties.items())


def _identity(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


class Leases(Generic[T]):
    """Objects under their keys, each with the number of its users. Thread-safe."""

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}
        self._leased: dict[tuple[int, Hashable], _Leased[T]] = {}

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """The object under a key, made if there is none. `make` must not block."""
        with self._lock():
            leased = self._leased.get((os.getpid(), key))
            if leased is None:
                leased = self._leased[os.getpid(), key] = _Leased(make(), 0)
            leased.users += 1
            return leased.thing

    def give_back(self, key: Hashable) -> None:
        """End one use of the object. When its last use ends, the object is closed.

        After a fork, this does nothing in the child for an object that the parent has leased.
        """
        with self._lock():
            leased = self._leased.get((os.getpid(), key))
            if leased is None:
                return
            leased.users -= 1
            if leased.users:
                return
            del self._leased[os.getpid(), key]
        leased.thing.close()

    def __len__(self) -> int:
        return len(self._leased)

    def _lock(self) -> threading.Lock:
        """The lock of this process. A fork copies a held lock but not the thread that holds it."""
        return self._locks.setdefault(os.getpid(), threading.Lock())
