"""Looks up expired credentials again, once for all calls that the store refused.

Rules of the file:

- A refused call is repeated once. The second refusal is the answer.
- A listing may be refused between two pages. It is made again, and gives only what it has not given before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from remote_fetch.errors import FatalError, RetriableError, StorageDenied
from remote_fetch.fetch.spi import CredentialRefresher

__all__ = ["Renewal"]

T = TypeVar("T")

_PAUSE_S = 10.0
"""Refusals within this time after a look-up start no other look-up. Most refusals are not due to old credentials.

After a look-up that failed they start none either: it may have taken many seconds, for which all calls had to wait.
"""


class Renewal:
    """Decides when a fetcher looks up its credentials again. `generation` counts the look-ups. Thread-safe."""

    def __init__(self, fetcher: object) -> None:
        self._refresher = fetcher if isinstance(fetcher, CredentialRefresher) else None
        self._lock = threading.Lock()
        self._renewed_at: float | None = None
        self.generation = 0

    def refresh_after_refusal(self, generation: int) -> bool:
        """Look up the credentials if that is due. Return whether to repeat a refused call that began in `generation`.

        Raises the errors of the fetcher's `refresh_credentials`, and StorageDenied for one that is fatal: the file of
        the credentials may be written at this moment.
        """
        if self._refresher is None:
            return False
        with self._lock:
            if generation != self.generation:  # another call was refused first
                return True
            if self._renewed_at is not None and time.monotonic() < self._renewed_at + _PAUSE_S:
                return False
            try:
                self._refresher.refresh_credentials()
            except RetriableError:  # the caller repeats its call, and with it the look-up
                raise
            except FatalError as error:  # the refusal stays one, and the broker is asked
                self._renewed_at = time.monotonic()
                text = f"the store refused access, and looking for credentials again failed: {error.message}"
                raise StorageDenied(text, hint=error.hint) from error
            except Exception:
                self._renewed_at = time.monotonic()
                raise
            self._renewed_at = time.monotonic()
            self.generation += 1
            return True

    def listed(self, ask: Callable[[], Iterable[T] | None], identity: Callable[[T], Hashable]) -> Iterator[T] | None:
        """The items that `ask` lists, or None if it answers so. If the store refuses, `ask` is called once more.

        Two items with the same `identity` are one: the listing may have changed. Raises the errors of `ask` and of
        `refresh_after_refusal`.
        """
        generation = self.generation
        try:
            found = ask()
        except StorageDenied:
            if not self.refresh_after_refusal(generation):
                raise
            found = ask()
            return None if found is None else iter(found)
        return None if found is None else self._to_its_end(found, ask, identity, generation)

    def _to_its_end(
        self,
        found: Iterable[T],
        ask: Callable[[], Iterable[T] | None],
        identity: Callable[[T], Hashable],
        generation: int,
    ) -> Iterator[T]:
        given: set[Hashable] = set()
        try:
            for item in found:
                given.add(identity(item))
                yield item
            return
        except StorageDenied:
            if not self.refresh_after_refusal(generation):
                raise
        for item in ask() or ():
            if identity(item) not in given:
                yield item
