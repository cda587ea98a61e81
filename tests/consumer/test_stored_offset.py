"""The offset that is stored for commits: when it is stored, withheld, and stored again."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.consumer.offsets import INVALID, partition_at
from remote_fetch.consumer.states import Mode, PartitionState
from remote_fetch.session.circuit import Circuit
from tests.consumer.fakes import live


def assigned(offset: int | None = None, *, stores_offsets: bool = True) -> AssignedPartition:
    """A partition, whose position librdkafka has given if `offset` is."""
    state = PartitionState(Mode.BROKER, 0)
    partition = AssignedPartition(TopicPartition("t", 0), state, Circuit(), stores_offsets=stores_offsets)
    if offset is not None:
        partition.position.follow(offset, 4)
    return partition


def held(offset: int | None, leader_epoch: int) -> AssignedPartition:
    """A partition that was at `offset`. A running `consume` holds its messages 5 to 7, and then it was reset."""
    partition = assigned(offset)
    partition.position.hold(live(0, 5))
    partition.position.follow(8, leader_epoch)
    partition.reset_position()
    return partition


def lost(partition: AssignedPartition) -> tuple[int, int | None] | None:
    """Offset and leader epoch of the offset that is stored again."""
    found = partition.stored.lost
    return None if found is None else (found.offset, found.leader_epoch)


def test_the_delivered_position_is_stored_until_an_assignment() -> None:
    partition = assigned()
    assert partition.stored.is_current
    partition.position.deliver(live(0, 7))
    assert not partition.stored.is_current
    partition.stored.mark()
    assert partition.stored.is_current
    partition.stored.lose()
    assert not partition.stored.is_current


def test_no_offset_up_to_the_committed_one_is_stored() -> None:
    partition = assigned(60)
    position, stored = partition.position, partition.stored
    stored.keep_above(60)
    assert (stored.withholds(60), stored.withholds(61)) == (True, False)
    assert stored.to_store() == partition_at("t", 0, INVALID, None)
    assert stored.to_store().offset == INVALID
    stored.mark()
    assert stored.is_current
    position.follow(61, 4)
    assert stored.to_store().offset == 61
    stored.mark()
    partition.forget_position()
    position.deliver(live(0, 9))
    assert (stored.is_current, stored.to_store().offset) == (False, INVALID), "librdkafka forgets 61"


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_withheld_offset_is_stored_when_nothing_is_withheld_any_more(is_lost: bool) -> None:
    partition = assigned(10)
    partition.stored.keep_above(60)
    partition.stored.mark()
    if is_lost:
        partition.stored.lose()
    assert (partition.stored.is_current, partition.stored.lost) == (not is_lost, None)
    partition.stored.keep_all()
    assert (partition.stored.is_current, partition.stored.to_store().offset) == (False, 10)
    assert lost(partition) == ((10, 4) if is_lost else None)


def test_an_offset_of_the_application_up_to_the_committed_one_is_stored_later() -> None:
    partition = assigned(stores_offsets=False)
    partition.stored.keep_above(60)
    partition.stored.mark_own(partition_at("t", 0, 33, None))
    assert partition.stored.lost is None
    partition.forget_position()  # a seek changes nothing of it
    partition.stored.keep_all()
    assert lost(partition) == (33, None)
    partition.stored.keep_above(60)
    assert not partition.stored.withholds(33)


def test_offset_0_is_stored_again_as_any_other() -> None:
    partition = assigned(0)
    partition.reset_position()
    assert lost(partition) == (0, 4)
    again = assigned(0)
    again.stored.lose()
    assert lost(again) == (0, 4)


def test_a_seek_forgets_what_was_stored() -> None:
    partition = assigned(5)
    partition.stored.mark()
    partition.forget_position()
    assert partition.position.next_offset == INVALID
    partition.position.follow(2, 4)
    assert not partition.stored.is_current


def test_a_reset_while_a_consume_runs_counts_its_messages_when_it_returns() -> None:
    """They were read before the offset that is out of the log."""
    partition = held(5, 4)
    position, stored = partition.position, partition.stored
    assert (position.shown.offset, lost(partition)) == (5, (5, None))
    position.deliver(live(0, 1))  # which the running `consume` holds, too
    assert (position.delivered, position.shown.offset, stored.is_current) == (INVALID, 5, True)
    stored.lose()
    assert lost(partition) == (5, None)
    position.release()
    assert (position.delivered, position.shown.offset, stored.is_current) == (2, 2, False)


def test_a_position_from_before_a_reset_has_its_own_leader_epoch() -> None:
    """No message that a running `consume` holds gives its epoch to it."""
    partition = held(5, 6)
    for shown in ((5, None), (8, 6), (8, 6)):
        found = partition.position.shown
        assert (found.offset, found.leader_epoch) == lost(partition) == shown
        if partition.position.is_held:
            partition.position.release()
        else:
            partition.position.deliver(live(0, 1))  # of no epoch
            partition.position.hold(live(0, 1))


def test_a_seek_after_a_reset_stores_nothing_past_messages_that_consume_drops() -> None:
    partition, first = held(5, 6), held(None, 6)
    partition.forget_position()
    first.forget_position()
    assert (lost(partition), lost(first)) == ((5, None), None)


def test_a_seek_after_a_reset_keeps_the_offset_that_the_application_stored() -> None:
    partition, own = assigned(stores_offsets=False), partition_at("t", 0, 9, 3, "mine")
    partition.stored.mark_own(own)
    assert partition.stored.last == 9
    partition.position.hold(live(0, 5))
    partition.reset_position()
    partition.stored.lose()
    assert partition.stored.lost == own, "although `consume` holds a message before it"
    partition.forget_position()
    partition.stored.lose()
    assert partition.stored.lost == own


def test_a_consume_after_a_reset_holds_nothing_of_before_it() -> None:
    """Its first message says nothing about the position before the reset, which stays shown and stored."""
    partition = assigned(5)
    position = partition.position
    partition.reset_position()
    position.deliver(live(0, 1))
    position.hold(live(0, 1))
    assert (position.shown.offset, position.delivered, lost(partition)) == (5, INVALID, (5, 4))
    position.release()
    assert (position.shown.offset, position.delivered) == (2, 2)


def test_a_seek_keeps_a_stored_position_over_messages_that_came_after_it() -> None:
    partition = assigned(5)
    partition.stored.mark()
    partition.reset_position()
    partition.position.hold(live(0, 1))
    partition.reset_position()
    partition.forget_position()
    partition.stored.lose()
    assert lost(partition) == (5, 4)


def test_nothing_is_stored_of_messages_that_the_first_consume_holds() -> None:
    partition = held(None, 4)
    assert (partition.position.shown.offset, partition.stored.lost) == (INVALID, None)


def test_what_the_application_has_stored_is_not_held_back() -> None:
    partition = assigned(5, stores_offsets=False)
    partition.position.hold(live(0, 5))
    partition.stored.mark_own(partition_at("t", 0, 9, None))
    partition.stored.lose()
    assert lost(partition) == (9, None)


def test_a_position_that_only_the_application_stores_is_not_kept() -> None:
    partition = assigned(5, stores_offsets=False)
    partition.reset_position()
    partition.stored.lose()
    assert partition.stored.lost is None


@pytest.mark.parametrize(("is_stored", "more"), [(True, 0), (True, 2), (False, 2)])
def test_the_stored_position_outlasts_a_reset_and_an_assignment(is_stored: bool, more: int) -> None:
    """librdkafka keeps it over the first, and forgets it with the second. `more` records were not stored yet."""
    partition = assigned(5)
    if is_stored:
        partition.stored.mark()
    partition.position.follow(5 + more, 4)
    partition.reset_position()
    assert (partition.stored.lost is None) == (not more)
    partition.stored.lose()
    for _ in range(2):  # librdkafka may forget it once more, after it was stored again
        assert lost(partition) == (5 + more, 4)
    partition.position.deliver(live(0, 1))
    partition.stored.mark()
    assert partition.stored.lost is None, "another one is stored"


def test_a_position_that_an_assignment_has_lost_is_stored_until_it_moves() -> None:
    partition = assigned(5)
    partition.stored.mark()
    partition.stored.lose()
    assert not partition.stored.is_current
    partition.stored.mark()
    assert partition.stored.is_current
    assert partition.stored.lost is not None
    partition.position.follow(6, 4)
    partition.stored.mark()
    assert partition.stored.lost is None
