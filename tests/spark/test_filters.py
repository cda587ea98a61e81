"""Filters: what is taken over refuses exactly what Spark would, and what only narrows is left to Spark as well."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import datasource as spark

from remote_fetch.spark.filters import restrict
from remote_fetch.spark.limits import Restriction

OFFSET, PARTITION, TIMESTAMP = ("offset",), ("partition",), ("timestamp",)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([spark.EqualTo(OFFSET, 5)], Restriction(first_offset=5, stop_offset=6)),
        ([spark.EqualNullSafe(OFFSET, 5)], Restriction(first_offset=5, stop_offset=6)),
        ([spark.GreaterThan(OFFSET, 5), spark.LessThan(OFFSET, 9)], Restriction(first_offset=6, stop_offset=9)),
        (
            [spark.GreaterThanOrEqual(OFFSET, 5), spark.GreaterThan(OFFSET, 2), spark.LessThanOrEqual(OFFSET, 9)],
            Restriction(first_offset=5, stop_offset=10),
        ),
        ([spark.LessThan(OFFSET, -4)], Restriction(stop_offset=-4)),
        ([spark.EqualTo(PARTITION, 3)], Restriction(first_partition=3, stop_partition=4)),
        ([spark.In(PARTITION, (1, 2)), spark.In(PARTITION, (2, 3))], Restriction(partitions=frozenset({2}))),
        ([spark.IsNotNull(OFFSET), spark.IsNotNull(PARTITION), spark.IsNotNull(TIMESTAMP)], Restriction()),
    ],
)
def test_what_is_taken_over(filters: Sequence[Any], left: Restriction) -> None:
    assert restrict(filters) == (left, [])


@pytest.mark.parametrize(
    "one",
    [
        spark.EqualTo(("topic",), "t"),
        spark.EqualTo(("key", "x"), 1),
        spark.EqualNullSafe(OFFSET, None),
        spark.In(OFFSET, (1, 2)),
        spark.In(PARTITION, (1, None)),
        spark.IsNull(OFFSET),
        spark.Not(spark.EqualTo(OFFSET, 5)),
        spark.GreaterThanOrEqual(TIMESTAMP, datetime(1960, 1, 1, tzinfo=UTC)),
        spark.LessThan(TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC)),
        spark.GreaterThan(TIMESTAMP, datetime(2024, 1, 1)),
    ],
)
def test_what_is_left_to_spark(one: Any) -> None:
    assert restrict([one]) == (Restriction(), [one])


def test_a_time_narrows_and_is_left_to_spark() -> None:
    later = datetime(1970, 1, 1, 0, 0, 1, 2500, tzinfo=UTC)
    filters = [
        spark.GreaterThan(TIMESTAMP, later),
        spark.GreaterThanOrEqual(TIMESTAMP, datetime(1970, 1, 1, tzinfo=UTC)),
    ]
    assert restrict(filters) == (Restriction(since_ms=1002), filters)


def test_partitions_that_are_wanted() -> None:
    wanted = Restriction(partitions=frozenset({1, 5}), first_partition=2, stop_partition=6)
    assert [number for number in range(8) if wanted.takes(number)] == [5]
    assert all(Restriction().takes(number) for number in range(8))
