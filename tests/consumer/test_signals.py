"""A handler of a signal raises while a method runs, and the application goes on: no record is lost or doubled.

A handler runs after a call of a function in C, or when a function in Python begins. A profiler runs there, too. So one
that raises at each of these places in turn stands for the handler.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TypeVar

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, Message, Producer, TopicPartition

import remote_fetch.session.brokers
from remote_fetch import RemoteConsumer
from remote_fetch.config import Config
from remote_fetch.consumer.callbacks import Callbacks
from remote_fetch.consumer.committed import CommittedOffsets
from remote_fetch.consumer.feed import Ending
from remote_fetch.consumer.idle_store import IdleStore
from remote_fetch.consumer.lookups import Lookups
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.offsets import END, STORED
from remote_fetch.consumer.remote import Remote
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.consumer.workers import Workers
from remote_fetch.observe import ignore
from tests.consumer.fakes import Bench, FakeLibrdkafka, error_of, live
from tests.consumer.test_merge import during_consume

T = TypeVar("T")


class Alarm(BaseException):
    """Raised by the handler."""


def raising(_: object) -> None:
    """The handler runs when this method begins."""
    raise Alarm


class Handler:
    """Raises once while `call` runs, at the place of this number. `has_raised`: there was such a place.

    `folder` is a part of the paths of the modules that have such places.
    """

    def __init__(self, place: int, folder: str) -> None:
        self.place = self._left = place
        self._folder = folder
        self.has_raised = False

    def during(self, call: Callable[[], T]) -> T | None:
        gc.freeze()  # the collector would end generators of other consumers here: an error in them is lost
        sys.setprofile(None if self.has_raised else self._profile)
        try:
            return call()
        except Alarm:
            return None
        finally:
            sys.setprofile(None)
            gc.unfreeze()

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        is_ours = self._folder in frame.f_code.co_filename and frame.f_code.co_name != "<genexpr>"
        if is_ours and event in ("call", "c_return"):  # an error in a generator that is thrown away is lost
            self._left -= 1
            if self._left < 0:
                self.has_raised = True
                sys.setprofile(None)
                raise Alarm


def at_each_place(least: int, folder: str = "/remote_fetch/consumer/") -> Iterator[Handler]:
    """A handler for each place in turn, until there is no such place. There are `least` places or more."""
    for place in count():
        handler = Handler(place, folder)
        yield handler
        if not handler.has_raised:
            assert place >= least
            return


def bench_at_broker() -> Bench:
    """A partition that has gone on from the store to librdkafka, at offset 8."""
    bench = Bench({0: 0})
    bench.end(0, 8)
    bench.run_due_work()
    return bench


def offsets_with(handler: Handler, way: str) -> list[int]:
    """The offsets of 6 records in two chunks that the calls give. `flush`: positions are asked for between polls."""
    bench = Bench({0: 0})
    feed, given = None, list[Message | None]()

    def call() -> list[Message | None]:
        return list(bench.merge.consume(2, 0)) if way == "consume" else [bench.merge.poll(0)]

    for _ in range(14):
        if bench.feed(0) is not feed:
            feed = bench.feed(0)
            for start in range(feed.first_offset, 6, 3):
                bench.give(0, range(start, min(start + 3, 6)))
        given += handler.during(call) or []
        if way == "flush":
            handler.during(bench.merge.flush_position)
        bench.clock.now_s += 0.03
    bench.merge.flush_position()
    found = [message.offset() or 0 for message in given if message is not None]
    assert bench.partition(0).position.next_offset == 6, found
    return found


@pytest.mark.parametrize("way", ["poll", "flush", "consume"])
def test_a_call_that_a_handler_ends_loses_no_record_of_the_store(way: str) -> None:
    for handler in at_each_place(100):
        assert offsets_with(handler, way) == list(range(6)), handler.place


def test_no_record_is_lost_where_the_store_goes_on_after_librdkafka() -> None:
    """It begins in a chunk whose first records librdkafka has given, and the feed has ended behind that chunk."""
    for handler in at_each_place(100):
        bench = Bench({0: 0})
        bench.partition(0).position.follow(2, None)
        feed, given = None, list[Message]()
        for _ in range(6):
            if bench.partition(0).feed not in (None, feed):
                feed = bench.feed(0)
                bench.give(0, range(feed.first_offset, 4))
                bench.end(0, 4)
                bench.partition(0).records.skip(2)
            given += handler.during(partial(bench.merge.consume, 9, 0)) or []
            bench.clock.now_s += 0.03
        assert [message.offset() for message in given] == [2, 3], handler.place


def test_a_feed_goes_on_although_a_handler_has_ended_the_call_that_wakes_it() -> None:
    """Else the partition would stand still: the queue of the feed was full, and no record is left to take."""
    for handler in at_each_place(100):
        bench = Bench({0: 0}, queued_bytes=1)
        bench.give(0, range(3))
        feed = bench.feed(0)
        for _ in range(4):
            handler.during(partial(bench.merge.consume, 3, 0))
            bench.clock.now_s += 0.03
        assert bench.workers.woken or bench.feed(0) is not feed, handler.place


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


@pytest.mark.parametrize("way", ["pause", "seek"])
def test_messages_that_consume_drops_come_again_although_a_handler_ends_the_call(way: str) -> None:
    """The call is made in a callback of `consume`, which holds messages. The seek is to where they begin."""
    for handler in at_each_place(10):
        bench = Bench({0: 6})
        bench.end(0, 6)
        bench.run_due_work()
        pause = partial(bench.partitions.pause, [bench.partition(0)])
        call = pause if way == "pause" else partial(bench.partitions.seek, bench.partition(0), 6)

        def callback(handler: Handler = handler, bench: Bench = bench, call: Callable[[], None] = call) -> None:
            bench.clock.now_s += 1.0
            handler.during(call)
            if handler.has_raised:
                bench.merge._callbacks.keep(Alarm())

        during_consume(bench, [live(0, 6), live(0, 7)], callback)
        given = list[int | None]()
        for timeout_s in (0.5, 0.0, 0.0):
            with suppress(Alarm):
                given += [message.offset() for message in bench.merge.consume(9, timeout_s)]
        feed = bench.partition(0).feed
        comes_again = feed is not None and feed.first_offset == 6
        assert given == ([] if comes_again else [6, 7]), (handler.place, bench.partition(0).state)
        assert not bench.partition(0).position.is_held, handler.place


def test_the_groups_answer_is_used_although_a_handler_ends_that() -> None:
    for handler in at_each_place(50):
        bench = Bench({0: STORED, 1: STORED})
        bench.group.answer(5, 7)
        for _ in range(2):
            handler.during(bench.partitions.run_due_work)
        assert [bench.feed(number).first_offset for number in (0, 1)] == [5, 7], handler.place


@pytest.mark.parametrize("way", ["poll", "consume"])
@pytest.mark.parametrize("is_answered", [False, True])
def test_a_partition_stays_assigned_although_a_handler_ends_its_new_assignment(way: str, *, is_answered: bool) -> None:
    """librdkafka is not to ask the group, or has stopped the partition: then it assigns the partition again."""
    for handler in at_each_place(30):
        bench = Bench({0: STORED if not is_answered else 0, 1: 0})
        if is_answered:
            bench.end(0, 8)
            bench.run_due_work()
            bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET, 8))
        else:
            bench.group.answer()
        call = partial(bench.merge.poll, 0) if way == "poll" else partial(bench.merge.consume, 2, 0)
        for _ in range(4):
            with suppress(Alarm):  # one that was kept
                handler.during(call)
            if is_answered and bench.partition(0).feed is not None:
                bench.end(0, 8)
            bench.clock.now_s += 0.03
        held = {each.partition for each in bench.librdkafka.assignment()}
        assert held == {0, 1} == {number for _, number in bench.partitions.assigned}, handler.place
        calls = bench.librdkafka.calls_since()
        assert is_answered or ("incremental_assign", [(0, STORED)]) in calls, handler.place


def test_the_other_partitions_go_on_although_a_handler_ends_an_assignment_of_all() -> None:
    """librdkafka forgets its positions with it. If it is made once more, no record comes twice."""
    for handler in at_each_place(30):
        bench = Bench({0: 0, 1: 0})
        for number in (0, 1):
            bench.end(number, 8)
        bench.run_due_work()
        bench.librdkafka.rebalances_eagerly = True
        bench.librdkafka.stopped = {0}
        bench.librdkafka.positions = {1: 50}
        bench.librdkafka.calls_since()
        handler.during(partial(bench.partitions.seek, bench.partition(0), OFFSET_END))
        bench.run_due_work(after_s=0.03)
        assigned = [call for call in bench.librdkafka.calls_since() if call[0] == "assign"]
        assert bool(assigned) is (bench.partition(0).state.offset == OFFSET_END), handler.place
        assert all((1, 50) in starts for _, starts in assigned), handler.place
        assert not assigned or bench.partition(1).state.offset == 50, handler.place


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


@pytest.mark.parametrize("way", ["unassign", "incremental_unassign", "on_revoke", "on_assign"])
def test_what_is_assigned_is_what_is_read_although_a_handler_ends_a_change(tmp_path: Path, way: str) -> None:
    """Else the store would go on with records that another member of the group gets, too."""
    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    for handler in at_each_place(15):
        librdkafka, callbacks = FakeLibrdkafka(), Callbacks()
        remote = Remote(librdkafka, settings, Metrics(), ignore, threading.RLock(), callbacks)
        given = [TopicPartition("t", 0, 5), TopicPartition("t", 1, 5)]
        if way != "on_assign":
            remote.assign(given, is_incremental=False)
        changes: dict[str, Callable[[], None]] = {
            "unassign": remote.unassign,
            "incremental_unassign": partial(remote.incremental_unassign, given),
            "on_revoke": partial(remote.on_revoke, None, given, None),
            "on_assign": partial(remote.on_assign, None, given, None),
        }
        handler.during(changes[way])
        if way.startswith("on_"):  # confluent_kafka does this if the callback has failed
            librdkafka.assign(given if way == "on_assign" else [])
            callbacks.keep(Alarm())
            with pytest.raises(Alarm):
                remote.merge.poll(0)
        held = {each.partition for each in librdkafka.assignment()}
        try:
            assert {number for _, number in remote.partitions.assigned} == held, handler.place
        finally:
            remote.close()


@pytest.mark.parametrize("is_in_callback", [False, True])
@pytest.mark.parametrize("is_of_unassign", [False, True])
def test_what_is_assigned_is_read_although_two_handlers_end_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_of_unassign: bool, is_in_callback: bool
) -> None:
    """Each ends a look at what librdkafka has, which has other offsets than the application has named."""
    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    librdkafka, callbacks = FakeLibrdkafka(), Callbacks()
    remote = Remote(librdkafka, settings, Metrics(), ignore, threading.RLock(), callbacks)
    given = [TopicPartition("t", 0, 5)]
    alarms = 2 * [Alarm]

    def assignment() -> list[TopicPartition]:
        if alarms:
            raise alarms.pop()
        return librdkafka.assigned

    def unassign() -> None:
        librdkafka.assigned = []
        raise alarms.pop()

    if is_of_unassign:
        remote.assign(given, is_incremental=False)
        monkeypatch.setattr(librdkafka, "unassign", unassign)
    monkeypatch.setattr(librdkafka, "assignment", assignment)
    try:
        with pytest.raises(Alarm):
            remote.unassign() if is_of_unassign else remote.assign(given, is_incremental=False)
        if is_in_callback:  # confluent_kafka goes on, and `poll` raises the error
            callbacks.keep(Alarm())
            with pytest.raises(Alarm):
                remote.merge.poll(0)
        assert not alarms
        remote.merge.poll(0.05)
        found = [partition.state.offset for partition in remote.partitions.assigned.values()]
        assert found == ([] if is_of_unassign else [5])
    finally:
        remote.close()


@pytest.mark.parametrize("way", ["unassign", "incremental_unassign"])
def test_what_is_taken_away_is_not_read_although_two_handlers_raise(tmp_path: Path, way: str) -> None:
    """One handler ends the change in librdkafka. The other one ends what follows, also before its first line."""
    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    for handler in at_each_place(15):
        librdkafka = FakeLibrdkafka()
        clock = partial(float, 100)  # the next call comes at once
        remote = Remote(librdkafka, settings, Metrics(), ignore, threading.RLock(), Callbacks(), clock)
        given = [TopicPartition("t", 0, 5), TopicPartition("t", 1, 5)]
        remote.assign(given, is_incremental=False)
        remote.merge.poll(0)
        change = getattr(librdkafka, way)

        def ended(*given: list[TopicPartition], change: Callable[..., None] = change) -> None:
            change(*given)
            raise Alarm

        setattr(librdkafka, way, ended)
        gone = partial(remote.incremental_unassign, given[:1])
        handler.during(remote.unassign if way == "unassign" else gone)
        remote.merge.poll(0)
        held = {each.partition for each in librdkafka.assignment()}
        try:
            assert {number for _, number in remote.partitions.assigned} == held, handler.place
        finally:
            remote.close()


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_what_librdkafka_has_is_read_although_a_second_handler_ends_the_look_at_it(way: str) -> None:
    for handler in at_each_place(30):
        bench = Bench({})
        bench.librdkafka.assigned = [TopicPartition("t", 0, 5), TopicPartition("t", 1, 5)]
        bench.merge._callbacks.keep(Alarm())
        call = partial(bench.merge.poll, 0) if way == "poll" else partial(bench.merge.consume, 2, 0)
        for _ in range(3):
            handler.during(call)
            bench.clock.now_s += 0.03
        assert [bench.feed(number).first_offset for number in (0, 1)] == [5, 5], handler.place


@pytest.mark.parametrize(("first", "second"), [("poll", "poll"), ("consume", "consume"), ("consume", "poll")])
def test_librdkafka_is_sent_back_to_what_its_call_has_dropped(first: str, second: str) -> None:
    bench = Bench({0: 0, 1: 0, 2: END, 3: END})
    for number in (0, 1):
        bench.end(number, 8)
    bench.run_due_work()
    librdkafka = bench.librdkafka
    librdkafka.calls_since()

    def call(way: str) -> list[Message | None]:
        return [bench.merge.poll(0)] if way == "poll" else list(bench.merge.consume(2, 0))

    librdkafka.live.append(live(0, 8))
    librdkafka.positions = {0: 9}
    given = call(first)
    librdkafka.live.append(Alarm())
    librdkafka.positions = {0: 9, 1: 10, 2: 50}
    with pytest.raises(Alarm):
        call(second)
    assert [message.offset() for message in given if message is not None] == [8]
    assert {call[:3] for call in librdkafka.calls_since() if call[0] != "resume"} == {("seek", 1, 8)}
    librdkafka.positions = {0: 9}
    bench.partitions.positions.store()
    assert librdkafka.stored == {0: 9, 1: 8}


def test_what_a_callback_of_the_call_has_consumed_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_at_broker()
    bench.librdkafka.calls_since()

    def with_callback(_: float) -> None:
        """A callback consumes, and then the handler raises."""
        bench.librdkafka.live += [live(0, 8), live(0, 9)]
        bench.librdkafka.positions = {0: 10}
        assert len(bench.merge.consume(2, 0)) == 2
        raise Alarm

    monkeypatch.setattr(bench.merge, "_poll_librdkafka", with_callback)
    with pytest.raises(Alarm):
        bench.merge.poll(0)
    assert bench.librdkafka.calls_since() == []
    assert bench.partition(0).position.next_offset == 10


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_what_a_callback_of_consume_has_consumed_is_not_given_again(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The callback consumes, and a handler ends its next call. librdkafka is sent back when the outer one goes on."""
    bench = bench_at_broker()
    given, consume = list[Message](), bench.librdkafka.consume

    def with_callback(*_: object) -> list[Message]:
        bench.librdkafka.live += [live(0, 8), live(0, 9), Alarm()]
        with monkeypatch.context() as patch:
            patch.setattr(bench.librdkafka, "consume", consume)
            given.extend(bench.merge.consume(2, 0))
            bench.librdkafka.positions = {0: 11}
            bench.librdkafka.calls_since()
            with suppress(Alarm):
                bench.merge.poll(0) if way == "poll" else bench.merge.consume(1, 0)
        return []

    monkeypatch.setattr(bench.librdkafka, "consume", with_callback)
    with suppress(Alarm):
        bench.merge.consume(1, 0)
    assert [message.offset() for message in given] == [8, 9]
    assert {call[2] for call in bench.librdkafka.calls_since() if call[0] == "seek"} == {10}
    assert bench.partition(0).position.next_offset == 10


def test_records_come_again_that_a_callback_of_consume_has_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback polls, and a handler ends that. `consume` goes on, and has the record after the dropped one."""
    bench = bench_at_broker()
    bench.librdkafka.calls_since()

    def with_callback(*_: object) -> list[Message]:
        bench.librdkafka.live.append(Alarm())
        with suppress(Alarm):
            bench.merge.poll(0)
        bench.librdkafka.positions = {0: 10}
        return [live(0, 9)]

    monkeypatch.setattr(bench.librdkafka, "consume", with_callback)
    assert bench.merge.consume(1, 0) == []
    assert ("seek", 0, 8) in bench.librdkafka.calls_since()
    assert bench.partition(0).position.next_offset == 8


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_a_callback_of_consume_gets_no_record_after_a_dropped_one(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A handler ends its first call, and it makes another one. librdkafka is sent back when `consume` goes on."""
    bench = bench_at_broker()
    given, consume = list[object](), bench.librdkafka.consume

    def with_callback(*_: object) -> list[Message]:
        bench.librdkafka.live += [Alarm(), live(0, 9)]
        bench.librdkafka.positions = {0: 10}
        with monkeypatch.context() as patch:
            patch.setattr(bench.librdkafka, "consume", consume)
            with suppress(Alarm):
                bench.merge.poll(0)
            given.extend(bench.merge.consume(1, 0) if way == "consume" else filter(None, [bench.merge.poll(0)]))
        return []

    monkeypatch.setattr(bench.librdkafka, "consume", with_callback)
    assert (bench.merge.consume(1, 0), given, len(bench.librdkafka.live)) == ([], [], 0)
    assert bench.partition(0).position.next_offset == 8
    assert bench.librdkafka.positions == {}, "it was sent back"


def test_records_that_cannot_come_again_are_given_although_a_callback_of_consume_has_dropped_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partition 1 was begun at its end, and no record of it has come: no offset is known to send librdkafka back to."""
    bench = Bench({0: 0, 1: END})
    bench.end(0, 8)
    bench.run_due_work()

    def with_callback(*_: object) -> list[Message]:
        bench.librdkafka.live.append(Alarm())
        with suppress(Alarm):
            bench.merge.poll(0)
        bench.librdkafka.positions = {0: 10, 1: 6}
        return [live(0, 9), live(1, 5)]

    monkeypatch.setattr(bench.librdkafka, "consume", with_callback)
    assert [(each.partition(), each.offset()) for each in bench.merge.consume(2, 0)] == [(1, 5)]
    bench.merge.flush_position()
    bench.partitions.positions.store()
    assert (bench.librdkafka.positions, bench.librdkafka.stored.get(1)) == ({1: 6}, 6)


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_librdkafka_is_sent_back_although_a_second_handler_raises_then(way: str) -> None:
    for handler in at_each_place(10):
        bench = Bench({0: 0, 1: 0})
        for number in (0, 1):
            bench.end(number, 8)
        bench.run_due_work()
        bench.librdkafka.live.append(Alarm())
        bench.librdkafka.positions = {0: 9, 1: 10}
        call = partial(bench.merge.poll, 0) if way == "poll" else partial(bench.merge.consume, 2, 0)
        while bench.librdkafka.live:
            with suppress(Alarm):
                handler.during(call)
            bench.clock.now_s += 0.03
        seen = list[dict[int, int]]()

        def poll(_: float, bench: Bench = bench, seen: list[dict[int, int]] = seen) -> None:
            seen.append(dict(bench.librdkafka.positions))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.merge, "_poll_librdkafka", poll)
            for _ in range(2):  # the first one may raise an error that was kept
                with suppress(Alarm):
                    call()
        assert not any(seen), "its next record would be after the dropped one"
        bench.partitions.positions.store()
        assert bench.librdkafka.positions == {}, handler.place
        assert max(bench.librdkafka.stored.values(), default=0) <= 8, handler.place


def test_each_partition_is_sent_back_if_one_of_them_is_assigned_again() -> None:
    """In a group that assigns all partitions together: the others are assigned where librdkafka is."""
    bench = Bench({0: STORED, 1: 0})
    bench.group.answer()
    bench.end(1, 8)
    bench.run_due_work()
    bench.librdkafka.rebalances_eagerly = True
    bench.librdkafka.live.append(Alarm())
    bench.librdkafka.positions = {0: 5, 1: 10}
    bench.librdkafka.calls_since()
    with pytest.raises(Alarm):
        bench.merge.poll(0)
    assert [call for call in bench.librdkafka.calls_since() if call[0] != "resume"] == [
        ("assign", [(0, STORED), (1, 10)]),
        ("seek", 1, 8),
        ("seek", 1, 8),
    ]
    assert bench.partition(1).state.offset == 8


@pytest.mark.parametrize("stores_offsets", [True, False])
def test_a_marker_that_librdkafka_has_passed_is_no_dropped_record(stores_offsets: bool) -> None:
    """Else each handler that raises would send librdkafka back, and the event of the end would come again."""
    bench = Bench({0: 0}, stores_offsets=stores_offsets)
    bench.end(0, 8)
    bench.run_due_work()
    bench.librdkafka.live.append(live(0, 8))
    assert bench.merge.poll(0) is not None
    bench.librdkafka.positions = {0: 10}
    assert bench.merge.poll(1) is None
    bench.merge.poll(0)
    bench.librdkafka.calls_since()
    bench.librdkafka.live.append(Alarm())
    with pytest.raises(Alarm):
        bench.merge.poll(0)
    assert not bench.librdkafka.calls_since()


def test_an_error_of_one_partition_leaves_no_other_where_librdkafka_is() -> None:
    bench = Bench({0: 0, 1: 0})
    for number in (0, 1):
        bench.end(number, 8)
    bench.run_due_work()
    bench.librdkafka.unknown = {0}
    bench.librdkafka.live.append(Alarm())
    bench.librdkafka.positions = {0: 9, 1: 9}
    bench.librdkafka.calls_since()
    with pytest.raises(Alarm):
        bench.merge.poll(0)
    assert ("seek", 1, 8) in bench.librdkafka.calls_since()


@pytest.mark.parametrize("way", ["poll", "consume"])
@pytest.mark.parametrize("has_read", [False, True])
def test_a_partition_goes_on_although_a_handler_has_dropped_the_error_that_stopped_it(
    way: str, *, has_read: bool
) -> None:
    """librdkafka gives that error once, and seeks the partition no more."""
    for handler in at_each_place(30):
        bench = bench_at_broker()
        if has_read:
            bench.librdkafka.live.append(live(0, 8))
            bench.librdkafka.positions = {0: 9}
            assert bench.merge.poll(0) is not None
            bench.partitions.positions.refresh()
        bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET, 8 + has_read))
        bench.librdkafka.calls_since()
        call = partial(bench.merge.poll, 0) if way == "poll" else partial(bench.merge.consume, 2, 0)
        for _ in range(4):
            handler.during(call)
            bench.clock.now_s += 2.0  # longer than the watchdog's time
        calls = bench.librdkafka.calls_since()
        is_assigned_again = ("incremental_unassign", [0]) in calls
        assert is_assigned_again or bench.partition(0).feed is not None, handler.place
        assert not has_read or ("incremental_assign", [(0, 8)]) not in calls, "its record would come twice"


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_a_partition_goes_on_although_a_handler_has_dropped_the_error_of_its_committed_offset(way: str) -> None:
    """librdkafka has looked the committed offset up: there is none, or it is not in the log."""
    for handler in at_each_place(20):
        bench = Bench({0: STORED})
        bench.group.answer()
        bench.run_due_work()
        bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
        bench.librdkafka.calls_since()
        call = partial(bench.merge.poll, 0) if way == "poll" else partial(bench.merge.consume, 2, 0)
        for _ in range(6):
            with suppress(Alarm):  # one that was kept
                handler.during(call)
            bench.clock.now_s += 2.0  # longer than the watchdog's time
        again = bench.librdkafka.calls_since().count(("incremental_assign", [(0, STORED)]))
        assert again == 1 or bench.mode(0) == "locating", (handler.place, again)


@pytest.mark.parametrize("count", [3, 30])
def test_one_assignment_repeats_all_hand_overs_at_committed_offsets(count: int) -> None:
    """In a group that assigns all partitions together. A handler has dropped what librdkafka may have told of each."""
    bench = Bench(dict.fromkeys(range(count), STORED))
    bench.librdkafka.rebalances_eagerly = True
    bench.group.answer()
    bench.run_due_work()
    bench.librdkafka.calls_since()
    bench.librdkafka.live.append(Alarm())
    with pytest.raises(Alarm):
        bench.merge.poll(0)
    for _ in range(60):
        bench.merge.poll(1)
    assigned = [call for call in bench.librdkafka.calls_since() if call[0] == "assign"]
    assert assigned == [("assign", [(number, STORED) for number in range(count)])]


def test_a_record_that_came_with_such_an_error_comes_once() -> None:
    for handler in at_each_place(60):
        bench = bench_at_broker()
        bench.librdkafka.calls_since()
        given = list[Message]()

        def consume(count: int, timeout: float, bench: Bench = bench) -> list[Message]:
            bench.librdkafka.positions = {0: 9}
            return FakeLibrdkafka.consume(bench.librdkafka, count, timeout)

        bench.librdkafka.live += [live(0, 8), error_of(0, KafkaError._AUTO_OFFSET_RESET, 9)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.librdkafka, "consume", consume)
            while bench.librdkafka.live:
                given += handler.during(partial(bench.merge.consume, 5, 0)) or []
        given += handler.during(partial(bench.merge.consume, 5, 0)) or []
        is_given = [message.offset() for message in given] == [8]
        assert is_given != (("incremental_assign", [(0, 8)]) in bench.librdkafka.calls_since()), handler.place


def test_no_record_is_lost_if_handlers_raise_while_librdkafka_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real librdkafka. Each record comes at about the time of a signal, and so do statistics."""
    monkeypatch.setattr(remote_fetch.session.brokers, "CLUSTER_TIMEOUT_MS", 500)  # the cluster describes no topics
    producer = Producer({"bootstrap.servers": "unused:1", "test.mock.num.brokers": 1, "log_level": 2, "linger.ms": 0})
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    producer.produce("t", b"v", partition=0)
    assert producer.flush(60) == 0
    main, is_armed, raised = threading.get_ident(), False, 0
    records = 400

    def handler(*_: object) -> None:
        nonlocal is_armed, raised
        if is_armed:
            is_armed, raised = False, raised + 1
            raise Alarm

    def send() -> None:
        """Only to the main thread: a signal ends the thread of the cluster."""
        for number in range(1, records):
            producer.produce("t", b"v", partition=0)
            producer.poll(number % 5 / 1000)
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    consumer = RemoteConsumer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "group.id": "g",
            "fetch.remote.enabled": True,
            "fetch.wait.max.ms": 10,
            "statistics.interval.ms": 10,
            "stats_cb": lambda _: None,
        }
    )
    sending = threading.Thread(target=send)
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        sending.start()
        given, left = list[Message](), 100
        while len(given) < records and left:
            got = list[Message | None]()
            try:  # `suppress` would be a call: if an error was kept, one more may come in it
                is_armed = True
                got += consumer.consume(3, 0.1) if len(given) % 2 else [consumer.poll(0.1)]
            except Alarm:
                pass
            finally:
                is_armed = False
            given += filter(None, got)
            left -= not any(got) and not sending.is_alive()
        assert [message.offset() for message in given] == list(range(records))
        assert raised
        with suppress(Alarm):  # it may have come in a callback of the last call
            consumer.commit(asynchronous=False)
        assert consumer.committed([TopicPartition("t", 0)], 60)[0].offset == records
    finally:
        is_armed = False
        sending.join()
        signal.signal(signal.SIGUSR1, before)
        with suppress(Alarm):
            consumer.close()
        producer.purge()


def test_no_position_stays_held_after_a_handler_has_ended_a_call() -> None:
    """Else nothing after it would be committed."""
    for handler in at_each_place(30):
        bench = Bench({0: END})
        bench.librdkafka.live.append(live(0, 8))
        handler.during(partial(bench.merge.consume, 2, 0.05))
        assert not bench.partition(0).position.is_held, handler.place


@pytest.mark.parametrize("kind", ["committed offsets", "lookups", "idle store"])
def test_a_close_that_a_handler_has_ended_keeps_no_thread_waiting(kind: str) -> None:
    """An event of `threading` would keep the lock inside of it."""
    for handler in at_each_place(1, folder=""):
        closes: dict[str, Callable[[], None]] = {
            "committed offsets": CommittedOffsets(lambda *_: [], lambda: None).close,
            "lookups": Lookups(lambda *_: None).close,
            "idle store": partial(IdleStore(Callbacks().log_kept, None).close, 0),
        }
        handler.during(closes[kind])
        again = threading.Thread(target=closes[kind], daemon=True)
        again.start()
        again.join(30)
        assert not again.is_alive(), handler.place


def test_a_feed_is_closed_although_a_handler_ends_its_drop() -> None:
    """`Transitions.stop_feed` drops it once more then."""
    for handler in at_each_place(2):
        bench, workers = Bench({0: 0}), Workers()
        feed, closed = bench.feed(0), list[bool]()
        feed.ending, feed.close = Ending(0, "not-tiered"), partial(closed.append, True)  # type: ignore[method-assign]
        workers.add(feed)
        for _ in range(2):
            handler.during(partial(workers.drop, feed))
        workers.close(30)
        assert closed, handler.place
