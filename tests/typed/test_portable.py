"""The types that take the place of those that Spark and Parquet lack, and their values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from remote_fetch.typed.outcome import Undecodable
from remote_fetch.typed.portable import as_portable, portable

UTC_MS = pa.timestamp("ms", "UTC")
CASES: list[tuple[Any, Any, Any, Any]] = [
    (pa.uint8(), 255, pa.int32(), 255),
    (pa.uint32(), 2**32 - 1, pa.int64(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
    (pa.time32("ms"), 5, pa.int32(), 5),
    (pa.time64("us"), 5, pa.int64(), 5),
    (pa.duration("us"), datetime.timedelta(seconds=1), pa.int64(), 1_000_000),
    (UTC_MS, 5, pa.timestamp("us", "UTC"), datetime.datetime(1970, 1, 1, 0, 0, 0, 5000, datetime.UTC)),
    (pa.timestamp("ns"), 1001, pa.timestamp("us"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1)),
    (pa.timestamp("ns"), -1, pa.timestamp("us"), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (pa.decimal256(60, 2), Decimal("1.50"), pa.string(), "1.50"),
    (pa.null(), None, pa.string(), None),
    (pa.string(), "a", pa.string(), "a"),
    (pa.decimal128(5, 2), Decimal("1.50"), pa.decimal128(5, 2), Decimal("1.50")),
]


@pytest.mark.parametrize(
    ("kind", "value", "expected_kind", "expected"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES]
)
def test_a_type_alone_and_inside_others(kind: Any, value: Any, expected_kind: Any, expected: Any) -> None:
    nested = pa.struct([pa.field("l", pa.list_(kind)), pa.field("m", pa.map_(pa.string(), kind), nullable=False)])
    column = pa.array([{"l": [value], "m": [("k", value)]}, None], nested)
    wanted = portable(nested)
    assert wanted == pa.struct([("l", pa.list_(expected_kind)), ("m", pa.map_(pa.string(), expected_kind))])
    assert as_portable(column, wanted).to_pylist() == [{"l": [expected], "m": [("k", expected)]}, None]
    assert as_portable(pa.array([value], kind), portable(kind)).to_pylist() == [expected]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_time_between_two_microseconds_becomes_the_earlier_one(zone: str | None) -> None:
    """As Python's floor division and Java's Instant have it, also before 1970 and at the ends of 64 bits."""
    numbers = [-1, -999, -1000, -1001, 0, 999, 1000, -(2**63) + 1, 2**63 - 1, None]
    column: Any = pa.array([0, *numbers], pa.int64()).view(pa.timestamp("ns", zone)).slice(1)
    nested = pa.StructArray.from_arrays([column], names=["t"])
    made = as_portable(nested, portable(nested.type)).field("t")
    assert made.cast(pa.int64()).to_pylist() == [None if each is None else each // 1000 for each in numbers]


@pytest.mark.parametrize("number", [2**62, -(2**62), 2**63 - 1])
@pytest.mark.parametrize("kind", [UTC_MS, pa.timestamp("ms"), pa.timestamp("s", "UTC")])
def test_a_time_beyond_microseconds_does_not_decode(number: int, kind: Any) -> None:
    """A cast without a check makes it another time: the largest number of milliseconds is one before 1970."""
    column: Any = pa.array([0, number], pa.int64()).view(kind)
    with pytest.raises(Undecodable, match="out of bounds timestamp"):
        as_portable(column, portable(kind))


@pytest.mark.parametrize("kind", [pa.time32("ms"), pa.time64("us")])
@pytest.mark.parametrize("number", [-1, 86_400_000_000])
def test_a_number_that_is_no_time_of_day(kind: Any, number: int) -> None:
    """Polars makes a null of it, and DuckDB an internal error. As a portable number it is kept."""
    number //= 1000 if kind == pa.time32("ms") else 1
    width: Any = pa.int32() if kind == pa.time32("ms") else pa.int64()
    nested = pa.struct([("l", pa.list_(kind))])
    column = pa.array([{"l": [5, None, number]}, None], pa.struct([("l", pa.list_(width))])).cast(nested)
    with pytest.raises(Undecodable, match=r"^time(32|64)\[.s\] -?\d+ is not within"):
        as_portable(column, nested)
    assert as_portable(column, portable(nested)).to_pylist() == [{"l": [5, None, number]}, None]
