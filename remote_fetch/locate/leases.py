"""What several readers of a process have together: made for the first of them, closed with the last.

Rules of the file: readers have something together only if all that decides what they may see is the same, credentials
and callbacks included; nothing is kept after the last of them; a forked process begins with nothing (design note 0013).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Leases", "key_of"]


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


@dataclass(slots=True)
class _Leased(Generic[T]):
    thing: T
    users: int


def key_of(properties: Mapping[str, Any]) -> Hashable:
    """What two client configurations have in common only if they are the same.

    Callbacks and other objects are the same only if they are one object. So they have to live as long as the key, which
    they do in the client that was made with them.
    """
    return frozenset((name, type(value), _identity(value)) for name, value in properties.items())


def _identity(value: object) -> Hashable:
    return value if isinstance(value, str | int | float) else id(value)


class Leases(Generic[T]):
    """Things under their keys, with the number of those who use them. Thread-safe."""

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}
        self._leased: dict[tuple[int, Hashable], _Leased[T]] = {}

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """The thing under a key, made if there is none. `make` waits for nothing."""
        with self._lock():
            leased = self._leased.get((os.getpid(), key))
            if leased is None:
                leased = self._leased[os.getpid(), key] = _Leased(make(), 0)
            leased.users += 1
            return leased.thing

    def give_back(self, key: Hashable) -> None:
        """It is used once less; the last who gives it back closes it. One that another process has taken is left."""
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
        """This process's own: a fork copies a lock as it is, also if a thread holds it that is not copied."""
        return self._locks.setdefault(os.getpid(), threading.Lock())
