"""Whether the columns of an export's files fit those of an Iceberg table.

Rules of the file:

- Columns that the table lacks are added, and the types of others may become wider, as pyiceberg allows.
- Files have no field ids. So what their names and bytes mean must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

__all__ = ["misfit"]

_MAPPING = "schema.name-mapping.default"


def misfit(table: Any, schema: pa.Schema) -> str | None:
    """Why files of this schema do not fit the table; None if they fit. Raises pyiceberg's errors."""
    columns, transaction = table.schema(), table.transaction()
    for name in columns.identifier_field_names() & set(schema.names):
        if schema.field(name).nullable:
            return f"{name} is an identifier field there. Give it as a column that is not nullable in a transform"
    with transaction.update_schema() as update:
        update.union_by_name(schema)
    wanted = transaction.table_metadata.schema()
    mapped = dict(_mapped(table.name_mapping() or ()))
    for name in map(wanted.find_column_name, sorted(wanted.field_ids - columns.field_ids)):
        # The mapping would give the new column the values of older files, and take them from the renamed one.
        now = columns.find_column_name(mapped.get(name))
        if now is not None:
            return f"{name} was renamed to {now} there"
        was, kind = _last_type(table, mapped.get(name)), wanted.find_type(name)
        if was is not None and (was != kind if was.is_primitive else type(was) is not type(kind)):
            return f"{name} was dropped there as {was}, and is {kind}: older files could not be read"
    unmapped = _unmapped(columns, mapped, schema) if mapped else None
    if unmapped is not None:
        return f"{unmapped} is not in the property {_MAPPING} there, by which readers find the columns of files"
    lacking = [column.name for column in columns.fields if column.required and column.name not in schema.names]
    if lacking:
        return f"{lacking[0]} is required there"
    known = {column.name: column.type for column in columns.as_arrow()}
    for column in schema:
        if column.name in known and _is_mistaken(known[column.name], column.type):
            return f"{column.name} is {columns.find_type(column.name)} there, and not {column.type}"
    return None


def _unmapped(columns: Any, mapped: Mapping[str, int], schema: pa.Schema) -> str | None:
    """A column of both schemas that the name mapping lacks, or has for another one. None: there is none."""
    names = {columns.find_column_name(number): number for number in columns.field_ids}
    return next((one for one in names if one.partition(".")[0] in schema.names and mapped.get(one) != names[one]), None)


def _last_type(table: Any, field_id: int | None) -> Any:
    """The type that a column had in the last schema that has it; None if no schema is known that has it."""
    found = [schema.find_type(field_id) for schema in table.schemas().values() if field_id in schema.field_ids]
    return found[-1] if found else None


def _mapped(fields: Iterable[Any], above: str = "") -> Iterator[tuple[str, int]]:
    """The names of a name mapping, each with the id of its column."""
    for field in fields:
        for name in field.names:
            yield above + name, field.field_id
            yield from _mapped(field.fields, f"{above}{name}.")


def _is_mistaken(known: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether pyiceberg takes a column of files for that of the table, and its bytes mean other values, at any depth.

    It does so with text and bytes, and with decimals of another scale.
    """
    if isinstance(wanted, pa.DictionaryType):
        return _is_mistaken(known, wanted.value_type)
    if pa.types.is_decimal(known) and pa.types.is_decimal(wanted):
        return bool(known.scale != wanted.scale)
    if _is_text(known) != _is_text(wanted):
        return True
    inner, others = _inner(known), _inner(wanted)
    return any(_is_mistaken(inner[name], others[name]) for name in inner.keys() & others.keys())


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _inner(kind: Any) -> dict[str, pa.DataType]:
    """The types in a struct, by name, in a map or in a list."""
    if pa.types.is_struct(kind):
        return {field.name: field.type for field in kind}
    if pa.types.is_map(kind):
        return {"key": kind.key_type, "value": kind.item_type}
    return {"element": kind.field(0).type} if kind.num_fields else {}
