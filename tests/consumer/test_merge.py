"""One stream out of two: order, turns, waiting, and what callbacks may do in between."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message

from remote_fetch.consumer.feed import Feed
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.consumer.states import BEGINNING, END
from tests.consumer.fakes import Bench, live, news


def polled(bench: Bench, count: int) -> list[Message]:
    messages = [bench.merge.poll(0) for _ in range(count)]
    assert None not in messages
    return [message for message in messages if message is not None]


def test_poll_gives_the_stores_records_in_order() -> None:
    bench = Bench()
    bench.assign({0: 0})
    bench.give(0, range(600))
    bench.give(0, range(600, 700))
    messages = polled(bench, 700)
    assert [message.offset() for message in messages] == list(range(700))
    assert all(type(message) is Message for message in messages)
    assert bench.merge.poll(0) is None
    bench.merge.settle()
    assert bench.partitions.entries["t", 0].position == 700
    assert bench.workers.woken


def test_a_position_counts_what_was_given_and_not_what_was_prepared() -> None:
    bench = Bench()
    bench.assign({0: 0})
    bench.give(0, range(100))
    polled(bench, 3)
    bench.merge.settle()
    assert bench.partitions.entries["t", 0].position == 3
    assert [message.offset() for message in polled(bench, 97)] == list(range(3, 100))


def test_poll_and_consume_may_be_mixed() -> None:
    bench = Bench()
    bench.assign({0: 0})
    bench.give(0, range(10))
    assert [message.offset() for message in polled(bench, 2)] == [0, 1]
    assert [message.offset() for message in bench.merge.consume(3, 0)] == [2, 3, 4]
    assert [message.offset() for message in polled(bench, 5)] == [5, 6, 7, 8, 9]


def test_both_sides_take_turns_while_both_have_records() -> None:
    bench = Bench()
    bench.assign({0: 0, 1: END})
    bench.give(0, range(10))
    bench.inner.live.extend(live(1, offset) for offset in range(10))
    sources = [message.partition() for message in polled(bench, 20)]
    assert sources == [1, 0] * 10
    bench.give(0, range(10, 20))
    bench.inner.live.extend(live(1, offset) for offset in range(10, 20))
    messages = bench.merge.consume(10, 0)
    assert sorted(message.partition() or 0 for message in messages) == [0] * 5 + [1] * 5


def test_partitions_of_the_store_take_turns() -> None:
    bench = Bench()
    bench.assign({0: 0, 1: 0})
    bench.give(0, range(10))
    bench.give(1, range(10))
    first, second = bench.merge.consume(10, 0), bench.merge.consume(10, 0)
    assert {first[0].partition(), second[0].partition()} == {0, 1}


def test_librdkafka_is_asked_while_the_store_has_plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.assign({0: 0})
    bench.give(0, range(1_000))
    polled(bench, 600)
    assert 2 <= sum(call[0] == "poll" for call in bench.inner.calls) <= 600
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 1)  # a slow application
    before = len(bench.inner.calls)
    polled(bench, 1)
    assert len(bench.inner.calls) > before


def test_consume_waits_for_the_store_within_the_timeout() -> None:
    bench = Bench()
    bench.assign({0: 0})
    began_s = time.monotonic()
    assert bench.merge.consume(5, 0.05) == []
    assert time.monotonic() - began_s >= 0.05
    assert bench.merge.poll(0.02) is None


def test_consume_takes_what_nothing_is_added_to_before_it_is_taken() -> None:
    """Where no more may wait in memory, waiting for as many as are wanted would last for the whole timeout."""
    bench = Bench(queued_bytes=1)
    bench.assign({0: 0, 1: 0})
    left = [range(start, start + 10) for start in range(10, 100, 10)]

    def wake(feed: Feed) -> None:
        if feed.number == 0 and left and not feed.chunks:
            bench.give(0, left.pop(0))

    bench.workers.wake = wake  # type: ignore[method-assign]
    bench.give(0, range(10))
    began_s = time.monotonic()
    assert [message.offset() for message in bench.merge.consume(85, 60)] == list(range(85))
    assert time.monotonic() - began_s < 30
    assert [message.offset() for message in bench.merge.consume(100, 0.05)] == list(range(85, 100))
    assert bench.partitions.entries["t", 0].position == 100


def test_polls_in_several_threads_give_each_record_once_whoever_takes_them_back() -> None:
    bench, count = Bench(), 20_000
    bench.assign({0: 0})
    bench.give(0, range(count))
    gate, found, stops = threading.Lock(), list[list[int]](), threading.Event()

    def poll() -> None:
        mine: list[int] = []
        found.append(mine)
        while not stops.is_set():
            message = bench.merge.next_in_block()
            if message is None:
                with gate:
                    message = bench.merge.poll(0)
            if message is not None:
                mine.append(message.offset() or 0)

    threads = [threading.Thread(target=poll) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while sum(map(len, found)) < count and time.monotonic() < deadline:
        with gate:
            bench.merge.settle()
    stops.set()
    for thread in threads:
        thread.join(60)
    assert sorted(offset for mine in found for offset in mine) == list(range(count))
    assert all(mine == sorted(mine) for mine in found)


def test_librdkafka_waits_itself_where_nothing_is_read_from_the_store() -> None:
    bench = Bench()
    bench.assign({0: END})
    assert bench.merge.poll(0.01) is None
    assert ("poll", True) in bench.inner.calls


def test_a_paused_partition_gives_nothing_and_loses_nothing() -> None:
    bench = Bench()
    bench.assign({0: 0})
    bench.give(0, range(10))
    polled(bench, 2)
    bench.merge.settle()
    entries = list(bench.partitions.entries.values())
    bench.partitions.pause(entries)
    assert bench.merge.poll(0) is None
    assert bench.merge.consume(5, 0) == []
    bench.partitions.resume(entries)
    assert [message.offset() for message in polled(bench, 8)] == list(range(2, 10))


def test_an_exception_of_a_callback_loses_no_record() -> None:
    bench = Bench()
    bench.assign({0: 0, 1: END})
    bench.give(0, range(4))
    bench.inner.live.extend([ValueError("from a callback")])
    with pytest.raises(ValueError, match="from a callback"):
        bench.merge.consume(4, 0)
    bench.inner.live.extend([live(1, 8), ValueError("again")])
    bench.merge.poll(0)
    bench.merge.poll(0)
    with pytest.raises(ValueError, match="again"):
        bench.merge.poll(0)
    assert [message.offset() for message in bench.merge.consume(4, 0)] == [1, 2, 3]


def test_an_offset_out_of_range_is_reset_and_not_shown() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.assign({0: END})
    bench.inner.live.append(news(0, KafkaError._AUTO_OFFSET_RESET))
    assert bench.merge.poll(0) is None
    assert bench.feed(0).offset == BEGINNING
    bench.inner.live.append(news(0, KafkaError._AUTO_OFFSET_RESET))
    assert bench.merge.consume(5, 0) == []


def test_an_application_that_wants_the_error_gets_it() -> None:
    bench = Bench(ResetPolicy.ERROR)
    bench.assign({0: END})
    bench.inner.live.append(news(0, KafkaError._AUTO_OFFSET_RESET))
    (message,) = bench.merge.consume(5, 0)
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET


def test_other_news_and_resets_of_strangers_pass() -> None:
    bench = Bench()
    bench.assign({0: END})
    bench.inner.live.extend([news(0, KafkaError._PARTITION_EOF), news(7, KafkaError._AUTO_OFFSET_RESET)])
    assert len(bench.merge.consume(5, 0)) == 2


def test_what_librdkafka_gives_is_counted() -> None:
    bench = Bench()
    bench.assign({0: 0, 1: END})
    bench.give(0, range(4))
    bench.inner.live.extend([live(1, 5), live(1, 6)])
    bench.merge.consume(10, 0)
    bench.inner.live.append(live(1, 77))
    bench.merge.poll(0)
    bench.inner.live.extend([news(1, KafkaError._PARTITION_EOF), live(1, 78), news(1, KafkaError._PARTITION_EOF)])
    bench.merge.poll(0)
    bench.merge.consume(10, 0)
    assert bench.counted == [4, 22], "news is no record"


def test_while_consume_goes_on_its_records_are_not_given_yet() -> None:
    bench = Bench()
    bench.assign({0: END, 1: 0})
    entry = bench.partitions.entries["t", 0]
    bench.inner.positions[0] = 5
    stored: list[int] = []

    def callback() -> None:
        bench.merge.settle()
        bench.partitions.store()
        stored.append(bench.inner.stored[0])

    during_consume(bench, [live(0, 5), live(0, 6)], callback)
    assert [message.offset() for message in bench.merge.consume(5, 0.05)] == [5, 6]
    assert stored == [5]
    assert entry.held is None
    bench.partitions.store()
    assert bench.inner.stored[0] == 7


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("source", ["store", "librdkafka"])
def test_before_consume_has_given_anything_nothing_is_stored(source: str, is_first: bool) -> None:
    """As with the parent: a group's offsets are not committed before somebody was given a record."""
    bench = Bench(queued_bytes=1)
    bench.assign({0: 0 if source == "store" else END, 1: 0})
    theirs: list[list[Message]] = []
    if source == "store":
        bench.give(0, range(3))
    else:
        theirs = [[live(0, offset)] for offset in range(3)]
    if not is_first and theirs:
        bench.inner.live.extend(theirs.pop(0))
        bench.inner.positions[0] = 1
    if not is_first:
        polled(bench, 1)
    stored = []

    def callback() -> None:
        bench.merge.settle()
        bench.partitions.store()
        stored.append(bench.inner.stored.get(0))

    during_consume(bench, *(theirs or [[]]), callback)
    offsets = [message.offset() for message in bench.merge.consume(5, 0.05)]
    assert offsets == [0, 1, 2][not is_first :]
    assert stored == [None if is_first else 1]
    bench.partitions.store()
    assert bench.inner.stored[0] == 3


def test_what_librdkafka_has_given_already_does_not_count_as_ready() -> None:
    """Else `consume` would take it for enough, and return with less before its time."""
    bench = Bench()
    bench.assign({0: END})
    bench.inner.positions[0] = 105
    bench.partitions.tidy(time.monotonic() + 100)
    bench.give(0, range(50))
    bench.give(0, range(50, 110))
    bench.give(0, range(110, 115))
    assert bench.mode(0) == "broker"
    bench.partitions.tidy(time.monotonic())
    entry = bench.partitions.entries["t", 0]
    assert (bench.mode(0), entry.ready_records) == ("remote", 10)
    assert [message.offset() for message in bench.merge.consume(10, 60)] == list(range(105, 115))


@pytest.mark.parametrize("how", ["revoked", "assigned anew", "sought"])
def test_what_consume_held_of_a_partition_that_moves_is_dropped(how: str) -> None:
    bench = Bench()
    bench.assign({0: END, 1: END, 2: 0})

    def callback() -> None:
        entry = bench.partitions.entries["t", 0]
        if how == "revoked":
            bench.partitions.drop([entry.at()])
        elif how == "assigned anew":
            bench.assign({0: END, 2: 0}, replaces=False)
        else:
            bench.partitions.seek(entry, END)

    during_consume(bench, [live(0, 5), live(1, 8)], callback, [live(0, 5)])
    given = [(message.partition(), message.offset()) for message in bench.merge.consume(5, 0.05)]
    assert given == [(1, 8), (0, 5)]


def during_consume(bench: Bench, *steps: list[Message] | Callable[[], None]) -> None:
    """Let librdkafka give records and call back in turn, one with each call."""
    left = list(steps)

    def consume(num_messages: int = 1, timeout: float = -1) -> list[Message]:
        step = left.pop(0) if left else []
        if isinstance(step, list):
            bench.inner.positions.update({one.partition() or 0: (one.offset() or 0) + 1 for one in step})
            return step
        step()
        return []

    bench.inner.consume = consume  # type: ignore[method-assign]


def test_an_error_of_before_the_store_took_over_resets_nothing() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.assign({0: 5})
    bench.give(0, [5, 6])
    bench.inner.live.append(news(0, KafkaError._AUTO_OFFSET_RESET))
    assert [message.offset() for message in bench.merge.consume(5, 0)] == [5, 6]
    assert len(bench.workers.feeds) == 1


@pytest.mark.parametrize("is_on", [True, False])
def test_the_garbage_collector_is_as_it_was_after_many_records(is_on: bool) -> None:
    bench = Bench()
    bench.assign({0: 0})
    bench.give(0, range(2_000))
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        assert len(bench.merge.consume(1_500, 0)) == 1_500
        assert gc.isenabled() == is_on
    finally:
        (gc.enable if was_on else gc.disable)()
