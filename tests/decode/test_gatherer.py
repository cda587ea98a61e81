"""Small Arrow batches become larger ones. Rows keep their order, and large batches are not copied."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode.columns import COLUMNS
from remote_fetch.decode.gatherer import RowGatherer
from remote_fetch.decode.run_decoder import BatchReader
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, read_header
from remote_fetch.testing.records import Record, encode_batch
from tests.searches import examples


def batch(first: int, rows: int, row_bytes: int = 10) -> pa.RecordBatch:
    return pa.record_batch({"offset": range(first, first + rows), "value": [b"v" * row_bytes] * rows})


def offsets(batches: list[pa.RecordBatch]) -> list[object]:
    return [offset for one in batches for offset in one.column("offset").to_pylist()]


def test_small_batches_become_one() -> None:
    gatherer = RowGatherer()
    for at in range(5):
        assert gatherer.add([batch(10 * at, 10)]) == []
    assert gatherer.rows == 50
    (joined,) = gatherer.drain()
    joined.validate(full=True)
    assert offsets([joined]) == list(range(50))
    assert (gatherer.rows, gatherer.drain()) == (0, [])


def test_a_large_batch_is_handed_on_as_it_is() -> None:
    gatherer = RowGatherer(target_bytes=2000)
    large = batch(3, 100)
    small, same = gatherer.add([batch(0, 3), large])
    assert same is large
    assert offsets([small, same]) == list(range(103))


@pytest.mark.parametrize("bounds", [{"target_bytes": 1000}, {"max_rows": 10}])
def test_a_batch_that_does_not_fit_closes_those_before_it(bounds: dict[str, int]) -> None:
    gatherer = RowGatherer(**bounds)
    size_bytes = batch(0, 4, 90).nbytes
    assert 1000 / 3 < size_bytes < 500
    got = [gatherer.add([batch(4 * at, 4, 90)]) for at in range(5)]
    assert [[one.num_rows for one in full] for full in got] == [[], [], [8], [], [8]]
    assert gatherer.rows == 4
    assert offsets([*got[2], *got[4], *gatherer.drain()]) == list(range(20))


def test_one_batch_is_not_copied_and_several_are_equal_to_what_they_were() -> None:
    data = [encode_batch(10 * at, [Record(0, at, None, b"v", (("h", None),)), Record(3)]) for at in range(3)]
    reader, parts = BatchReader("topic", 3, COLUMNS), list[pa.RecordBatch]()
    for one in data:
        header = read_header(memoryview(one), 0, position=0)
        assert isinstance(header, BatchHeader)
        parts += reader.read(header, memoryview(one)[HEADER_BYTES:], 0, 100)
    gatherer = RowGatherer()
    assert gatherer.add(parts[:1]) == []
    (same,) = gatherer.drain()
    assert same is parts[0]
    assert gatherer.add(parts) == []
    (joined,) = gatherer.drain()
    joined.validate(full=True)
    assert joined.schema == parts[0].schema
    assert pa.Table.from_batches([joined]).equals(pa.Table.from_batches(parts))


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
    came_wider = max((batch(0, rows, size).nbytes for rows, size in sizes), default=0)
    for one in got:
        one.validate(full=True)
        assert 0 < one.num_rows <= max(max_rows, came_larger)
        assert one.nbytes <= max(target_bytes, came_wider)
