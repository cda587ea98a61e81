"""Offset maps: every offset of the old topic has its place in the new one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import ConfigError
from remote_fetch.restore.offset_map import OffsetMap, Run
from tests.searches import examples

GAPS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=20)


@examples(200)
@given(gaps=GAPS, start=st.integers(0, 7), target=st.integers(0, 100))
def test_an_offset_is_that_of_the_first_record_at_or_after_it(
    gaps: list[tuple[int, int]], start: int, target: int
) -> None:
    known, at = OffsetMap(target), start
    sources: list[int] = []
    for gap, count in gaps:
        at += gap
        known.add(at, count)
        sources += range(at, at + count)
        at += count
    for offset in range(at + 3):
        before = sum(source < offset for source in sources)
        assert known.translate(offset) == target + before
    assert known.target_next == target + len(sources)
    assert known.keeps_offsets == all(source == target + number for number, source in enumerate(sources))
    assert sum(run.records for run in known.runs()) == len(sources)


def test_records_that_follow_make_one_run() -> None:
    known = OffsetMap()
    assert known.source_next == -1
    assert known.add(0, 4) == Run(0, 0, 4)
    assert known.add(4, 3) == Run(4, 4, 3)
    assert known.add(9, 1) == Run(9, 7, 1)
    assert list(known.runs()) == [Run(0, 0, 7), Run(9, 7, 1)]
    assert (known.source_next, known.target_next) == (10, 8)


@pytest.mark.parametrize(("source", "count"), [(3, 1), (0, 5), (9, 0), (9, -1)])
def test_records_that_the_map_has(source: int, count: int) -> None:
    known = OffsetMap()
    known.add(0, 4)
    with pytest.raises(ValueError, match="after offset 3"):
        known.add(source, count)


def test_an_offset_below_0() -> None:
    with pytest.raises(ConfigError, match="from 0 on"):
        OffsetMap().translate(-1)
