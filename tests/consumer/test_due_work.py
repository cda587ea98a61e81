"""Feeds that begin, end or are late, and partitions of librdkafka for which the store is tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote_fetch.consumer.feed import Ending
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.offsets import BEGINNING, END, INVALID
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.model import LogBounds
from remote_fetch.observe import Fallback, Notice
from remote_fetch.plan.ranges import Reason
from tests.consumer.fakes import Bench


def test_each_change_of_the_reading_side_is_one_notice() -> None:
    bench = Bench({0: 5})
    for offsets in ([5, 6], [7], [8]):
        bench.give(0, offsets)
        assert [message.offset() for message in bench.merge.consume(5, 0)] == offsets
    bench.end(0, 9)
    bench.run_due_work()
    assert [(event.text, event.is_warning) for event in bench.events if isinstance(event, Notice)] == [
        ("t-0 is read from the store from offset 5 on", False),
        ("t-0 is read from the broker from offset 9 on (not-tiered)", False),
    ]


def test_an_end_of_the_tier_that_was_found_a_while_ago_is_looked_at_again() -> None:
    """The application was slow, and more was tiered since. It waits for one second look."""
    bench = Bench({0: 5})
    bench.give(0, range(5, 15))
    bench.run_due_work()
    feed = bench.feed(0)
    feed.ending = Ending(15, Reason.NOT_TIERED, at_s=bench.clock())
    bench.run_due_work(after_s=3)
    assert not feed.wants_work, "records are ready"
    assert len(bench.merge.consume(10, 0)) == 10
    bench.run_due_work()
    assert (bench.mode(0), feed.wants_work, bench.feed(0) is feed) == ("remote", True, True)
    feed.ending = Ending(15, Reason.NOT_TIERED, at_s=bench.clock())
    bench.run_due_work(after_s=3)
    assert (bench.mode(0), bench.partition(0).state.reason) == ("broker", "not-tiered")


@pytest.mark.parametrize(
    ("ending", "after_s"),
    [
        (Ending(15, Reason.NOT_TIERED), 1),  # a moment ago
        (Ending(15, Reason.HOLE), 3),
        (Ending(15, Reason.NOT_TIERED, is_failure=True), 3),
    ],
)
def test_other_ends_are_believed(ending: Ending, after_s: int) -> None:
    bench = Bench({0: 5})
    bench.give(0, range(5, 15))
    bench.run_due_work()
    bench.feed(0).ending = replace(ending, at_s=bench.clock())
    assert len(bench.merge.consume(10, 0)) == 10
    bench.run_due_work(after_s=after_s)
    assert bench.mode(0) == "broker"


def test_a_late_feed_is_handed_over_at_its_start() -> None:
    """The worker may have moved on without giving records yet: the broker gives them."""
    bench = Bench({0: 5})
    bench.feed(0).offset = 15
    bench.run_due_work(after_s=61)
    assert ("seek", 0, 5) in bench.librdkafka.calls_since()


def test_a_feed_is_not_late_if_its_records_were_taken_already() -> None:
    """Records may come after the feeds were checked and before records are taken. Then the store was in time."""
    bench = Bench({0: 5})
    bench.run_due_work()
    bench.give(0, range(5, 15))
    partition = bench.partition(0)
    partition.position.deliver(partition.records.take(10)[-1])
    bench.librdkafka.calls_since()
    bench.run_due_work(after_s=61)
    assert (bench.mode(0), bench.librdkafka.calls_since()) == ("remote", [])


def test_a_partition_with_a_late_store_goes_to_the_broker() -> None:
    bench = Bench({0: 5})
    bench.librdkafka.calls_since()
    bench.run_due_work(after_s=61)
    assert bench.librdkafka.calls_since() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]
    assert bench.partition(0).state.reason == "read-timeout"


def test_a_feed_that_waits_for_brokers_in_the_middle_is_late_too() -> None:
    """It plans its next segments, and the leader of the metadata stands still. That of the partition may be well."""
    bench = Bench({0: 5})
    bench.give(0, range(5, 15))
    bench.run_due_work()
    assert len(bench.merge.consume(4, 0)) == 4
    bench.feed(0).asks_brokers = True
    bench.librdkafka.calls_since()
    bench.run_due_work(after_s=61)
    assert bench.mode(0) == "remote", "records are ready"
    assert len(bench.merge.consume(6, 0)) == 6
    bench.run_due_work(after_s=61)
    assert bench.librdkafka.calls_since() == [("seek", 0, 15), ("resume", 0), ("seek", 0, 15, 3)]
    assert (bench.mode(0), bench.partition(0).state.reason) == ("broker", "unanswered")


def test_a_feed_that_waits_for_the_store_in_the_middle_is_not_late() -> None:
    """Each GET has a deadline of its own."""
    bench = Bench({0: 5})
    bench.give(0, [5])
    bench.run_due_work()
    assert len(bench.merge.consume(1, 0)) == 1
    bench.run_due_work(after_s=61)
    assert bench.mode(0) == "remote"


def test_a_late_partition_without_a_get_is_unanswered() -> None:
    """All workers wait for brokers that do not answer, and no GET is under way."""
    bench = Bench()
    bench.reader.is_asking = False
    bench.assign({0: 5})
    bench.run_due_work(after_s=61)
    assert (bench.mode(0), bench.partition(0).state.reason) == ("broker", "unanswered")


def test_a_partition_is_not_late_while_other_partitions_get_answers() -> None:
    bench = Bench({0: 5, 1: 5})
    bench.session.answered_s = bench.clock() + 3600 - 30
    bench.run_due_work(after_s=3600)
    assert (bench.mode(0), bench.mode(1), bench.events) == ("locating", "locating", [])


def test_silent_brokers_are_not_counted_as_an_error_of_the_store() -> None:
    bench = Bench({0: 5})
    bench.librdkafka.calls_since()
    bench.feed(0).asks_brokers = True
    bench.run_due_work(after_s=61)
    assert bench.librdkafka.calls_since() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]
    assert bench.partition(0).state.reason == "unanswered"
    metrics = Metrics()
    for event in bench.events:
        metrics(event)
    counted = metrics.snapshot()
    assert (counted["remote-fetch-fallbacks-total"], counted["remote-fetch-errors-total"]) == (1, 0)
    assert counted["remote-fetch-fallbacks-by-reason"] == {"unanswered": 1}


def test_a_late_store_is_counted_as_a_fallback() -> None:
    bench = Bench({0: 5}, patience_s=0)
    bench.run_due_work(after_s=1)
    (fallback,) = [event for event in bench.events if isinstance(event, Fallback)]
    assert (fallback.partition.topic, fallback.partition.partition, fallback.reason) == ("t", 0, "read-timeout")
    assert bench.mode(0) == "broker"


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (ResetPolicy.EARLIEST, [("pause", 0)]),
        (ResetPolicy.LATEST, [("seek", 0, END), ("resume", 0)]),
        (ResetPolicy.ERROR, [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]),
    ],
)
def test_an_offset_out_of_range_is_reset_by_the_policy(policy: ResetPolicy, calls: list[tuple[object, ...]]) -> None:
    bench = Bench({0: 5}, reset=policy)
    bench.librdkafka.calls_since()
    bench.partition(0).position.follow(5, None)
    bench.end(0, 5, Ending.OUT_OF_RANGE, log=LogBounds(None))
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == calls
    assert bench.partition(0).position.next_offset == INVALID
    if policy is ResetPolicy.EARLIEST:
        assert bench.feed(0).offset == BEGINNING


def test_after_a_failure_the_store_takes_over_at_librdkafkas_position() -> None:
    bench = Bench({0: 5})
    bench.end(0, 5, "corrupt", is_failure=True)
    bench.run_due_work()
    bench.librdkafka.positions[0] = 20
    bench.run_due_work()
    assert len(bench.workers.feeds) == 1, "too soon"
    bench.run_due_work(after_s=1.1)
    assert bench.feed(0).offset == 20
    bench.librdkafka.positions[0] = 23
    bench.give(0, range(20, 30))
    bench.librdkafka.calls_since()
    assert [message.offset() for message in bench.merge.consume(100, 0)] == list(range(23, 30))
    assert bench.librdkafka.calls_since() == [("pause", 0)]
    bench.end(0, 25)
    bench.run_due_work()
    assert bench.librdkafka.calls_since()[-1] == ("seek", 0, 25)


def probing_from_20() -> Bench:
    """librdkafka reads after a failure of the store, and the store is tried again from 20 on."""
    bench = Bench({0: 5})
    bench.end(0, 5, "corrupt", is_failure=True)
    bench.run_due_work()
    bench.librdkafka.positions[0] = 20
    bench.run_due_work(after_s=1.1)
    return bench


def test_after_a_take_over_no_record_of_librdkafka_is_handed_over_again() -> None:
    """The feed began before librdkafka's position, and ends before it."""
    bench = probing_from_20()
    bench.librdkafka.positions[0] = 30
    bench.give(0, range(20, 25))
    bench.end(0, 25)
    bench.run_due_work()
    assert (bench.mode(0), bench.librdkafka.calls_since()[-1]) == ("broker", ("seek", 0, 30))


@pytest.mark.parametrize("ends_at", [None, 25, 40])
def test_the_store_does_not_take_over_at_the_end_of_the_log(ends_at: int | None) -> None:
    """A hand-over there would give the application the event of the end once more.

    The feed may have ended by then. Where it has ended counts no more: librdkafka goes on at its own position.
    """
    bench = probing_from_20()
    bench.librdkafka.positions[0] = bench.librdkafka.high_watermark = 30
    bench.give(0, range(20, ends_at or 30))
    if ends_at is not None:
        bench.end(0, ends_at)
    bench.librdkafka.calls_since()
    bench.run_due_work()
    assert (bench.mode(0), bench.partition(0).feed, bench.librdkafka.calls_since()) == ("broker", None, [])
    bench.librdkafka.high_watermark = 40
    bench.run_due_work(after_s=31)
    assert bench.feed(0).offset == 30


def test_a_reset_to_the_end_goes_to_where_the_log_ended_when_the_feed_found_it_out() -> None:
    """The application may poll much later."""
    bench = Bench({0: 5}, reset=ResetPolicy.LATEST)
    bench.librdkafka.calls_since()
    bench.end(0, 5, Ending.OUT_OF_RANGE, log=LogBounds(10, 70))
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == [("seek", 0, 70), ("resume", 0), ("seek", 0, 70)]


def test_a_probe_that_fails_doubles_the_pause() -> None:
    bench = Bench({0: 5})
    bench.end(0, 5, "corrupt", is_failure=True)
    bench.run_due_work()
    bench.run_due_work(after_s=3)
    bench.end(0, 5, "corrupt", is_failure=True)
    bench.librdkafka.calls_since()
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == []
    bench.run_due_work(after_s=1.9)
    assert len(bench.workers.feeds) == 2
    bench.run_due_work(after_s=0.2)
    assert len(bench.workers.feeds) == 3


def test_the_store_is_not_tried_at_the_end_of_the_log() -> None:
    bench = Bench({0: 5})
    bench.end(0, 5)
    bench.run_due_work()
    bench.librdkafka.positions[0] = bench.librdkafka.high_watermark = 50
    bench.run_due_work(after_s=31)
    assert len(bench.workers.feeds) == 1
    bench.librdkafka.high_watermark = 51
    bench.run_due_work(after_s=29)  # each look takes time, and a partition that records come to is often not at its end
    assert len(bench.workers.feeds) == 1
    bench.run_due_work(after_s=2)
    assert len(bench.workers.feeds) == 2


def test_the_store_is_tried_soon_after_a_long_pause_at_the_end_of_the_log() -> None:
    """librdkafka hears of the new end by its first fetch after the resumption."""
    bench = Bench({0: 5})
    bench.end(0, 5)
    bench.run_due_work()
    bench.librdkafka.positions[0] = bench.librdkafka.high_watermark = 50
    partition = bench.partition(0)
    bench.partitions.pause([partition])
    bench.run_due_work(after_s=3_600)
    bench.partitions.resume([partition])
    bench.run_due_work()
    bench.librdkafka.high_watermark = 5_000
    bench.run_due_work(after_s=2)
    assert len(bench.workers.feeds) == 2


def test_without_a_storage_the_store_is_never_tried_again() -> None:
    bench = Bench({0: 5})
    bench.end(0, 5, "not-configured", is_failure=True)
    bench.run_due_work()
    bench.run_due_work(after_s=1_000)
    assert len(bench.workers.feeds) == 1
