"""Two streams side by side: random rows in random batches, equal or with one row changed, left out or added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.checks.comparison import Difference, RowStream, first_difference

FIELDS: list[Any] = [pa.field("offset", pa.int64()), pa.field("value", pa.binary())]
SCHEMA = pa.schema(FIELDS)
Row = tuple[int, bytes | None]


def stream(rows: Sequence[Row], sizes: Sequence[int]) -> RowStream:
    """The rows in batches of these sizes, over and over; a size of 0 gives an empty batch."""
    batches, at, turn = [], 0, 0
    while at < len(rows):
        part = rows[at : at + sizes[turn % len(sizes)]]
        batches.append(pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in part], SCHEMA))
        at, turn = at + len(part), turn + 1
    return RowStream(batches)


offsets = st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True).map(sorted)
some_sizes = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(lambda sizes: [*sizes, 3])


def as_dict(row: Row) -> dict[str, Any]:
    return {"offset": row[0], "value": row[1]}


@given(offsets, some_sizes, some_sizes, st.data())
def test_the_first_row_that_differs_is_found(
    numbers: list[int], mine: list[int], theirs: list[int], data: st.DataObject
) -> None:
    rows: list[Row] = [(number, b"%d" % number) for number in numbers]
    at = data.draw(st.integers(0, len(rows) - 1))
    kind = data.draw(st.sampled_from(["same", "changed", "left out", "null"]))
    others = list(rows)
    if kind == "left out":
        del others[at]
    elif kind != "same":
        others[at] = (rows[at][0], b"other" if kind == "changed" else None)
    stop = data.draw(st.integers(0, 61))
    store, broker = stream(rows, mine), stream(others, theirs)
    below = sum(number < stop for number in numbers)
    difference = first_difference(store, broker, stop)
    count = store.taken
    if kind == "same" or at >= below:
        assert (count, difference) == (below, None)
    else:
        assert count == at
        alone = kind == "left out"
        expected_broker = None if alone else as_dict(others[at])
        assert difference == Difference(numbers[at], as_dict(rows[at]), expected_broker, () if alone else ("value",))
    store.skip_below(stop)
    broker.skip_below(stop)
    skipped = store.taken
    rest = first_difference(store, broker, 100)
    is_later = kind != "same" and at >= below
    assert (rest is not None) == is_later
    assert is_later or store.taken - skipped == len(rows) - below


def test_a_row_that_only_the_broker_has() -> None:
    found = first_difference(stream([(1, b"a"), (3, b"c")], [5]), stream([(1, b"a"), (2, b"b"), (3, b"c")], [1]), 9)
    assert found == Difference(2, None, {"offset": 2, "value": b"b"})
    assert first_difference(stream([], [1]), stream([(7, b"x")], [1]), 9) == Difference(
        7, None, {"offset": 7, "value": b"x"}
    )


def test_the_key_of_a_header_counts_up_to_its_nul() -> None:
    """The broker's client gives no more of it."""

    def rows(*keys: str) -> RowStream:
        listed = [{"offset": at, "headers": [{"key": key, "value": b"x"}]} for at, key in enumerate(keys)]
        return RowStream([pa.RecordBatch.from_pylist(listed)])

    store = rows("a", "b\0c", "d", "\0e", "f\0g")
    difference = first_difference(store, rows("a", "b", "d", "", "other"), 9)
    assert difference is not None
    assert (difference.offset, difference.columns, store.taken) == (4, ("headers",), 4)
