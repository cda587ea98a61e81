"""Every event in every mode: who reads next, and what has to be done for it."""

from __future__ import annotations

import pytest

from remote_fetch.consumer.states import (
    BEGINNING,
    END,
    HandOver,
    Mode,
    PartitionState,
    Quiet,
    StartFeed,
    StopFeed,
    Wake,
)

LOCATING = PartitionState(Mode.LOCATING, 5)
REMOTE = PartitionState(Mode.REMOTE, 5)
BROKER = PartitionState(Mode.BROKER, 5, retry_at_ms=100, reason="not-tiered")
MODES = pytest.mark.parametrize("state", [LOCATING, REMOTE, BROKER], ids=lambda one: one.mode.value)


def test_a_start_is_quiet_at_the_broker_and_looks_into_the_store() -> None:
    state, actions = PartitionState.start(7, is_paused=True)
    assert state == PartitionState(Mode.LOCATING, 7, is_paused=True)
    assert actions == (Quiet(), StartFeed(7))


@MODES
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_seek_drops_what_was_read_and_keeps_the_applications_pause(state: PartitionState, is_paused: bool) -> None:
    if is_paused:
        state, _ = state.paused()
    state, actions = state.sought(BEGINNING)
    assert (state.mode, state.offset, state.is_paused) == (Mode.LOCATING, BEGINNING, is_paused)
    assert actions == (Quiet(), StopFeed(), StartFeed(BEGINNING))


@MODES
def test_a_hand_over_goes_to_the_offset_that_comes_next(state: PartitionState) -> None:
    state, actions = state.at_broker(9, "hole", 1_000)
    assert (state.mode, state.offset, state.reason, state.retry_at_ms) == (Mode.BROKER, 9, "hole", 1_000)
    assert actions == (StopFeed(), HandOver(9))


def test_a_hand_over_of_a_paused_partition_waits_for_its_resumption() -> None:
    state, _ = REMOTE.paused()
    state, actions = state.at_broker(9, "not-tiered", None)
    assert actions == (StopFeed(), Quiet())
    assert state.is_parked
    state, actions = state.resumed()
    assert actions == (HandOver(9),)
    assert not state.is_parked
    _, actions = state.resumed()
    assert actions == (Wake(),)


def test_only_what_librdkafka_reads_is_paused_and_resumed_there() -> None:
    for state in (LOCATING, REMOTE):
        paused, actions = state.paused()
        assert (paused.is_paused, actions) == (True, ())
        assert paused.resumed() == (state, ())
    paused, actions = BROKER.paused()
    assert actions == (Quiet(),)
    assert paused.resumed() == (BROKER, (Wake(),))


def test_the_first_records_make_it_remote() -> None:
    assert LOCATING.found() == (REMOTE, ())


def test_when_it_is_time_to_look_again() -> None:
    assert not BROKER.is_due(99)
    assert BROKER.is_due(100)
    assert not BROKER.paused()[0].is_due(100)
    assert not REMOTE.is_due(100)
    assert not BROKER.probe(8)[0].is_due(100)
    assert not BROKER.at_broker(END, "sought", None)[0].is_due(10**9)


def test_a_probe_that_succeeds_takes_over_and_one_that_fails_changes_nothing() -> None:
    probing, actions = BROKER.probe(8)
    assert actions == (StartFeed(8),)
    assert (probing.mode, probing.is_probing) == (Mode.BROKER, True)
    assert probing.taken_over(11) == (PartitionState(Mode.REMOTE, 11), ())
    failed, actions = probing.probe_failed("corrupt", 500)
    assert actions == (StopFeed(),)
    assert (failed.mode, failed.is_probing, failed.retry_at_ms, failed.reason) == (Mode.BROKER, False, 500, "corrupt")
