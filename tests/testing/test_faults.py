"""Counting and failing fetchers: each fault, and that a schedule repeats itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from remote_fetch.errors import (
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import IndexType
from remote_fetch.testing.faults import (
    CountingFetcher,
    Fault,
    FaultKind,
    FaultyFetcher,
    FetchCall,
    scripted,
    seeded,
)
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import SegmentStore


def segment() -> BuiltSegment:
    log = LogBuilder()
    log.append_batch([Record(0, 0, b"k", b"v" * 100)])
    log.roll()
    return log.segments()[0]


SEGMENT = segment()
METADATA = SEGMENT.metadata


def faulty(*faults: Fault | None, slept: list[float] | None = None) -> FaultyFetcher:
    slept = [] if slept is None else slept
    return FaultyFetcher(SegmentStore([SEGMENT]), scripted(faults), sleep=slept.append)


class TestCounting:
    def test_it_passes_everything_on(self) -> None:
        class Inner(SegmentStore):
            seen: Sequence[object] = ()

            def configure(self, configs: object) -> None:
                self.seen = [*self.seen, configs]

            def close(self) -> None:
                self.seen = [*self.seen, "closed"]

        inner = Inner([SEGMENT])
        fetcher = CountingFetcher(inner)
        assert isinstance(fetcher, RemoteStorageFetcher)
        fetcher.configure({"a": "b"})
        assert bytes(fetcher.fetch_log_segment(METADATA, 2, 12)) == SEGMENT.log[2:12]
        assert fetcher.fetch_index(METADATA, IndexType.TIMESTAMP) == SEGMENT.time_index
        assert fetcher.fetch_index(METADATA, IndexType.TRANSACTION) is None
        assert not fetcher.closed
        fetcher.close()
        assert fetcher.closed
        assert inner.seen == [{"a": "b"}, "closed"]

    def test_calls_and_bytes(self) -> None:
        fetcher = CountingFetcher(SegmentStore([SEGMENT]))
        for _ in range(2):
            fetcher.fetch_log_segment(METADATA, 0, 10)
        fetcher.fetch_log_segment(METADATA, 5)
        fetcher.fetch_index(METADATA, IndexType.TRANSACTION)
        assert fetcher.calls == (
            FetchCall(METADATA, None, 0, 10, number=0, attempt=0),
            FetchCall(METADATA, None, 0, 10, number=1, attempt=1),
            FetchCall(METADATA, None, 5, -1, number=2, attempt=0),
            FetchCall(METADATA, IndexType.TRANSACTION, number=3, attempt=0),
        )
        assert fetcher.returned_bytes == 20 + len(SEGMENT.log) - 5

    def test_failed_calls_count_and_bring_no_bytes(self) -> None:
        fetcher = CountingFetcher(SegmentStore())
        with pytest.raises(SegmentNotFound):
            fetcher.fetch_log_segment(METADATA, 0)
        assert (len(fetcher.calls), fetcher.returned_bytes) == (1, 0)

    def test_it_counts_from_several_threads(self) -> None:
        fetcher = CountingFetcher(SegmentStore([SEGMENT]))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: fetcher.fetch_log_segment(METADATA, 0, 1), range(200)))
        assert fetcher.returned_bytes == 200
        assert sorted(call.number for call in fetcher.calls) == list(range(200))
        assert sorted(call.attempt for call in fetcher.calls) == list(range(200))


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "error"),
        [
            (FaultKind.NOT_FOUND, SegmentNotFound),
            (FaultKind.DENIED, StorageDenied),
            (FaultKind.TIMEOUT, StorageTimeout),
            (FaultKind.THROTTLED, StorageThrottled),
            (FaultKind.UNAVAILABLE, StorageUnavailable),
        ],
    )
    def test_errors(self, kind: FaultKind, error: type[RemoteFetchError]) -> None:
        fetcher = faulty(Fault(kind), Fault(kind))
        with pytest.raises(error, match=rf"injected fault: {kind} \[topic-0\]"):
            fetcher.fetch_log_segment(METADATA, 0)
        with pytest.raises(error):
            fetcher.fetch_index(METADATA, IndexType.OFFSET)
        assert fetcher.fetch_log_segment(METADATA, 0) == SEGMENT.log

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            (Fault(FaultKind.STALL, delay_ms=250), SEGMENT.log[:10]),
            (Fault(FaultKind.TRUNCATE), SEGMENT.log[:5]),
            (Fault(FaultKind.SHORT_BODY), SEGMENT.log[:9]),
            (Fault(FaultKind.FLIP_BYTE, position=13), SEGMENT.log[:3] + b"\xff" + SEGMENT.log[4:10]),
        ],
    )
    def test_damages(self, fault: Fault, expected: bytes) -> None:
        fetcher = faulty(fault)
        assert fetcher.fetch_log_segment(METADATA, 0, 10) == expected
        assert fetcher.returned_bytes == len(expected)
        assert fetcher.injected == ((fetcher.calls[0], fault),)

    def test_a_delay_comes_before_any_kind(self) -> None:
        slept: list[float] = []
        fetcher = faulty(Fault(FaultKind.DENIED, delay_ms=250), Fault(FaultKind.TRUNCATE), slept=slept)
        with pytest.raises(StorageDenied):
            fetcher.fetch_log_segment(METADATA, 0)
        fetcher.fetch_log_segment(METADATA, 0)
        assert slept == [0.25]

    @pytest.mark.parametrize("kind", [FaultKind.TRUNCATE, FaultKind.SHORT_BODY, FaultKind.FLIP_BYTE])
    def test_nothing_cannot_be_damaged(self, kind: FaultKind) -> None:
        fetcher = faulty(Fault(kind), Fault(kind))
        assert fetcher.fetch_index(METADATA, IndexType.TRANSACTION) is None
        assert fetcher.fetch_log_segment(METADATA, 10**6) == b""


class TestSchedules:
    def test_a_script_ends_well(self) -> None:
        fault = Fault(FaultKind.DENIED)
        schedule = scripted([None, fault])
        assert [schedule(FetchCall(METADATA, number=number)) for number in range(4)] == [None, fault, None, None]

    def test_a_seed_decides_by_the_arguments_not_by_time(self) -> None:
        calls = [FetchCall(METADATA, None, start, -1, attempt=a) for start in range(50) for a in range(2)]
        decided = [seeded(1, 0.5)(call) for call in calls]
        schedule = seeded(1, 0.5)
        again = [schedule(FetchCall(METADATA, None, c.start_position, -1, 99, c.attempt)) for c in reversed(calls)]
        assert decided == again[::-1]
        assert decided != [seeded(2, 0.5)(call) for call in calls]
        assert decided[::2] != decided[1::2]
        assert {fault.kind for fault in decided if fault} == set(FaultKind)

    @pytest.mark.parametrize(("rate", "low", "high"), [(0.0, 0, 0), (0.2, 120, 280), (1.0, 1000, 1000)])
    def test_the_rate_is_kept(self, rate: float, low: int, high: int) -> None:
        schedule = seeded(7, rate, [FaultKind.STALL, FaultKind.DENIED], delay_ms=30)
        faults = [fault for start in range(1000) if (fault := schedule(FetchCall(METADATA, None, start)))]
        assert low <= len(faults) <= high
        assert {(f.kind, f.delay_ms) for f in faults} <= {(FaultKind.STALL, 30), (FaultKind.DENIED, 0)}
