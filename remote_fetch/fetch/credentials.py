"""Expired credentials are looked up again, once for all calls that the store refused."""

from __future__ import annotations

import threading
import time

from remote_fetch.fetch.spi import CredentialRefresher, RemoteStorageFetcher

__all__ = ["Renewal"]

_PAUSE_S = 10.0
"""After a look-up, refusals within this time do not start another one: most refusals are meant."""


class Renewal:
    """When a fetcher has to look for its credentials again. `generation` counts how often it has. Thread-safe."""

    def __init__(self, fetcher: RemoteStorageFetcher) -> None:
        self._refresher = fetcher if isinstance(fetcher, CredentialRefresher) else None
        self._lock = threading.Lock()
        self._renewed_at: float | None = None
        self.generation = 0

    def is_worth_another_try(self, generation: int) -> bool:
        """Whether a refused call that began under `generation` should be repeated; looks up the credentials if due.

        Raises the errors of the fetcher's `refresh_credentials`.
        """
        if self._refresher is None:
            return False
        with self._lock:
            if generation != self.generation:  # somebody else was refused first
                return True
            if self._renewed_at is not None and time.monotonic() < self._renewed_at + _PAUSE_S:
                return False
            self._refresher.refresh_credentials()
            self._renewed_at = time.monotonic()
            self.generation += 1
            return True
