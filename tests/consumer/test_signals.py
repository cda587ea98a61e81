"""A handler of a signal raises while a method runs, and the application goes on: no record is lost or doubled.

A handler runs after a call of a function in C, or when a function in Python begins. A profiler runs there, too. So one
that raises at each of these places in turn stands for the handler.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TypeVar

import pytest
from confluent_kafka import OFFSET_END, Message, TopicPartition

from remote_fetch.config import Config
from remote_fetch.consumer.callbacks import Callbacks
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.offsets import STORED
from remote_fetch.consumer.remote import Remote
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.observe import ignore
from tests.consumer.fakes import Bench, FakeLibrdkafka

T = TypeVar("T")


class Alarm(BaseException):
    """Raised by the handler."""


def raising(_: object) -> None:
    """The handler runs when this method begins."""
    raise Alarm


class Handler:
    """Raises once while `call` runs, at the place of this number. `has_raised`: there was such a place."""

    def __init__(self, place: int) -> None:
        self.place = self._left = place
        self.has_raised = False

    def during(self, call: Callable[[], T]) -> T | None:
        sys.setprofile(None if self.has_raised else self._profile)
        try:
            return call()
        except Alarm:
            return None
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        is_ours = "/remote_fetch/consumer/" in frame.f_code.co_filename and frame.f_code.co_name != "<genexpr>"
        if is_ours and event in ("call", "c_return"):  # an error in a generator that is thrown away is lost
            self._left -= 1
            if self._left < 0:
                self.has_raised = True
                sys.setprofile(None)
                raise Alarm


def at_each_place(least: int) -> Iterator[Handler]:
    """A handler for each place in turn, until there is no such place. There are `least` places or more."""
    for place in count():
        handler = Handler(place)
        yield handler
        if not handler.has_raised:
            assert place >= least
            return


def offsets_with(handler: Handler, is_flushed: bool) -> list[int]:
    """The offsets of 6 records in two chunks that polls give. `is_flushed`: positions are asked for in between."""
    bench = Bench({0: 0})
    feed, given = None, list[Message | None]()
    for _ in range(14):
        if bench.feed(0) is not feed:
            feed = bench.feed(0)
            for start in range(feed.first_offset, 6, 3):
                bench.give(0, range(start, min(start + 3, 6)))
        given.append(handler.during(lambda: bench.merge.poll(0)))
        if is_flushed:
            handler.during(bench.merge.flush_position)
        bench.clock.now_s += 0.03
    bench.merge.flush_position()
    found = [message.offset() or 0 for message in given if message is not None]
    assert bench.partition(0).position.next_offset == 6, found
    return found


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_poll_that_a_handler_ends_loses_at_most_the_record_that_it_was_to_return(is_flushed: bool) -> None:
    for handler in at_each_place(100):
        found = offsets_with(handler, is_flushed)
        assert len(found) >= 5, (handler.place, found)
        assert found == sorted(set(found)), (handler.place, found)
    assert found == list(range(6))


def test_a_hand_over_that_a_handler_ends_is_made_good() -> None:
    for handler in at_each_place(30):
        bench = Bench({0: 0})
        bench.give(0, range(3))
        found = [bench.merge.poll(0) for _ in range(3)]
        assert None not in found
        bench.end(0, 3)
        for _ in range(3):
            handler.during(partial(bench.merge.poll, 0))
            bench.clock.now_s += 0.03
        assert bench.mode(0) == "broker"
        calls = bench.librdkafka.calls_since()
        assert ("resume", 0) in calls, (handler.place, calls)
        assert calls[-1][:3] == ("seek", 0, 3), (handler.place, calls)


def test_a_pause_drops_nothing_that_a_handler_has_ended() -> None:
    """Else librdkafka would go on at the placeholder with which the partition was assigned."""
    for handler in at_each_place(10):
        bench = Bench({0: 0})
        bench.give(0, range(3))
        bench.merge.poll(0)
        handler.during(partial(bench.partitions.seek, bench.partition(0), OFFSET_END))
        if bench.mode(0) == "broker":
            bench.partitions.pause([bench.partition(0)])
            bench.partitions.resume([bench.partition(0)])
            assert ("seek", 0, OFFSET_END) in [call[:3] for call in bench.librdkafka.calls_since()], handler.place


def test_the_groups_answer_is_used_although_a_handler_ends_that() -> None:
    for handler in at_each_place(50):
        bench = Bench({0: STORED, 1: STORED})
        bench.group.answer(5, 7)
        for _ in range(2):
            handler.during(bench.partitions.run_due_work)
        assert [bench.feed(number).first_offset for number in (0, 1)] == [5, 7], handler.place


def test_a_feed_is_dropped_although_a_handler_ends_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on, and keep its records until the consumer is closed."""
    bench = Bench({0: 0})
    feed = bench.feed(0)
    with monkeypatch.context() as patch:
        patch.setattr(bench.workers, "drop", raising)
        with pytest.raises(Alarm):
            bench.partitions.seek(bench.partition(0), 5)
    bench.run_due_work()
    assert (bench.workers.dropped, bench.feed(0).first_offset) == ([feed], 5)


def test_what_is_assigned_is_read_although_a_handler_ends_the_assignment(tmp_path: Path) -> None:
    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    for handler in at_each_place(30):
        librdkafka = FakeLibrdkafka()
        remote = Remote(librdkafka, settings, Metrics(), ignore, threading.RLock(), Callbacks())
        starts = [TopicPartition("t", 0, 5), TopicPartition("t", 1, OFFSET_END)]
        handler.during(partial(remote.assign, starts, is_incremental=False))
        if librdkafka.assigned:
            stored, live = remote.partitions.tracked(starts)
            assert stored.feed is not None, handler.place
            assert (live.state.mode, live.state.is_fetching) == ("broker", True), handler.place
            assert ("resume", 1) in librdkafka.calls, handler.place
        remote.close()
