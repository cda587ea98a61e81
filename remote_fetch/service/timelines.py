"""The timelines of the service's session, never older than a moment, read on by one reader for all requests.

Rules of the file:

- The locator is read on at most every `refresh_ms`, and only if a request needs it.
- Requests that come during a reading share it. A reading that began after a request is enough for it, however short
  `refresh_ms` is.
- Without a fresh timeline there is no answer. An old one would hide segments that were deleted or copied since.
- A store that is listed is listed at most every half minute, because each listing reads the whole bucket's names. After
  a reading that failed the next one may begin when the refusal's Retry-After has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from confluent_kafka import KafkaException

from remote_fetch.errors import RemoteFetchError
from remote_fetch.service.refusals import Refusal
from remote_fetch.service.work import Workers
from remote_fetch.session.session import Session

__all__ = ["Timelines"]

_LISTING_MS = 30_000
_RETRY_S = 2.0


class Timelines:
    """Reads the locator of one session on. Used by the event loop alone; it reads in a thread of `workers`."""

    def __init__(
        self,
        session: Session,
        workers: Workers,
        *,
        refresh_ms: int,
        clock: Callable[[], float],
        took: Callable[[float], None] = lambda duration_s: None,
    ) -> None:
        is_topic = session.config.settings.locator in (None, "metadata-topic")
        self._session = session
        self._workers = workers
        self._pause_s = (refresh_ms if is_topic else max(refresh_ms, _LISTING_MS)) / 1000
        self._clock = clock
        self._took = took
        self._reading: asyncio.Task[None] | None = None
        self._read_s: float | None = None
        self._began_s = self._ended_s = float("-inf")
        self._refusal: Refusal | None = None

    @property
    def age_s(self) -> float | None:
        """How long ago the last successful reading ended, None if there was none."""
        return None if self._read_s is None else self._clock() - self._read_s

    @property
    def _wait_s(self) -> float:
        """How long after the last reading the next one may begin."""
        return self._pause_s if self._refusal is None else min(self._pause_s, _RETRY_S)

    async def fresh(self) -> None:
        """Return once the locator was read at most `refresh_ms` ago, or since the call.

        Raises Refusal (503) if it cannot be read.
        """
        asked_s = self._clock()
        # From its end on: a reading that takes longer than the pause would never be fresh else.
        while self._began_s < asked_s and self._clock() - self._ended_s >= self._wait_s:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            await asyncio.shield(self._reading)
        if self._refusal is not None:
            raise self._refusal.again()

    async def _read(self) -> None:
        began_s, refusal = self._clock(), None
        try:
            await self._workers.run(lambda: self._session.locator.partitions(None))
        except (RemoteFetchError, KafkaException) as error:
            said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            text = f"the locations of segments cannot be read: {said}"
            refusal = Refusal(503, "METADATA_UNAVAILABLE", text, _RETRY_S)
        finally:
            self._reading = None
        self._began_s, self._ended_s, self._refusal = began_s, self._clock(), refusal
        if refusal is None:
            self._read_s = self._ended_s
            self._took(self._ended_s - began_s)
