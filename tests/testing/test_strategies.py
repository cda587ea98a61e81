"""The log strategies: they reach what they promise, and cost nothing until they are used."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.oracle import TxnOutcome
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.strategies import cuts, logs, play, segment_options, steps
from tests.searches import examples


def batch_fields(log: LogBuilder, at: int) -> set[int]:
    """One header field of every v2 batch in the bytes: 2 the leader epoch, 5 the attributes, 12 the record count."""
    return {
        struct.unpack_from(">qiibIhiqqqhii", batch.data)[at]
        for batch in log.batches
        if batch.data and batch.data[16] == 2
    }


def crosses_segments(log: LogBuilder) -> bool:
    """Whether an abort marker lies in a later segment than the data it ends."""
    return any(
        struct.unpack_from(">q", segment.transaction_index, 10)[0] < segment.metadata.start_offset
        for segment in log.tiered()
        if segment.transaction_index
    )


REACHED: dict[str, Callable[[LogBuilder], bool]] = {
    "every codec": lambda log: {a & 7 for a in batch_fields(log, 5)} >= {1, 2, 3, 4},
    "log append time": lambda log: any(a & 8 for a in batch_fields(log, 5)),
    "a delete horizon": lambda log: any(a & 64 for a in batch_fields(log, 5)),
    "an empty batch": lambda log: 0 in batch_fields(log, 12),
    "several epochs": lambda log: len(batch_fields(log, 2)) > 1,
    "a batch taken out": lambda log: any(not batch.data for batch in log.batches),
    "messages of format 0": lambda log: any(batch.data and batch.data[16] == 0 for batch in log.batches),
    "messages of format 1": lambda log: any(batch.data and batch.data[16] == 1 for batch in log.batches),
    "an aborted record": lambda log: any(r.outcome is TxnOutcome.ABORTED for r in log.records()),
    "a committed record": lambda log: any(r.outcome is TxnOutcome.COMMITTED for r in log.records()),
    "an open transaction": lambda log: log.last_stable_offset < log.next_offset,
    "an open segment": lambda log: log.cuts[-1] < log.next_offset,
    "an abort across segments": crosses_segments,
    "several batches in one append": lambda log: len({b.append for b in log.batches}) < len(log.batches),
    "a segment that is not tiered": lambda log: len(log.tiered()) < len(log.segments()),
}


@pytest.mark.slow
def test_logs_reach_everything() -> None:
    reached: set[str] = set()

    @settings(deadline=None, max_examples=300, derandomize=True, database=None, phases=[Phase.generate])
    @given(logs())
    def draw(log: LogBuilder) -> None:
        reached.update(what for what, is_reached in REACHED.items() if what not in reached and is_reached(log))

    draw()
    assert reached == set(REACHED)


@examples(60)
@given(logs(), segment_options(), st.data())
def test_every_log_can_be_cut_into_segments_with_data(
    log: LogBuilder, options: SegmentOptions, data: st.DataObject
) -> None:
    assert all(segment.log for segment in log.segments(options))
    log.segments(options, cuts=data.draw(cuts(log)))


@examples(30)
@given(logs(transactions=False, legacy=False, max_start_offset=0))
def test_parts_can_be_left_out(log: LogBuilder) -> None:
    assert log.start_offset == 0
    assert log.last_stable_offset == log.next_offset
    assert all(batch.data[16] == 2 for batch in log.batches if batch.data)


@examples(30)
@given(st.lists(steps(), max_size=6), st.integers(0, 5))
def test_the_same_steps_make_the_same_log(drawn: list[Callable[[LogBuilder], None]], start: int) -> None:
    first, second = (play(start, drawn) for _ in range(2))
    assert first.segments() == second.segments()
    assert first.records() == second.records()


@pytest.mark.slow
@pytest.mark.scheduled
def test_a_failing_log_shrinks_to_few_steps() -> None:
    log = find(
        logs(),
        lambda log: any(r.outcome is TxnOutcome.ABORTED for r in log.records()),
        settings=settings(deadline=None, max_examples=300, derandomize=True, database=None),
    )
    assert (len(log.batches), log.start_offset) == (2, 0)


def test_hypothesis_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, remote_fetch.testing.strategies; print({'hypothesis', 'pytest'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
