"""How often the metadata is read, and what those who wait for it get."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from remote_fetch.errors import Unlocatable
from remote_fetch.service.refusals import Refusal
from remote_fetch.service.timelines import Timelines
from remote_fetch.service.work import Workers
from tests.clock import Clock


class Locator:
    """Counts its readings, and fails while `error` is set. `gate` holds a reading."""

    def __init__(self) -> None:
        self.readings = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def partitions(self, topic: str | None) -> tuple[()]:
        assert topic is None
        self.readings += 1
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return ()


def run(
    test: Callable[[Timelines, Locator, Clock], Any], locator_name: str | None = None, *, refresh_ms: int = 1_000
) -> None:
    """Run a test in an event loop, with a reading at most once a second."""
    locator, clock = Locator(), Clock()
    settings = SimpleNamespace(settings=SimpleNamespace(locator=locator_name))
    session: Any = SimpleNamespace(locator=locator, config=settings)
    workers = Workers(1, "metadata", 2)

    async def runs() -> None:
        await test(Timelines(session, workers, refresh_ms=refresh_ms, clock=clock), locator, clock)

    try:
        asyncio.run(runs())
    finally:
        locator.gate.set()
        workers.close()


def test_it_is_read_at_most_so_often_and_only_on_demand() -> None:
    async def test(timelines: Timelines, locator: Locator, clock: Clock) -> None:
        ages = [timelines.age_s]
        for _ in range(3):
            await timelines.fresh()
        assert locator.readings == 1
        clock.now_s += 100
        ages.append(timelines.age_s)
        assert locator.readings == 1
        await timelines.fresh()
        assert locator.readings == 2
        assert [*ages, timelines.age_s] == [None, 100, 0]

    run(test)


def test_all_who_wait_share_a_reading() -> None:
    async def test(timelines: Timelines, locator: Locator, clock: Clock) -> None:
        locator.gate.clear()
        waiting = [asyncio.create_task(timelines.fresh()) for _ in range(50)]
        await asyncio.sleep(0.02)
        waiting[0].cancel()  # takes nothing from the others
        locator.gate.set()
        await asyncio.gather(*waiting[1:])
        assert locator.readings == 1

    run(test)


def test_a_failure_is_answered_for_a_while_and_passes() -> None:
    async def test(timelines: Timelines, locator: Locator, clock: Clock) -> None:
        locator.error = Unlocatable("__remote_log_metadata cannot be read")
        for _ in range(3):
            with pytest.raises(Refusal) as caught:
                await timelines.fresh()
            assert (caught.value.status, caught.value.code) == (503, "METADATA_UNAVAILABLE")
            assert "__remote_log_metadata cannot be read" in caught.value.message
        assert locator.readings == 1
        locator.error = None
        clock.now_s += 1.1
        await timelines.fresh()
        assert locator.readings == 2

    run(test)


def test_an_old_reading_is_no_answer_once_it_fails() -> None:
    async def test(timelines: Timelines, locator: Locator, clock: Clock) -> None:
        await timelines.fresh()
        clock.now_s += 2
        locator.error = Unlocatable("away")
        with pytest.raises(Refusal):
            await timelines.fresh()

    run(test)


def test_without_a_pause_each_request_reads_once() -> None:
    async def test(timelines: Timelines, locator: Locator, clock: Clock) -> None:
        for readings in (1, 2, 3):
            async with asyncio.timeout(20):
                await timelines.fresh()
            assert locator.readings == readings
            clock.now_s += 0.001
        locator.error = Unlocatable("away")
        async with asyncio.timeout(20):
            with pytest.raises(Refusal, match="away"):
                await timelines.fresh()
        assert locator.readings == 4

    run(test, refresh_ms=0)


def test_a_listing_that_failed_is_made_again_after_the_pause_of_its_refusal() -> None:
    async def test(timelines: Timelines, locator: Locator, clock: Clock) -> None:
        locator.error = Unlocatable("the store is away")
        with pytest.raises(Refusal) as caught:
            await timelines.fresh()
        locator.error = None
        assert caught.value.retry_after_s is not None
        clock.now_s += caught.value.retry_after_s
        await timelines.fresh()
        assert locator.readings == 2

    run(test, "listing")


def test_a_store_is_listed_less_often() -> None:
    async def test(timelines: Timelines, locator: Locator, clock: Clock) -> None:
        for _ in range(10):
            await timelines.fresh()
            clock.now_s += 10
        assert locator.readings == 4

    run(test, "listing")
