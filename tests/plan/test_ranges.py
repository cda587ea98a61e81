"""Planning against a slow model, offset by offset; narrowing against the batches themselves."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.model import (
    UNKNOWN_SIZE,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.ranges import BrokerRange, Reason, SegmentSlice, narrow, plan_offsets, settle_holes
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.strategies import logs, segment_options
from tests.scan.bucket import plain_log
from tests.searches import examples

PARTITION = TopicIdPartition(Uuid(bytes(16)), "topic", 0)


def segment(number: int, start: int, end: int, size_bytes: int = 1000) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))), start, end, size_bytes
    )


@dataclass
class Covered:
    """A coverage that looks at every segment: the best is the one that reaches furthest, then the last named."""

    segments: list[RemoteLogSegmentMetadata]
    cut_at: int
    local_start: int = 1000
    partition: TopicIdPartition = PARTITION

    def covering(self, offset: int) -> RemoteLogSegmentMetadata | None:
        return self.tiered(offset) if offset < self.local_start else None

    def tiered(self, offset: int) -> RemoteLogSegmentMetadata | None:
        held = [s for s in self.segments if s.start_offset <= offset <= min(s.end_offset, self.cut_at)]
        return max(held, key=lambda s: (s.end_offset, s.segment_id.id), default=None)

    def readable_end(self, segment: RemoteLogSegmentMetadata) -> int:
        return min(segment.end_offset, self.cut_at, self.local_start - 1)

    def next_start(self, offset: int) -> int | None:
        stop = min(self.cut_at + 1, self.local_start)
        held = (s.start_offset for s in self.segments if offset < s.start_offset < stop)
        return min(held, default=None)

    def local_end(self, offset: int) -> int | None:
        held = self.tiered(offset) if offset >= self.local_start else None
        return None if held is None else min(held.end_offset, self.cut_at)


@st.composite
def coverages(draw: st.DrawFn) -> Covered:
    spans = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=7))
    segments = [segment(number, start, start + length) for number, (start, length) in enumerate(spans)]
    return Covered(segments, draw(st.sampled_from((30, 100))), draw(st.sampled_from((25, 1000))))


def test_what_is_open_before_a_hole_is_the_brokers() -> None:
    """From the first open offset on, the last offset before the hole included; nothing, if nothing is open."""
    before, after = SegmentSlice(segment(1, 0, 9), 0, 9), SegmentSlice(segment(2, 20, 29), 20, 29)
    hole = BrokerRange(PARTITION, 10, 19, Reason.HOLE)

    def settled(first_open: int) -> list[tuple[int, int, object]]:
        steps = settle_holes((before, hole, after), lambda _: first_open)
        return [(step.first_offset, step.last_offset, getattr(step, "reason", None)) for step in steps]

    rest = [(10, 19, Reason.HOLE), (20, 29, None)]
    assert settled(10) == [(0, 9, None), *rest]
    assert settled(9) == [(0, 8, None), (9, 9, Reason.UNSTABLE), *rest]
    assert settled(4) == [(0, 3, None), (4, 9, Reason.UNSTABLE), *rest]


def test_what_is_open_before_a_hole_begins_where_the_plan_begins() -> None:
    """The transaction may be older than the first wanted offset, and a plan may begin with a hole."""
    hole = BrokerRange(PARTITION, 10, 19, Reason.HOLE)
    open_part = BrokerRange(PARTITION, 5, 9, Reason.UNSTABLE)
    assert settle_holes((SegmentSlice(segment(1, 0, 9), 5, 9), hole), lambda _: 2) == (open_part, hole)
    assert settle_holes((hole, SegmentSlice(segment(2, 20, 29), 20, 29)), lambda _: 2)[0] == hole


class TestPlanOffsets:
    @examples(400)
    @given(coverages(), st.integers(0, 60), st.integers(0, 60), st.none() | st.integers(0, 60))
    def test_every_offset_is_in_the_step_that_it_belongs_to(
        self, coverage: Covered, start: int, stop: int, stable: int | None
    ) -> None:
        steps = plan_offsets(coverage, start, stop, stable_stop=stable)
        planned = [offset for step in steps for offset in range(step.first_offset, step.last_offset + 1)]
        assert planned == list(range(start, stop))
        for step in steps:
            for offset in range(step.first_offset, step.last_offset + 1):
                self.check(coverage, step, offset, stable)
            if isinstance(step, SegmentSlice):
                assert step.segment == coverage.covering(step.first_offset)

    @staticmethod
    def check(coverage: Covered, step: SegmentSlice | BrokerRange, offset: int, stable: int | None) -> None:
        stable_here = stable is None or offset < stable
        if isinstance(step, SegmentSlice):
            assert stable_here
            assert step.segment.start_offset <= offset <= coverage.readable_end(step.segment)
        elif stable_here:
            assert coverage.covering(offset) is None
            later = coverage.next_start(offset) is not None
            if step.reason is not Reason.LOCAL:
                assert step.reason is (Reason.HOLE if later else Reason.NOT_TIERED)
            elif stable is None:
                assert coverage.local_end(offset) is not None
        else:
            kept = Reason.NOT_TIERED if coverage.local_end(step.first_offset) is None else Reason.LOCAL
            tiered = coverage.covering(step.first_offset) is not None
            assert step.reason is (Reason.UNSTABLE if tiered else kept)

    def test_local_and_not_tiered_are_different_reasons(self) -> None:
        coverage = Covered([segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29)], 100, local_start=15)
        steps = plan_offsets(coverage, 5, 40)
        assert [str(step) for step in steps[-2:]] == [
            "offsets 15..29 from the broker (local)",
            "offsets 30..39 from the broker (not-tiered)",
        ]
        assert [step.last_offset for step in steps] == [9, 14, 29, 39]
        undecided = plan_offsets(coverage, 5, 40, stable_stop=17)
        assert str(undecided[-1]) == "offsets 15..39 from the broker (local)"

    def test_neighbours_are_not_the_same_step_in_two(self) -> None:
        coverage = Covered([segment(1, 0, 9), segment(2, 20, 29)], 100)
        steps = plan_offsets(coverage, 5, 40, stable_stop=25)
        assert [(type(step).__name__, step.first_offset, step.last_offset) for step in steps] == [
            ("SegmentSlice", 5, 9),
            ("BrokerRange", 10, 19),
            ("SegmentSlice", 20, 24),
            ("BrokerRange", 25, 39),
        ]
        assert [str(step) for step in steps] == [
            "offsets 5..9 from 00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ bytes 0..end",
            "offsets 10..19 from the broker (hole)",
            "offsets 20..24 from 00000000000000000020-AAAAAAAAAAAAAAAAAAAAAg bytes 0..end",
            "offsets 25..39 from the broker (unstable)",
        ]

    @examples(50)
    @given(coverages(), st.integers(0, 60))
    def test_a_plan_pickles_and_compares(self, coverage: Covered, stop: int) -> None:
        steps = plan_offsets(coverage, 0, stop)
        assert pickle.loads(pickle.dumps(steps)) == steps
        assert plan_offsets(coverage, 0, stop) == steps


def batches_within(log: LogBuilder, start: int, end: int) -> list[tuple[int, int, int, int]]:
    """Of every batch of a segment: first and last offset, position, end position."""
    found, position = [], 0
    for batch in log.batches:
        if batch.data and start <= batch.base_offset <= end:
            found.append((batch.base_offset, batch.last_offset, position, position + len(batch.data)))
            position += len(batch.data)
    return found


class TestNarrow:
    @examples(250)
    @given(logs(), segment_options(), st.data())
    def test_no_batch_is_missed(self, log: LogBuilder, options: SegmentOptions, data: st.DataObject) -> None:
        for built in log.segments(options):
            known = built.metadata
            index = OffsetIndex.parse(built.offset_index, known.start_offset)
            first = data.draw(st.integers(known.start_offset, known.end_offset))
            last = data.draw(st.integers(first, known.end_offset))
            narrowed = narrow(SegmentSlice(known, first, last), index)
            assert (narrowed.segment, narrowed.first_offset, narrowed.last_offset) == (known, first, last)
            stop = len(built.log) if narrowed.end_position < 0 else narrowed.end_position
            inside = batches_within(log, known.start_offset, known.end_offset)
            for begins, ends, position, end_position in inside:
                if ends >= first and begins <= last:
                    assert narrowed.start_position <= position
                    assert end_position <= stop
            starts = [position for _, _, position, _ in inside]
            assert narrowed.start_position in starts
            assert stop in (*starts, len(built.log))
            taken = {ends for _, ends, position, _ in inside if narrowed.start_position <= position < stop}
            assert {narrowed.start_entry_offset, narrowed.end_entry_offset} - {-1} <= taken
            assert narrowed.size_bytes == stop - narrowed.start_position

    def test_a_whole_segment_needs_no_positions(self) -> None:
        (built,) = plain_log(segments=1).segments(SegmentOptions(index_interval_bytes=0))
        piece = SegmentSlice(built.metadata, 0, 19)
        assert piece.is_whole
        assert narrow(piece, OffsetIndex.parse(built.offset_index, 0)) == piece

    def test_it_is_no_larger_than_need_be(self) -> None:
        (built,) = plain_log(segments=1).segments(SegmentOptions(index_interval_bytes=0))
        size_bytes = len(built.log) // 4
        piece = narrow(SegmentSlice(built.metadata, 7, 8), OffsetIndex.parse(built.offset_index, 0))
        assert not piece.is_whole
        assert (piece.start_position, piece.end_position) == (0, 2 * size_bytes)
        assert str(piece).endswith(f"bytes 0..{2 * size_bytes}")

    def test_an_unknown_size(self) -> None:
        piece = SegmentSlice(replace(segment(1, 0, 9), segment_size_in_bytes=UNKNOWN_SIZE), 0, 9)
        assert piece.size_bytes is None
        assert replace(piece, end_position=7).size_bytes == 7
