"""The columns of Spark's Kafka source: their names and types as Spark writes them, and batches as Spark wants them.

Rules of the file:

- Pure.
- A user's schema may leave out columns and change their order. It may not differ otherwise.
- Any other schema raises an error before a task begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_spark", "columns_of", "source_schema"]

_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": _HEADERS,
}
"""Types as `DataType.simpleString()` gives them."""


def source_schema(*, include_headers: bool) -> str:
    """The schema of the source, as DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in _TYPES.items() if include_headers or name != "headers")


def columns_of(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The columns of a schema, which is given as the name and the `simpleString()` of each field.

    Raises ConfigError for a name or a type that the source does not have.
    """
    columns = []
    for name, kind in fields:
        if _TYPES.get(name) != kind:
            what = f"has the type {_TYPES[name]}, not {kind}" if name in _TYPES else "does not exist"
            raise ConfigError(
                f"kafka_remote: the column '{name}' of the given schema {what}",
                key="schema",
                hint=f"A schema may leave out columns of: {source_schema(include_headers=True)}",
            )
        columns.append(name)
    schema_for(columns)
    return tuple(columns)


def as_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as Spark's own source gives it: `headers` of a record without headers is null, not an empty list."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and needed only where batches are
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    at = batch.schema.get_field_index("headers")
    if at < 0:
        return batch
    headers = batch.column(at)
    lengths: Any = pc.list_value_length(headers)
    is_empty = pc.invert(lengths.cast(pa.bool_()))
    if not pc.any(is_empty).as_py():
        return batch
    nothing = pa.scalar(None, headers.type)
    return batch.set_column(at, batch.schema.field(at), pc.if_else(is_empty, nothing, headers))
