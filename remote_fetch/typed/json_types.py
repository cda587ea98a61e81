"""JSON Schemas as trees of nodes, each with the Arrow type of its values.

    JSON Schema                                         Arrow
    integer, number, string, boolean                    int64, float64, string, bool
    object with properties                              struct
    object without properties, additionalProperties     map<string, ...>
    array with one schema for all items                 list
    [T, null], anyOf or oneOf of T and null             T
    all else, and a schema inside itself                string: the JSON text of the value

Rules of the file:

- Pure. A `$ref` leads into the same document, or into one that the registry gave as a reference (json_refs.py).
- Every value may be null or missing. Rules of a schema for values, such as a pattern, are not checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from remote_fetch.errors import ConfigError
from remote_fetch.typed.arrays import DataType, pa
from remote_fetch.typed.json_refs import Place, Schemas
from remote_fetch.typed.schema_text import SchemaText

__all__ = ["JsonNode", "List", "MapOf", "Plain", "Struct", "Text", "json_node"]


_TEXT = pa.string()
_MOST_NODES = 50_000
"""A column has a schema wherever a `$ref` names it, so a short text can have any number of them."""


class JsonNode:
    """A type of a schema. `arrow` is the type of its columns."""

    arrow: DataType


@dataclass(frozen=True)
class Plain(JsonNode):
    """A scalar."""

    arrow: DataType


@dataclass(frozen=True)
class Text(JsonNode):
    """Any JSON, kept as text."""

    arrow: DataType = _TEXT


@dataclass(frozen=True)
class Struct(JsonNode):
    """An object with properties."""

    fields: tuple[tuple[str, JsonNode], ...]

    @cached_property
    def arrow(self) -> DataType:
        """A struct."""
        return pa.struct([pa.field(name, node.arrow) for name, node in self.fields])


@dataclass(frozen=True)
class List(JsonNode):
    """An array."""

    items: JsonNode

    @cached_property
    def arrow(self) -> DataType:
        """A list."""
        return pa.list_(self.items.arrow)


@dataclass(frozen=True)
class MapOf(JsonNode):
    """An object whose names are not known."""

    values: JsonNode

    @cached_property
    def arrow(self) -> DataType:
        """A map."""
        return pa.map_(pa.string(), self.values.arrow)


def json_node(schema: SchemaText) -> JsonNode:
    """The tree of a JSON Schema. Raises ConfigError if the text is no such schema, or a `$ref` leads nowhere."""
    documents = {name: _loaded(each.text) for name, each in schema.named()}
    root = _loaded(schema.text)
    if isinstance(root, dict) and root.get("type") == "record":
        raise ConfigError("an Avro schema, and no JSON Schema")
    try:
        schemas = Schemas(root, documents)
        node = _Types(schemas).of(root, schemas.top, ())
        _ = node.arrow
    except RecursionError:
        raise ConfigError("the JSON Schema is nested too deeply") from None
    except UnicodeEncodeError:
        raise ConfigError("the JSON Schema has a property whose name is not in UTF-8") from None
    return node


_SCALARS: Mapping[str, DataType] = {
    "integer": pa.int64(), "number": pa.float64(), "string": pa.string(), "boolean": pa.bool_(),
}  # fmt: skip


class _Types:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._left = iter(range(_MOST_NODES))

    def of(self, schema: Any, place: Place, inside: tuple[int, ...]) -> JsonNode:
        """The node of a schema that stands at `place`, inside the schemas with these identities."""
        if not isinstance(schema, dict) or id(schema) in inside:
            return Text()
        if next(self._left, None) is None:
            raise ConfigError(f"the JSON Schema has more than {_MOST_NODES} schemas when all its $ref are followed")
        inside = (*inside, id(schema))
        place = self._schemas.at(schema, place)
        if isinstance(schema.get("$ref"), str):
            return self.of(*self._schemas.target(schema["$ref"], place), inside)
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(word), list):
                rest = [each for each in schema[word] if not (isinstance(each, dict) and each.get("type") == "null")]
                return self.of(rest[0], place, inside) if len(rest) == 1 and "properties" not in schema else Text()
        kind = _kind(schema)
        if kind is not None and kind in _SCALARS:
            return Plain(_SCALARS[kind])
        if kind == "array":
            # With `prefixItems` the first items have schemas of their own.
            items = None if "prefixItems" in schema else schema.get("items")
            return List(self.of(items, place, inside)) if isinstance(items, dict) else List(Text())
        if kind == "object":
            return self._object(schema, place, inside)
        return Text()

    def _object(self, schema: Mapping[str, Any], place: Place, inside: tuple[int, ...]) -> JsonNode:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return Struct(tuple((name, self.of(each, place, inside)) for name, each in properties.items()))
        more = schema.get("additionalProperties")
        return MapOf(self.of(more, place, inside)) if isinstance(more, dict) else MapOf(Text())


def _kind(schema: Mapping[str, Any]) -> str | None:
    """The one type of a schema's values, but null. None if there are several."""
    kind = schema.get("type")
    kinds = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind] if kind else []
    if not all(isinstance(each, str) for each in kinds):
        return None
    if not kinds and "properties" in schema:
        return "object"
    if not kinds and isinstance(schema.get("enum"), list):
        values = [each for each in schema["enum"] if each is not None]
        return "string" if values and all(isinstance(each, str) for each in values) else None
    if set(kinds) == {"integer", "number"}:
        return "number"
    return kinds[0] if len(kinds) == 1 else None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not a JSON Schema: {error}") from error
