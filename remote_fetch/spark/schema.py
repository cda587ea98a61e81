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
    from pyspark.sql.types import StructField

__all__ = ["as_spark", "columns_of", "kind_of", "source_columns", "source_schema"]

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
_HEADER = {"type": "struct", "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "binary"}]}
_JSON_TYPES: dict[str, Any] = {
    "int": "integer",
    "bigint": "long",
    _HEADERS: {"type": "array", "elementType": _HEADER, "containsNull": True},
}
"""The types whose name is another one in JSON."""


def source_columns(*, include_headers: bool) -> tuple[str, ...]:
    """The names of the columns."""
    return tuple(name for name in _TYPES if include_headers or name != "headers")


def source_schema(columns: Iterable[str]) -> dict[str, Any]:
    """The schema of columns as JSON, as `StructType.fromJson` takes it.

    Spark would read the same as DDL by the settings of its session: `spark.sql.timestampType` names another type, and
    reserved words may not be names.
    """
    kinds = {name: _JSON_TYPES.get(_TYPES[name], _TYPES[name]) for name in columns}
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}


def columns_of(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The columns of a schema, which is given as the name and the `kind_of` of each field.

    Raises ConfigError for a name or a type that the source does not have.
    """
    columns = []
    for name, kind in fields:
        if _TYPES.get(name) != kind:
            what = f"has the type {_TYPES[name]}, not {kind}" if name in _TYPES else "does not exist"
            raise ConfigError(
                f"kafka_remote: the column '{name}' of the given schema {what}",
                key="schema",
                hint="A schema may leave out columns of: "
                + ", ".join(f"{name} {kind}" for name, kind in _TYPES.items()),
            )
        columns.append(name)
    schema_for(columns)
    return tuple(columns)


def kind_of(field: StructField) -> str:
    """The type, which PySpark compares with that of the rows. `simpleString` lacks NOT NULL."""
    text = field.dataType.json()
    takes_null = field.nullable and '"nullable":false' not in text and '"containsNull":false' not in text
    return field.dataType.simpleString() + ("" if takes_null else " NOT NULL")


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
