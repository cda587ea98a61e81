"""Arrays made of buffers are those that pyarrow makes of the same values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode.arrays import HEADER_TYPE, bytes_array, headers_array, numbers_array

NUMBERS: dict[pa.DataType, st.SearchStrategy[int]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.timestamp("us", "UTC"): st.integers(-(2**63), 2**63 - 1),
}


@pytest.mark.parametrize("arrow_type", NUMBERS, ids=str)
@given(data=st.data())
def test_numbers(arrow_type: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(NUMBERS[arrow_type]))
    made = numbers_array(values, arrow_type)
    made.validate(full=True)
    assert made == pa.array(values, pa.int32() if arrow_type == pa.int32() else pa.int64()).cast(arrow_type)


def test_a_number_that_does_not_fit() -> None:
    with pytest.raises(OverflowError):
        numbers_array([2**31], pa.int32())
    with pytest.raises(OverflowError):
        numbers_array([2**63], pa.int64())


@given(st.lists(st.none() | st.binary(max_size=9)))
def test_bytes(values: list[bytes | None]) -> None:
    made = bytes_array(values, pa.binary())
    made.validate(full=True)
    assert made == pa.array(values, pa.binary())


@given(st.lists(st.none() | st.text(max_size=9)))
def test_strings(values: list[str | None]) -> None:
    made = bytes_array([None if value is None else value.encode() for value in values], pa.string())
    made.validate(full=True)
    assert made == pa.array(values, pa.string())


@given(st.lists(st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4)))
def test_headers(rows: list[list[tuple[str, bytes | None]]]) -> None:
    made = headers_array(rows)
    made.validate(full=True)
    expected = [[{"key": key, "value": value} for key, value in headers] for headers in rows]
    assert made == pa.array(expected, pa.list_(HEADER_TYPE))
