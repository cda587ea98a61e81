"""Threads for what waits: questions to brokers, and reads of the store. The event loop itself never waits.

Rules of the file:

- A request that ends before its work leaves the work to its own deadline. The thread counts as taken until then.
- As much work may wait as there may be requests. More is work of requests that have ended, and is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from remote_fetch.service.refusals import overloaded

__all__ = ["Workers"]

T = TypeVar("T")


class Workers:
    """`threads` threads, named after `name`, with `most` pieces of work at once. Used by the event loop alone."""

    def __init__(self, threads: int, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(threads, f"remote-fetch-{name}")
        self._most = most
        self._name = name
        self.taken = 0

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, or its error. Raises Refusal (503) if too much is waiting already."""
        if self.taken >= self._most:
            raise overloaded(f"all {self._name} threads of the service are busy")
        self.taken += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, future: asyncio.Future[T]) -> None:
        self.taken -= 1
        if not future.cancelled():
            future.exception()  # a request that has ended does not take it

    def close(self) -> None:
        """Let no more work begin. Work under way ends by its own deadlines, and the process waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
