"""Every event in every mode: the next state, and the actions that lead there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote_fetch.consumer.offsets import BEGINNING, END, INVALID, STORED
from remote_fetch.consumer.states import HandOver, Mode, PartitionState, Pause, Resume, StartFeed, StopFeed

LOCATING = PartitionState(Mode.LOCATING, 5)
REMOTE = PartitionState(Mode.REMOTE, 5)
BROKER = PartitionState(Mode.BROKER, 5, retry_at_s=100, reason="not-tiered")
HANDED_OVER, _ = BROKER.handed_over(50)
MODES = pytest.mark.parametrize("state", [LOCATING, REMOTE, BROKER], ids=lambda state: state.mode.value)


@pytest.mark.parametrize(
    ("offset", "mode", "retry_at_s"),
    [(7, "locating", None), (BEGINNING, "locating", None), (STORED, "locating", None), (END, "broker", 30)],
)
def test_librdkafka_reads_an_assigned_partition_at_once_if_the_store_cannot(
    offset: int, mode: str, retry_at_s: float | None
) -> None:
    state = PartitionState.assigned(offset, is_paused=True, retry_at_s=30)
    assert state == PartitionState(Mode(mode), offset, is_paused=True, retry_at_s=retry_at_s)


@MODES
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_seek_replaces_the_feed_and_keeps_the_applications_pause(state: PartitionState, is_paused: bool) -> None:
    if is_paused:
        state, _ = state.paused()
    state, actions = state.sought(BEGINNING)
    assert (state.mode, state.offset, state.is_paused) == (Mode.LOCATING, BEGINNING, is_paused)
    assert actions == (Pause(), StartFeed(BEGINNING))


def test_without_an_answer_of_the_group_librdkafka_begins_at_the_stored_offset() -> None:
    state, actions = LOCATING.unanswered(8)
    assert (state.mode, state.offset, state.reason, state.retry_at_s) == (Mode.BROKER, STORED, "committed", 8)
    assert actions == ()


def test_after_the_event_of_the_end_a_hand_over_is_not_repeated() -> None:
    for end in (5, 9):
        state, actions = HANDED_OVER.at_end(end)
        assert (state, actions) == (replace(HANDED_OVER, handed_over_at_s=None), ())
        assert not state.is_overdue(1_000, 1_000, 1.5)
    assert HANDED_OVER.at_end(4) == (HANDED_OVER, ()), "the event is older than the hand-over"


def test_after_an_error_for_the_application_neither_side_is_tried_again() -> None:
    stopped, actions = HANDED_OVER.stopped()
    assert actions == ()
    assert not stopped.is_overdue(1_000, 1_000, 1.5)
    assert not stopped.is_due(1_000)
    assert stopped.mode is Mode.BROKER


@pytest.mark.parametrize("state", [LOCATING, REMOTE])
def test_an_error_of_librdkafka_does_not_stop_the_store(state: PartitionState) -> None:
    assert state.stopped() == state.at_end(5) == (state, ())


@MODES
def test_a_hand_over_goes_to_the_next_offset(state: PartitionState) -> None:
    state, actions = state.at_broker(9, "hole", 1_000)
    assert (state.mode, state.offset, state.reason, state.retry_at_s) == (Mode.BROKER, 9, "hole", 1_000)
    assert actions == (StopFeed(), HandOver(9))


def test_a_hand_over_of_a_paused_partition_waits_for_its_resumption() -> None:
    state, _ = REMOTE.paused()
    state, actions = state.at_broker(9, "not-tiered", None)
    assert actions == (StopFeed(), Pause())
    assert state.is_parked
    state, actions = state.resumed()
    assert actions == (HandOver(9),)
    assert not state.is_parked
    _, actions = state.resumed()
    assert actions == (Resume(),)


def test_only_partitions_of_librdkafka_are_paused_and_resumed_there() -> None:
    for state in (LOCATING, REMOTE):
        paused, actions = state.paused()
        assert (paused.is_paused, actions) == (True, ())
        assert paused.resumed() == (state, ())
    paused, actions = BROKER.paused()
    assert actions == (Pause(),)
    assert paused.resumed() == (BROKER, (Resume(),))


def test_the_first_records_of_the_store_make_a_partition_remote() -> None:
    assert LOCATING.found() == (REMOTE, ())


def test_when_the_store_is_tried_again() -> None:
    assert not BROKER.is_due(99)
    assert BROKER.is_due(100)
    assert not BROKER.postponed(130)[0].is_due(129)
    assert not BROKER.paused()[0].is_due(100)
    assert not REMOTE.is_due(100)
    assert not BROKER.probe(8)[0].is_due(100)
    assert not BROKER.at_broker(END, "sought", None)[0].is_due(10**9)


def test_a_probe_succeeds_or_fails() -> None:
    probing, actions = BROKER.probe(8)
    assert actions == (StartFeed(8),)
    assert (probing.mode, probing.is_probing) == (Mode.BROKER, True)
    assert probing.taken_over(11) == (PartitionState(Mode.REMOTE, 11), ())
    failed, actions = probing.probe_failed("corrupt", 500)
    assert actions == (StopFeed(),)
    assert (failed.mode, failed.is_probing, failed.retry_at_s, failed.reason) == (Mode.BROKER, False, 500, "corrupt")


# ------------------------------------------------------------------------------------------ the watch on a hand-over


def test_a_hand_over_is_overdue_after_an_empty_poll_or_after_very_long() -> None:
    assert not BROKER.is_overdue(10**6, 10**6, 1.5), "there was no hand-over"
    assert not HANDED_OVER.is_overdue(53, 51.5, 1.5)
    assert HANDED_OVER.is_overdue(53, 51.6, 1.5)
    assert not HANDED_OVER.is_overdue(80, 0, 1.5)
    assert HANDED_OVER.is_overdue(80.1, 0, 1.5)


@pytest.mark.parametrize(("retries", "longest_s"), [(1, 3), (2, 60), (4, 240), (9, 7_680)])
def test_each_repetition_of_a_hand_over_has_more_time(retries: int, longest_s: float) -> None:
    state = replace(HANDED_OVER, handover_retries=retries)
    assert not state.is_overdue(90, 50 + longest_s, 1.5)
    assert state.is_overdue(90, 50.1 + longest_s, 1.5)


@pytest.mark.parametrize(
    ("state", "position", "end_offset", "repeats"),
    [
        (HANDED_OVER, INVALID, INVALID, True),
        (HANDED_OVER, INVALID, 6, True),
        (HANDED_OVER, INVALID, 5, True),
        (replace(HANDED_OVER, handover_retries=1), INVALID, 5, False),
        (replace(HANDED_OVER, handover_retries=1), INVALID, 6, True),
        (HANDED_OVER, 5, INVALID, True),
        (HANDED_OVER, 6, INVALID, False),
        (replace(HANDED_OVER, is_paused=True), INVALID, INVALID, False),
        (replace(HANDED_OVER, offset=END), INVALID, INVALID, False),
        (replace(HANDED_OVER, offset=STORED), INVALID, INVALID, True),
        (replace(HANDED_OVER, offset=STORED), 6, INVALID, False),
        (replace(HANDED_OVER, offset=STORED, handover_retries=1), INVALID, INVALID, False),
    ],
    ids=[
        "end unknown",
        "before the end",
        "at the end",
        "at the end again",
        "again",
        "not moved",
        "moved on",
        "paused",
        "logical",
        "committed",
        "committed and moved on",
        "committed again",
    ],
)
def test_an_overdue_hand_over_is_repeated(state: PartitionState, position: int, end_offset: int, repeats: bool) -> None:
    after, actions = state.overdue(position, end_offset)
    assert not after.awaits_librdkafka
    assert actions == ((HandOver(state.offset),) if repeats else ())
    assert after.handover_retries == state.handover_retries + repeats


def test_a_doubt_begins_the_time_of_a_hand_over_once() -> None:
    """Each call may be ended by a signal, and the error of librdkafka comes only once."""
    doubted, actions = replace(BROKER, handover_retries=3).doubted(7, 2, 50)
    assert (doubted, actions) == (replace(HANDED_OVER, offset=7, leader_epoch=2), ())
    again, _ = replace(doubted, handover_retries=3).doubted(8, 2, 51)
    assert (again.offset, again.handed_over_at_s, again.handover_retries) == (8, 50, 3)


def test_an_assignment_of_all_partitions_moves_those_of_librdkafka() -> None:
    assert BROKER.assigned_again(90)[0].offset == 90
    assert REMOTE.assigned_again(0) == (REMOTE, ())
