"""Filters that Spark offers, as far as they narrow what is read.

Rules of the file: pure; a filter is taken over only if no row that it would refuse is read, so that Spark need not look
again; one that merely narrows is heeded and left to Spark as well. Timestamps do not ascend with offsets, so that only
a lower bound narrows anything: it moves the start to the first record that is late enough.
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
"""What each comparison leaves: from where, and up to where (exclusive), measured from its value."""


def restrict(filters: Iterable[Any]) -> tuple[Restriction, list[Any]]:
    """What the filters come to (all of them hold), and those that Spark still has to apply.

    A filter is one of `pyspark.sql.datasource`, told by the name of its class.
    """
    found, left = Restriction(), []
    for one in filters:
        kind = type(one).__name__
        column: tuple[str, ...] = getattr(one, "attribute", ())  # Not has another filter, and no attribute
        value = getattr(one, "value", None)
        if len(column) != 1 or column[0] not in _NEVER_NULL:
            left.append(one)
        elif kind == "IsNotNull":
            continue
        elif column[0] == "timestamp":
            found = _since(found, kind, value)
            left.append(one)
        else:
            narrowed = _whole_numbers(found, kind, column[0], value)
            if narrowed is None:
                left.append(one)
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
    """The restriction with one more filter on `partition` or `offset`; None if that cannot be said in it."""
    if kind == "In" and column == "partition" and all(isinstance(one, int) for one in value):
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
