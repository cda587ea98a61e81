"""Avro's schema resolution, on columns: from columns of a writer's type to columns of the reader's type.

Rules of the file:

- The rules are those of Avro's specification: fields by name or the reader's alias, defaults for fields that the writer
  lacks, promotions of numbers and between bytes and strings, the branch of a reader's union that fits, the default of
  an enum. Named types match by the last part of the name or an alias.
- `resolver` decides what schemas decide and raises Undecodable. A fault of the values is raised when they come.
- A row that is hidden is not looked at: it is null because the column above it is.
- Between two logical types a value keeps its meaning, so milliseconds become microseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from remote_fetch.typed.arrays import Column, DataType, pa
from remote_fetch.typed.avro_nodes import (
    Array,
    Back,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Record,
    Scalar,
    Union,
    branches_of,
)  # fmt: skip
from remote_fetch.typed.avro_values import default_array, with_logical
from remote_fetch.typed.compute import numbered, pc
from remote_fetch.typed.outcome import Undecodable

__all__ = ["Recoder", "Resolver", "resolver"]

Resolver = Callable[[Column, Column | None], Column]
"""From plain columns of the writer to columns of the reader. The second argument tells which rows are hidden."""

Recoder = Callable[[Node, Node], Resolver]
"""The resolver of two types of which one at least is a record inside itself. Raises as `resolver`."""

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def resolver(writer: Node, reader: Node, recode: Recoder) -> Resolver:
    """The resolver of two types. Raises Undecodable if no value of one is a value of the other."""
    if isinstance(writer, Union) or isinstance(reader, Union):
        return _union(writer, reader, recode)
    if isinstance(writer, Back) or isinstance(reader, Back):
        return _back(writer, reader, recode)
    if isinstance(writer, Record) and isinstance(reader, Record) and _same_name(writer, reader):
        return _record(writer, reader, recode)
    if isinstance(writer, Array) and isinstance(reader, Array):
        return _array(reader, _items(writer.items, reader.items, recode))
    if isinstance(writer, Map) and isinstance(reader, Map):
        return _map(reader, _items(writer.values, reader.values, recode))
    if isinstance(writer, Enum) and isinstance(reader, Enum) and _same_name(writer, reader):
        return _enum(writer, reader)
    if isinstance(writer, (Scalar, Fixed)) and isinstance(reader, (Scalar, Fixed)) and _leaf_fits(writer, reader):
        return _leaf(writer, reader)
    raise _misfit(writer, reader)


def _misfit(writer: Node, reader: Node) -> Undecodable:
    return Undecodable(f"the writer's {_called(writer)} does not fit the reader's {_called(reader)}")


def _leaf_fits(writer: Scalar | Fixed, reader: Scalar | Fixed) -> bool:
    if isinstance(writer, Fixed) and isinstance(reader, Fixed):
        return _same_name(writer, reader) and writer.size_bytes == reader.size_bytes
    if isinstance(writer, Scalar) and isinstance(reader, Scalar):
        return writer.kind == reader.kind or reader.kind in _PROMOTIONS.get(writer.kind, ())
    return False


def _leaf(writer: Scalar | Fixed, reader: Scalar | Fixed) -> Resolver:
    if writer.arrow == reader.arrow and writer.plain == reader.plain:
        return lambda array, hidden: with_logical(array, reader)
    if pa.types.is_timestamp(writer.arrow) and pa.types.is_time(reader.arrow):
        raise Undecodable(f"the writer's {writer.arrow} does not fit the reader's {reader.arrow}, which has no date")
    numeric = pa.types.is_floating(reader.plain)

    def resolve(array: Column, hidden: Column | None) -> Column:
        try:
            if numeric:
                return pc.cast(array, reader.arrow, safe=False)
            if writer.arrow == writer.plain:  # the reader alone has a logical type
                return with_logical(pc.cast(array, reader.plain), reader)
            if reader.arrow == reader.plain:
                return pc.cast(array, reader.plain)
            return pc.cast(with_logical(array, writer), reader.arrow)
        except pa.ArrowException as error:
            raise Undecodable(f"a {_called(writer)} does not fit the reader's {_called(reader)}: {error}") from error

    return resolve


def _enum(writer: Enum, reader: Enum) -> Resolver:
    unknown = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not unknown:
        return lambda array, hidden: array
    symbols = pa.array(unknown, pa.string())

    def resolve(array: Column, hidden: Column | None) -> Column:
        strange = pc.is_in(array, symbols)
        if reader.default is not None:
            return pc.if_else(strange, reader.default, array)
        if _visible(strange, hidden):
            raise Undecodable(f"a symbol of {writer.name} that the reader's schema does not have")
        return array

    return resolve


def _items(writer: Node, reader: Node, recode: Recoder) -> Resolver:
    """As `resolver`. Items that do not fit are the fault of the values that have some: an empty array has none."""
    try:
        return resolver(writer, reader, recode)
    except Undecodable as error:
        reason = str(error)

    def resolve(array: Column, hidden: Column | None) -> Column:
        if len(array):
            raise Undecodable(reason)
        return pa.nulls(0, reader.arrow)

    return resolve


def _array(reader: Array, items: Resolver) -> Resolver:
    def resolve(array: Column, hidden: Column | None) -> Column:
        whole = _whole(array)
        return pa.ListArray.from_arrays(
            whole.offsets, items(whole.values, None), type=reader.arrow, mask=_nulls_of(whole)
        )

    return resolve


def _map(reader: Map, values: Resolver) -> Resolver:
    def resolve(array: Column, hidden: Column | None) -> Column:
        whole = _whole(array)
        return pa.MapArray.from_arrays(
            whole.offsets, whole.keys, values(whole.items, None), type=reader.arrow, mask=_nulls_of(whole)
        )

    return resolve


def _record(writer: Record, reader: Record, recode: Recoder) -> Resolver:
    places = {field.name: number for number, field in enumerate(writer.fields)}
    steps: list[tuple[int, Resolver] | Field] = []
    for field in reader.fields:
        place = next((places[name] for name in (field.name, *field.aliases) if name in places), None)
        if place is not None:
            steps.append((place, resolver(writer.fields[place].node, field.node, recode)))
        elif field.has_default:
            default_array(field.node, field.default, 1)
            steps.append(field)
        else:
            raise Undecodable(f"the reader's field {field.name} has no default, and the writer has no such field")

    def resolve(array: Column, hidden: Column | None) -> Column:
        nulls = _nulls_of(array)
        below = hidden if nulls is None else nulls if hidden is None else pc.or_(nulls, hidden)
        fields = array.flatten()  # they are null if the record is, and not empty bytes
        columns = [
            default_array(step.node, step.default, len(array))
            if isinstance(step, Field)
            else step[1](fields[step[0]], below)
            for step in steps
        ]
        return _struct(columns, reader.arrow, nulls, len(array))

    return resolve


def _union(writer: Node, reader: Node, recode: Recoder) -> Resolver:
    branches = branches_of(writer)
    targets = [_target(branch, reader, recode) for branch in branches]
    takes_null = (isinstance(reader, Union) and reader.has_null) or reader.arrow == pa.null()
    null_fits = takes_null and isinstance(writer, Union) and writer.has_null
    if branches and all(target is None for target in targets) and not null_fits:
        raise _misfit(writer, reader)
    members = max(len(branches_of(reader)), 1)

    def resolve(array: Column, hidden: Column | None) -> Column:
        nulls = array.is_null()
        if not takes_null and _visible(nulls, hidden):
            raise Undecodable("a null, which the reader's schema does not have there")
        found: list[list[Column]] = [[] for _ in range(members)]
        single = len(branches) == 1
        for number, target in enumerate(targets):
            column = array if single else array.flatten()[number]  # null if the union is null
            absent = column.is_null() if hidden is None else pc.or_(column.is_null(), hidden)
            if target is not None:
                found[target[0]].append(target[1](column, absent))
            elif _visible(pc.invert(column.is_null()), hidden):
                raise Undecodable(f"a {_called(branches[number])}, which does not fit the reader's {_called(reader)}")
        return _members(found, reader, nulls, len(array))

    return resolve


def _members(found: list[list[Column]], reader: Node, nulls: Column, rows: int) -> Column:
    kinds = [branch.arrow for branch in branches_of(reader)] or [pa.null()]
    columns = [
        pa.nulls(rows, kind) if not parts else parts[0] if len(parts) == 1 else _first_of(parts)
        for parts, kind in zip(found, kinds, strict=True)
    ]
    return columns[0] if len(columns) == 1 else _struct(columns, reader.arrow, nulls, rows)


def _first_of(parts: list[Column]) -> Column:
    """In each row the part that is not null."""
    rows = len(parts[0])
    picks = pa.nulls(rows, pa.int64())
    for number, part in enumerate(parts):
        picks = pc.if_else(part.is_valid(), pa.scalar(number * rows, pa.int64()), picks)
    places = pc.add(picks, numbered(rows))
    return pa.concat_arrays(parts).take(places)


def _target(branch: Node, reader: Node, recode: Recoder) -> tuple[int, Resolver] | None:
    """Which branch of the reader takes values of a writer's branch: one of the same type, else the first that can."""
    candidates = list(enumerate(branches_of(reader)))
    candidates.sort(key=lambda pair: not _same_type(branch, pair[1]))
    for number, candidate in candidates:
        try:
            return number, resolver(branch, candidate, recode)
        except Undecodable:
            continue
    return None


def _same_type(writer: Node, reader: Node) -> bool:
    if isinstance(writer, Scalar) and isinstance(reader, Scalar):
        return writer.kind == reader.kind
    if isinstance(writer, (Record, Enum, Fixed, Back)):
        return isinstance(reader, (Record, Enum, Fixed, Back)) and writer.name == reader.name
    return type(writer) is type(reader)


def _back(writer: Node, reader: Node, recode: Recoder) -> Resolver:
    if not isinstance(writer, (Back, Record)) or not isinstance(reader, (Back, Record)):
        raise _misfit(writer, reader)
    return recode(writer, reader)


def _struct(columns: list[Column], kind: DataType, nulls: Column | None, rows: int) -> Column:
    if not columns:
        empty = pa.array([{}] * rows, kind)
        return empty if nulls is None else pc.if_else(nulls, pa.scalar(None, kind), empty)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)


def _visible(rows: Column, hidden: Column | None) -> bool:
    """Whether one of `rows` is true where nothing is hidden."""
    return bool(pc.any(rows if hidden is None else pc.and_not(rows, hidden)).as_py())


def _nulls_of(array: Column) -> Column | None:
    return array.is_null() if array.null_count else None


def _whole(array: Column) -> Column:
    """The array without an offset, as the children of nested arrays need it."""
    return array if not array.offset else array.take(numbered(len(array)))


def _same_name(writer: Record | Enum | Fixed, reader: Record | Enum | Fixed) -> bool:
    if writer.name in reader.aliases:
        return True
    return writer.name.rpartition(".")[2] == reader.name.rpartition(".")[2]


def _called(node: Node) -> str:
    if isinstance(node, Scalar):
        return node.kind
    if isinstance(node, (Record, Enum, Fixed, Back)):
        return f"{type(node).__name__.lower().replace('back', 'record')} {node.name}"
    return type(node).__name__.lower()
