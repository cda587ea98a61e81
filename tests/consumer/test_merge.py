"""The merge of both sides: order, turns, waits, and what callbacks may do in between."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from remote_fetch.consumer.feed import Feed
from remote_fetch.consumer.offsets import BEGINNING, END, INVALID
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.model import Uuid
from tests.consumer.fakes import Bench, error_of, live


def polled(bench: Bench, count: int) -> list[Message]:
    messages = [bench.merge.poll(0) for _ in range(count)]
    assert None not in messages
    return [message for message in messages if message is not None]


def test_poll_gives_records_of_the_store_in_order() -> None:
    bench = Bench({0: 0})
    bench.give(0, range(600))
    bench.give(0, range(600, 700))
    messages = polled(bench, 700)
    assert [message.offset() for message in messages] == list(range(700))
    assert all(type(message) is Message for message in messages)
    assert bench.merge.poll(0) is None
    bench.merge.flush_position()
    assert bench.partition(0).position.next_offset == 700
    assert bench.workers.woken


def test_a_position_is_behind_polled_records_and_not_behind_prepared_ones() -> None:
    bench = Bench({0: 0})
    bench.give(0, range(100))
    polled(bench, 3)
    bench.merge.flush_position()
    assert bench.partition(0).position.next_offset == 3
    assert [message.offset() for message in polled(bench, 97)] == list(range(3, 100))


def test_poll_and_consume_may_be_mixed() -> None:
    bench = Bench({0: 0})
    bench.give(0, range(10))
    assert [message.offset() for message in polled(bench, 2)] == [0, 1]
    assert [message.offset() for message in bench.merge.consume(3, 0)] == [2, 3, 4]
    assert [message.offset() for message in polled(bench, 5)] == [5, 6, 7, 8, 9]


def test_both_sides_take_turns_while_both_have_records() -> None:
    bench = Bench({0: 0, 1: END})
    bench.give(0, range(10))
    bench.librdkafka.live.extend(live(1, offset) for offset in range(10))
    sources = [message.partition() for message in polled(bench, 20)]
    assert sources == [1, 0] * 10
    bench.give(0, range(10, 20))
    bench.librdkafka.live.extend(live(1, offset) for offset in range(10, 20))
    messages = bench.merge.consume(10, 0)
    assert sorted(message.partition() or 0 for message in messages) == [0] * 5 + [1] * 5


@pytest.mark.parametrize("count", [1, 2])
def test_both_sides_take_turns_in_calls_of_consume_for_few_records(count: int) -> None:
    bench = Bench({0: 0, 1: END})
    bench.give(0, range(4))
    bench.librdkafka.live.extend(live(1, offset) for offset in range(9))
    given = [message.partition() for _ in range(8 // count) for message in bench.merge.consume(count, 1.0)]
    assert (given.count(0), given.count(1)) == (4, 4)


@pytest.mark.parametrize("event", [KafkaError._MAX_POLL_EXCEEDED, KafkaError._AUTO_OFFSET_RESET])
def test_after_an_event_consume_for_one_message_asks_librdkafka_before_the_store(event: int) -> None:
    """Its next callback may take away the partition whose records the store has. A reset is no message."""
    bench = Bench({0: 0, 1: END})
    bench.give(0, range(4))
    bench.librdkafka.live.extend([live(1, 10), error_of(1, event, 11), live(1, 12)])
    given = [message.offset() for _ in range(5) for message in bench.merge.consume(1, 1.0)]
    assert given == ([10, 0, 11, 12, 1] if event == KafkaError._MAX_POLL_EXCEEDED else [10, 0, 12, 1, 2])


@pytest.mark.parametrize("consumes", [False, True])
def test_librdkafka_is_asked_before_the_store_if_a_callback_is_expected(consumes: bool) -> None:
    """The callback may take away the partition whose records the store has."""
    bench = Bench({0: 0, 1: END})
    bench.give(0, range(4))
    bench.librdkafka.live.extend([live(1, 10), live(1, 11)])
    assert [message.offset() for message in bench.merge.consume(1, 1.0)] == [10]
    bench.merge.expect_callback()
    (message,) = bench.merge.consume(1, 1.0) if consumes else polled(bench, 1)
    assert message.offset() == 11


def test_partitions_of_the_store_take_turns() -> None:
    bench = Bench({0: 0, 1: 0})
    bench.give(0, range(10))
    bench.give(1, range(10))
    first, second = bench.merge.consume(10, 0), bench.merge.consume(10, 0)
    assert {first[0].partition(), second[0].partition()} == {0, 1}


def test_librdkafka_is_polled_while_the_store_has_many_records() -> None:
    bench = Bench({0: 0})
    bench.give(0, range(3_000))
    polled(bench, 2_000)
    assert 2 <= sum(call[0] == "poll" for call in bench.librdkafka.calls) <= 2_000
    bench.clock.now_s += 1  # a slow application
    before = len(bench.librdkafka.calls)
    polled(bench, 1)
    assert len(bench.librdkafka.calls) > before


@pytest.mark.parametrize("timeout_s", [-1.0, float("inf"), float("nan"), 1e300])
def test_no_single_wait_for_librdkafka_is_endless(timeout_s: float) -> None:
    """A callback may assign partitions during the wait, and then the store has the next record."""
    bench = Bench()
    waits: list[float] = []

    def poll(timeout: float) -> Message | None:
        waits.append(timeout)
        return live(0, 1) if len(waits) == 2 else None

    bench.merge._poll_librdkafka = poll  # type: ignore[assignment]
    message = bench.merge.poll(timeout_s)
    assert message is not None
    assert waits == [1.0, 1.0]


@pytest.mark.parametrize("method", ["poll", "consume"])
def test_a_single_wait_for_librdkafka_is_no_longer_than_positions_may_stay_unstored(method: str) -> None:
    bench = Bench(idle_store_s=0.2)
    waits: list[float] = []

    def poll(timeout: float) -> None:
        waits.append(timeout)
        bench.clock.now_s += timeout

    def consume(_: int, timeout: float) -> list[Message]:
        poll(timeout)
        return []

    bench.merge._poll_librdkafka = poll  # type: ignore[assignment]
    bench.librdkafka.consume = consume  # type: ignore[assignment, method-assign]
    assert not (bench.merge.poll(0.5) if method == "poll" else bench.merge.consume(3, 0.5))
    assert waits[:2] == [0.2, 0.2]


def test_consume_waits_for_the_store_within_the_timeout() -> None:
    bench = Bench({0: 0})
    began_s = bench.clock()
    assert bench.merge.consume(5, 0.05) == []
    assert round(bench.clock() - began_s, 6) == 0.05
    assert bench.merge.poll(0.02) is None
    assert round(bench.clock() - began_s, 6) == 0.07


def test_consume_takes_the_records_of_a_feed_whose_queue_is_full() -> None:
    """The feed brings no more before they are taken: to wait for more would take the whole timeout."""
    bench = Bench({0: 0, 1: 0}, queued_bytes=1)
    chunks = [range(start, start + 10) for start in range(10, 100, 10)]

    def wake(feed: Feed) -> None:
        if feed.number == 0 and chunks and not feed.chunks:
            bench.give(0, chunks.pop(0))

    bench.workers.wake = wake  # type: ignore[method-assign]
    bench.give(0, range(10))
    began_s = bench.clock()
    assert [message.offset() for message in bench.merge.consume(85, 60)] == list(range(85))
    assert bench.clock() - began_s < 1
    assert [message.offset() for message in bench.merge.consume(100, 0.05)] == list(range(85, 100))
    assert bench.partition(0).position.next_offset == 100


def test_consume_takes_records_that_came_after_it_had_looked_for_news() -> None:
    bench = Bench({0: 0})
    bench.give(0, range(5))
    assert len(bench.merge.consume(5, 0)) == 5
    assert bench.merge.consume(5, 0) == []
    during_consume(bench, lambda: bench.give(0, range(5, 10)))
    assert [message.offset() for message in bench.merge.consume(5, 60)] == list(range(5, 10))


def test_poll_finds_records_that_came_after_it_had_found_none() -> None:
    bench = Bench({0: 0})
    assert bench.merge.poll(0) is None
    bench.give(0, range(2))
    assert [message.offset() for message in polled(bench, 1)] == [0]
    bench.merge.flush_position()
    assert [message.offset() for message in polled(bench, 1)] == [1]
    assert bench.merge.poll(0) is None


def test_no_position_moves_while_consume_waits_for_more_of_a_feed_whose_queue_is_full() -> None:
    bench = Bench({0: 0, 1: 0}, queued_bytes=1)
    bench.give(0, range(3))
    found = []

    def callback() -> None:
        records, position = bench.partition(0).records, bench.partition(0).position
        found.append((len(bench.feed(0).chunks), records.ready_count, position.next_offset, position.is_held))

    during_consume(bench, [], callback)
    assert [message.offset() for message in bench.merge.consume(5, 0.05)] == [0, 1, 2]
    assert found == [(0, 3, INVALID, False)]
    assert bench.partition(0).position.next_offset == 3


def test_polls_in_several_threads_give_each_record_once_while_prepared_records_are_taken_back() -> None:
    bench, count = Bench(), 20_000
    bench.assign({0: 0})
    bench.give(0, range(count))
    gate, found, stop = threading.Lock(), list[list[int]](), threading.Event()

    def poll() -> None:
        polled_here: list[int] = []
        found.append(polled_here)
        while not stop.is_set():
            message = bench.merge.next_in_block()
            if message is None:
                with gate:
                    message = bench.merge.poll(0)
            if message is not None:
                polled_here.append(message.offset() or 0)

    threads = [threading.Thread(target=poll) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + 60
    while sum(map(len, found)) < count and time.monotonic() < deadline_s:
        with gate:
            bench.merge.flush_position()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert sorted(offset for offsets in found for offset in offsets) == list(range(count))
    assert all(offsets == sorted(offsets) for offsets in found)


def test_a_poll_waits_in_librdkafka_if_no_feed_runs() -> None:
    bench = Bench({0: END})
    assert bench.merge.poll(0.01) is None
    assert ("poll", True) in bench.librdkafka.calls


def test_a_paused_partition_gives_no_record_and_loses_none() -> None:
    bench = Bench({0: 0})
    bench.give(0, range(10))
    polled(bench, 2)
    bench.merge.flush_position()
    partitions = list(bench.partitions.assigned.values())
    bench.partitions.pause(partitions)
    assert bench.merge.poll(0) is None
    assert bench.merge.consume(5, 0) == []
    bench.partitions.resume(partitions)
    assert [message.offset() for message in polled(bench, 8)] == list(range(2, 10))


def test_an_exception_of_a_callback_loses_no_record() -> None:
    bench = Bench({0: 0, 1: END})
    bench.give(0, range(4))
    bench.librdkafka.live.extend([ValueError("from a callback")])
    with pytest.raises(ValueError, match="from a callback"):
        bench.merge.consume(4, 0)
    bench.librdkafka.live.extend([live(1, 8), ValueError("again")])
    bench.merge.poll(0)
    bench.merge.poll(0)
    with pytest.raises(ValueError, match="again"):
        bench.merge.poll(0)
    assert [message.offset() for message in bench.merge.consume(4, 0)] == [1, 2, 3]


def test_consume_returns_the_records_that_it_has_although_a_handler_of_a_signal_raises_in_a_wait() -> None:
    bench = Bench({0: END, 1: 0})
    bench.librdkafka.live.append(live(0, 8))

    def wait(timeout_s: float) -> None:
        raise SystemExit

    bench.workers.wait = wait  # type: ignore[method-assign]
    assert [message.offset() for message in bench.merge.consume(4, 1.0)] == [8]
    with pytest.raises(SystemExit):
        bench.merge.consume(4, 1.0)


def test_a_handler_of_a_signal_that_closes_and_leaves_commits_no_record_that_is_dropped() -> None:
    bench = Bench({0: END})

    def consume(*_: object) -> list[Message]:
        if bench.librdkafka.positions:  # confluent_kafka drops the records that this call has taken
            bench.librdkafka.positions[0] = 12
            assert bench.merge.puts_off_close()
            raise SystemExit
        bench.librdkafka.positions[0] = 9
        return [live(0, 8)]

    bench.librdkafka.consume = consume  # type: ignore[assignment, method-assign]
    assert [message.offset() for message in bench.merge.consume(4, 1.0)] == [8]
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 9}


def test_a_handler_that_closes_and_leaves_in_a_poll_commits_no_record_that_is_dropped() -> None:
    """Python calls the handler when the call of librdkafka has ended, and drops the record that it has returned."""
    bench = Bench({0: END})
    bench.librdkafka.live.append(live(0, 8))
    assert bench.merge.poll(1.0) is not None
    bench.librdkafka.positions[0] = 9
    bench.partitions.positions.store()

    def poll(_: float) -> Message | None:
        bench.librdkafka.positions[0] = 10
        assert bench.merge.puts_off_close()
        raise SystemExit

    bench.merge._poll_librdkafka = poll  # type: ignore[assignment]
    with pytest.raises(SystemExit):
        bench.merge.poll(1.0)
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 9}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_consume_returns_the_records_that_it_has_before_it_raises(error: type[BaseException]) -> None:
    bench = Bench({0: END})
    rounds = iter([[live(0, 8)]])

    def consume(*_: object) -> list[Message]:
        for messages in rounds:
            return messages
        raise error  # also a handler of a signal raises here

    bench.librdkafka.consume = consume  # type: ignore[assignment, method-assign]
    assert [message.offset() for message in bench.merge.consume(4, 1.0)] == [8]
    with pytest.raises(error):
        bench.merge.consume(4, 1.0)


def test_consume_takes_the_positions_of_the_partitions_alone_that_gave_the_last_records() -> None:
    """With a thousand partitions, all positions for each record take a thousand times as long as the record."""
    bench = Bench(dict.fromkeys(range(5), END))
    asked: list[list[int]] = []
    position = bench.librdkafka.position

    def asked_position(partitions: list[TopicPartition]) -> list[TopicPartition]:
        asked.append([partition.partition for partition in partitions])
        return position(partitions)

    bench.librdkafka.position = asked_position  # type: ignore[method-assign]
    bench.librdkafka.live.extend([live(3, 7), live(1, 8)])
    for number, offset in ((3, 7), (1, 8)):
        assert [message.offset() for message in bench.merge.consume(1, 0)] == [offset]
        bench.librdkafka.positions[number] = offset + 1
    asked.clear()
    assert bench.merge.consume(1, 0) == []
    assert asked == [[1]]
    assert bench.partition(3).position.next_offset == 8
    assert bench.partition(1).position.next_offset == 9


def test_a_callback_that_has_closed_the_consumer_calls_librdkafka_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """confluent_kafka aborts the process if a callback has consumed and another one follows in the same call."""
    bench = Bench({0: END})
    monkeypatch.setattr(bench.librdkafka, "consume", pytest.fail)
    monkeypatch.setattr(bench.merge, "_poll_librdkafka", pytest.fail)
    bench.merge.is_close_due = True
    assert bench.merge.consume(3, 9) == []
    assert bench.merge.poll(9) is None


def test_an_offset_out_of_range_is_reset_and_not_returned() -> None:
    bench = Bench({0: END}, reset=ResetPolicy.EARLIEST)
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
    assert bench.merge.poll(0) is None
    assert bench.feed(0).offset == BEGINNING
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
    assert bench.merge.consume(5, 0) == []


@pytest.mark.parametrize(
    ("offset", "has_begun", "calls"),
    [
        (6, True, []),  # before the next record
        (9, True, [("seek", 0, 7)]),  # librdkafka may have passed records that it does not give, but it goes on
        (9, False, []),  # behind an offset that librdkafka was just sent to
        (-1001, True, [("seek", 0, 7)]),  # the error has no offset
    ],
)
def test_an_error_from_before_a_seek_resets_nothing(
    offset: int, has_begun: bool, calls: list[tuple[object, ...]]
) -> None:
    """librdkafka gives it all the same. It has not stopped the partition, which the application has sent elsewhere."""
    bench = Bench({0: 7}, reset=ResetPolicy.LATEST)
    bench.end(0, 7)
    bench.run_due_work()
    if has_begun:
        bench.librdkafka.positions[0] = 7
    bench.librdkafka.errors_are_late = True
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET, offset))
    bench.librdkafka.calls_since()
    assert bench.merge.poll(0) is None
    assert bench.librdkafka.calls_since() == calls
    assert (bench.mode(0), bench.partition(0).state.offset) == ("broker", 7)


def test_after_an_error_from_before_a_seek_librdkafka_goes_on_with_the_leader_epoch() -> None:
    """Without it librdkafka does not notice that the log was truncated."""
    bench = Bench({0: 7}, reset=ResetPolicy.LATEST)
    bench.end(0, 7, leader_epoch=2)
    bench.run_due_work()
    bench.librdkafka.errors_are_late = True
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
    bench.librdkafka.calls_since()
    assert bench.merge.poll(0) is None
    assert bench.librdkafka.calls_since() == [("seek", 0, 7, 2)]
    assert bench.partition(0).state.leader_epoch == 2


@pytest.mark.parametrize(("position", "offset"), [(-1001, 7), (12, 12), (12, 14)])
def test_an_error_of_the_offset_that_librdkafka_has_come_to_resets(position: int, offset: int) -> None:
    """It may have passed two markers after the last record."""
    bench = Bench({0: 7}, reset=ResetPolicy.EARLIEST)
    bench.end(0, 7)
    bench.run_due_work()
    bench.librdkafka.positions[0] = position
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET, offset))
    assert bench.merge.poll(0) is None
    assert bench.mode(0) == "locating"


TRUNCATED = (
    "Partition log truncation detected at offset 9 (leader epoch 0): broker end offset is 7 (offset leader epoch 0). "
    "Reset to INVALID.: Local: Partition log truncation detected (broker 2)"
)


@pytest.mark.parametrize("policy", [ResetPolicy.EARLIEST, ResetPolicy.LATEST])
def test_after_a_truncation_no_policy_applies(policy: ResetPolicy) -> None:
    """As in librdkafka, the partition goes on where the log parts from what was read."""
    bench = Bench({0: END}, reset=policy)
    bench.librdkafka.positions[0] = 9
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET, text=TRUNCATED))
    assert bench.merge.poll(0) is None
    assert (bench.mode(0), bench.feed(0).offset) == ("locating", 7)
    assert bench.partition(0).position.shown.offset == 9
    bench.give(0, [7, 8])
    assert [message.offset() for message in bench.merge.consume(2, 0)] == [7, 8]
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 9}


@pytest.mark.parametrize("has_given", [True, False])
def test_after_a_truncation_at_a_hand_over_the_topic_is_confirmed(has_given: bool) -> None:
    """It may be another topic of the same name. A plain consumer compares epochs only after an election."""
    bench = Bench({0: 5})
    bench.feed(0).topic_id = topic_id = Uuid(b"t" * 16)
    bench.end(0, 9, leader_epoch=0)
    bench.run_due_work()
    if has_given:
        bench.librdkafka.positions[0] = 12
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET, text=TRUNCATED))
    assert bench.merge.poll(0) is None
    assert bench.feed(0)._expected_id == (None if has_given else topic_id)


def test_with_the_reset_policy_error_the_application_gets_the_error() -> None:
    bench = Bench({0: END}, reset=ResetPolicy.ERROR)
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
    (message,) = bench.merge.consume(5, 0)
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET


def test_other_errors_are_returned_also_of_unassigned_partitions() -> None:
    bench = Bench({0: END})
    bench.librdkafka.live.extend([error_of(0, KafkaError._PARTITION_EOF), error_of(7, KafkaError._PARTITION_EOF)])
    assert len(bench.merge.consume(5, 0)) == 2


@pytest.mark.parametrize(
    ("policy", "returned"), [(ResetPolicy.EARLIEST, 0), (ResetPolicy.LATEST, 0), (ResetPolicy.ERROR, 1)]
)
def test_a_reset_of_a_partition_that_was_given_back(policy: ResetPolicy, returned: int) -> None:
    """A plain consumer that resets has no such error. librdkafka keeps ours over an unassignment."""
    bench = Bench({0: END}, reset=policy)
    error = error_of(7, KafkaError._AUTO_OFFSET_RESET)
    bench.librdkafka.live.append(error)
    assert (bench.merge.poll(0) is not None) == bool(returned)
    bench.librdkafka.live.append(error)
    assert len(bench.merge.consume(5, 0)) == returned


def test_after_an_event_librdkafka_is_polled_before_the_store() -> None:
    """The event may be that the group takes all partitions away, and the next poll runs the callback for that."""
    bench = Bench({0: 0, 1: END})
    bench.librdkafka.live.append(live(1, 4))
    polled(bench, 1)
    bench.librdkafka.live.extend([error_of(1, KafkaError._MAX_POLL_EXCEEDED), live(1, 5)])
    polled(bench, 1)
    bench.give(0, range(3))
    assert [message.offset() for message in polled(bench, 2)] == [5, 0]


def test_consume_drops_records_of_the_store_if_a_callback_follows_an_event() -> None:
    bench = Bench({0: 0})
    bench.give(0, range(3))
    event = error_of(1, KafkaError._MAX_POLL_EXCEEDED)

    def callback() -> None:
        bench.partitions.drop(None)
        bench.clock.now_s += 1

    during_consume(bench, [event], callback)
    assert bench.merge.consume(3, 0.05) == [event]


def test_records_of_librdkafka_are_counted() -> None:
    bench = Bench({0: 0, 1: END})
    bench.give(0, range(4))
    bench.librdkafka.live.extend([live(1, 5), live(1, 6)])
    bench.merge.consume(10, 0)
    bench.librdkafka.live.append(live(1, 77))
    bench.merge.poll(0)
    bench.librdkafka.live.extend(
        [error_of(1, KafkaError._PARTITION_EOF), live(1, 78), error_of(1, KafkaError._PARTITION_EOF)]
    )
    bench.merge.poll(0)
    bench.merge.consume(10, 0)
    assert bench.counted == [4, 22], "an error is not a record"


def test_while_consume_runs_the_position_is_before_its_records() -> None:
    bench = Bench({0: END, 1: 0})
    bench.librdkafka.positions[0] = 5
    stored: list[int] = []

    def callback() -> None:
        bench.merge.flush_position()
        bench.partitions.positions.store()
        stored.append(bench.librdkafka.stored[0])

    during_consume(bench, [live(0, 5), live(0, 6)], callback)
    assert [message.offset() for message in bench.merge.consume(5, 0.05)] == [5, 6]
    assert stored == [5]
    assert not bench.partition(0).position.is_held
    bench.partitions.positions.store()
    assert bench.librdkafka.stored[0] == 7


def test_a_reset_stores_nothing_of_what_a_running_consume_holds() -> None:
    """All partitions are assigned again, and the position of the other one is already after its messages."""
    bench = Bench({0: END, 1: END}, reset=ResetPolicy.LATEST)
    bench.librdkafka.rebalances_eagerly = True
    bench.librdkafka.stopped.add(1)
    bench.librdkafka.positions[0] = 5
    seen: list[tuple[int, dict[int, int]]] = []
    assign, at_assignment = bench.librdkafka.assign, []

    def noted_assign(partitions: list[TopicPartition]) -> None:
        at_assignment.append(dict(bench.librdkafka.stored))
        assign(partitions)

    bench.librdkafka.assign = noted_assign  # type: ignore[method-assign]

    def callback() -> None:
        bench.partitions.positions.store()
        seen.append((bench.partition(0).position.shown.offset, dict(bench.librdkafka.stored)))
        bench.clock.now_s += 1

    during_consume(bench, [live(0, 5), live(0, 6), error_of(1, KafkaError._AUTO_OFFSET_RESET)], callback)
    assert [message.offset() for message in bench.merge.consume(5, 0.05)] == [5, 6]
    assert ("assign", [(0, 7), (1, END)]) in bench.librdkafka.calls_since()
    assert seen == [(5, {0: 5, 1: INVALID})]
    assert at_assignment == [{0: INVALID, 1: INVALID}], "librdkafka commits what is stored, also an earlier offset"
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 7, 1: INVALID}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("side", ["store", "store that has ended", "librdkafka"])
def test_records_of_a_running_consume_are_not_stored(side: str, is_first: bool) -> None:
    """As in the parent, an offset is not committed before the application has the record."""
    bench = Bench(queued_bytes=1)
    bench.assign({0: END if side == "librdkafka" else 0, 1: 0})
    live_messages: list[list[Message]] = []
    if side != "librdkafka":
        bench.give(0, range(3))
        if side == "store that has ended":
            bench.end(0, 3)
    else:
        live_messages = [[live(0, offset)] for offset in range(3)]
    if not is_first and live_messages:
        bench.librdkafka.live.extend(live_messages.pop(0))
        bench.librdkafka.positions[0] = 1
    if not is_first:
        polled(bench, 1)
    stored = []

    def callback() -> None:
        bench.merge.flush_position()
        bench.partitions.positions.store()
        stored.append(bench.librdkafka.stored.get(0))

    during_consume(bench, *(live_messages or [[]]), callback)
    offsets = [message.offset() for message in bench.merge.consume(5, 0.05)]
    assert offsets == [0, 1, 2][not is_first :]
    assert stored == [None if is_first else 1]
    bench.partitions.positions.store()
    assert bench.librdkafka.stored[0] == 3


def test_records_that_librdkafka_has_given_do_not_count_as_ready() -> None:
    """Otherwise `consume` would return early, with fewer records than it was asked for."""
    bench = Bench({0: END})
    bench.librdkafka.positions[0] = 105
    bench.run_due_work(after_s=100)
    bench.give(0, range(50))
    bench.give(0, range(50, 110))
    bench.give(0, range(110, 115))
    assert bench.mode(0) == "broker"
    bench.run_due_work()
    assert (bench.mode(0), bench.partition(0).records.ready_count) == ("remote", 10)
    assert [message.offset() for message in bench.merge.consume(10, 60)] == list(range(105, 115))


def test_records_that_librdkafka_has_given_are_not_reserved() -> None:
    """Otherwise `consume` would count them, and return early."""
    bench = Bench({0: END}, queued_bytes=1)
    bench.librdkafka.positions[0] = 100
    bench.run_due_work(after_s=100)
    bench.give(0, range(5, 10))
    bench.run_due_work()
    assert (bench.mode(0), bench.partition(0).records.ready_count) == ("remote", 0)
    parts = [range(10, 20), range(20, 30), range(95, 98), range(99, 110)]
    during_consume(bench, *(partial(bench.give, 0, part) for part in parts))
    assert [message.offset() for message in bench.merge.consume(10, 60)] == list(range(100, 110))


@pytest.mark.parametrize("how", ["revoked", "assigned again", "sought"])
def test_consume_drops_messages_of_a_partition_that_moves(how: str) -> None:
    bench = Bench({0: END, 1: END, 2: 0})

    def callback() -> None:
        partition = bench.partition(0)
        if how == "revoked":
            bench.partitions.drop([partition.topic_partition()])
        elif how == "assigned again":
            bench.assign({0: END, 2: 0}, replaces=False)
        else:
            bench.partitions.seek(partition, END)

    during_consume(bench, [live(0, 5), live(1, 8)], callback, [live(0, 5)])
    given = [(message.partition(), message.offset()) for message in bench.merge.consume(5, 0.05)]
    assert given == [(1, 8), (0, 5)]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_of_store", [True, False])
def test_consume_drops_messages_of_a_partition_that_a_callback_pauses(*, is_of_store: bool, is_first: bool) -> None:
    """They come after the pause, as in the parent."""
    bench = Bench({0: 0 if is_of_store else END, 1: END, 2: 0}, queued_bytes=1)
    messages = [live(0, offset) for offset in range(5, 8)]
    if is_of_store:
        bench.give(0, range(5, 8))
        bench.end(0, 8)
    if not is_first and not is_of_store:
        bench.librdkafka.live.append(messages.pop(0))
        bench.librdkafka.positions[0] = 6
    first = 5 if is_first else polled(bench, 1)[0].offset() + 1  # type: ignore[operator]
    shown = []

    def callback() -> None:
        bench.merge.flush_position()
        bench.partitions.pause([bench.partition(0)])
        bench.partitions.positions.store()
        shown.append(bench.partition(0).position.shown.offset)

    during_consume(bench, [live(1, 8)] if is_of_store else [live(1, 8), *messages], callback)
    assert [message.partition() for message in bench.merge.consume(9, 0.05)] == [1]
    assert shown == [INVALID if is_first else first]
    assert bench.librdkafka.stored.get(0) == (None if is_first else first)
    bench.partitions.resume([bench.partition(0)])
    bench.run_due_work()
    assert bench.feed(0).first_offset == first


@pytest.mark.parametrize("is_first", [True, False])
def test_messages_from_before_a_reset_are_not_stored_if_a_callback_pauses_their_partition(*, is_first: bool) -> None:
    """The position before the reset is after them, and `consume` drops them."""
    bench = Bench({0: END}, reset=ResetPolicy.LATEST)
    if not is_first:
        bench.librdkafka.live.append(live(0, 4))
        bench.librdkafka.positions[0] = 5
        polled(bench, 1)
    shown = []

    def callback() -> None:
        bench.partitions.pause([bench.partition(0)])
        bench.partitions.positions.store()
        shown.append(bench.partition(0).position.shown.offset)
        bench.clock.now_s += 1

    during_consume(bench, [live(0, 5), live(0, 6), error_of(0, KafkaError._AUTO_OFFSET_RESET, 7)], callback)
    assert bench.merge.consume(9, 0.05) == []
    bench.partitions.positions.store()
    before = INVALID if is_first else 5
    assert (shown, bench.librdkafka.stored.get(0, INVALID)) == ([before], before)
    assert bench.feed(0).first_offset == 5


@pytest.mark.parametrize("consumes", [False, True])
def test_records_keep_their_order_if_a_callback_polls(monkeypatch: pytest.MonkeyPatch, *, consumes: bool) -> None:
    """The records that the inner `poll` has prepared come next, and none is lost."""
    bench, count = Bench({0: 0}), 3_000
    bench.give(0, range(count))
    found: list[Message] = []

    callbacks = [lambda: found.extend(polled(bench, 2))]

    def call_back(*_: object) -> None:
        if callbacks:
            callbacks.pop()()

    monkeypatch.setattr(bench.merge, "_poll_librdkafka", call_back)
    during_consume(bench, call_back)
    while len(found) < count:
        before = len(found)
        outer = bench.merge.consume(5, 0) if consumes else polled(bench, 1)  # it adds to `found`, too
        found += outer
        assert len(found) > before
    bench.merge.flush_position()
    assert [message.offset() for message in found] == list(range(count))
    assert bench.partition(0).position.next_offset == count


def during_consume(bench: Bench, *steps: list[Message] | Callable[[], None]) -> None:
    """With each `consume` librdkafka gives the next list of messages, or runs the next callback."""
    remaining = list(steps)

    def consume(num_messages: int = 1, timeout: float = -1) -> list[Message]:
        step = remaining.pop(0) if remaining else []
        if isinstance(step, list):
            bench.librdkafka.positions.update(
                {each.partition() or 0: (each.offset() or 0) + 1 for each in step if each.error() is None}
            )
            return step
        step()
        return []

    bench.librdkafka.consume = consume  # type: ignore[method-assign]


def test_an_error_from_before_the_take_over_resets_nothing() -> None:
    bench = Bench({0: 5}, reset=ResetPolicy.EARLIEST)
    bench.give(0, [5, 6])
    bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
    assert [message.offset() for message in bench.merge.consume(5, 0)] == [5, 6]
    assert len(bench.workers.feeds) == 1


@pytest.mark.parametrize("is_on", [True, False])
def test_the_garbage_collector_is_as_it_was_after_many_records(is_on: bool) -> None:
    bench = Bench({0: 0})
    bench.give(0, range(2_000))
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        assert len(bench.merge.consume(1_500, 0)) == 1_500
        assert gc.isenabled() == is_on
    finally:
        (gc.enable if was_on else gc.disable)()


def test_the_garbage_collector_has_nothing_to_do_while_lists_of_messages_follow_each_other() -> None:
    bench, calls = Bench(), 10
    bench.assign({0: 0})
    bench.give(0, range(2_000 * calls))
    began: list[Mapping[str, int]] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            began.append(info)

    messages = bench.merge.consume(2_000, 0)
    gc.collect()
    gc.callbacks.append(note)
    try:
        for _ in range(1, calls):
            messages = bench.merge.consume(2_000, 0)  # the list before goes when this one is there
    finally:
        gc.callbacks.remove(note)
    assert len(messages) == 2_000
    assert len(began) <= 1  # a collection in every call would be nine
