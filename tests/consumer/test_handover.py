"""Which calls librdkafka gets before an assignment, at a hand-over, and if a hand-over brings nothing."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.feed import Ending
from remote_fetch.consumer.handover import pause_before_assign
from remote_fetch.consumer.offsets import BEGINNING, END, INVALID, STORED
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.model import LogBounds
from tests.consumer.fakes import Bench, FakeLibrdkafka, error_of, live

SENT_TO_5 = [("seek", 0, 5), ("resume", 0), ("seek", 0, 5)]


def test_partitions_that_the_store_may_have_are_paused_before_the_assignment() -> None:
    librdkafka = FakeLibrdkafka()
    starts = [7, BEGINNING, END, INVALID, -2005]
    given = [TopicPartition("t", number, offset) for number, offset in enumerate(starts)]
    assigned = pause_before_assign(librdkafka, given)
    assert [partition.offset for partition in assigned] == [0, 0, END, 0, 0]
    assert librdkafka.calls_since() == [("pause", number) for number in (0, 1, 3, 4)]


def test_the_metadata_of_an_assignment_reaches_librdkafka() -> None:
    """A commit shows it for a partition that has no position. The constructor of a partition takes no None."""
    given = [TopicPartition("t", 0, 7, metadata="m"), TopicPartition("t", 1, END, metadata=""), TopicPartition("t", 2)]
    assert [partition.metadata for partition in pause_before_assign(FakeLibrdkafka(), given)] == ["m", "", None]


def test_a_hand_over_comes_after_the_last_record_and_seeks_again_after_the_resumption() -> None:
    bench = Bench({0: 5})
    bench.give(0, [5, 6])
    bench.end(0, 9)
    bench.librdkafka.calls_since()
    assert [message.offset() for message in bench.merge.consume(1, 0)] == [5]
    assert bench.librdkafka.calls_since() == []
    assert bench.mode(0) == "remote"
    assert [message.offset() for message in bench.merge.consume(5, 0)] == [6]
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == [("seek", 0, 9), ("resume", 0), ("seek", 0, 9)]
    assert bench.partition(0).position.next_offset == 9, "behind the markers at the end of the tier"


def test_markers_alone_move_the_position() -> None:
    """An application may read until its position is the end of the log."""
    bench = Bench({0: 5, 1: 5})
    for number, end in enumerate((9, 5)):
        bench.end(number, end)
    bench.run_due_work()
    assert [bench.partition(number).position.delivered for number in (0, 1)] == [9, INVALID]


def test_the_position_after_a_marker_has_the_leader_epoch_of_the_marker() -> None:
    """A log without records or markers of an epoch up to there counts as truncated, for each reader that goes on."""
    bench = Bench({0: 5})
    bench.give(0, [5, 6])  # of epoch 3
    bench.end(0, 9, leader_epoch=4)
    assert len(bench.merge.consume(5, 0)) == 2
    bench.run_due_work()
    shown, stored = bench.partition(0).position.shown, bench.partition(0).stored.to_store()
    assert [(found.offset, found.leader_epoch) for found in (shown, stored)] == 2 * [(9, 4)]


def test_librdkafka_compares_the_leader_epoch_of_the_last_record_with_the_log() -> None:
    """The log may have been truncated since the store gave the record."""
    bench = Bench({0: 5})
    bench.give(0, [5, 6])
    bench.end(0, 9, leader_epoch=3)
    bench.librdkafka.calls_since()
    assert len(bench.merge.consume(5, 0)) == 2
    bench.run_due_work()
    handed_over = [("seek", 0, 9), ("resume", 0), ("seek", 0, 9, 3)]
    assert bench.librdkafka.calls_since() == handed_over
    bench.merge.poll(10)
    bench.run_due_work(after_s=100)
    assert bench.librdkafka.calls_since()[:3] == handed_over, "the repetition"


def test_a_parked_partition_is_handed_over_with_its_leader_epoch() -> None:
    bench = Bench({0: 5})
    bench.partitions.pause([bench.partition(0)])
    bench.end(0, 9, leader_epoch=3)
    bench.run_due_work()
    bench.librdkafka.calls_since()
    bench.partitions.resume([bench.partition(0)])
    assert bench.librdkafka.calls_since() == [("seek", 0, 9), ("resume", 0), ("seek", 0, 9, 3)]


def test_a_leader_epoch_belongs_to_one_offset() -> None:
    """librdkafka has come further than the feed, so the epoch is not that of the record before."""
    bench = Bench({0: 5})
    bench.partition(0).records.skip(12)
    bench.end(0, 9, leader_epoch=3)
    bench.librdkafka.calls_since()
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == [("seek", 0, 12), ("resume", 0), ("seek", 0, 12)]


def test_a_hand_over_at_offset_0_seeks_1_before() -> None:
    """librdkafka stands at 0 already: a seek to 0 alone does not wake its broker's thread."""
    bench = Bench({0: 0})
    bench.end(0, 0)
    bench.librdkafka.calls_since()
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == [("seek", 0, 0), ("resume", 0), ("seek", 0, 1), ("seek", 0, 0)]


def test_a_hand_over_of_an_empty_log_does_not_seek_1() -> None:
    bench = Bench({0: 0})
    bench.feed(0).log = LogBounds(0, 0)
    bench.feed(0).ending = Ending(0, "not-tiered")
    bench.librdkafka.calls_since()
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == [("seek", 0, 0), ("resume", 0), ("seek", 0, 0)]


def test_a_poll_that_hands_over_64_partitions_waits_for_no_broker() -> None:
    """Every request to a broker would take its whole timeout here."""
    bench = Bench()
    waited: list[float] = []
    refused = KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def request(*_: object, timeout: float = -1, cached: bool = False) -> None:
        if not cached:
            waited.append(timeout)
            raise refused

    for method in ("get_watermark_offsets", "committed", "offsets_for_times"):
        setattr(bench.librdkafka, method, request)
    partitions = [TopicPartition("t", number, (0, 7, BEGINNING, STORED)[number % 4]) for number in range(64)]
    assigned = bench.librdkafka.assigned = pause_before_assign(bench.librdkafka, partitions)
    bench.begin(partitions)
    bench.group.answer()
    bench.clock.now_s += 61
    assert {partition.offset for partition in assigned} == {0}
    assert bench.merge.poll(0) is None
    assert {bench.mode(number) for number in range(64)} == {"broker"}
    bench.partitions.seek(bench.partition(0), END)
    assert waited == []


def test_a_hand_over_that_brings_nothing_is_repeated() -> None:
    bench = Bench({0: 5})
    bench.end(0, 5)
    bench.run_due_work()
    bench.librdkafka.calls_since()
    bench.run_due_work(after_s=1.4)
    assert bench.librdkafka.calls_since() == []
    bench.clock.now_s += 0.2
    bench.partitions.note_empty_poll(bench.clock())
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == SENT_TO_5
    bench.librdkafka.positions[0] = 6
    bench.clock.now_s += 3.4
    bench.partitions.note_empty_poll(bench.clock())
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == []


def test_a_hand_over_is_not_repeated_before_librdkafka_was_polled() -> None:
    """It would throw away what librdkafka has fetched while the application was busy with something else."""
    bench = Bench({0: 5})
    bench.end(0, 5)
    bench.run_due_work()
    bench.librdkafka.calls_since()
    bench.run_due_work(after_s=10)
    assert bench.librdkafka.calls_since() == []
    bench.librdkafka.live.append(live(0, 5))
    assert [message.value() for message in bench.merge.consume(5, 0)] == [b"live5"]
    assert bench.librdkafka.calls_since() == []


def test_a_hand_over_is_repeated_after_long_even_if_no_poll_was_empty() -> None:
    bench = Bench({0: 5, 1: END})
    bench.end(0, 5)
    bench.run_due_work()
    bench.librdkafka.calls_since()
    bench.run_due_work(after_s=29)
    assert bench.librdkafka.calls_since() == []
    bench.run_due_work(after_s=2)
    assert bench.librdkafka.calls_since() == SENT_TO_5


def test_a_hand_over_to_the_end_that_librdkafka_knows_is_repeated_only_once() -> None:
    """A feed that stops at the broker's own disk has not asked for the end."""
    bench = Bench({0: 5})
    bench.end(0, 5, "local")
    bench.feed(0).log = LogBounds(None)
    bench.librdkafka.high_watermark = 5
    bench.run_due_work()
    calls = []
    for _ in range(3):
        bench.librdkafka.calls_since()
        bench.clock.now_s += 100
        bench.partitions.note_empty_poll(bench.clock())
        bench.run_due_work()
        calls.append(bench.librdkafka.calls_since())
    assert calls == [SENT_TO_5, [], []]


def test_a_seek_to_the_end_is_not_repeated() -> None:
    bench = Bench({0: 5})
    bench.partitions.seek(bench.partition(0), END)
    assert ("seek", 0, END) in bench.librdkafka.calls_since()
    bench.run_due_work(after_s=5)
    assert bench.librdkafka.calls_since() == []


@pytest.mark.parametrize(
    ("is_eager", "calls"),
    [
        (False, [("incremental_unassign", [0]), ("resume", 0), ("incremental_assign", [(0, 5)])]),
        (True, [("resume", 0), ("assign", [(0, 5), (1, 33), (2, 0)])]),
    ],
)
def test_a_partition_that_librdkafka_has_stopped_is_assigned_again(
    is_eager: bool, calls: list[tuple[object, ...]]
) -> None:
    """If a group rebalances eagerly, the other partitions are assigned too.

    Those of librdkafka are assigned at its positions, those of the store at the placeholder.
    """
    bench = Bench()
    bench.librdkafka.rebalances_eagerly = is_eager
    bench.assign({0: 5, 1: END, 2: 0})
    bench.librdkafka.positions[1] = 33
    bench.partitions.positions.store()
    bench.librdkafka.stopped.add(0)
    bench.librdkafka.calls_since()
    bench.end(0, 5)
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == calls
    bench.librdkafka.stored.clear()
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == ({1: 33} if is_eager else {}), "an assignment forgets what was stored"


@pytest.mark.parametrize("is_eager", [False, True])
def test_a_partition_is_assigned_again_with_its_leader_epoch(is_eager: bool) -> None:
    """So is another partition that librdkafka has given no record of yet, and each repetition has the epoch too."""
    bench = Bench()
    bench.librdkafka.rebalances_eagerly = is_eager
    bench.assign({0: 5, 1: 7})
    bench.end(1, 7, leader_epoch=2)
    bench.run_due_work()
    bench.librdkafka.stopped.add(0)
    bench.librdkafka.calls_since()
    bench.end(0, 5, leader_epoch=3)
    bench.run_due_work()
    assigned = ("assign", [(0, 5, 3), (1, 7, 2)]) if is_eager else ("incremental_assign", [(0, 5, 3)])
    assert bench.librdkafka.calls_since()[-1] == assigned
    assert [bench.partition(number).state.leader_epoch for number in (0, 1)] == [3, 2]


@pytest.mark.parametrize("is_eager", [False, True])
def test_a_partition_is_assigned_again_with_its_metadata(is_eager: bool) -> None:
    """A commit shows it for a partition that has no position."""
    bench = Bench()
    bench.librdkafka.rebalances_eagerly = is_eager
    given = [TopicPartition("t", 0, 5, metadata="m"), TopicPartition("t", 1, END, metadata="n")]
    bench.librdkafka.assigned = given
    bench.begin(given)
    bench.librdkafka.stopped.add(0)
    bench.librdkafka.assigned = [TopicPartition("t", 0), TopicPartition("t", 1, metadata="n")]
    bench.end(0, 5)
    bench.run_due_work()
    assert {partition.metadata for partition in bench.librdkafka.assigned} == {"m", "n"}


def test_a_partition_that_librdkafka_stops_during_its_hand_over_is_not_assigned_again() -> None:
    """Its error is on the way to the application already."""
    bench = Bench({0: 5}, reset=ResetPolicy.ERROR)
    bench.librdkafka.calls_since()
    bench.librdkafka.stops_at_resume.add(0)
    bench.end(0, 5, Ending.OUT_OF_RANGE)
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == [("seek", 0, 5), ("resume", 0)]


@pytest.mark.parametrize("by_poll", [True, False])
@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF])
def test_after_an_answer_without_records_the_hand_over_is_not_repeated(code: int, by_poll: bool) -> None:
    """The application would get the error, or the event of the partition's end, a second time."""
    bench = Bench({0: 5}, reset=ResetPolicy.ERROR)
    bench.end(0, 5, Ending.OUT_OF_RANGE)
    bench.run_due_work()
    bench.librdkafka.live.append(error_of(0, code, offset=5))
    (message,) = [bench.merge.poll(0)] if by_poll else bench.merge.consume(1, 0)
    assert message is not None
    bench.librdkafka.calls_since()
    for _ in range(10):
        assert bench.merge.poll(1) is None
    assert bench.librdkafka.calls_since() == []


def test_a_refused_assignment_of_a_cooperative_group_is_an_error() -> None:
    bench = Bench(is_cooperative=True)
    bench.librdkafka.rebalances_eagerly = True
    bench.assign({0: 5})
    bench.librdkafka.stopped.add(0)
    bench.end(0, 5)
    with pytest.raises(KafkaException):
        bench.run_due_work()


def test_after_an_assignment_of_all_the_store_is_tried_where_librdkafka_was() -> None:
    """librdkafka forgets its positions with an assignment."""
    bench = Bench()
    bench.librdkafka.rebalances_eagerly = True
    bench.assign({0: 5, 1: 500})
    bench.end(1, 500)
    bench.run_due_work()
    bench.librdkafka.positions[1] = 90_000
    bench.librdkafka.stopped.add(0)
    bench.end(0, 5)
    bench.run_due_work()
    assert bench.librdkafka.positions == {}
    bench.run_due_work(after_s=100)
    assert bench.feed(1).offset == 90_000
