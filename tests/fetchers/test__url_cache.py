"""The cache of signed URLs: how long a URL lives, one question for all threads, and no error twice the same object."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from fetchers import _url_cache
from fetchers._url_cache import UrlCache, life_s
from remote_fetch.errors import RemoteFetchError, StorageDenied, StorageTimeout, StorageUnavailable
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tests.at_once import at_once
from tests.cases import each_of
from tests.clock import Clock
from tests.eventually import eventually

PARTITION = TopicIdPartition(Uuid(b"\x01" * 16), "orders", 0)
THREADS = 8


def segment(number: int = 0, custom_metadata: bytes | None = None) -> RemoteLogSegmentMetadata:
    segment_id = RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big")))
    return RemoteLogSegmentMetadata(segment_id, 0, 9, 100, custom_metadata=custom_metadata)


class Source:
    """Counts its answers. `before` runs before each."""

    def __init__(self, query: str = "X-Amz-Expires=100", before: Callable[[], object] = lambda: None) -> None:
        self.query = query
        self.before = before
        self.asked: list[bool] = []
        self.entered = threading.Event()

    def layout(self) -> tuple[str, Mapping[str, str]]:
        raise AssertionError("not asked here")

    def locations(self, metadata: RemoteLogSegmentMetadata, *, refused: bool) -> Mapping[str, str]:
        self.asked.append(refused)
        self.entered.set()
        self.before()
        return {"name": f"https://store.example/name?{self.query}&n={len(self.asked)}"}


class Askers:
    """Replaces the lock of a cache. Tells how many times it was taken, which is once before a question or a wait."""

    def __init__(self, cache: UrlCache) -> None:
        self._lock, self._count = cache._lock, itertools.count(1)
        self.taken = 0
        cache._lock = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.taken = next(self._count)
        self._lock.release()


def in_threads(call: Callable[[], object]) -> list[object]:
    """The outcome of a call in each of several threads: what it returns or raises."""

    def run() -> object:
        try:
            return call()
        except RemoteFetchError as error:
            return error

    return at_once([run] * THREADS)


# -------------------------------------------------------------------------------------------------- the life of a URL


@each_of(
    ("query", "wanted_s"),
    [
        ("X-Amz-Expires=300&X-Amz-Date=19700101T000000Z", 300),
        ("X-Goog-Expires=300", 300),
        ("X-Amz-Expires=300&X-Goog-Expires=200", 200),
        ("sig=x", 60),
        ("", 60),
        ("X-Amz-Expires=999999999", 900),
        ("X-Amz-Expires=0", 1),
        ("X-Amz-Expires=-5", 60),
        ("X-Amz-Expires=soon", 60),
        ("X-Amz-Expires=1e9", 60),
        (f"X-Amz-Expires={'9' * 5000}", 60),
        ("X-Amz-Expires=\u0664", 60),
        ("se=2001-01-01T00:00:00Z", 1),
        ("se=9999-12-31T23:59:59Z", 900),
        ("se=never", 60),
        ("&".join(f"a{n}=1" for n in range(200)), 1),
    ],
)
def test_the_life_of_a_url(query: str, wanted_s: float) -> None:
    assert life_s(f"https://store.example/name?{query}") == wanted_s


def test_a_time_is_compared_with_this_machines_clock() -> None:
    for text in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S"):
        end = (datetime.now(UTC) + timedelta(seconds=300)).strftime(text)
        assert 290 < life_s(f"https://store.example/name?se={end}") <= 300


# ----------------------------------------------------------------------------------------------------- questions


def test_an_answer_is_kept_until_shortly_before_it_expires() -> None:
    source, clock = Source(), Clock()
    cache = UrlCache(source, 5, clock=clock)
    first = cache.locate(segment())
    clock.now_s += 89
    assert cache.locate(segment()) is first
    clock.now_s += 2
    assert cache.locate(segment()) is not first
    assert source.asked == [False, False]


def test_a_refused_answer_is_asked_for_once() -> None:
    source = Source()
    cache = UrlCache(source, 60)
    first = cache.locate(segment())
    second = cache.locate(segment(), refused=first)
    assert second is not first
    assert cache.locate(segment(), refused=first) is second  # another thread was refused too
    assert cache.locate(segment()) is second
    assert source.asked == [False, True]


def test_segments_are_kept_apart_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_url_cache, "_MOST_SEGMENTS", 2)
    source = Source()
    cache = UrlCache(source, 5)
    for number in (0, 1, 0, 2, 0, 1):
        cache.locate(segment(number))
    assert len(source.asked) == 4  # 1 was forgotten for 2
    cache.locate(segment(0, b"moved"))
    assert len(source.asked) == 5


def test_long_answers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_url_cache, "_MOST_CHARS", 2500)
    source = Source(query="x" * 1000)
    cache = UrlCache(source, 5)
    for number in (0, 1, 0, 2, 0, 1):
        cache.locate(segment(number))
    assert len(source.asked) == 4  # 1 was forgotten for 2
    huge = UrlCache(Source(query="x" * 5000), 5)
    assert huge.locate(segment()) is huge.locate(segment())  # the last one stays


def test_an_answer_that_was_renewed_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_url_cache, "_MOST_CHARS", 2500)
    source = Source(query="x" * 1000)
    cache = UrlCache(source, 5)
    kept = cache.locate(segment(1))
    refused = cache.locate(segment(0))
    for _ in range(3):
        refused = cache.locate(segment(0), refused)
    assert cache.locate(segment(1)) is kept


def test_threads_share_a_question() -> None:
    entered = threading.Event()
    source = Source(before=lambda: entered.wait(0.3))
    cache = UrlCache(source, 60)
    found = in_threads(lambda: cache.locate(segment()))
    assert len(source.asked) == 1
    assert len({id(one) for one in found}) == 1


def test_threads_share_a_failure_and_ask_again_later() -> None:
    first_error = StorageDenied("the service refuses")

    def fail() -> None:
        assert eventually(lambda: askers.taken >= THREADS)
        raise first_error

    source = Source(before=fail)
    cache = UrlCache(source, 60)
    askers = Askers(cache)
    found = in_threads(lambda: cache.locate(segment()))
    assert len(source.asked) == 1
    assert {type(one) for one in found} == {StorageDenied}
    assert len({id(one) for one in found}) == THREADS  # each may add what it knows
    source.before = lambda: None
    cache.locate(segment())
    assert len(source.asked) == 2


def test_no_thread_waits_for_another_one_for_ever() -> None:
    release = threading.Event()
    source = Source(before=lambda: release.wait(30))
    cache = UrlCache(source, 0.1)
    thread = threading.Thread(target=cache.locate, args=(segment(),))
    thread.start()
    assert source.entered.wait(30)
    with pytest.raises(StorageTimeout, match="did not say in time"):
        cache.locate(segment())
    release.set()
    thread.join(60)
    assert cache.locate(segment()).urls


def test_a_mistake_is_no_answer_for_other_threads() -> None:
    """The thread that asked raises what happened, others that the service was not asked."""
    release = threading.Event()

    def fail() -> None:
        release.wait(30)
        raise ZeroDivisionError

    source = Source(before=fail)
    cache = UrlCache(source, 60)
    askers = Askers(cache)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            cache.locate(segment())
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert source.entered.wait(30)
    threads[1].start()
    assert eventually(lambda: askers.taken >= 2)
    release.set()
    for thread in threads:
        thread.join(60)
    assert {type(error) for error in raised} == {ZeroDivisionError, StorageUnavailable}


def test_nothing_shows_a_url() -> None:
    located = UrlCache(Source("sig=s3cret"), 5).locate(segment())
    assert "s3cret" in located.urls["name"]
    assert "s3cret" not in repr(located)
