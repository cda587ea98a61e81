"""The position of one partition: what was delivered, what a running `consume` holds, what is stored."""

from __future__ import annotations

import pytest

from remote_fetch.consumer.offsets import INVALID
from remote_fetch.consumer.position import Position, partition_at
from tests.consumer.fakes import live


def at(offset: int) -> Position:
    """A position that librdkafka has given."""
    position = Position("t", 0)
    position.follow(offset, 4)
    return position


def test_a_delivered_message_moves_the_position() -> None:
    position = Position("t", 0)
    assert (position.next_offset, position.delivered, position.is_stored) == (INVALID, INVALID, True)
    position.deliver(live(0, 7))
    assert (position.next_offset, position.delivered, position.is_stored) == (8, 8, False)
    position.mark_stored()
    assert position.is_stored
    position.forget_stored()
    assert not position.is_stored


def test_no_offset_up_to_the_committed_one_is_stored() -> None:
    position = at(60)
    position.keep_above(60)
    assert (position.withholds(60), position.withholds(61)) == (True, False)
    assert position.to_store() == partition_at("t", 0, INVALID, None)
    assert position.to_store().offset == INVALID
    position.mark_stored()
    assert position.is_stored
    position.follow(61, 4)
    assert position.to_store().offset == 61
    position.mark_stored()
    position.forget()
    position.deliver(live(0, 9))
    assert (position.is_stored, position.to_store().offset) == (False, INVALID), "librdkafka forgets 61"
    position.mark_stored()
    position.forget_stored()
    assert position.lost is None
    position.keep_all()
    assert (position.is_stored, position.to_store().offset) == (False, 10)
    lost = position.lost
    assert lost is not None
    assert lost.offset == 10


def test_an_offset_of_the_application_up_to_the_committed_one_is_stored_later() -> None:
    position = Position("t", 0, stores_offsets=False)
    position.keep_above(60)
    position.note_stored(partition_at("t", 0, 33, None))
    assert position.lost is None
    position.keep_all()
    lost = position.lost
    assert lost is not None
    assert lost.offset == 33
    position.keep_above(60)
    assert not position.withholds(33)


@pytest.mark.parametrize("is_taken", [True, False], ids=["from the store", "from librdkafka"])
def test_a_position_is_held_before_the_messages_of_a_running_consume(is_taken: bool) -> None:
    """A record of the store has moved the position when it is held, a record of librdkafka has not."""
    position, first = at(5), live(0, 7)
    if is_taken:
        position.deliver(first)
    position.hold(first)
    if not is_taken:
        position.follow(8, 4)
    assert (position.next_offset, position.delivered, position.is_held) == (8, 5, True)
    assert position.shown.offset == 5
    position.release()
    assert (position.delivered, position.is_held) == (8, False)


def test_a_held_message_gives_its_leader_epoch_to_no_position_before_it() -> None:
    """A log that has lost that epoch would count as truncated before the position."""
    position, first = at(5), live(0, 7)
    position.hold(first)
    position.follow(8, 6)
    assert position.to_store() == partition_at("t", 0, 5, None)
    assert position.to_store().leader_epoch is None
    position.release()
    assert position.to_store().leader_epoch == 6


def test_the_end_of_what_the_store_has_moves_the_position_forward() -> None:
    position = at(5)
    position.skip_to(9, 6, 3)
    assert (position.next_offset, position.leader_epoch) == (9, 6)
    position.skip_to(7, 5, 3)
    assert (position.next_offset, position.leader_epoch) == (9, 6)
    unknown = Position("t", 0)
    unknown.skip_to(9, 6, 9)
    assert (unknown.next_offset, unknown.leader_epoch) == (INVALID, None)
    unknown.skip_to(9, 6, 8)
    assert (unknown.next_offset, unknown.leader_epoch) == (9, 6)


def test_a_seek_forgets_the_position_and_what_was_stored() -> None:
    position = at(5)
    position.mark_stored()
    position.forget()
    assert position.next_offset == INVALID
    position.follow(2, 4)
    assert not position.is_stored


def test_after_a_reset_the_position_before_it_is_shown_until_a_record_comes() -> None:
    position = at(5)
    position.reset()
    assert (position.shown.offset, position.next_offset, position.delivered) == (5, INVALID, INVALID)
    position.reset()
    assert position.shown.offset == 5
    position.deliver(live(0, 1))
    assert position.shown.offset == 2
    position.forget()
    assert position.shown.offset == INVALID


def test_a_reset_while_a_consume_runs_counts_its_messages_when_it_returns() -> None:
    """They were read before the offset that is out of the log."""
    position = at(5)
    position.hold(live(0, 5))
    position.follow(8, 4)
    position.reset()
    assert position.shown.offset == 5
    assert position.lost is not None
    assert position.lost.offset == 5
    position.deliver(live(0, 1))  # which the running `consume` holds, too
    assert (position.delivered, position.shown.offset, position.is_stored) == (INVALID, 5, True)
    position.forget_stored()
    assert position.lost is not None
    assert position.lost.offset == 5
    position.release()
    assert (position.delivered, position.shown.offset, position.is_stored) == (2, 2, False)


def test_a_position_from_before_a_reset_has_its_own_leader_epoch() -> None:
    """No message that a running `consume` holds gives its epoch to it."""
    position = at(5)
    position.hold(live(0, 5))
    position.follow(8, 6)
    position.reset()
    assert _epochs(position) == [(5, None), (5, None)]
    position.release()
    assert _epochs(position) == [(8, 6), (8, 6)]
    position.deliver(live(0, 1))  # of no epoch
    position.hold(live(0, 1))
    assert _epochs(position) == [(8, 6), (8, 6)]


def test_a_seek_after_a_reset_stores_nothing_past_messages_that_consume_drops() -> None:
    position = at(5)
    position.hold(live(0, 5))
    position.follow(8, 6)
    position.reset()
    position.forget()
    position.release()
    assert position.lost == partition_at("t", 0, 5, None)
    first = Position("t", 0)
    first.hold(live(0, 5))
    first.follow(8, 6)
    first.reset()
    first.forget()
    first.release()
    assert first.lost is None


def test_a_seek_after_a_reset_keeps_the_offset_that_the_application_stored() -> None:
    position, own = Position("t", 0, stores_offsets=False), partition_at("t", 0, 4, 3, "mine")
    position.note_stored(own)
    position.hold(live(0, 5))
    position.reset()
    position.forget()
    position.release()
    position.forget_stored()
    assert position.lost == own


def _epochs(position: Position) -> list[tuple[int, int | None]]:
    """Offset and leader epoch of the position that is shown, and of the one that is stored again."""
    return [(found.offset, found.leader_epoch) for found in (position.shown, position.lost) if found is not None]


def test_a_reset_while_a_consume_runs_is_followed_by_no_record() -> None:
    position = at(5)
    position.hold(live(0, 5))
    position.follow(8, 4)
    position.reset()
    position.release()
    assert position.shown.offset == 8
    assert position.lost is not None
    assert (position.lost.offset, position.lost.leader_epoch) == (8, 4)


def test_a_consume_after_a_reset_holds_nothing_of_before_it() -> None:
    """Its first message says nothing about the position before the reset, which stays shown and stored."""
    position = at(5)
    position.reset()
    position.deliver(live(0, 1))
    position.hold(live(0, 1))
    assert (position.shown.offset, position.delivered) == (5, INVALID)
    assert position.lost is not None
    assert position.lost.offset == 5
    position.release()
    assert (position.shown.offset, position.delivered) == (2, 2)


def test_nothing_is_stored_of_messages_that_the_first_consume_holds() -> None:
    position = Position("t", 0)
    position.hold(live(0, 5))
    position.follow(8, 4)
    position.reset()
    assert (position.shown.offset, position.lost) == (INVALID, None)


def test_what_the_application_has_stored_is_not_held_back() -> None:
    position = Position("t", 0, stores_offsets=False)
    position.follow(5, 4)
    position.hold(live(0, 5))
    position.note_stored(partition_at("t", 0, 9, None))
    position.forget_stored()
    assert position.lost is not None
    assert position.lost.offset == 9


@pytest.mark.parametrize("leader_epoch", [None, -1, 0, 4])
@pytest.mark.parametrize("metadata", [None, "", "mine"])
def test_the_form_of_store_offsets(leader_epoch: int | None, metadata: str | None) -> None:
    made = partition_at("t", 3, 5, leader_epoch, metadata)
    known = None if leader_epoch == -1 else leader_epoch
    assert (made.topic, made.partition, made.offset, made.leader_epoch) == ("t", 3, 5, known)
    assert made.metadata == metadata


def test_a_position_that_only_the_application_stores_is_not_kept() -> None:
    position = Position("t", 0, stores_offsets=False)
    position.follow(5, 4)
    position.reset()
    position.forget_stored()
    assert position.lost is None


@pytest.mark.parametrize(("is_stored", "more"), [(True, 0), (True, 2), (False, 2)])
def test_the_stored_position_outlasts_a_reset_and_an_assignment(is_stored: bool, more: int) -> None:
    """librdkafka keeps it over the first, and forgets it with the second. `more` records were not stored yet."""
    position = at(5)
    if is_stored:
        position.mark_stored()
    position.follow(5 + more, 4)
    position.reset()
    assert (position.lost is None) == (not more)
    position.forget_stored()
    for _ in range(2):  # librdkafka may forget it once more, after it was stored again
        assert position.lost is not None
        assert (position.lost.offset, position.lost.leader_epoch) == (5 + more, 4)
    position.deliver(live(0, 1))
    position.mark_stored()
    assert position.lost is None, "another one is stored"


def test_a_position_that_an_assignment_has_lost_is_stored_until_it_moves() -> None:
    position = at(5)
    position.mark_stored()
    position.forget_stored()
    assert not position.is_stored
    position.mark_stored()
    assert position.is_stored
    assert position.lost is not None
    position.follow(6, 4)
    position.mark_stored()
    assert position.lost is None


@pytest.mark.parametrize(("leader_epoch", "stored"), [(4, 4), (-1, None), (None, None)])
def test_a_position_is_stored_with_its_leader_epoch(leader_epoch: int | None, stored: int | None) -> None:
    position = Position("t", 3)
    position.follow(5, leader_epoch)
    stored_position = position.to_store()
    assert (stored_position.topic, stored_position.partition, stored_position.offset) == ("t", 3, 5)
    assert stored_position.leader_epoch == stored
