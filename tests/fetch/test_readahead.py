"""The read-ahead: order, budget, laziness, errors in their place, and nothing left when it is given up or closed.

Rules of the file:

- A fake fetcher measures the running GETs, and decides when each range comes back.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import (
    Cancelled,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.readahead import RangeReader, RangeRequest
from remote_fetch.fetch.retry_policy import RetryPolicy
from remote_fetch.model import (
    Buffer,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.observe import Counters, Event, RangeFetched, RangeRetried
from tests.eventually import eventually
from tests.own_threads import watch_threads
from tests.searches import examples

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 4)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"s" * 16)), 0, 99, 1 << 40)
BODY = bytes(range(256)) * 64
SOON_S = 30
"""Long enough for anything that does not hang."""


def body_of(start_position: int, end_position: int) -> bytes:
    """Bytes that tell where they come from."""
    return BODY[start_position % 256 :][: end_position - start_position]


@dataclass
class Fetcher:
    """Answers with `body_of`, and measures how many bytes are asked for, or answered and still referenced."""

    before: Callable[[int], None] = lambda start_position: None
    index: Callable[[RemoteLogSegmentMetadata, IndexType], Buffer | None] = lambda segment, index_type: b"index"
    asked: list[tuple[int, int]] = field(default_factory=list)
    closed: int = 0
    under_way_bytes: int = 0
    most_bytes: int = 0
    most_at_once_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def configure(self, configs: Any) -> None:
        """Ignore the configuration."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        size_bytes = end_position - start_position
        with self.lock:
            self.asked.append((start_position, end_position))
            self.under_way_bytes += size_bytes
            self.most_bytes = max(self.most_bytes, self.under_way_bytes)
            self.most_at_once_bytes = max(self.most_at_once_bytes, size_bytes)
        self.before(start_position)
        return body_of(start_position, end_position)

    def done(self, request: RangeRequest) -> None:
        """The reader is through with a range."""
        with self.lock:
            self.under_way_bytes -= request.size_bytes

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        return self.index(metadata, index_type)

    def close(self) -> None:
        self.closed += 1


Made = Callable[..., RangeReader]


@pytest.fixture
def make() -> Iterator[Made]:
    readers: list[RangeReader] = []

    def made(fetcher: Any, **options: Any) -> RangeReader:
        readers.append(reader(fetcher, **options))
        return readers[-1]

    yield made
    for each in readers:
        each.close()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def reader(
    fetcher: Any,
    *,
    timeout_ms: int = 1000 * SOON_S,
    backoff_ms: int = 1,
    max_bytes: int = 1000,
    range_bytes: int = 100,
    observer: Callable[[Event], None] | None = None,
    max_threads: int = 16,
) -> RangeReader:
    return RangeReader(
        fetcher,
        RetryPolicy(timeout_ms, backoff_ms),
        max_bytes=max_bytes,
        range_bytes=range_bytes,
        observer=observer or Counters(),
        max_threads=max_threads,
    )


def ranges(sizes: list[int]) -> list[RangeRequest]:
    ends = list(itertools.accumulate(sizes))
    return [
        RangeRequest(SEGMENT, end - size_bytes, end, tag)
        for tag, (size_bytes, end) in enumerate(zip(sizes, ends, strict=True))
    ]


@pytest.fixture
def threads() -> Callable[[], list[threading.Thread]]:
    """The readers' threads that this test has started."""
    return watch_threads()


def hang(release: threading.Event) -> None:
    release.wait(2 * SOON_S)


def test_in_order_whatever_finishes_first(make: Made) -> None:
    arrived = [threading.Event() for _ in range(8)]

    def after_the_next(start_position: int) -> None:
        number = start_position // 100
        if number % 4 != 3:  # of each four, the last comes first
            arrived[number + 1].wait(SOON_S)
        finished.append(number)
        arrived[number].set()

    finished: list[int] = []
    stream = make(Fetcher(after_the_next), max_threads=4).read_ahead(ranges([100] * 8))
    got = [(request.tag, bytes(wait())) for request, wait in stream]
    assert got == [(tag, body_of(tag * 100, tag * 100 + 100)) for tag in range(8)]
    assert finished == [3, 2, 1, 0, 7, 6, 5, 4]


@examples(40)
@given(
    sizes=st.lists(st.integers(1, 400), max_size=25),
    max_bytes=st.integers(100, 1000),
    max_threads=st.integers(1, 4),
    seed=st.randoms(use_true_random=False),
)
def test_never_more_than_the_budget(sizes: list[int], max_bytes: int, max_threads: int, seed: Any) -> None:
    naps = [seed.choice((0.0, 0.0, 0.001)) for _ in range(16)]
    fetcher = Fetcher(lambda start_position: time.sleep(naps[start_position % 16]))
    stage = reader(fetcher, max_bytes=max_bytes, range_bytes=100, max_threads=max_threads)
    try:
        got = []
        for request, wait in stage.read_ahead(ranges(sizes)):
            data = wait()
            assert data.format == "B"
            assert data == body_of(request.start_position, request.end_position)
            got.append(request.size_bytes)
            fetcher.done(request)
    finally:
        stage.close()
    assert got == sizes
    assert fetcher.most_bytes <= max(max_bytes, *sizes, 0)
    assert sorted(fetcher.asked) == [(request.start_position, request.end_position) for request in ranges(sizes)]


def test_one_range_larger_than_the_budget_goes_alone(make: Made) -> None:
    fetcher = Fetcher()
    sizes = [100, 5000, 100, 100]
    for request, wait in make(fetcher, max_bytes=300).read_ahead(ranges(sizes)):
        assert len(wait()) == request.size_bytes
        fetcher.done(request)
    assert fetcher.most_bytes == 5000
    assert [end - start for start, end in fetcher.asked[:2]] == [100, 5000]


def test_a_store_that_keeps_up_is_asked_for_few_at_a_time(make: Made) -> None:
    """If each range arrives before the reader asks for it, the number of ranges requested ahead does not grow.

    More ranges would use memory and save no time.
    """
    fetcher = Fetcher()
    stage = make(fetcher, max_bytes=10_000, max_threads=16)
    for request, wait in stage.read_ahead(ranges([100] * 30)):
        assert eventually(lambda: not stage._pool._open), "all that was asked for is there"
        assert wait.is_done
        assert len(wait()) == request.size_bytes
        fetcher.done(request)
    assert fetcher.most_bytes <= 500


def test_a_store_that_is_waited_for_gets_the_whole_budget(make: Made, release: threading.Event) -> None:
    """The range that comes first is there at once, none of the others is: after it as many go as there is room for."""
    fetcher = Fetcher(lambda start_position: hang(release) if start_position else None)
    stream = make(fetcher, max_bytes=10_000, max_threads=16).read_ahead(ranges([100] * 30))
    first, wait = next(stream)
    assert len(wait()) == 100
    assert len(fetcher.asked) <= 4
    second, wait = next(stream)
    assert (first.tag, second.tag) == (0, 1)
    assert eventually(lambda: len(fetcher.asked) == 9), "four times two, and the first"
    release.set()
    assert [request.tag for request, wait in stream if wait()] == list(range(2, 30))


def test_the_first_range_may_be_read_alone(make: Made) -> None:
    """The second one starts when the caller asks for it, and then more at a time."""
    fetcher = Fetcher()
    stream = make(fetcher, max_bytes=10_000, max_threads=16).read_ahead(ranges([100] * 30), one_first=True)
    _, wait = next(stream)
    assert len(wait()) == 100
    assert fetcher.asked == [(0, 100)]
    _, wait = next(stream)
    assert len(wait()) == 100
    assert eventually(lambda: len(fetcher.asked) >= 3)
    assert [request.tag for request, wait in stream if wait()] == list(range(2, 30))


def test_a_reader_keeps_to_its_share_of_the_budget(make: Made) -> None:
    fetcher = Fetcher()
    stage = make(fetcher, max_bytes=10_000)
    for request, wait in stage.read_ahead(ranges([100] * 20), max_bytes=300):
        assert len(wait()) == request.size_bytes
        fetcher.done(request)
    assert fetcher.most_bytes <= 300


def test_requests_are_drawn_only_when_there_is_room(make: Made) -> None:
    drawn: list[int] = []

    def source() -> Iterator[RangeRequest]:
        for request in ranges([100] * 1000):
            drawn.append(request.tag)
            yield request

    stream = make(Fetcher(), max_bytes=300, range_bytes=100).read_ahead(source())
    assert not drawn
    next(stream)
    assert drawn == [0, 1, 2, 3]  # three have room; the fourth waits for it
    next(stream)
    assert drawn == [0, 1, 2, 3, 4]
    stream.close()
    assert len(drawn) == 5


def test_small_ranges_do_not_pile_up(make: Made) -> None:
    stage = make(Fetcher(), max_bytes=1000, range_bytes=500)
    assert stage.max_parallel == 2
    for size_bytes in (0, 1):
        source = iter(ranges([size_bytes] * 1000))
        stream = stage.read_ahead(source)
        next(stream)
        assert next(source).tag == 2 * stage.max_parallel + 1
        stream.close()


def test_nothing_to_read(make: Made) -> None:
    assert list(make(Fetcher()).read_ahead([])) == []


def test_an_error_comes_in_its_place_and_what_follows_is_still_to_be_had(make: Made) -> None:
    def fail(start_position: int) -> None:
        if start_position == 200:
            raise SegmentNotFound("gone", object_name="x.log")

    seen = []
    for request, wait in make(Fetcher(fail)).read_ahead(ranges([100] * 5)):
        seen.append(request.tag)
        if request.tag != 2:
            assert bytes(wait()) == body_of(request.start_position, request.end_position)
            continue
        with pytest.raises(SegmentNotFound) as caught:
            wait()
        assert (caught.value.topic, caught.value.partition, caught.value.object_name) == ("t", 4, "x.log")
    assert seen == [0, 1, 2, 3, 4]


def test_an_error_keeps_its_cause(make: Made) -> None:
    def fail(start_position: int) -> None:
        try:
            raise FileNotFoundError(2, "no such file")
        except FileNotFoundError as error:
            raise SegmentNotFound("gone", topic="nearer") from error

    with pytest.raises(SegmentNotFound) as caught:
        make(Fetcher(fail)).read(ranges([10])[0])
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert caught.value.topic == "nearer"


def test_a_mistake_of_the_fetcher_is_not_hidden(make: Made) -> None:
    def fail(start_position: int) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        make(Fetcher(fail)).read(ranges([10])[0])


def test_what_may_pass_is_tried_again_and_counted(make: Made) -> None:
    failures = iter([StorageThrottled("slow down"), StorageUnavailable("reset")])
    events: list[Event] = []

    def fail(start_position: int) -> None:
        for error in failures:
            raise error

    fetcher = Fetcher(fail)
    data = make(fetcher, observer=events.append).read(ranges([10])[0])
    assert bytes(data) == body_of(0, 10)
    assert fetcher.asked == [(0, 10)] * 3
    assert events[:2] == [RangeRetried(PARTITION, "throttled"), RangeRetried(PARTITION, "unavailable")]
    (fetched,) = events[2:]
    assert isinstance(fetched, RangeFetched)
    assert (fetched.partition, fetched.size_bytes, fetched.index_type) == (PARTITION, 10, None)
    assert 0 <= fetched.duration_s < SOON_S


def test_a_store_that_throttles_is_asked_for_less_at_once(make: Made) -> None:
    """Refused twice, two of eight may be under way, and one more after each round of answers."""
    lock, under_way, most, refusals = threading.Lock(), 0, 0, 2

    def before(start_position: int) -> None:
        nonlocal under_way, most, refusals
        with lock:
            refused, refusals = refusals > 0, refusals - 1
            if refused:
                raise StorageThrottled("slow down")
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.01)
        with lock:
            under_way -= 1

    counters = Counters()
    made = make(Fetcher(before), max_bytes=10_000, max_threads=8, observer=counters)
    first, *rest = ranges([100] * 13)
    assert len(made.read(first)) == 100
    for _, wait in made.read_ahead(rest):
        wait()
    assert most <= made._window.size == 5  # 2 + 3 + 4 answers make room for three more
    assert counters.report().retries == {"throttled": 2}


class Renewing(Fetcher):
    """Refuses until it has looked for its credentials."""

    refreshed = 0
    refuses_for_ever = False
    is_archived = False

    def refresh_credentials(self) -> None:
        self.refreshed += 1

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1) -> Any:
        data = super().fetch_log_segment(metadata, start_position, end_position)
        if not self.refreshed or self.refuses_for_ever:
            raise StorageDenied("expired", is_of_object=self.is_archived)
        return data


def test_a_refused_range_is_asked_for_again_with_new_credentials(make: Made) -> None:
    fetcher, counters = Renewing(), Counters()
    made = make(fetcher, observer=counters)
    requests = ranges([100] * 5)
    assert [bytes(wait()) for _, wait in made.read_ahead(requests)] == [
        body_of(request.start_position, request.end_position) for request in requests
    ]
    assert fetcher.refreshed == 1
    assert set(counters.report().retries) == {"auth"}


def test_a_refusal_that_new_credentials_do_not_end_is_raised(make: Made) -> None:
    fetcher = Renewing()
    fetcher.refuses_for_ever = True
    made = make(fetcher)
    for _ in range(2):
        with pytest.raises(StorageDenied):
            made.read(ranges([100])[0])
    assert fetcher.refreshed == 1
    assert len(fetcher.asked) == 3  # the second range is not asked for twice


def test_other_credentials_do_not_restore_an_object(make: Made) -> None:
    fetcher = Renewing()
    fetcher.is_archived = True
    with pytest.raises(StorageDenied):
        make(fetcher).read(ranges([100])[0])
    assert (fetcher.refreshed, len(fetcher.asked)) == (0, 1)


def test_retries_end_with_the_time_limit(make: Made) -> None:
    def fail(start_position: int) -> None:
        raise StorageThrottled("slow down")

    fetcher = Fetcher(fail)
    with pytest.raises((StorageThrottled, StorageTimeout)):
        make(fetcher, timeout_ms=60, backoff_ms=10).read(ranges([10])[0])
    assert len(fetcher.asked) <= 4  # pauses of 5, 10 and 20 ms at least, and the next one would be too long


def test_a_late_range_is_given_up_and_those_behind_it_are_not(make: Made, release: threading.Event) -> None:
    fetcher = Fetcher(lambda start_position: None if start_position else hang(release))
    counters = Counters()
    stream = make(fetcher, timeout_ms=40, observer=counters).read_ahead(ranges([100] * 3))
    _, wait = next(stream)
    with pytest.raises(StorageTimeout):
        wait()
    release.set()
    assert eventually(lambda: counters.report().remote_gets == 3)
    with pytest.raises(Cancelled):
        wait()
    assert [request.tag for request, _ in stream] == [1, 2]
    assert len(fetcher.asked) == 3


def test_what_a_fetcher_answers_becomes_plain_bytes(make: Made) -> None:
    class Typed(Fetcher):
        def fetch_log_segment(self, *where: Any) -> Buffer:
            return memoryview(b"abcdefgh").cast("I")

    data = make(Typed()).read(ranges([8])[0])
    assert (data.format, data.nbytes, bytes(data)) == ("B", 8, b"abcdefgh")


def test_an_abandoned_stream_cancels_what_has_not_begun(
    make: Made, release: threading.Event, threads: Callable[[], list[threading.Thread]]
) -> None:
    begun = threading.Semaphore(0)

    def begin(start_position: int) -> None:
        begun.release()
        hang(release)

    fetcher = Fetcher(begin)
    stage = make(fetcher, max_threads=2)
    stream = stage.read_ahead(ranges([100] * 8))
    next(stream)
    assert begun.acquire(timeout=SOON_S)
    assert begun.acquire(timeout=SOON_S)
    stream.close()
    release.set()
    assert stage.read(RangeRequest(SEGMENT, 5000, 5010)) == body_of(5000, 5010)
    assert sorted(fetcher.asked) == [(0, 100), (100, 200), (5000, 5010)]
    assert stage.close() == 0
    assert not threads()


def test_a_stream_that_is_forgotten_is_abandoned(make: Made, release: threading.Event) -> None:
    fetcher = Fetcher(lambda start_position: hang(release))
    stage = make(fetcher, max_threads=1)
    stream = stage.read_ahead(ranges([100] * 4))
    next(stream)
    assert eventually(lambda: len(fetcher.asked) == 1)
    del stream
    gc.collect()
    release.set()
    stage.read(RangeRequest(SEGMENT, 5000, 5010))
    assert fetcher.asked == [(0, 100), (5000, 5010)]


def test_bytes_are_freed_before_more_are_asked_for(make: Made) -> None:
    class Watched(bytearray):
        pass

    answers: dict[int, weakref.ref[Watched]] = {}

    class Watching(Fetcher):
        def fetch_log_segment(
            self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
        ) -> Buffer:
            answer = Watched(100)
            answers[start_position // 100] = weakref.ref(answer)
            return answer

    def source() -> Iterator[RangeRequest]:
        for request in ranges([100] * 10):
            if request.tag >= 3:  # two have room, and the third was drawn to be the next
                freed.append(eventually(lambda gone=request.tag - 3: answers[gone]() is None))  # type: ignore[misc]
            yield request

    freed: list[bool] = []
    for _, wait in make(Watching(), max_bytes=200).read_ahead(source()):
        wait()
        del wait
    assert freed == [True] * 7
    assert eventually(lambda: all(answer() is None for answer in answers.values()))


@pytest.mark.parametrize(
    "read",
    [
        lambda stage: stage.read(ranges([10])[0]),
        lambda stage: stage.read_index(SEGMENT, IndexType.OFFSET),
        lambda stage: next(stage.read_ahead(ranges([10])))[1](),
        lambda stage: next(stage.read_indexes([SEGMENT], IndexType.OFFSET)),
    ],
)
def test_nothing_is_read_after_close(make: Made, read: Callable[[RangeReader], object]) -> None:
    fetcher = Fetcher()
    stage = make(fetcher)
    assert stage.close() == 0
    assert fetcher.closed == 1
    with pytest.raises(Cancelled):
        read(stage)
    assert not fetcher.asked


def test_close_frees_whoever_waits(
    make: Made, release: threading.Event, threads: Callable[[], list[threading.Thread]]
) -> None:
    fetcher = Fetcher(lambda start_position: hang(release))
    stage = make(fetcher, timeout_ms=100, max_threads=1)
    waits = [wait for _, wait in itertools.islice(stage.read_ahead(ranges([100] * 4)), 1)]
    assert eventually(lambda: bool(fetcher.asked))
    heard: list[RemoteFetchError] = []

    def hear() -> None:
        try:
            stage.read(RangeRequest(SEGMENT, 900, 910))
        except RemoteFetchError as error:
            heard.append(error)

    waiter = threading.Thread(target=hear)
    waiter.start()
    assert stage.close() == 1  # one GET hangs on
    waiter.join(SOON_S)
    assert isinstance(heard[0], (Cancelled, StorageTimeout))
    with pytest.raises(Cancelled):
        waits[0]()
    assert fetcher.closed == 1
    release.set()
    assert eventually(lambda: not threads())


def test_a_range_that_is_given_up_leaves_its_thread(make: Made) -> None:
    """After a seek its attempts would go on until their deadline, and the ranges behind the seek would wait for it."""

    def fail(start_position: int) -> None:
        if start_position < 1000:
            failed.set()
            raise StorageUnavailable("away")

    failed = threading.Event()
    store = Fetcher(fail)
    one = make(store, timeout_ms=60_000, backoff_ms=20_000, max_threads=1)
    stream = one.read_ahead(RangeRequest(SEGMENT, start, start + 10) for start in (0, 10))
    _, wait = next(stream)
    assert failed.wait(SOON_S)
    wait.cancel()
    stream.close()
    assert bytes(one.read(RangeRequest(SEGMENT, 1000, 1010))) == body_of(1000, 1010)
    assert store.asked == [(0, 10), (1000, 1010)]


def test_a_range_that_is_given_up_while_credentials_are_looked_for_is_not_asked_for(make: Made) -> None:
    """The look-up may take half a minute. The ranges behind the seek come next."""

    class Renewing(Fetcher):
        def refresh_credentials(self) -> None:
            wait.cancel()

    def refuse(start_position: int) -> None:
        may_go.wait(SOON_S)
        if start_position < 1000:
            raise StorageDenied("expired")

    may_go = threading.Event()
    store = Renewing(refuse)
    one = make(store, max_threads=1)
    _, wait = next(one.read_ahead([RangeRequest(SEGMENT, 0, 10)]))
    may_go.set()
    assert bytes(one.read(RangeRequest(SEGMENT, 1000, 1010))) == body_of(1000, 1010)
    assert store.asked == [(0, 10), (1000, 1010)]


def test_close_ends_the_pause_of_a_retry(make: Made) -> None:
    failed = threading.Event()

    def fail(start_position: int) -> None:
        failed.set()
        raise StorageThrottled("slow down")

    stage = make(Fetcher(fail), timeout_ms=200_000, backoff_ms=100_000)
    next(stage.read_ahead(ranges([10])))
    assert failed.wait(SOON_S)
    began = time.monotonic()
    assert stage.close() == 0
    assert time.monotonic() - began < 45  # of a pause of 50 s at least


@pytest.mark.parametrize(
    ("max_bytes", "range_bytes", "max_threads", "range_expected", "parallel"),
    [
        (1000, 100, 16, 100, 10),
        (1000, 100, 4, 100, 4),
        (1000, 5000, 16, 1000, 1),
        (1000, 600, 16, 600, 1),
        (1000, 100, 0, 100, 1),
    ],
)
def test_sizes_fit_the_budget(
    make: Made, max_bytes: int, range_bytes: int, max_threads: int, range_expected: int, parallel: int
) -> None:
    stage = make(Fetcher(), max_bytes=max_bytes, range_bytes=range_bytes, max_threads=max_threads)
    assert (stage.range_bytes, stage.max_parallel) == (range_expected, parallel)


def test_no_thread_before_the_first_range(make: Made, threads: Callable[[], list[threading.Thread]]) -> None:
    make(Fetcher())
    assert not threads()


def test_an_index(make: Made) -> None:
    events: list[Event] = []
    data = make(Fetcher(), observer=events.append).read_index(SEGMENT, IndexType.TRANSACTION)
    assert data is not None
    assert bytes(data) == b"index"
    (event,) = events
    assert isinstance(event, RangeFetched)
    assert (event.size_bytes, event.index_type) == (5, IndexType.TRANSACTION)


def test_an_index_that_does_not_exist(make: Made) -> None:
    counters = Counters()
    stage = make(Fetcher(index=lambda segment, index_type: None), observer=counters)
    assert stage.read_index(SEGMENT, IndexType.TRANSACTION) is None
    assert (counters.report().index_gets, counters.report().index_bytes) == (1, 0)


def segments(count: int) -> list[RemoteLogSegmentMetadata]:
    return [
        RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(bytes(15) + bytes([number]))), number, number, 1)
        for number in range(count)
    ]


def test_indexes_in_order_a_few_at_a_time(make: Made) -> None:
    drawn: list[int] = []

    def source() -> Iterator[RemoteLogSegmentMetadata]:
        for segment in segments(20):
            drawn.append(segment.start_offset)
            yield segment

    def index(segment: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        time.sleep(0.001 * (segment.start_offset % 3))
        return None if segment.start_offset % 5 == 0 else bytes([segment.start_offset])

    stream = make(Fetcher(index=index), max_threads=2).read_indexes(source(), IndexType.TRANSACTION)
    first, data = next(stream)
    assert (first.start_offset, data) == (0, None)
    assert drawn == [0, 1, 2, 3]
    rest = [(segment.start_offset, None if data is None else bytes(data)) for segment, data in stream]
    assert rest == [(number, None if number % 5 == 0 else bytes([number])) for number in range(1, 20)]


def test_an_error_among_the_indexes_cancels_the_rest(make: Made, release: threading.Event) -> None:
    asked = []

    def index(segment: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        asked.append(segment.start_offset)
        if segment.start_offset == 0:
            raise SegmentNotFound("gone")
        hang(release)
        return b""

    stage = make(Fetcher(index=index), max_threads=1)
    with pytest.raises(SegmentNotFound, match="t-4"):
        list(stage.read_indexes(segments(10), IndexType.TRANSACTION))
    release.set()
    assert stage.close() == 0
    assert asked in ([0], [0, 1])


def test_a_timeout_tells_the_failure_of_the_attempt_before(make: Made, release: threading.Event) -> None:
    def fail(start_position: int) -> None:
        if len(fetcher.asked) > 1:
            hang(release)
        raise StorageUnavailable("the store failed", hint="Ask its owner")

    fetcher = Fetcher(fail)
    _, wait = next(make(fetcher).read_ahead([RangeRequest(SEGMENT, 0, 1)]))
    assert eventually(lambda: len(fetcher.asked) == 2)
    wait._call._started_at -= 2 * SOON_S  # type: ignore[operator]
    with pytest.raises(StorageTimeout, match="within 30000 ms; the attempt before failed: the store failed") as caught:
        wait()
    assert caught.value.hint == "Ask its owner"


@pytest.mark.parametrize(
    "read",
    [
        lambda stage: stage.read(RangeRequest(SEGMENT, 1, 2)),
        lambda stage: stage.read_index(SEGMENT, IndexType.OFFSET),
        lambda stage: list(stage.read_indexes([SEGMENT], IndexType.OFFSET)),
    ],
    ids=["range", "index", "indexes"],
)
def test_what_has_not_begun_in_time_is_not_read_later(
    make: Made, release: threading.Event, read: Callable[[RangeReader], object]
) -> None:
    def index(segment: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        asked.append(segment)
        return b""

    asked: list[RemoteLogSegmentMetadata] = []
    fetcher = Fetcher(lambda start_position: hang(release), index)
    stage = make(fetcher, max_threads=1, timeout_ms=50)
    next(stage.read_ahead([RangeRequest(SEGMENT, 0, 1)]))
    assert eventually(lambda: stage.is_asking and bool(fetcher.asked))
    with pytest.raises(StorageTimeout):
        read(stage)
    release.set()
    assert eventually(lambda: not stage.is_asking)
    assert (fetcher.asked, asked) == ([(0, 1)], [])


def test_a_reader_that_is_forgotten_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    forgotten = reader(Fetcher())
    for _, wait in forgotten.read_ahead(ranges([100] * 8)):
        wait()
    own = set(threading.enumerate()) - before
    assert own
    del forgotten, wait
    gc.collect()
    assert eventually(lambda: not any(thread.is_alive() for thread in own))
