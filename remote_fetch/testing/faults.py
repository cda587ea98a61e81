"""Fetchers around a fetcher: `CountingFetcher` counts calls, `FaultyFetcher` fails on purpose as stores do.

Rules of the file:

- A schedule decides about a fault from the call alone. It uses no clock and no shared randomness.
- So the same seed repeats a failure, for any interleaving of threads.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from remote_fetch.errors import (
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata

__all__ = ["CountingFetcher", "Fault", "FaultKind", "FaultyFetcher", "FetchCall", "Schedule", "scripted", "seeded"]


class FaultKind(StrEnum):
    """The kinds of faults of one call."""

    NOT_FOUND = "not-found"
    DENIED = "denied"
    TIMEOUT = "timeout"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    STALL = "stall"
    """The right answer, `delay_ms` late."""
    TRUNCATE = "truncate"
    """The first half of the bytes, as if the object ended there."""
    SHORT_BODY = "short-body"
    """All bytes but the last: the body broke off unnoticed."""
    FLIP_BYTE = "flip-byte"
    """One byte differs, at `position` modulo the number of bytes."""


_ERRORS: Mapping[FaultKind, type[RemoteFetchError]] = {
    FaultKind.NOT_FOUND: SegmentNotFound,
    FaultKind.DENIED: StorageDenied,
    FaultKind.TIMEOUT: StorageTimeout,
    FaultKind.THROTTLED: StorageThrottled,
    FaultKind.UNAVAILABLE: StorageUnavailable,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to inject. `delay_ms` comes first, for every kind."""

    kind: FaultKind
    delay_ms: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class FetchCall:
    """One call: for `index_type`, or if that is None for the log bytes [start_position, end_position).

    `number` counts all calls from 0. `attempt` counts the calls with the same arguments from 0.
    """

    metadata: RemoteLogSegmentMetadata
    index_type: IndexType | None = None
    start_position: int = 0
    end_position: int = -1
    number: int = 0
    attempt: int = 0


Schedule: TypeAlias = Callable[[FetchCall], Fault | None]
"""Returns the fault of a call, or None. Called from several threads."""


def scripted(faults: Sequence[Fault | None]) -> Schedule:
    """The faults in the order of the calls. None means no fault, as do all calls after the last entry."""
    script = tuple(faults)
    return lambda call: script[call.number] if call.number < len(script) else None


def seeded(seed: int, rate: float, kinds: Sequence[FaultKind] = tuple(FaultKind), *, delay_ms: int = 0) -> Schedule:
    """A fault of one of `kinds` for the share `rate` (0 to 1) of the calls, drawn from the arguments of each call.

    A repeated call draws again. Only STALL uses `delay_ms`.
    """

    def decide(call: FetchCall) -> Fault | None:
        asked = (seed, str(call.metadata.segment_id.id), call.index_type, call.start_position, call.end_position)
        digest = hashlib.sha256(repr((*asked, call.attempt)).encode()).digest()
        if int.from_bytes(digest[:4], "big") >= rate * 2**32:
            return None
        kind = kinds[digest[4] % len(kinds)]
        delayed_ms = delay_ms if kind is FaultKind.STALL else 0
        return Fault(kind, delayed_ms, int.from_bytes(digest[5:9], "big"))

    return decide


class CountingFetcher:
    """Passes calls on to `inner`, and counts the calls and the returned bytes."""

    def __init__(self, inner: RemoteStorageFetcher) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._calls: list[FetchCall] = []
        self._attempts: dict[tuple[object, ...], int] = {}
        self._returned_bytes = 0
        self._closed = False

    @property
    def calls(self) -> tuple[FetchCall, ...]:
        """Every call so far, including failed ones."""
        return tuple(self._calls)

    @property
    def returned_bytes(self) -> int:
        """How many bytes the calls have returned."""
        return self._returned_bytes

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def configure(self, configs: Mapping[str, str]) -> None:
        """Configure the inner fetcher."""
        self._inner.configure(configs)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """The inner fetcher's answer, counted."""
        call = self._count(FetchCall(metadata, None, start_position, end_position))
        data = self._answer(call, lambda: self._inner.fetch_log_segment(metadata, start_position, end_position))
        assert data is not None
        return data

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """The inner fetcher's answer, counted."""
        call = self._count(FetchCall(metadata, index_type))
        return self._answer(call, lambda: self._inner.fetch_index(metadata, index_type))

    def close(self) -> None:
        """Close the inner fetcher."""
        self._closed = True
        self._inner.close()

    def _count(self, asked: FetchCall) -> FetchCall:
        # A call is a repetition if it asks for the same bytes, even if the segment's metadata has changed.
        bytes_asked = asked.metadata.segment_id, asked.index_type, asked.start_position, asked.end_position
        with self._lock:
            attempt = self._attempts.get(bytes_asked, 0)
            self._attempts[bytes_asked] = attempt + 1
            call = replace(asked, number=len(self._calls), attempt=attempt)
            self._calls.append(call)
            return call

    def _answer(self, call: FetchCall, ask: Callable[[], Buffer | None]) -> Buffer | None:
        data = self._altered(call, ask)
        with self._lock:
            self._returned_bytes += 0 if data is None else len(data)
        return data

    def _altered(self, call: FetchCall, ask: Callable[[], Buffer | None]) -> Buffer | None:
        return ask()


class FaultyFetcher(CountingFetcher):
    """Passes calls on to `inner`, unless `schedule` returns a fault. Counts like a CountingFetcher.

    `sleep` takes seconds. A test passes its own to avoid the wait.
    """

    def __init__(
        self, inner: RemoteStorageFetcher, schedule: Schedule, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(inner)
        self._schedule = schedule
        self._sleep = sleep
        self._injected: list[tuple[FetchCall, Fault]] = []

    @property
    def injected(self) -> tuple[tuple[FetchCall, Fault], ...]:
        """The faults so far, each with its call."""
        return tuple(self._injected)

    def _altered(self, call: FetchCall, ask: Callable[[], Buffer | None]) -> Buffer | None:
        fault = self._schedule(call)
        if fault is None:
            return ask()
        with self._lock:
            self._injected.append((call, fault))
        if fault.delay_ms:
            self._sleep(fault.delay_ms / 1000)
        error = _ERRORS.get(fault.kind)
        if error is not None:
            place = call.metadata.topic_id_partition
            raise error(f"injected fault: {fault.kind}", topic=place.topic, partition=place.partition)
        data = ask()
        return None if data is None else _damaged(bytes(data), fault)


def _damaged(data: bytes, fault: Fault) -> bytes:
    if fault.kind is FaultKind.TRUNCATE:
        return data[: len(data) // 2]
    if fault.kind is FaultKind.SHORT_BODY:
        return data[:-1]
    if fault.kind is FaultKind.FLIP_BYTE and data:
        at = fault.position % len(data)
        return data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]
    return data
