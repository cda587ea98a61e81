"""An assigned partition: its circuit, the answer that it waits for, and how the store takes over."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.consumer.offsets import INVALID, STORED
from remote_fetch.consumer.states import Mode, PartitionState
from remote_fetch.model import LogBounds
from remote_fetch.session.circuit import Circuit


def partition_in(state: PartitionState) -> AssignedPartition:
    return AssignedPartition(TopicPartition("t", 0, state.offset), state, Circuit(first_pause_s=0.2))


def test_failures_double_the_pause_until_a_success() -> None:
    partition = partition_in(PartitionState(Mode.LOCATING, 5))
    assert partition.note_failure("corrupt", 10.0) == 10.2
    assert partition.note_failure("corrupt", 11.0) == 11.4
    partition.note_success()
    assert partition.note_failure("corrupt", 12.0) == 12.2


def test_a_partition_awaits_the_answer_to_its_own_question() -> None:
    first, second = object(), object()
    partition = partition_in(PartitionState(Mode.LOCATING, STORED))
    partition.ask(first)
    assert partition.awaits(first)
    assert not partition.awaits(second)
    partition.enter(partition.state.sought(3))
    assert not partition.awaits(first)


def test_the_store_takes_over_at_librdkafkas_position_or_where_librdkafka_began() -> None:
    for position, epoch, offset in ((23, 7, 23), (INVALID, None, 5)):
        partition = partition_in(PartitionState(Mode.BROKER, 5))
        state, _ = partition.take_over(partition.topic_partition(position, epoch))
        assert (state.mode, state.offset) == (Mode.REMOTE, offset)
        assert (partition.position.next_offset, partition.position.leader_epoch) == (position, epoch)
        assert partition.records.skip_before == offset


def test_the_ends_of_the_log_are_invalid_until_they_are_known() -> None:
    partition = partition_in(PartitionState(Mode.LOCATING, 5))
    assert (partition.log_start, partition.log_end) == (INVALID, INVALID)
    partition.note_log(LogBounds(0, 9))
    assert (partition.log_start, partition.log_end) == (0, 9)
