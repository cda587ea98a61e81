"""What librdkafka is told, and what is stored for commits, as partitions change hands."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.entries import UNKNOWN
from remote_fetch.consumer.feed import Ending
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.places import keep_from_fetching
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.consumer.states import BEGINNING, END, STORED
from remote_fetch.model import LogBounds
from remote_fetch.observe import Fallback, Notice
from tests.consumer.fakes import Bench, FakeInner, live


def test_an_assignment_is_quiet_until_the_store_has_been_looked_into() -> None:
    bench = Bench()
    bench.assign({0: 7, 1: END})
    assert ("pause", 0) in bench.inner.calls
    assert ("resume", 1) in bench.inner.calls
    assert (bench.mode(0), bench.mode(1)) == ("locating", "broker")
    assert [feed.offset for feed in bench.workers.feeds] == [7]


def test_the_hand_over_resumes_before_it_seeks_and_comes_after_the_last_record() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.give(0, [5, 6])
    bench.end(0, 9)
    bench.inner.taken()
    assert [message.offset() for message in bench.merge.consume(1, 0)] == [5]
    assert bench.inner.taken() == []
    assert bench.mode(0) == "remote"
    assert [message.offset() for message in bench.merge.consume(5, 0)] == [6]
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken() == [("seek", 0, 9), ("resume", 0), ("seek", 0, 9)]
    assert bench.partitions.entries["t", 0].position == 9, "past the markers at the end of the tier"


def test_the_way_of_a_partition_is_told_once_when_it_changes() -> None:
    bench = Bench()
    bench.assign({0: 5})
    for offsets in ([5, 6], [7], [8]):
        bench.give(0, offsets)
        assert [message.offset() for message in bench.merge.consume(5, 0)] == offsets
    bench.end(0, 9)
    bench.partitions.tidy(time.monotonic())
    assert [(event.text, event.is_warning) for event in bench.events if isinstance(event, Notice)] == [
        ("t-0 is read from the store from offset 5 on", False),
        ("t-0 is read from the broker from offset 9 on (not-tiered)", False),
    ]


def test_something_else_is_sought_before_offset_0_for_that_alone_wakes_nothing() -> None:
    bench = Bench()
    bench.assign({0: 0})
    bench.end(0, 0)
    bench.inner.taken()
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken() == [("seek", 0, 0), ("resume", 0), ("seek", 0, 1), ("seek", 0, 0)]


def test_offset_0_of_an_empty_log_is_handed_over_without() -> None:
    """There is no other offset in it."""
    bench = Bench()
    bench.assign({0: 0})
    bench.feed(0).log = LogBounds(0, 0)
    bench.feed(0).ending = Ending(0, "not-tiered")
    bench.inner.taken()
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken() == [("seek", 0, 0), ("resume", 0), ("seek", 0, 0)]


def test_a_poll_waits_for_no_broker_whatever_is_handed_over() -> None:
    """A librdkafka whose questions all take their whole time, and 64 partitions that are handed over in one poll."""
    bench = Bench()
    waited: list[float] = []
    refused = KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def ask(*_: object, timeout: float = -1, cached: bool = False) -> None:
        if not cached:
            waited.append(timeout)
            raise refused

    for question in ("get_watermark_offsets", "committed", "offsets_for_times"):
        setattr(bench.inner, question, ask)
    partitions = [TopicPartition("t", number, (0, 7, BEGINNING, STORED)[number % 4]) for number in range(64)]
    assigned = keep_from_fetching(bench.inner, partitions)
    bench.partitions.begin(partitions, replaces=True)
    bench.committed.answer()
    for feed in bench.workers.feeds:
        feed._since_s = time.monotonic() - 61
    assert {one.offset for one in assigned} == {0}
    assert bench.merge.poll(0) is None
    assert {bench.mode(number) for number in range(64)} == {"broker"}
    bench.partitions.seek(bench.partitions.entries["t", 0], END)
    assert waited == []


def test_librdkafka_has_paused_what_it_is_assigned_before_it_is() -> None:
    inner = FakeInner()
    given = [TopicPartition("t", number, offset) for number, offset in enumerate([7, BEGINNING, END, UNKNOWN, -2005])]
    assigned = keep_from_fetching(inner, given)
    assert [one.offset for one in assigned] == [0, 0, END, 0, 0]
    assert inner.taken() == [("pause", number) for number in (0, 1, 3, 4)]


@pytest.mark.parametrize(
    ("reset", "committed", "mode", "offset"),
    [
        (ResetPolicy.EARLIEST, 7, "locating", 7),
        (ResetPolicy.EARLIEST, UNKNOWN, "locating", BEGINNING),
        (ResetPolicy.LATEST, UNKNOWN, "broker", END),
        (ResetPolicy.ERROR, UNKNOWN, "broker", STORED),
    ],
)
def test_a_partition_begins_where_the_group_has_committed(
    reset: ResetPolicy, committed: int, mode: str, offset: int
) -> None:
    bench = Bench(reset)
    bench.assign({0: STORED, 1: 5})
    assert [one.partition for one in bench.committed.asked] == [0]
    bench.partitions.tidy(time.monotonic())
    assert (bench.mode(0), len(bench.workers.feeds)) == ("locating", 1), "it waits"
    bench.committed.answer(committed)
    bench.partitions.tidy(time.monotonic())
    assert (bench.mode(0), bench.partitions.entries["t", 0].state.offset) == (mode, offset)


@pytest.mark.parametrize("is_cooperative", [True, False])
def test_librdkafka_asks_for_itself_what_the_group_has_not_answered(is_cooperative: bool) -> None:
    bench = Bench(is_cooperative=is_cooperative)
    bench.assign({0: STORED, 1: STORED, 2: 5})
    bench.inner.taken()
    bench.committed.answer()
    bench.partitions.tidy(time.monotonic())
    told = bench.inner.taken()
    if is_cooperative:
        assert told[-1] == ("incremental_assign", [(0, STORED), (1, STORED)])
    else:
        assert told[-1] == ("assign", [(0, STORED), (1, STORED), (2, 0)])


def test_an_answer_is_too_late_for_what_was_sought_elsewhere_or_assigned_again() -> None:
    bench = Bench()
    bench.assign({0: STORED, 1: STORED})
    bench.partitions.seek(bench.partitions.entries["t", 0], 3)
    bench.committed.answer(7, 8)
    bench.assign({1: STORED}, replaces=False)
    bench.partitions.tidy(time.monotonic())
    assert [feed.offset for feed in bench.workers.feeds] == [3]
    bench.committed.answer(9)
    bench.partitions.tidy(time.monotonic())
    assert [feed.offset for feed in bench.workers.feeds] == [3, 9]


def test_a_hand_over_that_brings_nothing_is_made_again() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.end(0, 5)
    now_s = time.monotonic()
    bench.partitions.tidy(now_s)
    bench.inner.taken()
    bench.partitions.tidy(now_s + 1.4)
    assert bench.inner.taken() == []
    bench.partitions.was_silent(now_s + 1.6)
    bench.partitions.tidy(now_s + 1.6)
    assert bench.inner.taken() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]
    bench.inner.positions[0] = 6
    bench.partitions.was_silent(now_s + 5)
    bench.partitions.tidy(now_s + 5)
    assert bench.inner.taken() == []


def test_a_hand_over_is_not_made_again_while_nobody_has_asked() -> None:
    """It would throw away what librdkafka has fetched while the application was busy with something else."""
    bench = Bench()
    bench.assign({0: 5})
    bench.end(0, 5)
    now_s = time.monotonic()
    bench.partitions.tidy(now_s)
    bench.inner.taken()
    bench.partitions.tidy(now_s + 10)
    assert bench.inner.taken() == []
    bench.inner.live.append(live(0, 5))
    assert [message.value() for message in bench.merge.consume(5, 0)] == [b"live5"]
    assert bench.inner.taken() == []


def test_a_hand_over_is_made_again_in_the_end_also_where_librdkafka_is_never_silent() -> None:
    bench = Bench()
    bench.assign({0: 5, 1: END})
    bench.end(0, 5)
    now_s = time.monotonic()
    bench.partitions.tidy(now_s)
    bench.inner.taken()
    bench.partitions.tidy(now_s + 29)
    assert bench.inner.taken() == []
    bench.partitions.tidy(now_s + 31)
    assert bench.inner.taken() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]


def test_what_comes_just_as_the_patience_ends_is_not_passed_over() -> None:
    """The worker has moved on, and its records are not there yet: the broker gives them."""
    bench = Bench()
    bench.assign({0: 5})
    bench.feed(0)._offset = 15
    bench.feed(0)._since_s = time.monotonic() - 61
    bench.partitions.tidy(time.monotonic())
    assert ("seek", 0, 5) in bench.inner.taken()


def test_what_was_taken_before_it_was_noticed_does_not_come_again() -> None:
    """Records may come between looking after the feeds and taking from them; then the store has been in time."""
    bench = Bench()
    bench.assign({0: 5})
    bench.partitions.tidy(time.monotonic())
    entry = bench.partitions.entries["t", 0]
    bench.give(0, range(5, 15))
    entry.delivered(entry.take(10)[-1])
    bench.inner.taken()
    bench.feed(0)._since_s = time.monotonic() - 61
    bench.partitions.tidy(time.monotonic())
    assert (bench.mode(0), bench.inner.taken()) == ("remote", [])


def test_the_position_of_a_parked_partition_is_not_librdkafkas() -> None:
    """That is where it was before the application sought, paused, elsewhere."""
    bench = Bench()
    bench.assign({0: 5})
    bench.inner.positions[0] = 300
    bench.end(0, 5)
    bench.partitions.tidy(time.monotonic())
    bench.partitions.positions()
    entry = bench.partitions.entries["t", 0]
    assert entry.position == 300
    bench.partitions.pause([entry])
    bench.partitions.seek(entry, 100)
    bench.end(0, 100)
    bench.partitions.tidy(time.monotonic())
    bench.partitions.store()
    assert (entry.state.is_parked, entry.position, bench.inner.stored) == (True, UNKNOWN, {})


def test_an_assignment_made_anew_lets_nobody_begin_where_it_once_began() -> None:
    """librdkafka forgets its positions: what is idle since is looked into from where it is."""
    bench = Bench()
    bench.assign({0: 5, 1: 500})
    bench.end(1, 500)
    bench.partitions.tidy(time.monotonic())
    bench.inner.positions[1] = 90_000
    bench.inner.stopped.add(0)
    bench.end(0, 5)
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.positions == {}
    bench.partitions.tidy(time.monotonic() + 100)
    assert bench.feed(1).offset == 90_000


def test_the_end_is_never_sought_twice() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.partitions.seek(bench.partitions.entries["t", 0], END)
    assert ("seek", 0, END) in bench.inner.taken()
    bench.partitions.tidy(time.monotonic() + 5)
    assert bench.inner.taken() == []


def test_a_store_that_is_late_leaves_the_partition_to_the_broker() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.inner.taken()
    bench.feed(0)._since_s = time.monotonic() - 61
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]
    assert bench.partitions.entries["t", 0].state.reason == "read-timeout"


def test_a_partition_that_waits_for_a_worker_is_not_late_by_the_store() -> None:
    """All workers wait for brokers that do not answer, and no GET is under way."""
    bench = Bench()
    bench.assign({0: 5})
    bench.reader.is_asking = False
    bench.feed(0)._since_s = time.monotonic() - 61
    bench.partitions.tidy(time.monotonic())
    assert (bench.mode(0), bench.partitions.entries["t", 0].state.reason) == ("broker", "unanswered")


def test_a_partition_is_not_late_while_others_are_answered() -> None:
    bench = Bench()
    bench.assign({0: 5, 1: 5})
    bench.feed(0)._since_s = bench.feed(1)._since_s = time.monotonic() - 3600
    bench.session.answered_s = time.monotonic() - 30
    bench.partitions.tidy(time.monotonic())
    assert (bench.mode(0), bench.mode(1), bench.events) == ("locating", "locating", [])


def test_brokers_that_do_not_answer_are_no_failure_of_the_store() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.inner.taken()
    bench.feed(0)._since_s = time.monotonic() - 61
    bench.feed(0)._asks_brokers = True
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]
    assert bench.partitions.entries["t", 0].state.reason == "unanswered"
    metrics = Metrics()
    for event in bench.events:
        metrics(event)
    counted = metrics.snapshot()
    assert (counted["remote-fetch-fallbacks-total"], counted["remote-fetch-errors-total"]) == (1, 0)
    assert counted["remote-fetch-fallbacks-by-reason"] == {"unanswered": 1}


def test_pauses_outlast_assignments_and_a_hand_over_waits_for_the_resumption() -> None:
    bench = Bench()
    bench.assign({0: 5, 1: END})
    bench.partitions.pause(bench.partitions.entries.values())
    bench.inner.taken()
    bench.assign({0: 5, 1: END})
    assert ("resume", 1) not in bench.inner.taken()
    bench.end(0, 5)
    bench.partitions.tidy(time.monotonic())
    assert ("seek", 0, 5) not in bench.inner.taken()
    bench.partitions.resume(bench.partitions.entries.values())
    assert bench.inner.taken() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5), ("resume", 1)]


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (ResetPolicy.EARLIEST, [("pause", 0)]),
        (ResetPolicy.LATEST, [("seek", 0, END), ("resume", 0)]),
        (ResetPolicy.ERROR, [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]),
    ],
)
def test_the_applications_policy_resets_an_offset_out_of_range(
    policy: ResetPolicy, told: list[tuple[object, ...]]
) -> None:
    bench = Bench(policy)
    bench.assign({0: 5})
    bench.inner.taken()
    bench.end(0, 5, Ending.OUT_OF_RANGE)
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken() == told
    if policy is ResetPolicy.EARLIEST:
        assert bench.feed(0).offset == BEGINNING


def test_a_failure_is_looked_at_again_and_taken_over_where_librdkafka_is_by_then() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.end(0, 5, "corrupt", is_failure=True)
    bench.partitions.tidy(time.monotonic())
    bench.inner.positions[0] = 20
    bench.partitions.tidy(time.monotonic())
    assert len(bench.workers.feeds) == 1, "too soon"
    bench.partitions.tidy(time.monotonic() + 1.1)
    assert bench.feed(0).offset == 20
    bench.inner.positions[0] = 23
    bench.give(0, range(20, 30))
    bench.inner.taken()
    assert [message.offset() for message in bench.merge.consume(100, 0)] == list(range(23, 30))
    assert bench.inner.taken() == [("pause", 0)]
    bench.end(0, 25)
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken()[-1] == ("seek", 0, 25)


def test_a_probe_that_fails_leaves_librdkafka_alone_for_longer() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.end(0, 5, "corrupt", is_failure=True)
    bench.partitions.tidy(time.monotonic())
    bench.partitions.tidy(time.monotonic() + 3)
    bench.end(0, 5, "corrupt", is_failure=True)
    bench.inner.taken()
    now_s = time.monotonic()
    bench.partitions.tidy(now_s)
    assert bench.inner.taken() == []
    bench.partitions.tidy(now_s + 1.9)
    assert len(bench.workers.feeds) == 2
    bench.partitions.tidy(time.monotonic() + 2.1)
    assert len(bench.workers.feeds) == 3


def test_an_open_circuit_leaves_new_partitions_to_the_broker() -> None:
    bench = Bench()
    bench.source.failed("throttled")
    bench.assign({0: 5})
    assert bench.workers.feeds == []
    assert bench.partitions.entries["t", 0].state.reason == "throttled"


def test_a_partition_at_its_tail_is_not_looked_up() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.end(0, 5)
    bench.partitions.tidy(time.monotonic())
    bench.inner.positions[0] = bench.inner.high_watermark = 50
    bench.partitions.tidy(time.monotonic() + 31)
    assert len(bench.workers.feeds) == 1
    bench.inner.high_watermark = 51
    bench.partitions.tidy(time.monotonic() + 62)
    assert len(bench.workers.feeds) == 2


def test_what_is_stored_never_goes_back_but_after_a_seek() -> None:
    bench = Bench()
    bench.assign({0: 5, 1: END})
    entry = bench.partitions.entries["t", 0]
    bench.give(0, [5, 6])
    bench.merge.consume(2, 0)
    bench.inner.positions[1] = 40
    bench.partitions.store()
    assert bench.inner.stored == {0: 7, 1: 40}
    bench.inner.positions[1] = 39
    bench.partitions.store()
    assert bench.inner.stored == {0: 7, 1: 40}
    bench.partitions.seek(entry, 2)
    bench.give(0, [2])
    bench.merge.consume(1, 0)
    bench.partitions.store()
    assert bench.inner.stored[0] == 3


def test_nothing_is_stored_for_an_application_that_stores_by_itself() -> None:
    bench = Bench(stores_offsets=False)
    bench.assign({0: 5})
    bench.give(0, [5])
    bench.merge.consume(1, 0)
    bench.partitions.store()
    assert bench.inner.stored == {}


def test_offsets_of_partitions_that_are_gone_are_not_missed() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.give(0, [5])
    bench.merge.consume(1, 0)
    bench.inner.store_error = KafkaException(KafkaError(KafkaError._STATE))
    bench.partitions.store()


def test_dropping_partitions_drops_their_feeds() -> None:
    bench = Bench()
    bench.assign({0: 5, 1: 5})
    bench.give(0, [5])
    feeds = list(bench.workers.feeds)
    bench.partitions.drop([TopicPartition("t", 0), TopicPartition("t", 9)])
    assert list(bench.partitions.entries) == [("t", 1)]
    assert bench.workers.dropped == feeds[:1]
    bench.inner.live.append(live(1, 3))
    assert [message.value() for message in bench.merge.consume(5, 0)] == [b"live3"]
    bench.partitions.drop(None)
    assert bench.workers.dropped == feeds


@pytest.mark.parametrize(
    ("is_cooperative", "told"),
    [
        (True, [("incremental_unassign", [0]), ("resume", 0), ("incremental_assign", [(0, 5)])]),
        (False, [("resume", 0), ("assign", [(0, 5), (1, 33), (2, 0)])]),
    ],
)
def test_what_librdkafka_has_stopped_is_assigned_anew(is_cooperative: bool, told: list[tuple[object, ...]]) -> None:
    """Elsewhere it goes on: where librdkafka reads, at its position; what the store reads is left alone."""
    bench = Bench(is_cooperative=is_cooperative)
    bench.assign({0: 5, 1: END, 2: 0})
    bench.inner.positions[1] = 33
    bench.partitions.store()
    bench.inner.stopped.add(0)
    bench.inner.taken()
    bench.end(0, 5)
    bench.partitions.tidy(time.monotonic())
    assert bench.inner.taken() == told
    bench.inner.stored.clear()
    bench.partitions.store()
    assert bench.inner.stored == ({} if is_cooperative else {1: 33}), "an assignment forgets what was stored"


def test_a_store_that_gives_nothing_in_time_is_counted() -> None:
    bench = Bench(patience_ms=0)
    bench.assign({0: 5})
    bench.feed(0)._since_s = time.monotonic() - 1
    bench.partitions.tidy(time.monotonic())
    (event,) = [one for one in bench.events if isinstance(one, Fallback)]
    assert (event.partition.topic, event.partition.partition, event.reason) == ("t", 0, "read-timeout")
    assert bench.mode(0) == "broker"


def test_without_a_storage_nothing_is_looked_up_again() -> None:
    bench = Bench()
    bench.assign({0: 5})
    bench.end(0, 5, "not-configured", is_failure=True)
    bench.partitions.tidy(time.monotonic())
    bench.partitions.tidy(time.monotonic() + 1_000)
    assert len(bench.workers.feeds) == 1
