"""Reads ahead: several GETs run at the same time, and the ranges are handed over in the order of the requests.

Rules of the file:

- A range takes its size from the budget before its GET starts. It gives the size back when the reader asks for the next
  range. A single range may be larger than the budget; it is then read alone.
- Ranges are handed over in the order of the requests, whichever GET ends first.
- A GET that is late is not repeated here. Its bytes are dropped when they arrive: the broker is asked for the stretch.
- If the store throttles, fewer GETs run at the same time for a while.
- With a budget a GET waits for its turn in a thread of the pool, before its deadline begins.
- If the store refuses the credentials, the fetcher looks them up again, and the GET is repeated.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import TypeVar

from remote_fetch.errors import (
    RemoteFetchError,
    SegmentNotFound,
    StorageConnectTimeout,
    StorageDenied,
    StorageThrottled,
    StorageUnavailable,
)
from remote_fetch.fetch.budget import Budget
from remote_fetch.fetch.credentials import Renewal
from remote_fetch.fetch.pool import Call, DaemonPool, Failure
from remote_fetch.fetch.retry_policy import RetryPolicy
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentSizer
from remote_fetch.fetch.window import Window
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.observe import Observer, RangeFetched, RangeRetried

__all__ = ["Awaited", "RangeReader", "RangeRequest"]

T = TypeVar("T")

_FIRST_WINDOW = 4
"""Ranges under way at first."""
_WITHOUT_BYTES = StorageThrottled, StorageDenied, StorageConnectTimeout, SegmentNotFound
"""The failures of GETs that brought no bytes."""
_CLOSE_WAIT_MS = 1000
"""The longest wait of `close` for GETs under way. Their threads are daemons, so that they end with the process."""


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """Bytes [start_position, end_position) of one segment. `tag` is a number for the caller alone."""

    segment: RemoteLogSegmentMetadata
    start_position: int
    end_position: int
    tag: int = 0

    @property
    def size_bytes(self) -> int:
        """The number of requested bytes."""
        return self.end_position - self.start_position


class Awaited:
    """The bytes of a range under way. Call the object to wait for them."""

    def __init__(self, call: Call[memoryview], timeout_ms: int) -> None:
        self._call = call
        self._timeout_ms = timeout_ms

    def __call__(self) -> memoryview:
        """Wait for the bytes. Raises the fetcher's error, StorageTimeout, or Cancelled, also after a timeout."""
        return self._call.wait_or_cancel(self._timeout_ms)

    def cancel(self) -> None:
        """Give up a range that is not done: calling the object raises Cancelled. No GET is made that has not begun."""
        self._call.cancel()

    @property
    def is_done(self) -> bool:
        """Whether calling the object returns at once."""
        return self._call.is_done


def _may_have_sent(error: RemoteFetchError) -> bool:
    """Whether a part of the bytes may have come before the failure."""
    return error.may_have_sent if isinstance(error, StorageUnavailable) else not isinstance(error, _WITHOUT_BYTES)


def _nothing(size_bytes: int, gets: int = 0) -> None:
    """As `Budget.charge`, of a call outside of the budget."""


class RangeReader:
    """Reads ranges and indexes with one fetcher, a pool of threads, a budget and deadlines.

    Thread-safe, but a single generator is not. A reader that is forgotten without `close` leaves no thread behind.
    `renewal` looks the fetcher's credentials up again.
    """

    def __init__(
        self,
        fetcher: RemoteStorageFetcher,
        policy: RetryPolicy,
        *,
        max_bytes: int,
        range_bytes: int,
        observer: Observer,
        max_threads: int = 16,
        budget: Budget | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._policy = policy
        self._max_bytes = max_bytes
        self._observer = observer
        self._budget = budget
        self.range_bytes = min(range_bytes, max_bytes)
        self.max_parallel = max(1, min(max_threads, max_bytes // self.range_bytes))
        self._window = Window(self.max_parallel)
        self._pool = DaemonPool(self.max_parallel, window=self._window)
        self._end_threads = weakref.finalize(self, self._pool.end)
        self._end_threads.atexit = False
        self.renewal = Renewal(fetcher)

    def read_ahead(
        self, requests: Iterable[RangeRequest], *, max_bytes: int | None = None, one_first: bool = False
    ) -> Generator[tuple[RangeRequest, Awaited], None, None]:
        """Yield each request, in order, with an object that waits for its bytes.

        - A request is taken from `requests` if the budget has room for its bytes. `max_bytes` is the share of one
          reader in the budget, if several read at the same time.
        - The reader starts with few GETs. It starts more only if it has to wait, because GETs take memory.
        - `one_first`: the first range may be enough. Further GETs start when the caller asks for the second range.
        - The waiting object raises the fetcher's error, StorageTimeout, or Cancelled after `close`. So errors come in
          order too.
        - A generator that is closed cancels the requests that it has not yielded. The caller cancels those that it got
          and does not wait for.
        """
        pending: deque[tuple[RangeRequest, Call[memoryview]]] = deque()
        source = iter(requests)
        waiting: RangeRequest | None = None
        window = 1 if one_first else _FIRST_WINDOW
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
                window = max(window, min(2 * window, _FIRST_WINDOW))
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
        """The time of the store's last answer to a GET (`time.monotonic`), 0 if there was none."""
        return self._pool.progressed_s

    @property
    def is_asking(self) -> bool:
        """Whether a GET is under way."""
        return self._pool.is_busy

    def _start(self, request: RangeRequest) -> Call[memoryview]:
        def once() -> memoryview:
            data = self._fetcher.fetch_log_segment(request.segment, request.start_position, request.end_position)
            return memoryview(data).cast("B")

        return self._submit(once, request.segment, partial(self._note, request.segment, None), request.size_bytes)

    def _submit(
        self,
        once: Callable[[], T],
        segment: RemoteLogSegmentMetadata,
        note: Callable[[T, float], int],
        counted_bytes: int | None,
    ) -> Call[T]:
        """Queue a call of `_timed`, with its turn if it is counted."""
        failures: deque[Failure] = deque(maxlen=1)
        given_up = threading.Event()
        turn = None
        if self._budget is not None and counted_bytes is not None:
            turn = partial(self._budget.line_up, counted_bytes)
        return self._pool.submit(
            lambda: self._timed(once, segment, note, counted_bytes, failures.append, given_up), turn, failures, given_up
        )

    def read(self, request: RangeRequest) -> memoryview:
        """Read the bytes of one request. Raises the errors of `read_ahead`."""
        return self._start(request).wait_or_cancel(self._policy.timeout_ms)

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        """Read an index of a segment, None if it has none. Raises the errors of `read_ahead`."""
        return self._start_index(segment, index_type).wait_or_cancel(self._policy.timeout_ms)

    def read_indexes(
        self, segments: Iterable[RemoteLogSegmentMetadata], index_type: IndexType
    ) -> Iterator[tuple[RemoteLogSegmentMetadata, memoryview | None]]:
        """Yield an index of each segment, in order. A few are read at a time. Raises the errors of `read_ahead`."""
        pending: deque[tuple[RemoteLogSegmentMetadata, Call[memoryview | None]]] = deque()
        source = iter(segments)
        try:
            while True:
                for segment in islice(source, 2 * self.max_parallel - len(pending)):
                    pending.append((segment, self._start_index(segment, index_type)))
                if not pending:
                    return
                segment, call = pending.popleft()
                yield segment, call.wait_or_cancel(self._policy.timeout_ms)
        finally:
            for _, call in pending:
                call.cancel()

    def _start_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> Call[memoryview | None]:
        def once() -> memoryview | None:
            data = self._fetcher.fetch_index(segment, index_type)
            return None if data is None else memoryview(data).cast("B")

        return self._submit(once, segment, partial(self._note, segment, index_type), 0)

    def start_size(self, segment: RemoteLogSegmentMetadata) -> Call[int | None] | None:
        """Start to ask for the true size of a segment. None if the fetcher is not a SegmentSizer.

        Waiting for the result raises the errors of `read_ahead`. The question is not counted as a GET.
        """
        fetcher = self._fetcher
        if not isinstance(fetcher, SegmentSizer):
            return None
        return self._submit(lambda: fetcher.size(segment), segment, lambda size, s: 0, None)

    def _note(
        self,
        segment: RemoteLogSegmentMetadata,
        index_type: IndexType | None,
        data: memoryview | None,
        duration_s: float,
    ) -> int:
        size_bytes = 0 if data is None else data.nbytes
        self._observer(RangeFetched(segment.topic_id_partition, size_bytes, duration_s, index_type))
        return size_bytes

    def _windowed(self, once: Callable[[], T], began_s: float) -> T:
        """The result of a call, whose outcome changes the number of GETs at a time."""
        try:
            result = once()
        except StorageThrottled:
            self._window.throttled(began_s)
            raise
        self._window.answered()
        return result

    def _timed(
        self,
        once: Callable[[], T],
        segment: RemoteLogSegmentMetadata,
        note: Callable[[T, float], int],
        counted_bytes: int | None,
        failed: Callable[[Failure], None],
        given_up: threading.Event,
    ) -> T:
        """Make a call with all its attempts. `note` takes the result and the seconds, and returns its bytes.

        `failed` takes the failure of each attempt that is not the last. None is made after `given_up` is set.

        `counted_bytes` were taken from the budget for the first attempt, and are taken for another attempt when it
        begins. They are given back if an attempt brought none. None: the call is outside of the budget.
        """
        partition = segment.topic_id_partition
        charge = _nothing if counted_bytes is None or self._budget is None else self._budget.charge
        counted = counted_bytes or 0
        attempts = count()

        def measured() -> T:
            if next(attempts) > 0:
                charge(counted, gets=1)
            began = time.monotonic()
            try:
                result = self._windowed(once, began)
            except RemoteFetchError as error:
                if not _may_have_sent(error):
                    charge(-counted)
                raise
            came_bytes = note(result, time.monotonic() - began)
            charge(came_bytes - counted)
            return result

        def retried(error: RemoteFetchError) -> None:
            self._observer(RangeRetried(partition, error.kind))
            failed((error.message, error.hint))

        def with_credentials() -> T:
            generation = self.renewal.generation
            try:
                return measured()
            except StorageDenied as error:
                may_repeat = not (error.is_of_object or given_up.is_set())
                repeats = may_repeat and self.renewal.refresh_after_refusal(generation)
                if not repeats or given_up.is_set():  # during the look-up, which may take long
                    raise
                retried(error)
            return measured()

        try:
            return self._policy.call(with_credentials, on_retry=retried, given_up=given_up)
        except RemoteFetchError as error:
            error.at(**partition.place)
            raise

    def close(self) -> int:
        """Cancel waiting requests, end the threads and close the fetcher. Return how many GETs still run."""
        if self._end_threads.detach() is None:
            return 0  # it is closed
        left_behind = self._pool.close(min(self._policy.timeout_ms, _CLOSE_WAIT_MS))
        self._fetcher.close()
        return left_behind
