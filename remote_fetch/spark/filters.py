"""Filters that Spark offers, as far as they narrow the read.

Rules of the file:

- Pure.
- A filter is taken from Spark only if every row that it refuses stays unread.
- A filter that only narrows the read is applied here and left to Spark as well.
- Timestamps do not ascend with offsets, so only a lower bound helps: it moves the start to the first late record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from remote_fetch.spark.limits import Restriction

__all__ = ["restrict"]

_NEVER_NULL = frozenset({"offset", "partition", "timestamp"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = 2**63 - 1
_RANGES: dict[str, tuple[int | None, int | None]] = {
    "EqualTo": (0, 1),
    "EqualNullSafe": (0, 1),
    "GreaterThan": (1, None),
    "GreaterThanOrEqual": (0, None),
    "LessThan": (None, 0),
    "LessThanOrEqual": (None, 1),
}
"""The range that each comparison leaves: its start and its end (exclusive), relative to the value."""


def restrict(filters: Iterable[Any]) -> tuple[Restriction, list[Any]]:
    """The restriction that all filters together make, and the filters that Spark still has to apply.

    A filter is an instance of a class of `pyspark.sql.datasource`, recognised by the name of the class.
    """
    found, left = Restriction(), []
    for offered in filters:
        kind = type(offered).__name__
        column: tuple[str, ...] = getattr(offered, "attribute", ())  # Not has another filter, and no attribute
        value = getattr(offered, "value", None)
        if len(column) != 1 or column[0] not in _NEVER_NULL:
            left.append(offered)
        elif kind == "IsNotNull":
            continue
        elif column[0] == "timestamp":
            found = _since(found, kind, value)
            left.append(offered)
        else:
            narrowed = _whole_numbers(found, kind, column[0], value)
            if narrowed is None:
                left.append(offered)
            else:
                found = narrowed
    return found, left


def _since(found: Restriction, kind: str, value: Any) -> Restriction:
    if kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
        return found
    if not isinstance(value, datetime) or value.tzinfo is None:
        return found
    since_ms = (value - _EPOCH) // timedelta(milliseconds=1)  # rounded down: no later than the filter
    # Records without a timestamp have -1, and brokers take any time before 1970 for 1970.
    return found if since_ms <= (found.since_ms or 0) else replace(found, since_ms=since_ms)


def _whole_numbers(found: Restriction, kind: str, column: str, value: Any) -> Restriction | None:
    """The restriction with one more filter on `partition` or `offset`; None if it cannot express the filter."""
    if kind == "In" and column == "partition" and all(isinstance(number, int) for number in value):
        only = frozenset(value)
        return replace(found, partitions=only if found.partitions is None else found.partitions & only)
    if kind not in _RANGES or not isinstance(value, int):
        return None
    low, high = _RANGES[kind]
    first = max(getattr(found, f"first_{column}"), 0 if low is None else value + low)
    stop = min(getattr(found, f"stop_{column}"), _END if high is None else value + high)
    if column == "offset":
        return replace(found, first_offset=first, stop_offset=stop)
    return replace(found, first_partition=first, stop_partition=stop)
