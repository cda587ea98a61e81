"""Avro schemas as trees of nodes, each with the Arrow type of its values.

    Avro                                          Arrow
    null, boolean, int, long, float, double       null, bool, int32, int64, float32, float64
    string, enum                                  string
    bytes, fixed                                  binary
    record                                        struct
    array, map                                    list, map<string, ...>
    [null, T], [T]                                T
    [null]                                        null
    another union                                 struct<member0, member1, ...>, one member for each branch but null
    date, time-*, timestamp-*, local-timestamp-*  date32, time32/64, timestamp with UTC, timestamp
    decimal (precision up to 38, up to 76)        decimal128, decimal256
    uuid of a string, uuid of a fixed             string
    duration and other logical types              as without the logical type
    a record inside itself                        binary: the inner record, encoded by this schema

Rules of the file: pure. fastavro has checked the schema before, and has written every name in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from remote_fetch.errors import ConfigError
from remote_fetch.typed.arrays import DataType, pa

__all__ = [
    "Array", "Back", "Enum", "Field", "Fixed", "Map", "Node", "Record", "Scalar", "Union", "branches_of", "decimal_of",
    "node_of", "walk",
]  # fmt: skip

_PLAIN: Mapping[str, DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str], DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_MOST_NODES = 50_000


class Node:
    """A type of a schema. `arrow` is the type of its columns, `plain` the type before the logical type is applied."""

    arrow: DataType

    @property
    def plain(self) -> DataType:
        """The type that a decoder gives, which knows no logical types."""
        return self.arrow


class _Nested(Node):
    """A type that is made of others."""

    @cached_property
    def arrow(self) -> DataType:
        """As `Node.arrow`."""
        return self._made(attrgetter("arrow"))

    @cached_property
    def plain(self) -> DataType:
        """As `Node.plain`."""
        return self._made(attrgetter("plain"))

    def _made(self, type_of: Callable[[Node], DataType]) -> DataType:
        """The type. `type_of` gives those that it is made of."""
        raise NotImplementedError


@dataclass(frozen=True)
class Scalar(Node):
    """A primitive type of Avro, `kind`, with the Arrow type that its logical type asks for."""

    kind: str
    arrow: DataType

    @property
    def plain(self) -> DataType:
        """The Arrow type of the primitive."""
        return _PLAIN[self.kind]


@dataclass(frozen=True)
class Fixed(Node):
    """A fixed of `size_bytes`."""

    name: str
    aliases: frozenset[str]
    size_bytes: int
    arrow: DataType

    @property
    def plain(self) -> DataType:
        """The bytes."""
        return pa.binary()


@dataclass(frozen=True)
class Enum(Node):
    """An enum. `default` stands for symbols that a reader does not know."""

    name: str
    aliases: frozenset[str]
    symbols: tuple[str, ...]
    default: str | None
    arrow: DataType = _PLAIN["string"]


@dataclass(frozen=True)
class Field:
    """A field of a record. `default` is the schema's JSON, and means nothing unless `has_default`."""

    name: str
    aliases: tuple[str, ...]
    node: Node
    has_default: bool
    default: Any


@dataclass(frozen=True)
class Record(_Nested):
    """A record."""

    name: str
    aliases: frozenset[str]
    fields: tuple[Field, ...]

    def _made(self, type_of: Callable[[Node], DataType]) -> DataType:
        return pa.struct([pa.field(field.name, type_of(field.node)) for field in self.fields])


@dataclass(frozen=True)
class Array(_Nested):
    """An array."""

    items: Node

    def _made(self, type_of: Callable[[Node], DataType]) -> DataType:
        return pa.list_(type_of(self.items))


@dataclass(frozen=True)
class Map(_Nested):
    """A map from strings."""

    values: Node

    def _made(self, type_of: Callable[[Node], DataType]) -> DataType:
        return pa.map_(pa.string(), type_of(self.values))


@dataclass(frozen=True)
class Union(_Nested):
    """A union, without its branch null. `null_at` is the place of null.

    `branches` may be one, [null, T] and [T], and none: [null], of which a value is the number of the branch.
    """

    branches: tuple[Node, ...]
    null_at: int | None

    @property
    def has_null(self) -> bool:
        """Whether null is a branch."""
        return self.null_at is not None

    def _made(self, type_of: Callable[[Node], DataType]) -> DataType:
        types = [type_of(branch) for branch in self.branches]
        if len(types) < 2:
            return types[0] if types else pa.null()
        return pa.struct([pa.field(f"member{number}", kind) for number, kind in enumerate(types)])


@dataclass(frozen=True)
class Back(Node):
    """A record inside itself, by its full name."""

    name: str
    arrow: DataType = _PLAIN["bytes"]


def node_of(schema: Any, names: Mapping[str, Any]) -> Node:
    """The tree of a schema that fastavro has parsed. `names` has its named types by their full names.

    Raises ConfigError for arrays of items that may take no byte: of those a few bytes could claim any number. And for
    more types than can be meant: a name stands for its whole type, so a short text can have any number of them.
    """
    return _node(schema, _Names(names, iter(range(_MOST_NODES))), ())


def branches_of(node: Node) -> tuple[Node, ...]:
    """The branches of a union but null, and any other type alone."""
    if isinstance(node, Union):
        return node.branches
    return () if _is_null(node) else (node,)


def walk(node: Node) -> list[Node]:
    """The node and all nodes below it."""
    below: tuple[Node, ...] = ()
    if isinstance(node, Record):
        below = tuple(field.node for field in node.fields)
    elif isinstance(node, Array):
        below = (node.items,)
    elif isinstance(node, Map):
        below = (node.values,)
    elif isinstance(node, Union):
        below = node.branches
    return [node, *(deeper for each in below for deeper in walk(each))]


@dataclass(frozen=True)
class _Names:
    """The named types, and the numbers that are left for nodes."""

    known: Mapping[str, Any]
    left: Iterator[int]


def _node(schema: Any, names: _Names, inside: tuple[str, ...]) -> Node:
    if next(names.left, None) is None:
        raise ConfigError(f"the Avro schema has more than {_MOST_NODES} types when all its names are spelt out")
    if isinstance(schema, list):
        return _union(schema, names, inside)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return Scalar(schema, _PLAIN[schema])
        return _node(names.known[schema], names, inside)
    kind = schema["type"]
    if isinstance(kind, (dict, list)) or (kind not in _NAMED_OR_NESTED and kind not in _PLAIN):
        return _node(kind, names, inside)
    if kind in _NAMED_OR_NESTED:
        return _complex(schema, names, inside)
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return Scalar(kind, _PLAIN[kind])
    return Scalar(
        kind, _LOGICAL.get((kind, logical)) or (decimal_of(schema) if kind == "bytes" else None) or _PLAIN[kind]
    )


_NAMED_OR_NESTED = ("record", "error", "array", "map", "enum", "fixed")


def _complex(schema: Mapping[str, Any], names: _Names, inside: tuple[str, ...]) -> Node:
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        return Back(name) if name in inside else _record(schema, names, (*inside, name))
    if kind == "array":
        items = _node(schema["items"], names, inside)
        if not _takes_bytes(items):
            raise ConfigError("the Avro schema has an array whose items may take no bytes; such arrays are not read")
        return Array(items)
    if kind == "map":
        return Map(_node(schema["values"], names, inside))
    aliases = frozenset(_in_full(alias, schema) for alias in _aliases(schema))
    if kind == "enum":
        return Enum(schema["name"], aliases, tuple(schema["symbols"]), schema.get("default"))
    size = schema["size"]
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise ConfigError(f"the Avro schema has a fixed of {size!r} bytes")
    is_uuid = schema.get("logicalType") == "uuid" and size == 16
    arrow = _PLAIN["string"] if is_uuid else decimal_of(schema) or _PLAIN["bytes"]
    return Fixed(schema["name"], aliases, size, arrow)


def _union(schema: list[Any], names: _Names, inside: tuple[str, ...]) -> Node:
    if any(isinstance(branch, list) for branch in schema):
        raise ConfigError("the Avro schema has a union that is a branch of a union")
    nodes = [_node(branch, names, inside) for branch in schema]
    branches = tuple(node for node in nodes if not _is_null(node))
    return Union(branches, next((number for number, node in enumerate(nodes) if _is_null(node)), None))


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.kind == "null"


def _record(schema: Mapping[str, Any], names: _Names, inside: tuple[str, ...]) -> Record:
    fields = tuple(
        Field(
            field["name"],
            _aliases(field),
            _node(field["type"], names, inside),
            "default" in field,
            field.get("default"),
        )
        for field in schema["fields"]
    )
    twice = [name for name, count in Counter(field.name for field in fields).items() if count > 1]
    if twice:
        raise ConfigError(f"the record {schema['name']} of the Avro schema has the field {twice[0]} twice")
    return Record(schema["name"], frozenset(_in_full(alias, schema) for alias in _aliases(schema)), fields)


def _aliases(schema: Mapping[str, Any]) -> tuple[str, ...]:
    aliases = schema.get("aliases", ())
    if not isinstance(aliases, (list, tuple)) or not all(isinstance(each, str) for each in aliases):
        raise ConfigError("the Avro schema has aliases that are not a list of names")
    return tuple(aliases)


def _in_full(alias: str, schema: Mapping[str, Any]) -> str:
    """An alias without a namespace lies in that of the name."""
    namespace = schema["name"].rpartition(".")[0]
    return alias if "." in alias or not namespace else f"{namespace}.{alias}"


def decimal_of(schema: Mapping[str, Any]) -> DataType | None:
    """The decimal type that a schema of bytes or a fixed asks for.

    None if it asks for none, or for one that Arrow does not have. None also for one that cannot be: Avro's
    specification says to ignore it.
    """
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if schema.get("logicalType") != "decimal" or type(precision) is not int or type(scale) is not int:
        return None
    if not 0 <= scale <= precision or not 1 <= precision <= 76:
        return None
    if schema["type"] == "fixed" and not _holds(schema["size"], precision):
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _holds(size_bytes: int, digits: int) -> bool:
    """Whether numbers of `size_bytes` have room for any number of `digits`, which are 76 at most."""
    return size_bytes >= 32 or (size_bytes > 0 and 10**digits <= 1 << (8 * size_bytes - 1))


def _takes_bytes(node: Node) -> bool:
    """Whether every value of the node is at least one byte long."""
    if isinstance(node, Record):
        return any(_takes_bytes(field.node) for field in node.fields)
    if isinstance(node, Fixed):
        return node.size_bytes > 0
    return not _is_null(node)
