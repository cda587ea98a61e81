"""Looks up expired credentials again, once for all calls that the store refused."""

from __future__ import annotations

import threading
import time

from remote_fetch.fetch.spi import CredentialRefresher, RemoteStorageFetcher

__all__ = ["Renewal"]

_PAUSE_S = 10.0
"""Refusals within this time after a look-up start no other look-up. Most refusals are not due to old credentials."""


class Renewal:
    """Decides when a fetcher looks up its credentials again. `generation` counts the look-ups. Thread-safe."""

    def __init__(self, fetcher: RemoteStorageFetcher) -> None:
        self._refresher = fetcher if isinstance(fetcher, CredentialRefresher) else None
        self._lock = threading.Lock()
        self._renewed_at: float | None = None
        self.generation = 0

    def refresh_after_refusal(self, generation: int) -> bool:
        """Look up the credentials if that is due. Return whether to repeat a refused call that began in `generation`.

        Raises the errors of the fetcher's `refresh_credentials`.
        """
        if self._refresher is None:
            return False
        with self._lock:
            if generation != self.generation:  # another call was refused first
                return True
            if self._renewed_at is not None and time.monotonic() < self._renewed_at + _PAUSE_S:
                return False
            self._refresher.refresh_credentials()
            self._renewed_at = time.monotonic()
            self.generation += 1
            return True
