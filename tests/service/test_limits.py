"""Limits by a clock that the test moves."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from remote_fetch.service.limits import Limits, Slowdown
from remote_fetch.service.refusals import Refusal
from tests.clock import Clock


def refused(caught: pytest.ExceptionInfo[Refusal]) -> tuple[int, str, float | None]:
    return caught.value.status, caught.value.code, caught.value.retry_after_s


def test_a_rate_with_a_burst() -> None:
    clock = Clock()
    limits = Limits(rate=2, at_once=100, most=100, clock=clock)
    for _ in range(4):  # two seconds' worth
        with limits.of("ann"):
            pass
    with pytest.raises(Refusal) as caught, limits.of("ann"):
        pass
    assert refused(caught) == (429, "RATE_LIMITED", 0.5)
    with limits.of("bob"):
        pass
    clock.now_s += 0.5
    with limits.of("ann"):
        pass
    with pytest.raises(Refusal), limits.of("ann"):
        pass
    clock.now_s += 1e6
    for _ in range(4):
        with limits.of("ann"):
            pass
    with pytest.raises(Refusal), limits.of("ann"):
        pass


def test_requests_at_once() -> None:
    limits = Limits(rate=1000, at_once=2, most=3, clock=Clock())
    with ExitStack() as rooms:
        rooms.enter_context(limits.of("ann"))
        rooms.enter_context(limits.of("ann"))
        with pytest.raises(Refusal) as caught, limits.of("ann"):
            pass
        assert refused(caught) == (429, "TOO_MANY_AT_ONCE", 1.0)
        with limits.of("bob"):
            pass
    with limits.of("ann"):
        pass


def test_requests_of_all() -> None:
    limits = Limits(rate=1, at_once=1, most=2, clock=Clock())
    with limits.request(), limits.request():
        assert limits.under_way == 2
        with pytest.raises(Refusal) as caught, limits.request():
            pass
        assert refused(caught)[:2] == (503, "OVERLOADED")
    assert limits.under_way == 0


def test_principals_are_forgotten() -> None:
    limits = Limits(rate=1, at_once=1, most=1, clock=Clock())
    for number in range(10_050):
        with limits.of(number):
            pass
    assert len(limits._buckets) == 10_000


def wait_of(slowdown: Slowdown, name: str) -> float | None:
    """The wait of a name in seconds, 0 if it has none."""
    try:
        slowdown.check(name)
    except Refusal as refusal:
        return refusal.retry_after_s if refusal.code == "TOO_MANY_FAILURES" else None
    return 0


def test_failures_slow_down_one_name() -> None:
    clock = Clock()
    slowdown = Slowdown(free=2, first_s=1, most_s=8, clock=clock)
    waits = []
    for _ in range(8):
        slowdown.failed("ann")
        waits.append(wait_of(slowdown, "ann"))
    assert waits == [0, 0, 1, 2, 4, 8, 8, 8]
    slowdown.check("bob")
    clock.now_s += 8
    slowdown.check("ann")
    clock.now_s += 100
    slowdown.failed("ann")  # long after: the first one again
    slowdown.check("ann")


def test_names_are_forgotten() -> None:
    slowdown = Slowdown(clock=Clock())
    for number in range(10_050):
        slowdown.failed(str(number))
    assert len(slowdown._failed) == 10_000
