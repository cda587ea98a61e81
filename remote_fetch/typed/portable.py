"""Types of columns that Spark, Parquet and JSON lines have too, and what takes the place of those that they lack.

    unsigned numbers of 8, 16, 32 bits   the next larger signed one
    unsigned numbers of 64 bits          decimal128(20, 0)
    time32, time64                       int32, int64: the number of milliseconds or microseconds, as Spark's from_avro
    duration                             int64: microseconds
    timestamps of other units            microseconds
    decimal256                           string
    null                                 string

Rules of the file: pure. Every field may be null. A time between two microseconds becomes the earlier one. A time
beyond microseconds is Undecodable.
"""

from __future__ import annotations

from remote_fetch.typed.arrays import Column, DataType, holds, is_nanoseconds, pa
from remote_fetch.typed.compute import numbered, pc
from remote_fetch.typed.outcome import Undecodable

__all__ = ["as_portable", "portable"]


def portable(kind: DataType) -> DataType:
    """The portable type for columns of a type."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, portable(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(portable(kind.value_type))
    if types.is_map(kind):
        return pa.map_(portable(kind.key_type), portable(kind.item_type))
    return _leaf(kind)


def as_portable(column: Column, kind: DataType) -> Column:
    """A column as `kind`, which `portable` gave for its type. Raises Undecodable for a time that the type lacks."""
    if column.type == kind:
        _check_times(column)
        return column
    try:
        return pc.cast(_without_nanos(column), options=pc.CastOptions(kind, allow_time_truncate=True))
    except pa.ArrowInvalid as error:
        raise Undecodable(str(error)) from error


def _without_nanos(column: Column) -> Column:
    """The column with microseconds for nanoseconds. Arrow's cast takes the later one before 1970."""
    kind, types = column.type, pa.types
    if not holds(kind, is_nanoseconds):
        return column
    if types.is_timestamp(kind):
        numbers = column.view(pa.int64())
        cut = pc.divide(numbers, 1000)
        earlier = pc.cast(pc.less(numbers, pc.multiply(cut, 1000)), pa.int64())
        return pc.subtract(cut, earlier).view(pa.timestamp("us", kind.tz))
    nulls, whole = column.is_null(), column.take(numbered(len(column))) if column.offset else column
    if types.is_struct(kind):
        below = [_without_nanos(whole.field(number)) for number in range(kind.num_fields)]
        fields = [pa.field(field.name, each.type) for field, each in zip(kind, below, strict=True)]
        return pa.StructArray.from_arrays(below, fields=fields, mask=nulls)
    if types.is_map(kind):
        return pa.MapArray.from_arrays(whole.offsets, whole.keys, _without_nanos(whole.items), mask=nulls)
    return pa.ListArray.from_arrays(whole.offsets, _without_nanos(whole.values), mask=nulls)


def _check_times(column: Column) -> None:
    """Raise Undecodable if a time of day is none: Arrow has no such value, and polars and DuckDB have none."""
    if not holds(column.type, pa.types.is_time):
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Undecodable(str(error).rpartition("Invalid: ")[2]) from None


def _leaf(kind: DataType) -> DataType:
    types = pa.types
    if types.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if types.is_uint64(kind) else pa.int64() if types.is_uint32(kind) else pa.int32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_time32(kind):
        return pa.int32()
    if types.is_time64(kind) or types.is_duration(kind):
        return pa.int64()
    return pa.string() if types.is_decimal256(kind) or types.is_null(kind) else kind
