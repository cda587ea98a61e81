"""Ordered, parallel read-ahead: many ranges under way, handed over in the order they were asked for.

Rules of the file: bytes are reserved in the budget before a GET leaves and given back when the reader takes the next
range, so that what is under way, waiting and being read never passes the budget (one range always may); order is the
reader's, whatever finishes first; a late range keeps its place, and is kept when it arrives. A store that throttles is
asked for less at once for a while; one that refuses is asked again once its fetcher has looked for credentials.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from remote_fetch.errors import RemoteFetchError, StorageDenied, StorageThrottled
from remote_fetch.fetch.credentials import Renewal
from remote_fetch.fetch.deadlines import RetryPolicy
from remote_fetch.fetch.pool import Call, DaemonPool
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.fetch.window import Window
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.observe import Observer, RangeFetched, RangeRetried

__all__ = ["Awaited", "RangeReader", "RangeRequest"]

T = TypeVar("T")

_FIRST_WINDOW = 4
"""Ranges under way at first."""
_CLOSE_WAIT_MS = 1000
"""Longest that closing waits for GETs under way; their threads are daemons and end with the process at the latest."""


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """Bytes [start_position, end_position) of one segment; `tag` is the asker's own."""

    segment: RemoteLogSegmentMetadata
    start_position: int
    end_position: int
    tag: int = 0

    @property
    def size_bytes(self) -> int:
        """How many bytes are asked for."""
        return self.end_position - self.start_position


class Awaited:
    """The bytes of a range under way: call it to wait for them, as `RangeReader.read_ahead` says."""

    def __init__(self, call: Call[memoryview], timeout_ms: int) -> None:
        self._call = call
        self._timeout_ms = timeout_ms

    def __call__(self) -> memoryview:
        """The bytes. Raises what the fetcher raised, StorageTimeout, or Cancelled."""
        return self._call.wait(self._timeout_ms)

    @property
    def is_done(self) -> bool:
        """Whether calling it takes no time."""
        return self._call.is_done


class RangeReader:
    """The fetch stage: one fetcher behind a pool, a budget and deadlines. Thread-safe, but for a generator in use."""

    def __init__(
        self,
        fetcher: RemoteStorageFetcher,
        policy: RetryPolicy,
        *,
        max_bytes: int,
        range_bytes: int,
        observer: Observer,
        max_threads: int = 16,
    ) -> None:
        self._fetcher = fetcher
        self._policy = policy
        self._max_bytes = max_bytes
        self._observer = observer
        self._closed = threading.Event()
        self.range_bytes = min(range_bytes, max_bytes)
        self.max_parallel = max(1, min(max_threads, max_bytes // self.range_bytes))
        self._window = Window(self.max_parallel)
        self._pool = DaemonPool(self.max_parallel, window=self._window)
        self._renewal = Renewal(fetcher)

    def read_ahead(
        self, requests: Iterable[RangeRequest], *, max_bytes: int | None = None
    ) -> Generator[tuple[RangeRequest, Awaited], None, None]:
        """Every request, in order, with what is called to wait for its bytes.

        Requests are drawn no sooner than there is room for their bytes in the budget, or in `max_bytes` of it, the
        share of one reader where several read at once; and a few at first, more only as the reader comes before its
        bytes: a store that is fast enough with few needs no memory for many. That raises what the fetcher raised,
        StorageTimeout, or Cancelled after `close`; so errors come in order too. An abandoned generator cancels what
        it has not handed over.
        """
        pending: deque[tuple[RangeRequest, Call[memoryview]]] = deque()
        source = iter(requests)
        waiting: RangeRequest | None = None
        window = _FIRST_WINDOW
        held_bytes, limit_bytes = 0, self._max_bytes if max_bytes is None else max_bytes
        try:
            while True:
                waiting = waiting or next(source, None)
                if pending and not pending[0][1].is_done:
                    window *= 2
                while waiting is not None and self._has_room(held_bytes, limit_bytes, len(pending), window, waiting):
                    pending.append((waiting, self._start(waiting)))
                    held_bytes += waiting.size_bytes
                    waiting = next(source, None)
                if not pending:
                    return
                request, call = pending.popleft()
                yield request, Awaited(call, self._policy.timeout_ms)
                del call
                held_bytes -= request.size_bytes
        finally:
            for _, call in pending:
                call.cancel()

    def _has_room(self, held_bytes: int, limit_bytes: int, pending: int, window: int, request: RangeRequest) -> bool:
        if pending == 0:
            return True
        most = min(window, 2 * self.max_parallel)
        return held_bytes + request.size_bytes <= limit_bytes and pending < most

    @property
    def answered_s(self) -> float:
        """When the store last answered a GET (`time.monotonic`), 0 if it never has."""
        return self._pool.progressed_s

    @property
    def is_asking(self) -> bool:
        """Whether a GET is under way."""
        return self._pool.is_busy

    def _start(self, request: RangeRequest) -> Call[memoryview]:
        return self._pool.submit(lambda: self._get(request))

    def _get(self, request: RangeRequest) -> memoryview:
        def once() -> memoryview:
            return memoryview(
                self._fetcher.fetch_log_segment(request.segment, request.start_position, request.end_position)
            ).cast("B")

        return self._timed(once, request.segment, None)

    def read(self, request: RangeRequest) -> memoryview:
        """The bytes of one request, now. Raises as `read_ahead` does."""
        return self._start(request).wait(self._policy.timeout_ms)

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        """One index of a segment, None where there is none. Raises as `read_ahead` does."""
        return self._start_index(segment, index_type).wait(self._policy.timeout_ms)

    def read_indexes(
        self, segments: Iterable[RemoteLogSegmentMetadata], index_type: IndexType
    ) -> Iterator[tuple[RemoteLogSegmentMetadata, memoryview | None]]:
        """One index of each segment, in order, a few at a time. Raises as `read_ahead` does."""
        pending: deque[tuple[RemoteLogSegmentMetadata, Call[memoryview | None]]] = deque()
        source = iter(segments)
        try:
            while True:
                for segment in islice(source, 2 * self.max_parallel - len(pending)):
                    pending.append((segment, self._start_index(segment, index_type)))
                if not pending:
                    return
                segment, call = pending.popleft()
                yield segment, call.wait(self._policy.timeout_ms)
        finally:
            for _, call in pending:
                call.cancel()

    def _start_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> Call[memoryview | None]:
        def once() -> memoryview | None:
            data = self._fetcher.fetch_index(segment, index_type)
            return None if data is None else memoryview(data).cast("B")

        return self._pool.submit(lambda: self._timed(once, segment, index_type))

    def _timed(self, once: Callable[[], T], segment: RemoteLogSegmentMetadata, index_type: IndexType | None) -> T:
        partition = segment.topic_id_partition

        def measured() -> T:
            began = time.monotonic()
            try:
                result = once()
            except StorageThrottled:
                self._window.throttled(began)
                raise
            self._window.answered()
            size_bytes = result.nbytes if isinstance(result, memoryview) else 0
            self._observer(RangeFetched(partition, size_bytes, time.monotonic() - began, index_type))
            return result

        def retried(error: RemoteFetchError) -> None:
            self._observer(RangeRetried(partition, error.kind))

        def with_credentials() -> T:
            generation = self._renewal.generation
            try:
                return measured()
            except StorageDenied as error:
                if self._closed.is_set() or not self._renewal.is_worth_another_try(generation):
                    raise
                retried(error)
            return measured()

        try:
            return self._policy.call(with_credentials, on_retry=retried, closed=self._closed)
        except RemoteFetchError as error:
            error.at(topic=partition.topic, partition=partition.partition)
            raise

    def close(self) -> int:
        """Cancel what waits, end the threads and close the fetcher. Returns how many GETs were left behind."""
        if self._closed.is_set():
            return 0
        self._closed.set()
        left_behind = self._pool.close(min(self._policy.timeout_ms, _CLOSE_WAIT_MS))
        self._fetcher.close()
        return left_behind
