"""The error of a question that threads ask in turn is shared by those that waited, and by no later one."""

from __future__ import annotations

import gc
import weakref

import pytest

from remote_fetch.errors import Unlocatable
from remote_fetch.failures.shared_failure import SharedFailure
from tests.clock import Clock


class Client:
    """Lives as long as a frame that uses it."""


def ask(failure: SharedFailure, *clients: Client) -> None:
    with failure.kept(Unlocatable):
        assert clients is not None
        raise Unlocatable("nothing was heard")


def test_an_error_answers_who_has_waited_since_before_it() -> None:
    clock = Clock()
    failure = SharedFailure(clock)
    failure.check(clock())
    asked_s = clock()
    clock.now_s += 1
    with pytest.raises(Unlocatable):
        ask(failure)
    with pytest.raises(Unlocatable, match="nothing was heard"):
        failure.check(asked_s)
    failure.check(clock())
    clock.now_s += 1
    failure.check(clock())


def test_another_error_is_not_kept() -> None:
    clock = Clock()
    failure = SharedFailure(clock)
    clock.now_s += 1
    with pytest.raises(ValueError, match="broken"), failure.kept(Unlocatable):
        raise ValueError("broken")
    failure.check(0.0)
    with failure.kept(Unlocatable):
        pass
    failure.check(0.0)


def test_an_answer_ends_the_error() -> None:
    failure = SharedFailure(Clock())
    with pytest.raises(Unlocatable):
        ask(failure)
    with failure.kept(Unlocatable):
        pass
    failure.check(-1.0)


def test_each_thread_has_a_copy_without_frames() -> None:
    """Callers complete an error, and the frames of an error hold clients."""
    failure, client = SharedFailure(), Client()
    alive = weakref.ref(client)
    gc.disable()
    try:
        with pytest.raises(Unlocatable) as first:
            ask(failure, client)
        raised: list[BaseException] = [first.value]
        for _ in range(2):
            with pytest.raises(Unlocatable) as caught:
                failure.check(0.0)
            raised.append(caught.value)
        assert len({id(each) for each in raised}) == 3
        del first, caught, client
        raised.clear()
        assert alive() is None
    finally:
        gc.enable()
