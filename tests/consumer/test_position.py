"""The position of one partition: what was delivered, and what a running `consume` holds."""

from __future__ import annotations

import pytest

from remote_fetch.consumer.offsets import INVALID
from remote_fetch.consumer.position import Position
from tests.consumer.fakes import live


def at(offset: int) -> Position:
    """A position that librdkafka has given."""
    position = Position("t", 0)
    position.follow(offset, 4)
    return position


def test_a_delivered_message_moves_the_position() -> None:
    position = Position("t", 0)
    assert (position.next_offset, position.delivered) == (INVALID, INVALID)
    position.deliver(live(0, 7))
    assert (position.next_offset, position.delivered) == (8, 8)


def test_offset_0_is_a_position_as_any_other() -> None:
    position = Position("t", 0)
    assert position.shown.offset == INVALID
    position.follow(0, None)
    assert position.shown.offset == 0
    position.reset()
    assert position.shown.offset == 0


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


def test_a_seek_while_a_consume_runs_leaves_no_position() -> None:
    """The messages that it holds are dropped."""
    position = at(5)
    position.hold(live(0, 5))
    position.follow(8, 4)
    position.forget()
    assert (position.delivered, position.shown.offset) == (INVALID, INVALID)


def test_a_pause_while_a_consume_runs_leaves_the_position_before_its_messages() -> None:
    """The messages that it holds are dropped. There may be none between the position and the first of them."""
    position = at(5)
    position.hold(live(0, 7))
    position.follow(8, 4)
    assert position.first_held == 7
    position.give_back()
    assert (position.next_offset, position.leader_epoch, position.is_held) == (5, None, False)


def test_a_held_message_gives_its_leader_epoch_to_no_position_before_it() -> None:
    """A log that has lost that epoch would count as truncated before the position."""
    position, first = at(5), live(0, 7)
    position.hold(first)
    position.follow(8, 6)
    assert position.shown.offset == 5
    assert position.shown.leader_epoch is None
    position.release()
    assert position.shown.leader_epoch == 6


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


def test_a_reset_while_a_consume_runs_is_followed_by_no_record() -> None:
    position = at(5)
    position.hold(live(0, 5))
    position.follow(8, 4)
    position.reset()
    position.release()
    assert position.shown.offset == 8
