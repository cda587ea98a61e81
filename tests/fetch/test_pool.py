"""The pool of daemon threads: order, deadlines, calls that hang, and that nothing is left when it is closed.

Rules of the file:

- A call that has to hang waits for an event that the test sets in the end.
- No test sleeps for longer than a moment.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from remote_fetch.errors import Cancelled, SegmentNotFound, StorageTimeout
from remote_fetch.fetch import pool as pool_module
from remote_fetch.fetch.pool import Call, DaemonPool
from remote_fetch.fetch.window import Window
from tests.clock import Clock
from tests.eventually import eventually

SOON_S = 30
SOON_MS = 1000 * SOON_S
"""Long enough for anything that does not hang."""
SHORT_MS = 40


class Result:
    """Something that a weak reference can watch."""


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def make() -> Iterator[Callable[[int], DaemonPool]]:
    pools: list[DaemonPool] = []

    def made(threads: int) -> DaemonPool:
        pools.append(DaemonPool(threads, name=f"pool-{len(pools)}"))
        return pools[-1]

    yield made
    for pool in pools:
        pool.close(SOON_MS)


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def hang_until(release: threading.Event, begun: threading.Event) -> Callable[[], str]:
    def function() -> str:
        begun.set()
        release.wait(2 * SOON_S)
        return "late"

    return function


def test_results_and_errors_reach_whoever_waits(make: Callable[[int], DaemonPool]) -> None:
    pool = make(2)
    calls = [pool.submit(lambda number=number: number * number) for number in range(10)]  # type: ignore[misc]
    assert [call.wait(SOON_MS) for call in calls] == [number * number for number in range(10)]
    failing: Call[int] = pool.submit(lambda: 1 // 0)
    for _ in range(2):  # whoever asks again hears the same
        with pytest.raises(ZeroDivisionError):
            failing.wait(SOON_MS)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_no_error_ends_a_thread(make: Callable[[int], DaemonPool], error: BaseException) -> None:
    def fail() -> None:
        raise error

    pool = make(1)
    failing = pool.submit(fail)
    with pytest.raises(type(error)):
        failing.wait(SOON_MS)
    assert pool.submit(lambda: 7).wait(SOON_MS) == 7


def test_calls_begin_in_the_order_they_were_submitted(
    make: Callable[[int], DaemonPool], release: threading.Event
) -> None:
    pool, begun, order = make(1), threading.Event(), []
    pool.submit(hang_until(release, begun))
    calls = [pool.submit(lambda number=number: order.append(number)) for number in range(50)]  # type: ignore[misc]
    assert not order
    release.set()
    for call in calls:
        call.wait(SOON_MS)
    assert order == list(range(50))


def test_threads_start_when_needed_and_are_daemons(make: Callable[[int], DaemonPool], release: threading.Event) -> None:
    pool = make(3)
    assert not threads_named("pool-0")
    begun = [threading.Event() for _ in range(5)]
    for number, event in enumerate(begun):
        pool.submit(hang_until(release, event))
        assert len(threads_named("pool-0")) == min(number + 1, 3)
    assert all(event.wait(SOON_S) for event in begun[:3])
    assert not any(event.is_set() for event in begun[3:])
    assert all(thread.daemon for thread in threads_named("pool-0"))
    assert [thread.name for thread in threads_named("pool-0")] == ["pool-0-0", "pool-0-1", "pool-0-2"]
    release.set()
    assert all(event.wait(SOON_S) for event in begun)


def test_an_idle_thread_is_used_again(make: Callable[[int], DaemonPool]) -> None:
    pool = make(8)
    for _ in range(3):
        pool.submit(lambda: None).wait(SOON_MS)
        assert eventually(lambda: not pool._open)
    assert len(threads_named("pool-0")) == 1


def test_a_hanging_call_never_blocks_one_that_has_a_thread_to_get(
    make: Callable[[int], DaemonPool], release: threading.Event
) -> None:
    # The thread of the first call may just be taking the second from the queue when the third is submitted.
    for _ in range(30):
        pool = make(2)
        pool.submit(lambda: None).wait(SOON_MS)
        pool.submit(hang_until(release, threading.Event()))
        assert pool.submit(lambda: "through").wait(SOON_MS) == "through"


def test_a_thread_that_cannot_be_started_leaves_the_pool_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = DaemonPool(2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            pool.submit(lambda: 1)
    assert pool.submit(lambda: 2).wait(SOON_MS) == 2
    assert pool.close(SOON_MS) == 0


def test_a_hanging_call_is_left_in_time_and_its_late_result_is_kept(
    make: Callable[[int], DaemonPool], release: threading.Event
) -> None:
    begun = threading.Event()
    call = make(1).submit(hang_until(release, begun))
    assert begun.wait(SOON_S)
    with pytest.raises(StorageTimeout, match=f"within {SHORT_MS} ms") as caught:
        call.wait(SHORT_MS)
    assert "fetch.remote.read.timeout.ms" in str(caught.value)
    release.set()
    assert eventually(lambda: call.is_done)
    assert call.wait(0) == "late"


def test_the_deadline_counts_from_the_beginning_of_the_call(
    make: Callable[[int], DaemonPool], release: threading.Event
) -> None:
    begun = threading.Event()
    call = make(1).submit(hang_until(release, begun))
    assert begun.wait(SOON_S)
    call._started_at = time.monotonic() - 4 * SOON_S
    with pytest.raises(StorageTimeout):
        call.wait(4 * SOON_MS)  # of which nothing is left; the call does not hang for so long


@pytest.mark.parametrize("is_answered_first", [False, True])
def test_the_deadlines_count_again_after_the_process_stood_still(
    make: Callable[[int], DaemonPool],
    release: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    is_answered_first: bool,
) -> None:
    """After Ctrl-Z and `fg` the answers have come, and a thread that waits for one may be the first that runs."""
    clock, begun = Clock(), [threading.Event() for _ in range(2)]
    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=clock))
    pool = make(2)
    calls = [pool.submit(hang_until(release, one)) for one in begun]
    assert all(one.wait(SOON_S) for one in begun)
    first, second = (call._future.result for call in calls)

    def stand_still(step_s: float | None = None) -> str:
        clock.now_s += 100
        if step_s == 1.0 and clock.now_s < 1400 and not is_answered_first:
            raise TimeoutError
        release.set()
        return first(SOON_S)

    def answer(step_s: float) -> str:
        return second(SOON_S)

    monkeypatch.setattr(calls[0]._future, "result", stand_still)
    assert calls[0].wait(5000) == "late"
    calls[1]._started_at = 1000.0
    monkeypatch.setattr(calls[1]._future, "result", answer)
    monkeypatch.setattr(calls[1]._future, "done", lambda: False)
    assert calls[1].wait(5000) == "late"


def test_a_call_that_cannot_begin_times_out_too(make: Callable[[int], DaemonPool], release: threading.Event) -> None:
    pool = make(1)
    pool.submit(hang_until(release, threading.Event()))
    queued = pool.submit(lambda: "in the end")
    with pytest.raises(StorageTimeout):
        queued.wait(SHORT_MS)
    release.set()
    assert queued.wait(SOON_MS) == "in the end"


def test_a_call_that_waits_for_a_thread_has_time_while_others_succeed(
    make: Callable[[int], DaemonPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread makes thirty calls of 50 ms. The last call begins long after 100 ms, and does not time out."""
    clock, looks = Clock(), [threading.Event() for _ in range(3)]

    def monotonic() -> float:
        now_s = clock()
        if threading.current_thread() is threading.main_thread():
            next(look for look in looks if not look.is_set() or look is looks[-1]).set()
        return now_s

    def take_50_ms(look: threading.Event) -> str:
        assert look.wait(SOON_S)
        clock.now_s += 0.05
        return "in the end"

    monkeypatch.setattr(pool_module, "time", SimpleNamespace(monotonic=monotonic))
    pool = make(1)
    for number in range(29):
        pool.submit(lambda look=looks[number // 28 * 2]: take_50_ms(look))  # type: ignore[misc]
    # `wait` looks twice when it begins. At the third look one call of the others is still under way.
    assert pool.submit(lambda: take_50_ms(looks[0])).wait(100) == "in the end"
    assert pool.progressed_s == clock()


def test_failures_give_no_time_to_calls_that_wait(make: Callable[[int], DaemonPool], release: threading.Event) -> None:
    def fails() -> None:
        threading.Event().wait(0.02)
        raise SegmentNotFound("gone")

    pool = make(1)
    for _ in range(3):
        pool.submit(fails)
    pool.submit(release.wait)
    with pytest.raises(StorageTimeout):
        pool.submit(lambda: None).wait(100)
    assert pool.progressed_s == 0


def test_cancel_before_it_begins(make: Callable[[int], DaemonPool], release: threading.Event) -> None:
    pool, ran = make(1), []
    first = pool.submit(hang_until(release, threading.Event()))
    queued = pool.submit(lambda: ran.append(1))
    queued.cancel()
    with pytest.raises(Cancelled, match="the read was closed"):
        queued.wait(SOON_MS)
    release.set()
    first.wait(SOON_MS)
    pool.submit(lambda: None).wait(SOON_MS)
    assert not ran


def test_cancel_wakes_whoever_waits_and_the_call_goes_on_unheard(
    make: Callable[[int], DaemonPool], release: threading.Event
) -> None:
    pool, begun = make(1), threading.Event()
    call = pool.submit(hang_until(release, begun))
    assert begun.wait(SOON_S)
    timer = threading.Timer(0.02, call.cancel)
    timer.start()
    with pytest.raises(Cancelled):
        call.wait(SOON_MS)
    timer.join()
    release.set()
    assert pool.submit(lambda: "next").wait(SOON_MS) == "next"
    with pytest.raises(Cancelled):
        call.wait(0)


def test_cancel_after_the_end_changes_nothing(make: Callable[[int], DaemonPool]) -> None:
    call = make(1).submit(lambda: 5)
    assert call.wait(SOON_MS) == 5
    call.cancel()
    assert call.wait(0) == 5


def test_close_waits_for_calls_under_way_and_ends_the_threads(make: Callable[[int], DaemonPool]) -> None:
    def take_a_moment() -> str:
        time.sleep(0.03)
        return "done"

    pool = make(3)
    calls = [pool.submit(take_a_moment) for _ in range(3)]
    assert eventually(lambda: all(call._started_at is not None for call in calls))
    assert pool.close(SOON_MS) == 0
    assert not threads_named("pool-0")
    assert [call.wait(0) for call in calls] == ["done"] * 3


def test_close_waits_no_longer_than_it_is_told_and_reports_what_it_left_behind(
    make: Callable[[int], DaemonPool], release: threading.Event
) -> None:
    pool, begun = make(2), [threading.Event(), threading.Event()]
    hanging = [pool.submit(hang_until(release, event)) for event in begun]
    queued = [pool.submit(lambda: "never") for _ in range(3)]
    assert all(event.wait(SOON_S) for event in begun)
    began = time.monotonic()
    assert pool.close(SHORT_MS) == 2
    assert time.monotonic() - began > SHORT_MS / 1000 * 0.9
    for call in hanging + queued:
        with pytest.raises(Cancelled):
            call.wait(SOON_MS)
    release.set()
    assert eventually(lambda: not threads_named("pool-0"))
    assert pool.close(SOON_MS) == 0


def test_close_frees_whoever_waits_for_a_call_that_hangs(
    make: Callable[[int], DaemonPool], release: threading.Event
) -> None:
    pool, begun, heard = make(1), threading.Event(), []
    call = pool.submit(hang_until(release, begun))
    assert begun.wait(SOON_S)

    def wait() -> None:
        try:
            call.wait(4 * SOON_MS)
        except Cancelled as error:
            heard.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    pool.close(SHORT_MS)
    waiter.join(SOON_S)
    assert len(heard) == 1


def test_a_narrow_window_keeps_calls_waiting_that_have_not_begun(release: threading.Event) -> None:
    window = Window(4)
    window.throttled(time.monotonic())
    window.throttled(time.monotonic())
    pool = DaemonPool(4, window=window)
    begun = [threading.Event() for _ in range(3)]
    calls = [pool.submit(hang_until(release, event)) for event in begun]
    assert begun[0].wait(SOON_S)
    with pytest.raises(StorageTimeout):
        calls[1].wait(50)
    assert not begun[1].is_set()
    release.set()
    assert [call.wait(SOON_MS) for call in calls] == ["late"] * 3
    assert pool.close(SOON_MS) == 0


def test_close_cancels_what_waits_at_the_window(release: threading.Event) -> None:
    window = Window(2)
    window.throttled(time.monotonic())
    pool = DaemonPool(2, window=window)
    begun = [threading.Event() for _ in range(2)]
    calls = [pool.submit(hang_until(release, event)) for event in begun]
    assert begun[0].wait(SOON_S)
    closing = threading.Thread(target=pool.close, args=(SOON_MS,))
    closing.start()
    with pytest.raises(Cancelled):
        calls[1].wait(SOON_MS)
    assert not begun[1].is_set()
    release.set()
    closing.join(SOON_S)
    assert not closing.is_alive()


def test_the_garbage_collector_may_end_the_threads_while_one_holds_the_lock(make: Callable[[int], DaemonPool]) -> None:
    pool = make(2)
    pool.submit(lambda: None).wait(SOON_MS)
    with pool._lock:
        pool.end()
    assert eventually(lambda: not threads_named("pool-0"))
    with pytest.raises(Cancelled):
        pool.submit(lambda: None).wait(SOON_MS)


def test_a_closed_pool_is_not_busy(make: Callable[[int], DaemonPool], release: threading.Event) -> None:
    """Except for a call that hangs, while it does: calls that were queued are not made any more."""
    pool, begun = make(1), threading.Event()
    pool.submit(hang_until(release, begun))
    queued = pool.submit(Result)
    assert begun.wait(SOON_S)
    assert pool.close(0) == 1
    assert queued.is_done
    assert pool.is_busy
    release.set()
    assert eventually(lambda: not pool.is_busy)


def test_nothing_is_taken_after_close(make: Callable[[int], DaemonPool]) -> None:
    pool, ran = make(1), []
    assert pool.close(0) == 0
    late = pool.submit(lambda: ran.append(1))
    with pytest.raises(Cancelled):
        late.wait(SOON_MS)
    assert not ran
    assert not threads_named("pool-0")
    assert pool.close(0) == 0


def test_close_from_one_of_its_own_threads(make: Callable[[int], DaemonPool]) -> None:
    pool, answers = make(1), []
    call = pool.submit(lambda: answers.append(pool.close(SOON_MS)))
    with pytest.raises(Cancelled):
        call.wait(SOON_MS)
    assert eventually(lambda: answers == [1] and not threads_named("pool-0"))


def test_results_do_not_live_on_in_idle_threads(make: Callable[[int], DaemonPool]) -> None:
    pool = make(1)
    call = pool.submit(Result)
    watched = weakref.ref(call.wait(SOON_MS))
    del call
    assert eventually(lambda: gc.collect() >= 0 and watched() is None)
    assert len(threads_named("pool-0")) == 1


def test_the_result_of_a_cancelled_call_is_dropped(make: Callable[[int], DaemonPool], release: threading.Event) -> None:
    pool, results = make(1), []

    def function() -> Result:
        release.wait(SOON_S)
        result = Result()
        results.append(weakref.ref(result))
        return result

    call = pool.submit(function)
    call.cancel()
    release.set()
    assert pool.submit(lambda: 1).wait(SOON_MS) == 1
    assert all(result() is None for result in results)
    with pytest.raises(Cancelled):
        call.wait(0)


def test_a_hanging_call_does_not_keep_the_process() -> None:
    code = (
        "import threading\n"
        "from remote_fetch.fetch.pool import DaemonPool\n"
        "pool, begun = DaemonPool(1), threading.Event()\n"
        "pool.submit(lambda: (begun.set(), threading.Event().wait()))\n"
        "begun.wait()\n"
        "print(pool.close(10))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout == "1\n"
