"""Conditions of `grep --where`: which rows they choose, and which texts are none."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from remote_fetch.checks.where import Where
from remote_fetch.errors import ConfigError

BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([5, 6, 7, 8], pa.int64()),
        pa.array([b"a", None, b"c", b"\xff"], pa.binary()),
        pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)], pa.timestamp("us", "UTC")),
        pa.array(
            [{"country": "DE", "amount": 1.5, "paid": True}, {"country": "FR", "amount": 9.0, "paid": False}, None,
             {"country": None, "amount": -3.0, "paid": None}],
            pa.struct(
                [pa.field("country", pa.string()), pa.field("amount", pa.float64()), pa.field("paid", pa.bool_())]
            ),
        ),
    ],
    names=["offset", "key", "timestamp", "value"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("offset >= 7", [7, 8]),
        ("7 > offset", [5, 6]),
        ("5 < offset < 8", [6, 7]),
        ("offset == 5 or offset == 8", [5, 8]),
        ("not offset == 5", [6, 7, 8]),
        ("offset in [5, 8, 9]", [5, 8]),
        ("offset not in (5, 8)", [6, 7]),
        ("key == 'a'", [5]),
        ('key == b"\\xff"', [8]),
        ("key != 'a'", [6, 7, 8]),
        ("'a' != key", [6, 7, 8]),
        ("not key == 'a'", [6, 7, 8]),
        ("key not in ['a', 'c']", [6, 8]),
        ("key in ['a', None]", [5, 6]),
        ("key not in ['a', None]", [7, 8]),
        ("key in [None]", [6]),
        ("not (key == 'a' or offset == 8)", [6, 7]),
        ("key > 'a'", [7, 8]),
        ("not key > 'a'", [5, 6]),
        ("key == key", [5, 6, 7, 8]),
        ("key != key", []),
        ("value.country == key", []),
        ("value.country == value.country", [5, 6, 7, 8]),
        ("None == key", [6]),
        ("None is not key", [5, 7, 8]),
        ("key == 'a' or value is None", [5, 7]),
        ("key is None", [6]),
        ("key is not None and offset > 5", [7, 8]),
        ("key == None", [6]),
        ("timestamp >= '2026-01-02 12:00:00'", [7, 8]),
        ("timestamp == '2026-01-01'", [5]),
        ("value.country in ['DE', 'FR'] and value.amount > 2", [6]),
        ("value.amount < -1", [8]),
        ("value.amount == 9", [6]),
        ("value.paid", [5]),
        ("not value.paid", [6, 7, 8]),
        ("value.paid == False", [6]),
        ("value.country != 'DE'", [6, 7, 8]),
        ("value.country is None", [7, 8]),
        ("value.amount != 9", [5, 7, 8]),
        ("value is None", [7]),
        ("offset == offset", [5, 6, 7, 8]),
        ("offset > 100", []),
        ("  offset == 5  ", [5]),
    ],
)
def test_a_condition(text: str, offsets: list[int]) -> None:
    where = Where(text)
    for start in range(3):
        batch = BATCH.slice(start)
        rows = where.matching(batch)
        assert [batch.column("offset")[row].as_py() for row in rows] == [at for at in offsets if at >= 5 + start]


def test_a_number_above_those_of_int64() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([5, 10**19], pa.uint64())], names=["value"])
    assert Where("value >= 10000000000000000000").matching(batch) == [1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--where: ''"),
        ("offset >", "invalid syntax"),
        ("offset", "is no condition"),
        ("1", "is no condition"),
        ("amount > 1", "a record has no 'amount', but offset, key, timestamp, value"),
        ("value.size > 1", "value has no 'size', but country, amount, paid"),
        ("offset.low > 1", "offset has no 'low'"),
        ("offset < 99999999999999999999", "'99999999999999999999' cannot be compared with int64: it is outside"),
        ("offset < 3.5", "'3.5' cannot be compared with int64"),
        ("offset in [5, 99999999999999999999]", "cannot be compared with int64"),
        ("key < None", "None is neither less nor greater"),
        ("None >= key", "None is neither less nor greater"),
        ("None == None", "is no column"),
        ("offset > 'x'", "cannot be compared with int64"),
        ("timestamp > 'soon'", "cannot be compared with timestamp"),
        ("offset in 5", "is no list"),
        ("offset in []", "is no list"),
        ("offset is 5", "compares with None alone"),
        ("__import__('os').system('x')", "is no condition"),
        ("offset == len(key)", "is no text and no number"),
        ("(lambda: 1)() > offset", "is no text and no number"),
        ("key == user-3", "'user - 3' is no text and no number. Compare with ==, and give text in quotes: key == 'a'"),
        ("key == user", "a record has no 'user', but offset, key, timestamp, value. Compare with ==, and give text in"),
        ("key = 'a'", "Compare with ==, and give text in quotes"),
        ("offset == None2.x", "a record has no 'None2'"),
        ("key[0] == 'a'", "is no column"),
        ("offset + 1 > 5", "is no column"),
        ("[offset] == 5", "is no column"),
        ("offset == [5]", "is no text and no number"),
        ("not " * 3_000 + "offset == 5", ""),
        ("(" * 300 + "offset == 5" + ")" * 300, ""),
        ("offset == 5 " + "or offset == 5 " * 2_000, "more than 10000 characters"),
        ("offset == 5\0", ""),
    ],
)
def test_a_text_that_is_none(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^--where: ") as raised:
        Where(text).matching(BATCH)
    assert said in str(raised.value)
    with pytest.raises(ConfigError, match=re.escape(str(raised.value))):
        Where(text).check(BATCH.schema)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [("d > 1", [2]), ("d == 1", [1]), ("1 <= d", [1, 2]), ("d in [-2, 1]", [1, 3]), ("d < -1", [3]), ("d > 1.5", [2])],
)
@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.decimal256(40, 2)])
def test_whole_numbers_beside_decimals(text: str, offsets: list[int], kind: pa.DataType) -> None:
    """Arrow's cast refuses 1 for a decimal that has no room for all of int64."""
    numbers = [None if each is None else Decimal(each) for each in (None, "1.00", "999.99", "-2")]
    columns = [pa.array(range(4), pa.int64()), pa.array(numbers, kind)]
    batch = pa.RecordBatch.from_arrays(columns, names=["offset", "d"])
    assert Where(text).matching(batch) == offsets
