"""Splits: every batch, and so every record, in exactly one part; and parts that are about even."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.plan.ranges import SegmentSlice, narrow
from remote_fetch.plan.splits import split
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.strategies import logs, segment_options
from tests.plan.test_ranges import batches_within
from tests.read.bucket import DENSE, examples, plain_log


@examples(250)
@given(logs(), segment_options(), st.integers(1, 1500), st.data())
def test_every_batch_is_in_one_part(
    log: LogBuilder, options: SegmentOptions, target_bytes: int, data: st.DataObject
) -> None:
    for built in log.segments(options):
        known = built.metadata
        index = OffsetIndex.parse(built.offset_index, known.start_offset)
        first = data.draw(st.integers(known.start_offset, known.end_offset))
        last = data.draw(st.integers(first, known.end_offset))
        piece = narrow(SegmentSlice(known, first, last), index)
        parts = split(piece, index, target_bytes)
        stop = len(built.log) if piece.end_position < 0 else piece.end_position
        ends = [stop if part.end_position < 0 else part.end_position for part in parts]
        assert [part.start_position for part in parts] == [piece.start_position, *ends[:-1]]
        assert ends[-1] == stop
        assert parts[-1].end_position == piece.end_position
        inside = batches_within(log, known.start_offset, known.end_offset)
        starts = {position for _, _, position, _ in inside}
        for part, end in zip(parts, ends, strict=True):
            assert (part.first_offset, part.last_offset, part.segment) == (first, last, known)
            assert part.is_part == (len(parts) > 1)
            assert part.start_position in starts
            held = {offset for _, offset, position, _ in inside if part.start_position <= position < end}
            assert {part.start_entry_offset, part.end_entry_offset} - {-1} <= held or part is parts[0] is parts[-1]
        assert all(end - part.start_position >= target_bytes for part, end in zip(parts[:-1], ends, strict=False))


def test_parts_are_even() -> None:
    (built,) = plain_log(segments=1, batches=40).segments(DENSE)
    batch_bytes = len(built.log) // 40
    index = OffsetIndex.parse(built.offset_index, 0)
    parts = split(SegmentSlice(built.metadata, 0, 199), index, 4 * batch_bytes)
    sizes = [part.size_bytes for part in parts]
    assert sizes == [4 * batch_bytes] * 10
    assert split(SegmentSlice(built.metadata, 0, 199), index, 4 * batch_bytes - 1) == parts


def test_a_small_slice_stays_whole() -> None:
    (built,) = plain_log(segments=1).segments(DENSE)
    piece = SegmentSlice(built.metadata, 0, 19)
    assert split(piece, OffsetIndex.parse(built.offset_index, 0), len(built.log)) == (piece,)
    assert split(piece, OffsetIndex.parse(b"", 0), 1) == (piece,)


@pytest.mark.parametrize("target_bytes", [0, -1])
def test_a_target_that_is_none(target_bytes: int) -> None:
    (built,) = plain_log(segments=1).segments()
    with pytest.raises(ValueError, match="must be positive"):
        split(SegmentSlice(built.metadata, 0, 19), OffsetIndex.parse(b"", 0), target_bytes)
