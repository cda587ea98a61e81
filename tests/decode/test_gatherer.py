"""Small groups of rows become larger ones. Rows keep their order, and large groups are handed on as they are."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode.columns import COLUMNS
from remote_fetch.decode.decoded_rows import DecodedRows, arrow_of
from remote_fetch.decode.gatherer import RowGatherer
from remote_fetch.decode.run_decoder import BatchReader
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, read_header
from remote_fetch.testing.records import Record, encode_batch
from tests.decoded import decoded
from tests.searches import examples


def batch(first: int, rows: int, row_bytes: int = 10) -> DecodedRows:
    return decoded([{"offset": first + row, "value": b"v" * row_bytes} for row in range(rows)])


def offsets(rows: list[DecodedRows]) -> list[object]:
    return [offset for one in arrow_of(rows) for offset in one.column("offset").to_pylist()]


def test_small_groups_become_one() -> None:
    gatherer = RowGatherer()
    for at in range(5):
        assert gatherer.add([batch(10 * at, 10)]) == []
    assert gatherer.rows == 50
    (joined,) = gatherer.drain()
    assert (joined.num_rows, joined.end_offset) == (50, 50)
    (made,) = joined.to_arrow()
    made.validate(full=True)
    assert offsets([joined]) == list(range(50))
    assert (gatherer.rows, gatherer.drain()) == (0, [])


def test_a_large_group_is_handed_on_as_it_is() -> None:
    gatherer = RowGatherer(target_bytes=2000)
    large = batch(3, 100)
    small, same = gatherer.add([batch(0, 3), large])
    assert same is large
    assert offsets([small, same]) == list(range(103))


def test_many_small_runs_are_joined_in_their_order() -> None:
    gatherer = RowGatherer()
    for at in range(1030):
        assert gatherer.add([batch(at, 1)]) == []
    assert len(gatherer._pending) + len(gatherer._last) < 260
    (joined,) = gatherer.drain()
    assert offsets([joined]) == list(range(1030))


def test_a_group_without_rows_is_left_out() -> None:
    gatherer = RowGatherer()
    assert gatherer.add([batch(0, 0)]) == gatherer.drain() == []


@pytest.mark.parametrize("bounds", [{"target_bytes": 1000}, {"max_rows": 10}])
def test_a_group_that_does_not_fit_closes_those_before_it(bounds: dict[str, int]) -> None:
    gatherer = RowGatherer(**bounds)
    size_bytes = batch(0, 4, 50).size_bytes
    assert 1000 / 3 < size_bytes < 500
    got = [gatherer.add([batch(4 * at, 4, 50)]) for at in range(5)]
    assert [[one.num_rows for one in full] for full in got] == [[], [], [8], [], [8]]
    assert gatherer.rows == 4
    assert offsets([*got[2], *got[4], *gatherer.drain()]) == list(range(20))


def test_one_group_is_not_copied_and_several_are_equal_to_what_they_were() -> None:
    def parts() -> list[DecodedRows]:
        data = [encode_batch(10 * at, [Record(0, at, None, b"v", (("h", None),)), Record(3)]) for at in range(3)]
        reader, read = BatchReader("topic", 3, COLUMNS), list[DecodedRows]()
        for one in data:
            header = read_header(memoryview(one), 0, position=0)
            assert isinstance(header, BatchHeader)
            read += reader.read(header, memoryview(one)[HEADER_BYTES:], 0, 100)
        return read

    gatherer, (one, *_) = RowGatherer(), parts()
    assert gatherer.add([one]) == []
    (same,) = gatherer.drain()
    assert same is one
    assert gatherer.add(parts()) == []
    (made,) = arrow_of(gatherer.drain())
    made.validate(full=True)
    assert pa.Table.from_batches([made]).equals(pa.Table.from_batches(arrow_of(parts())))


@examples(100)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 200)), max_size=20), st.integers(1, 5000), st.integers(1, 90)
)
def test_every_row_comes_once_and_in_order(sizes: list[tuple[int, int]], target_bytes: int, max_rows: int) -> None:
    gatherer = RowGatherer(target_bytes=target_bytes, max_rows=max_rows)
    ends = list(accumulate(rows for rows, _ in sizes))
    got = [
        one
        for (rows, size), end in zip(sizes, ends, strict=True)
        for one in gatherer.add([batch(end - rows, rows, size)])
    ]
    got += gatherer.drain()
    assert offsets(got) == list(range(ends[-1] if ends else 0))
    came_larger = max((rows for rows, _ in sizes), default=0)
    came_wider = max((batch(0, rows, size).size_bytes for rows, size in sizes), default=0)
    for one in got:
        assert 0 < one.num_rows <= max(max_rows, came_larger)
        assert one.size_bytes <= max(target_bytes, came_wider)
