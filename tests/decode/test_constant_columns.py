"""Topic and partition as columns, for any number of rows up to the largest Arrow batch."""

from __future__ import annotations

import struct
from types import ModuleType

import pyarrow as pa
import pytest

from remote_fetch.decode.constant_columns import CONSTANT_COLUMNS, ConstantColumns


def test_the_columns_have_the_rows_that_are_asked_for(engine: ModuleType) -> None:
    columns = ConstantColumns("orders", 3, 5000, engine)
    for rows in (1, 700, 5000, 0, 2):
        made = columns.of(rows)
        assert tuple(made) == CONSTANT_COLUMNS
        for column in made.values():
            column.validate(full=True)
        assert made["topic"].cast(pa.binary()).to_pylist() == rows * [b"orders"]
        assert made["partition"].to_pylist() == rows * [3]


def test_only_the_columns_that_are_named_are_made(engine: ModuleType) -> None:
    assert ConstantColumns("orders", 3, 5000, engine, []).of(10) == {}
    assert ConstantColumns("orders", 3, 5000, engine, ["partition"]).of(2)["partition"].to_pylist() == [3, 3]


@pytest.mark.parametrize(
    ("step", "count"), [(7, 0), (7, 1), (0, 5), (3, 1000), (2**31 - 1, 2), (2**30, 2), (1, 300_000)]
)
def test_multiples(engine: ModuleType, step: int, count: int) -> None:
    assert engine.multiples(step, count) == struct.pack(f"={count}i", *(at * step for at in range(count)))


@pytest.mark.parametrize(("step", "count"), [(2**30, 3), (2**31 - 1, 3)])
def test_a_multiple_of_more_than_32_bits_is_an_error(engine: ModuleType, step: int, count: int) -> None:
    with pytest.raises(OverflowError):
        engine.multiples(step, count)
