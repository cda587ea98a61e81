"""Sizes from the store: remembered, bounded, and no error whatever the store does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from remote_fetch.errors import CorruptSegment, RemoteFetchError, SegmentNotFound, StorageDenied, StorageUnavailable
from remote_fetch.fetch.readahead import RangeReader
from remote_fetch.fetch.retry_policy import RetryPolicy
from remote_fetch.fetch.sizes import SegmentSizes
from remote_fetch.model import (
    UNKNOWN_SIZE,
    Buffer,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.observe import Counters
from tests.cases import each_of

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 4)


def segment(number: int) -> RemoteLogSegmentMetadata:
    segment_id = RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big")))
    return RemoteLogSegmentMetadata(segment_id, 100 * number, 100 * number + 99, UNKNOWN_SIZE)


class Plain:
    """A fetcher that is no SegmentSizer."""

    def configure(self, configs: object) -> None: ...

    def fetch_log_segment(self, metadata: object, start_position: int, end_position: int = -1) -> Buffer:
        raise AssertionError("no byte of a segment is needed")

    def fetch_index(self, metadata: object, index_type: IndexType) -> Buffer | None:
        raise AssertionError("no index is needed")

    def close(self) -> None: ...


class Sizer(Plain):
    """Answers with `answer`, and counts how many questions are under way at once."""

    def __init__(self, answer: Callable[[RemoteLogSegmentMetadata], int | None]) -> None:
        self.answer = answer
        self.asked: list[RemoteLogSegmentMetadata] = []
        self.most = self._now = 0
        self._lock = threading.Lock()

    def size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        with self._lock:
            self.asked.append(metadata)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return self.answer(metadata)
        finally:
            with self._lock:
                self._now -= 1


@contextmanager
def sizes_of(
    fetcher: Plain, counters: Counters, *, timeout_ms: int = 5000, most_ms: int = 30_000
) -> Iterator[SegmentSizes]:
    reader = RangeReader(
        fetcher, RetryPolicy(timeout_ms, 1), max_bytes=1 << 20, range_bytes=1 << 16, observer=counters, max_threads=4
    )
    try:
        yield SegmentSizes(reader, counters, timeout_ms=timeout_ms, most_ms=most_ms)
    finally:
        reader.close()


def test_each_segment_is_asked_for_once() -> None:
    fetcher, counters = Sizer(lambda one: 8 << 30 if one.start_offset else None), Counters()
    segments = [segment(number) for number in range(50)]
    with sizes_of(fetcher, counters) as sizes:
        for _ in range(2):
            found = sizes.of([*segments, segments[1]])
            assert found == {one.segment_id: 8 << 30 for one in segments[1:]}
    assert len(fetcher.asked) == 50
    report = counters.report()
    assert report.sizes == {"learned": 49, "unknown": 1}
    assert report.remote_gets == 0, "a question is no GET"


def test_several_are_asked_for_at_once_and_no_more_than_there_are_threads() -> None:
    together = threading.Barrier(4)

    def answer(one: RemoteLogSegmentMetadata) -> int:
        together.wait(20)
        return 7

    fetcher = Sizer(answer)
    with sizes_of(fetcher, Counters()) as sizes:
        assert len(sizes.of([segment(number) for number in range(40)])) == 40
    assert fetcher.most == 4


@each_of("answer", [0, -5, 2**63, "8 GiB", 1.5])
def test_an_answer_that_is_no_size(answer: int) -> None:
    counters = Counters()
    with sizes_of(Sizer(lambda one: answer), counters) as sizes:
        assert sizes.of([segment(1)]) == {}
    assert counters.report().sizes == {"unknown": 1}


def test_a_fetcher_that_tells_no_sizes() -> None:
    counters = Counters()
    with sizes_of(Plain(), counters) as sizes:
        assert sizes.of([segment(1)]) == {}
    assert counters.report().sizes == {}


@each_of("error", [SegmentNotFound("gone"), CorruptSegment("a manifest that is none")])
def test_what_is_wrong_with_one_segment_says_nothing_of_others(error: RemoteFetchError) -> None:
    def answer(one: RemoteLogSegmentMetadata) -> int:
        if one.start_offset == 300:
            raise error
        return 5

    counters = Counters()
    with sizes_of(Sizer(answer), counters) as sizes:
        assert len(sizes.of([segment(number) for number in range(9)])) == 8
    assert counters.report().sizes == {"learned": 8, error.kind: 1}


@each_of("error", [StorageDenied("no HEAD here"), RuntimeError("a bug of a plug-in")])
def test_a_store_that_failed_is_asked_no_more(error: Exception) -> None:
    def answer(one: RemoteLogSegmentMetadata) -> int:
        raise error

    fetcher, counters = Sizer(answer), Counters()
    with sizes_of(fetcher, counters) as sizes:
        assert sizes.of([segment(number) for number in range(1000)]) == {}
    kind = error.kind if isinstance(error, RemoteFetchError) else "error"
    assert counters.report().sizes == {kind: 1000}
    assert len(fetcher.asked) <= 2 * 2 * 4, "with a second try each after credentials were renewed"


def test_a_failure_is_not_remembered() -> None:
    def answer(one: RemoteLogSegmentMetadata) -> int:
        if len(fetcher.asked) == 1:
            raise SegmentNotFound("not yet")
        return 7

    fetcher, counters = Sizer(answer), Counters()
    with sizes_of(fetcher, counters) as sizes:
        assert sizes.of([segment(1)]) == {}
        assert sizes.of([segment(1)]) == {segment(1).segment_id: 7}


def test_what_may_pass_is_tried_again_within_the_read_timeout() -> None:
    def answer(one: RemoteLogSegmentMetadata) -> int:
        if len(fetcher.asked) < 3:
            raise StorageUnavailable("not now")
        return 7

    fetcher, counters = Sizer(answer), Counters()
    with sizes_of(fetcher, counters) as sizes:
        assert sizes.of([segment(1)]) == {segment(1).segment_id: 7}
    assert counters.report().retries == {"unavailable": 2}


@pytest.mark.parametrize(("timeout_ms", "most_ms"), [(100, 30_000), (5000, 100)])
def test_the_time_is_bounded(timeout_ms: int, most_ms: int) -> None:
    released = threading.Event()

    def answer(one: RemoteLogSegmentMetadata) -> int:
        released.wait(20)
        return 7

    fetcher, counters = Sizer(answer), Counters()
    with sizes_of(fetcher, counters, timeout_ms=timeout_ms, most_ms=most_ms) as sizes:
        assert sizes.of([segment(number) for number in range(100)]) == {}
        released.set()
    assert counters.report().sizes == {"read-timeout": 100}
    assert len(fetcher.asked) <= 4
