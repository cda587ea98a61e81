"""A budget of bytes and GETs a second: the times that it gives, and a reader that waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import Cancelled, RemoteFetchError, StorageThrottled, StorageUnavailable
from remote_fetch.fetch import pool
from remote_fetch.fetch.budget import Budget, Place
from remote_fetch.fetch.readahead import RangeReader, RangeRequest
from remote_fetch.fetch.retry_policy import RetryPolicy
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata
from remote_fetch.observe import ignore
from remote_fetch.session.budgets import BudgetLease
from tests.at_once import at_once
from tests.clock import Clock
from tests.eventually import eventually
from tests.fetch.test_readahead import segments

SIZE = 1_000_000
SEGMENT = segments(1)[0]


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


def starts(clock: Clock, places: Sequence[Place]) -> list[float]:
    """When each of these GETs starts, if each waits as long as the budget tells it."""
    found = []
    for place in places:
        while (left_s := place.wait_s()) > 0:
            clock.now_s += left_s
        found.append(clock.now_s)
    return found


def lined_up(budget: Budget, *sizes: int) -> list[Place]:
    return [budget.line_up(size) for size in sizes]


def next_start_s(budget: Budget) -> float:
    """The seconds until the next GET may start."""
    place = budget.line_up(0)
    left_s = place.wait_s()
    place.leave()
    return left_s


class TestTimes:
    def test_bytes_follow_each_other_at_the_rate(self, clock: Clock) -> None:
        budget = Budget(1000, None, clock)
        assert starts(clock, lined_up(budget, 500, 2000, 0, 1)) == [100.0, 100.5, 102.5, 102.5]

    def test_gets_follow_each_other_at_the_rate(self, clock: Clock) -> None:
        budget = Budget(None, 4, clock)
        assert starts(clock, lined_up(budget, 10**9, 10**9, 10**9)) == [100.0, 100.25, 100.5]

    def test_the_narrower_limit_counts(self, clock: Clock) -> None:
        budget = Budget(1000, 2, clock)
        assert starts(clock, lined_up(budget, 100, 100, 3000, 0)) == pytest.approx([100.0, 100.5, 101.0, 104.0])

    def test_a_pause_saves_nothing_up(self, clock: Clock) -> None:
        budget = Budget(1000, 10, clock)
        places = lined_up(budget, 1000, 1000, 1000, 1000)
        assert starts(clock, places[:1]) == [100.0]
        clock.now_s = 200.0
        assert starts(clock, places[1:]) == pytest.approx([200.0, 200.9, 201.9])

    def test_a_thread_that_comes_late_takes_no_time_of_the_next(self, clock: Clock) -> None:
        """By a tenth of a second at most. The rate stays that of the budget."""
        budget = Budget(None, 4, clock)
        found = []
        for place in lined_up(budget, *[0] * 9):
            while (left_s := place.wait_s()) > 0:
                clock.now_s += left_s + 0.05
            found.append(clock.now_s)
        assert found == pytest.approx([100.0, *(100.3 + each / 4 for each in range(8))])

    def test_the_end_of_a_get_takes_no_time_of_a_late_thread(self, clock: Clock) -> None:
        budget = Budget(1000, 4, clock)
        first, second, third = lined_up(budget, 250, 250, 250)
        assert starts(clock, [first]) == [100.0]
        clock.now_s = 100.3
        budget.charge(0)
        assert starts(clock, [second, third]) == pytest.approx([100.3, 100.5])

    def test_what_came_without_a_reservation_delays_the_next(self, clock: Clock) -> None:
        budget = Budget(1000, 10, clock)
        assert next_start_s(budget) == 0
        budget.charge(500, gets=1)
        assert next_start_s(budget) == 0.5
        budget.charge(-500)
        assert next_start_s(budget) == pytest.approx(0.2)

    def test_places_that_are_left_leave_no_gap_and_no_burst(self, clock: Clock) -> None:
        """Those behind move up. One that lines up later does not start beside them."""
        budget = Budget(1, None, clock)
        first, others = lined_up(budget, *[10] * 8), lined_up(budget, *[10] * 3)
        assert starts(clock, first[:1]) == [100.0]
        assert [place.wait_s() for place in others] == [80.0, 90.0, 100.0]
        for place in (*first[1:], *first):
            place.leave()
        assert [place.wait_s() for place in others] == [10.0, 20.0, 30.0]
        assert starts(clock, [*others, *lined_up(budget, 10)]) == [110.0, 120.0, 130.0, 140.0]

    def test_a_place_behind_others_waits_until_there_is_room_for_all(self, clock: Clock) -> None:
        """The thread of the first one may come late. Then those behind do not wait for it."""
        first, ahead, behind = lined_up(Budget(1024, None, clock), 0, 64, 0)
        assert behind.wait_s() == 1 / 16
        clock.now_s += 1 / 16
        assert (behind.wait_s(), ahead.wait_s(), first.wait_s()) == (0, 0, 0)


class Store:
    """A fetcher that notes when each GET began and how much it asked for."""

    def __init__(self, failures: int = 0, error: RemoteFetchError | None = None) -> None:
        self.begun: list[tuple[float, int]] = []
        self._failures = failures
        self._error = error or StorageThrottled("slow down")
        self._lock = threading.Lock()

    def configure(self, configs: object) -> None: ...

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int = -1) -> Buffer:
        with self._lock:
            self.begun.append((time.monotonic(), end - start))
            self._failures -= 1
            if self._failures >= 0:
                raise self._error
        return bytes(end - start)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        with self._lock:
            self.begun.append((time.monotonic(), 0))
        return bytes(600)

    def close(self) -> None: ...


def reader(store: Store, budget: Budget, timeout_ms: int = 30_000, backoff_ms: int = 1) -> RangeReader:
    policy = RetryPolicy(timeout_ms, backoff_ms)
    return RangeReader(store, policy, max_bytes=8 * SIZE, range_bytes=SIZE, observer=ignore, budget=budget)


def requests(count: int, size: int = SIZE) -> list[RangeRequest]:
    return [RangeRequest(SEGMENT, at * size, (at + 1) * size) for at in range(count)]


def test_gets_begin_no_sooner_than_the_budget_lets_them() -> None:
    """However many threads, generators and indexes: bytes that began by a time are no more than its budget."""
    store, rate = Store(), 20 * SIZE
    open_reader = reader(store, Budget(rate, 100))
    began = time.monotonic()

    def read() -> None:
        for _, awaited in open_reader.read_ahead(requests(5)):
            awaited()
        open_reader.read_index(SEGMENT, IndexType.OFFSET)

    at_once([read] * 4)
    open_reader.close()
    assert len(store.begun) == 4 * 6
    before = 0
    for number, (at, size) in enumerate(sorted(store.begun)):
        assert not size or before <= (at - began) * rate + 1  # an index may begin together with a range
        assert number <= (at - began) * 100 + 1
        before += size


def test_waiting_for_the_budget_counts_against_no_timeout(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Each range waits for 200 ms. The clock moves only when the budget is asked."""

    def moved_s() -> float:
        clock.now_s += 0.02
        return clock()

    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(pool, "_CANCEL_CHECK_S", 0.01)
    open_reader = reader(Store(), Budget(5 * SIZE, None, moved_s), timeout_ms=100)
    found = [awaited() for _, awaited in open_reader.read_ahead(requests(4))]
    open_reader.close()
    assert [len(each) for each in found] == [SIZE] * 4


def test_an_attempt_is_charged_when_it_begins() -> None:
    """Not before the pause, which may be the end of the read."""
    budget = Budget(None, 1, clock=lambda: 0.0)
    failed = threading.Event()
    policy = RetryPolicy(60_000, 20_000)
    open_reader = RangeReader(
        Store(failures=1), policy, max_bytes=SIZE, range_bytes=SIZE, observer=lambda event: failed.set(), budget=budget
    )

    def read() -> None:
        with suppress(StorageThrottled, Cancelled):
            open_reader.read(requests(1)[0])

    reading = threading.Thread(target=read)
    reading.start()
    assert failed.wait(10)
    assert next_start_s(budget) == pytest.approx(1)
    open_reader.close()
    reading.join(10)
    assert next_start_s(budget) == pytest.approx(1)


def test_another_attempt_is_charged() -> None:
    budget = Budget(None, 50, clock=lambda: 0.0)
    open_reader = reader(Store(failures=3), budget)
    open_reader.read(requests(1)[0])
    assert next_start_s(budget) == pytest.approx(4 / 50)
    open_reader.close()


def test_a_range_that_is_shorter_gives_the_rest_back() -> None:
    class Short(Store):
        def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int = -1) -> Buffer:
            return b"x"

    budget = Budget(SIZE, None)
    open_reader = reader(Short(), budget)
    for request in requests(3):
        open_reader.read(request)
    assert next_start_s(budget) < 0.5
    open_reader.close()


def test_a_question_for_a_size_is_outside_of_the_budget() -> None:
    class Sized(Store):
        def size(self, metadata: RemoteLogSegmentMetadata) -> int:
            return len(self.fetch_log_segment(metadata, 0, 7))

    budget = Budget(None, 1, clock=lambda: 0.0)
    open_reader = reader(Sized(failures=1), budget)
    question = open_reader.start_size(SEGMENT)
    assert question is not None
    assert question.wait(10_000) == 7
    open_reader.close()
    assert next_start_s(budget) == 0


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (StorageThrottled("slow down"), 0),
        (StorageUnavailable("refused", may_have_sent=False), 0),
        (StorageUnavailable("broke off"), SIZE),
    ],
)
def test_a_get_that_brought_nothing_gives_its_bytes_back(error: RemoteFetchError, counted: int) -> None:
    """The next GET does not wait for them. Of a body that broke off a part came, and it counts as a whole."""
    budget = Budget(SIZE, None, clock=lambda: 0.0)
    open_reader = reader(Store(failures=1, error=error), budget, backoff_ms=60_000)  # no time for another attempt
    with pytest.raises(type(error)):
        open_reader.read(requests(1)[0])
    open_reader.close()
    assert next_start_s(budget) == pytest.approx(counted / SIZE)


@pytest.mark.parametrize(
    ("error", "counted"), [(StorageThrottled("slow down"), SIZE), (StorageUnavailable("broke off"), 4 * SIZE)]
)
def test_another_attempt_counts_the_bytes_that_may_have_come_before(error: RemoteFetchError, counted: int) -> None:
    budget = Budget(SIZE, None, clock=lambda: 0.0)
    open_reader = reader(Store(failures=3, error=error), budget)
    open_reader.read(requests(1)[0])
    open_reader.close()
    assert next_start_s(budget) == pytest.approx(counted / SIZE)


def test_a_get_that_is_cancelled_before_its_turn_counts_nothing() -> None:
    """As after a seek: what was read ahead is not asked for, and the next range does not wait for its turn."""
    now_s = time.monotonic()
    budget = Budget(1, 1, clock=lambda: now_s)  # a range takes more than a week
    open_reader = reader(Store(), budget)
    ranges = open_reader.read_ahead(requests(4))
    next(ranges)
    _, second = next(ranges)
    assert eventually(lambda: next_start_s(budget) == pytest.approx(4 * SIZE))
    ranges.close()
    assert eventually(lambda: next_start_s(budget) == pytest.approx(2 * SIZE))  # the generator has yielded two
    second.cancel()
    assert eventually(lambda: next_start_s(budget) == pytest.approx(SIZE))
    open_reader.close()


@pytest.mark.parametrize("end", ["close", "generator"])
def test_a_wait_for_the_budget_can_be_ended(end: str) -> None:
    store = Store()
    open_reader = reader(store, Budget(1, None))  # the second range would come in a week
    ranges = open_reader.read_ahead(requests(3))
    _, first = next(ranges)
    first()
    _, second = next(ranges)
    left_behind: list[int] = []
    closer = threading.Timer(0.05, lambda: left_behind.append(open_reader.close()))
    if end == "generator":
        ranges.close()
    closer.start()
    with pytest.raises(Cancelled):
        second()
    closer.join()
    assert left_behind == [0]
    assert len(store.begun) == 1


class TestSessions:
    def lease(self, **more: object) -> BudgetLease:
        keys = {name.replace("_", "."): value for name, value in more.items()}
        return BudgetLease(Config.parse({"remote.storage.url": "/x", **keys}).settings)

    def test_sessions_with_the_same_limits_share_one_budget(self) -> None:
        limits = {"fetch_remote_max_bytes_per_second": 5000, "fetch_remote_max_gets_per_second": 5}
        first, second, other = (
            self.lease(**limits),
            self.lease(**limits),
            self.lease(fetch_remote_max_gets_per_second=5),
        )
        assert first.budget is second.budget is not None
        assert other.budget is not first.budget
        shared = first.budget
        first.give_back()
        first.give_back()
        third = self.lease(**limits)
        assert third.budget is shared
        for lease in (second, third, other):
            lease.give_back()
        last = self.lease(**limits)
        assert last.budget is not shared
        last.give_back()

    def test_without_a_limit_there_is_none(self) -> None:
        lease = self.lease()
        assert lease.budget is None
        assert lease.range_bytes(7) == 7
        lease.give_back()

    def test_processes_take_a_part_each(self) -> None:
        lease = self.lease(fetch_remote_max_bytes_per_second=4_000_000, fetch_remote_budget_processes=4)
        assert lease.budget is not None
        assert lease.budget.line_up(100_000_000).wait_s() == 0
        assert next_start_s(lease.budget) == pytest.approx(100, abs=50)
        assert lease.range_bytes(8 << 20) == 1_000_000
        lease.give_back()
