"""The columns of a read: those of Spark's Kafka source and two more, with their names, types and values.

Rules of the file: pure, and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from remote_fetch.decode.arrays import HEADER_TYPE
from remote_fetch.errors import ConfigError

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "is_saturated", "microseconds", "schema_for", "wanted_columns"]

_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER_TYPE),
    "leaderEpoch": pa.int32(),
    "timestampMs": pa.int64(),
}

COLUMNS: tuple[str, ...] = tuple(_TYPES)
"""All columns that can be asked for."""

DEFAULT_COLUMNS: tuple[str, ...] = COLUMNS[:8]
"""The columns of Spark's Kafka source, in its order, headers included."""

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1


def wanted_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that a user asks for. None: DEFAULT_COLUMNS. Raises ConfigError for a value that is no list."""
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}: give a list of names, such as [{columns!r}]", key="columns")
    if columns is not None and not isinstance(columns, Iterable):
        raise ConfigError(f"columns={columns!r}: give a list of names", key="columns")
    return tuple(DEFAULT_COLUMNS if columns is None else columns)


def schema_for(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of `columns`, in their order.

    `timestamp` is in microseconds, UTC, as `microseconds` computes them. `timestampMs` holds Kafka's milliseconds.
    `timestampType` holds the numbers of `TimestampType`. Raises ConfigError for an unknown column, for a column that is
    named twice, and for no column at all.
    """
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ConfigError(f"unknown column {unknown[0]!r}; the columns are {', '.join(COLUMNS)}", key="columns")
    if len(set(columns)) != len(columns):
        raise ConfigError(f"a column is named twice: {', '.join(columns)}", key="columns")
    if not columns:
        raise ConfigError(f"no column is named; the columns are {', '.join(COLUMNS)}", key="columns")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def microseconds(timestamp_ms: int) -> int:
    """The value of the column `timestamp` for a record of that time.

    Some producers send nanoseconds for milliseconds. If the microseconds do not fit into 64 bits, the value is the
    nearest number, 2**63 - 1 or -2**63. Neither is a multiple of 1000, so no timestamp that fits equals one of them.
    """
    return min(max(timestamp_ms * 1000, _MIN_INT64), _MAX_INT64)


def is_saturated(timestamp_ms: int) -> bool:
    """Whether `microseconds` gives the nearest number for a record of that time."""
    return not _MIN_INT64 <= timestamp_ms * 1000 <= _MAX_INT64
