"""The positions of assigned partitions, and which of them are stored for commits."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.offsets import END, INVALID, STORED
from remote_fetch.consumer.settings import ResetPolicy
from tests.consumer.fakes import Bench, live


def test_frozen_positions_do_not_follow_librdkafka() -> None:
    bench = Bench({0: END})
    bench.librdkafka.positions[0] = 40
    positions = bench.partitions.positions
    positions.frozen_during(positions.refresh)
    assert bench.partition(0).position.next_offset == INVALID
    bench.partitions.positions.refresh()
    assert bench.partition(0).position.next_offset == 40

    def consume() -> None:
        """A callback consumes, too, and closes the consumer."""
        positions.frozen_during(list)
        bench.librdkafka.positions[0] = 41
        positions.refresh()
        positions.freeze()

    positions.frozen_during(consume)
    assert bench.partition(0).position.next_offset == 40
    bench.partitions.positions.refresh()
    assert bench.partition(0).position.next_offset == 40


def test_librdkafkas_position_of_a_parked_partition_is_not_taken() -> None:
    """That position is older than the application's pause and seek."""
    bench = Bench({0: 5})
    bench.end(0, 5)
    bench.run_due_work()
    bench.librdkafka.positions[0] = 300
    bench.partitions.positions.refresh()
    partition = bench.partition(0)
    assert partition.position.next_offset == 300
    bench.partitions.pause([partition])
    bench.partitions.seek(partition, 100)
    bench.end(0, 100)
    bench.run_due_work()
    bench.partitions.positions.store()
    assert partition.state.is_parked
    assert partition.position.next_offset == INVALID
    assert bench.librdkafka.stored == {0: 300}, "the one before the seek"


def test_a_stored_position_goes_back_only_after_a_seek() -> None:
    bench = Bench({0: 5, 1: END})
    bench.give(0, [5, 6])
    bench.merge.consume(2, 0)
    bench.librdkafka.positions[1] = 40
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 7, 1: 40}
    bench.librdkafka.positions[1] = 39
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 7, 1: 40}
    bench.partitions.seek(bench.partition(0), 2)
    bench.give(0, [2])
    bench.merge.consume(1, 0)
    bench.partitions.positions.store()
    assert bench.librdkafka.stored[0] == 3


def test_positions_are_not_stored_if_the_application_stores_them() -> None:
    bench = Bench({0: 5}, stores_offsets=False)
    bench.give(0, [5])
    bench.merge.consume(1, 0)
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {}


def test_an_error_while_storing_positions_is_not_raised() -> None:
    """librdkafka refuses partitions that a rebalance has taken."""
    bench = Bench({0: 5})
    bench.give(0, [5])
    bench.merge.consume(1, 0)
    bench.librdkafka.store_error = KafkaException(KafkaError(KafkaError._STATE))
    bench.partitions.positions.store()


# ----------------------------------------------------------------------------------- what the group has committed


def test_what_the_application_has_stored_is_stored_again_after_an_assignment() -> None:
    bench = Bench({0: 5, 1: 5}, stores_offsets=False)
    given = TopicPartition("t", 0, 8, "mine", 3)
    bench.partitions.positions.note_stored([given, TopicPartition("t", 9, 1)])
    given.offset = 99
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {}, "librdkafka has it"
    bench.librdkafka.stopped |= {0, 1}
    for number in (0, 1):
        bench.end(number, 5)
    bench.run_due_work()
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 8, 1: INVALID}
    bench.partitions.positions.note_stored([TopicPartition("t", 0, 9)])
    bench.librdkafka.stored.clear()
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {}


@pytest.mark.parametrize("commits", [True, False])
def test_no_position_up_to_the_committed_offset_is_stored(commits: bool) -> None:
    """librdkafka commits such an offset at the end of an assignment alone, and if it commits at all."""
    bench = Bench({0: STORED, 1: STORED}, commits=commits)
    bench.group.answer(60, INVALID)
    bench.run_due_work()
    for number in (0, 1):
        bench.partition(number).position.deliver(live(number, 9))
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: INVALID, 1: 10}
    bench.partitions.positions.prepare_to_leave([TopicPartition("t", 0), TopicPartition("u", 0)])
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 10 if commits else INVALID, 1: 10}
    bench.assign({0: 5})
    assert bench.partition(0).stored.withholds(60) is not commits
    bench.partitions.positions.prepare_to_leave(None)
    assert bench.partition(0).stored.withholds(60) is not commits


def test_offsets_of_the_application_up_to_the_committed_one_are_not_stored() -> None:
    bench = Bench({0: STORED}, stores_offsets=False)
    bench.group.answer(60)
    bench.run_due_work()
    bench.partitions.positions.note_stored([TopicPartition("t", 0, 61)])
    assert bench.librdkafka.stored == {}, "librdkafka has it"
    bench.partitions.positions.note_stored([TopicPartition("t", 0, 60)])
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: INVALID}
    bench.partitions.positions.prepare_to_leave([TopicPartition("t", 0), TopicPartition("t", 7)])
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 60}


def test_an_answer_of_before_a_commit_of_the_application_withholds_nothing() -> None:
    bench = Bench({0: STORED})
    bench.group.answer(60)
    bench.partitions.positions.note_own_commits([TopicPartition("t", 0, 100)])
    bench.librdkafka.calls_since()
    bench.run_due_work()
    assert bench.librdkafka.calls_since() == [("pause", 0)], "librdkafka would begin at 100"
    bench.partition(0).position.deliver(live(0, 19))
    bench.partitions.positions.store()
    assert bench.librdkafka.stored == {0: 20}
    bench.assign({0: 5})
    assert not bench.partition(0).stored.withholds(60)


@pytest.mark.parametrize("answers", [(INVALID,), (70,), ()], ids=["none", "the end", "no answer"])
def test_an_offset_that_the_group_has_no_more_withholds_nothing(answers: tuple[int, ...]) -> None:
    """The group may have been deleted since. After a missing answer librdkafka asks for the offset itself."""
    bench = Bench({0: STORED}, reset=ResetPolicy.LATEST)
    bench.group.answer(60)
    bench.run_due_work()
    bench.assign({0: STORED})
    assert bench.partition(0).stored.withholds(60)
    bench.group.answer(*answers, are_ends=answers == (70,))
    bench.run_due_work()
    assert not bench.partition(0).stored.withholds(3)
    bench.assign({0: 5})
    assert not bench.partition(0).stored.withholds(3)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("later", [30, INVALID])
def test_librdkafka_asks_if_the_group_has_gone_back_before_its_own_commit(later: int, *, commits: bool) -> None:
    """It commits no offset before its own one until it has asked."""
    bench = Bench({0: STORED}, commits=commits)
    bench.group.answer(INVALID)
    bench.run_due_work()
    bench.partition(0).position.deliver(live(0, 59))
    bench.partitions.positions.store()
    if not commits:
        bench.partitions.positions.note_own_commits([])
    for answer, asks in ((60, False), (later, True), (later, False)):
        bench.assign({0: STORED})
        bench.group.answer(answer)
        bench.librdkafka.calls_since()
        bench.run_due_work()
        assert (("incremental_assign", [(0, STORED)]) in bench.librdkafka.calls_since()) is asks, answer


def test_only_what_is_committed_can_be_ahead_of_the_group() -> None:
    bench = Bench(commits=False)
    for commits, asks in (((), False), ((30,), False), ((31, INVALID), True), ((INVALID,), False)):
        bench.assign({0: STORED})
        bench.group.answer(30)
        bench.librdkafka.calls_since()
        bench.run_due_work()
        bench.partition(0).position.deliver(live(0, 59))
        bench.partitions.positions.store()
        for offset in commits:
            bench.partitions.positions.note_own_commits([TopicPartition("t", 0, offset)])
        bench.assign({0: STORED})
        bench.group.answer(30)
        bench.librdkafka.calls_since()
        bench.run_due_work()
        assert (("incremental_assign", [(0, STORED)]) in bench.librdkafka.calls_since()) is asks, commits


def test_an_end_of_the_log_is_no_committed_offset() -> None:
    bench = Bench({0: STORED}, reset=ResetPolicy.LATEST)
    bench.group.answer(70, are_ends=True)
    bench.run_due_work()
    assert not bench.partition(0).stored.withholds(70)
