"""The retry policy: what is tried again, when, and until when. A clock that only pauses move stands in for time."""

from __future__ import annotations

import random
import threading

import pytest

from remote_fetch.errors import (
    RemoteFetchError,
    SegmentNotFound,
    StorageConnectTimeout,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch import retry_policy
from remote_fetch.fetch.retry_policy import RetryPolicy


class Clock(threading.Event):
    """A clock and the event that the pauses wait for, in one: a pause moves the clock, and is noted."""

    def __init__(self, closes_at: int | None = None) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.pauses_s: list[float] = []
        self._closes_at = closes_at

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses_s.append(timeout)
        self.now_s += timeout
        return self._closes_at == len(self.pauses_s)


class Middle(random.Random):
    """Draws the middle, and keeps what was asked for."""

    def uniform(self, a: float, b: float) -> float:
        self.bounds = (a, b)
        return (a + b) / 2


class Store:
    """Fails with the errors one after the other, then answers; each call takes `call_s`."""

    def __init__(self, clock: Clock, errors: list[Exception], call_s: float = 0.0) -> None:
        self.calls = 0
        self._clock, self._errors, self._call_s = clock, errors, call_s

    def __call__(self) -> str:
        self.calls += 1
        self._clock.now_s += self._call_s
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retry_policy, "time", clock)
    return clock


def ignore(error: RemoteFetchError) -> None:
    pass


def refuse(error: RemoteFetchError) -> None:
    pytest.fail(f"tried again after {error!r}")


def test_the_first_answer_is_enough(clock: Clock) -> None:
    store = Store(clock, [])
    assert RetryPolicy(5000, 100).call(store, on_retry=refuse, given_up=clock) == "answer"
    assert (store.calls, clock.pauses_s) == (1, [])


def test_what_may_pass_is_tried_again_and_reported(clock: Clock) -> None:
    errors = [StorageThrottled("slow down"), StorageUnavailable("reset"), StorageThrottled("slow down")]
    heard: list[RemoteFetchError] = []
    policy = RetryPolicy(5000, 100, Middle())
    assert policy.call(Store(clock, list(errors)), on_retry=heard.append, given_up=clock) == "answer"
    assert heard == errors
    assert clock.pauses_s == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize(
    "error", [SegmentNotFound("gone"), StorageDenied("no"), StorageTimeout("late"), ValueError("a bug")]
)
def test_what_will_not_pass_is_raised_at_once(clock: Clock, error: Exception) -> None:
    store = Store(clock, [error])
    with pytest.raises(type(error)) as caught:
        RetryPolicy(5000, 100).call(store, on_retry=refuse, given_up=clock)
    assert caught.value is error
    assert store.calls == 1


def test_an_error_for_good_ends_the_retries(clock: Clock) -> None:
    store = Store(clock, [StorageThrottled("slow down"), SegmentNotFound("gone")])
    with pytest.raises(SegmentNotFound):
        RetryPolicy(5000, 100).call(store, on_retry=ignore, given_up=clock)
    assert store.calls == 2


@pytest.mark.parametrize("seed", range(20))
def test_never_beyond_the_deadline(clock: Clock, seed: int) -> None:
    draw = random.Random(seed)
    timeout_ms, backoff_ms = draw.randint(400, 5000), draw.randint(1, 500)
    last = StorageThrottled("the last")
    store = Store(clock, [StorageThrottled("slow down") for _ in range(40)], call_s=draw.uniform(0, 0.5))
    began = clock.now_s
    with pytest.raises(StorageThrottled) as caught:
        RetryPolicy(timeout_ms, backoff_ms, draw).call(
            store, on_retry=lambda error: setattr(last, "hint", error.message), given_up=clock
        )
    assert caught.value.retriable
    assert store.calls == len(clock.pauses_s) + 1
    paused_until = clock.now_s - store._call_s
    assert paused_until < began + timeout_ms / 1000 or store.calls == 1


def test_no_pause_that_would_end_after_the_deadline(clock: Clock) -> None:
    errors: list[Exception] = [StorageThrottled(str(number)) for number in range(5)]
    heard: list[RemoteFetchError] = []
    with pytest.raises(StorageThrottled, match="2"):
        RetryPolicy(700, 100, Middle()).call(Store(clock, errors), on_retry=heard.append, given_up=clock)
    assert clock.pauses_s == pytest.approx([0.1, 0.2])  # and 0.4 would end exactly with the deadline
    assert [error.message for error in heard] == ["0", "1"]


@pytest.mark.parametrize("error", [StorageTimeout("too late"), StorageUnavailable("reset"), StorageConnectTimeout("x")])
def test_an_attempt_in_which_the_process_stood_still_is_made_again(clock: Clock, error: RemoteFetchError) -> None:
    store, heard = Store(clock, [error], call_s=8), list[RemoteFetchError]()
    assert RetryPolicy(5000, 100).call(store, on_retry=heard.append, given_up=clock) == "answer"
    assert heard == [error]


def test_an_attempt_that_takes_too_long_is_made_again_once(clock: Clock) -> None:
    """A store may stand still for longer than the limit too, and a call that was started ahead has no caller yet."""
    store = Store(clock, [StorageTimeout(str(number)) for number in range(9)], call_s=8)
    with pytest.raises(StorageTimeout, match="1"):
        RetryPolicy(5000, 100).call(store, on_retry=ignore, given_up=clock)
    assert store.calls == 2


def test_an_attempt_in_which_the_process_stood_still_keeps_its_other_errors(clock: Clock) -> None:
    store = Store(clock, [SegmentNotFound("gone")], call_s=8)
    with pytest.raises(SegmentNotFound):
        RetryPolicy(5000, 100).call(store, on_retry=ignore, given_up=clock)


def test_pauses_are_jittered_by_half(clock: Clock) -> None:
    middle = Middle()
    RetryPolicy(5000, 100, middle).call(Store(clock, [StorageThrottled("slow down")]), on_retry=ignore, given_up=clock)
    assert middle.bounds == (0.5, 1.5)


def test_two_readers_do_not_come_back_together(clock: Clock) -> None:
    for _ in range(2):
        errors: list[Exception] = [StorageThrottled("slow down")]
        RetryPolicy(5000, 100).call(Store(clock, errors), on_retry=ignore, given_up=clock)
    first, second = clock.pauses_s
    assert first != second
    assert all(0.05 <= pause_s <= 0.15 for pause_s in clock.pauses_s)


def test_giving_up_ends_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(closes_at=2)
    monkeypatch.setattr(retry_policy, "time", clock)
    store = Store(clock, [StorageThrottled(str(number)) for number in range(5)])
    with pytest.raises(StorageThrottled, match="1"):
        RetryPolicy(5000, 100).call(store, on_retry=ignore, given_up=clock)
    assert store.calls == 2


def test_a_call_that_is_given_up_makes_no_other_attempt() -> None:
    given_up = threading.Event()
    given_up.set()
    store = Store(Clock(), [StorageThrottled("slow down")])
    retried: list[RemoteFetchError] = []
    with pytest.raises(StorageThrottled):
        RetryPolicy(60_000, 10_000).call(store, on_retry=retried.append, given_up=given_up)
    assert (store.calls, retried) == (1, [])


def test_the_representation_tells_both_times() -> None:
    assert repr(RetryPolicy(5000, 100)) == "RetryPolicy(timeout_ms=5000, backoff_ms=100)"
