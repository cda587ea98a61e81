"""Typed columns of the Spark source and of backfills: the plan that the driver makes, and the schema for Spark.

Rules of the file:

- The driver asks the registry for all versions of a subject. The plan brings them to the tasks.
- Types are those that Spark and Parquet have (`remote_fetch.typed.portable`).
- A DataFrame keeps the schema that it was made with. A subject may get versions before a reader of it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.spark.options import SourceOptions
from remote_fetch.spark.schema import columns_of, kind_of, source_columns
from remote_fetch.tables.task_reader import typed_columns
from remote_fetch.typed.plan import ColumnPlan, TypedPlan, plan_typed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["as_planned", "plan_of", "spark_schema", "typed_columns_of", "typed_schema"]


def plan_of(options: SourceOptions, *, learns: bool) -> TypedPlan | None:
    """The typed columns that options ask for, None for none. Raises ConfigError and the errors of a registry."""
    topics = options.subscription.topics if options.subscription.pattern is None else None
    return plan_typed(Config.parse(options.config), topics, learns=learns)


def typed_schema(plan: TypedPlan, options: SourceOptions, columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of `columns`, which are those of the source, with typed keys and values."""
    return typed_columns(plan, Config.parse(options.config), columns).schema


def spark_schema(plan: TypedPlan, options: SourceOptions) -> StructType:
    """The schema of the source with typed keys and values."""
    return _from_arrow(typed_schema(plan, options, source_columns(include_headers=options.include_headers)))


def as_planned(plan: TypedPlan, options: SourceOptions, schema: StructType) -> TypedPlan:
    """The plan with the versions of subjects that Spark planned with, found by the types in its schema."""
    wanted = {field.name: field.dataType.simpleString() for field in schema.fields}

    def fits(column: ColumnPlan) -> bool:
        try:
            made = _from_arrow(typed_schema(TypedPlan((column,)), options, (column.name,)))
        except ConfigError:  # a version of another kind
            return False
        return made.fields[0].dataType.simpleString() == wanted.get(column.name)

    columns = []
    for column in plan.columns:
        choices = [column, *(replace(column, schema=other) for other in column.others)]
        columns.append(next(filter(fits, choices), column))
    return replace(plan, columns=tuple(columns))


def typed_columns_of(plan: TypedPlan, options: SourceOptions, schema: StructType) -> tuple[str, ...]:
    """The columns of the source that a schema names. Raises ConfigError for a type that is not the column's own.

    A schema names a column in quarantine with the two that follow it.
    """
    typed = {each.name: each for each in plan.columns}
    kept = [name for name, each in typed.items() if each.on_error == "quarantine"]
    added = {f"{name}_{what}" for name in kept for what in ("raw", "error")}
    plain = [field for field in schema.fields if field.name not in typed and field.name not in added]
    if plain:
        columns_of((field.name, kind_of(field)) for field in plain)
    names = tuple(field.name for field in schema.fields if field.name not in added)
    expected = _from_arrow(typed_schema(plan, options, names))
    found = [(field.name, kind_of(field)) for field in schema.fields]
    wanted = [(field.name, kind_of(field)) for field in expected.fields]
    if found != wanted:
        raise ConfigError(
            f"kafka_remote: the given schema {_shown(found)} is not that of the typed columns, {_shown(wanted)}",
            key="schema",
            hint="Leave the schema out: the source takes it from the registry or the file",
        )
    return names


def _from_arrow(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - slow to import, and needed here only

    return from_arrow_schema(schema)


def _shown(fields: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in fields)
