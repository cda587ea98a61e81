"""An Avro schema from its JSON and that of the schemas it refers to, and the forms in which the decoders take it.

Rules of the file:

- fastavro checks schemas and completes their names. A refusal becomes a ConfigError with its reason. A default of
  another type is no reason: it harms only the values that need it, and registries have such schemas.
- A decoder is given a schema without logical types, for Arrow has its own way from a number to a time.
- A branch of a union with several branches is wrapped into a record of one field. The bytes of both are the same, and
  the name of the field tells which branch was decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from remote_fetch.errors import ConfigError, MissingExtra
from remote_fetch.typed.avro_nodes import Back, Node, decimal_of, node_of, walk
from remote_fetch.typed.schema_text import SchemaText

__all__ = ["AvroSchema"]


@dataclass(frozen=True)
class AvroSchema:
    """A parsed schema: `root` as fastavro gives it, and all `names` that it uses."""

    root: Any
    names: Mapping[str, Any]

    @classmethod
    def parse(cls, schema: SchemaText) -> AvroSchema:
        """Raises ConfigError for a schema that is none of Avro's, and MissingExtra."""
        try:
            from fastavro.schema import SchemaParseException, parse_schema  # noqa: PLC0415 - an extra
            from fastavro.schema import UnknownType as Unknown  # noqa: PLC0415
        except ImportError:
            raise MissingExtra("Avro needs fastavro", extra="avro") from None
        names: dict[str, Any] = {}
        try:
            for text in schema.in_order():
                known = set(names)
                possible = _possible(_json(text), known, "")
                names |= {f".{name}": {} for name in known if "." not in name}
                root = parse_schema(possible, names, _ignore_default_error=True)
                names |= {f".{name}": names[name] for name in known if "." not in name}
            parsed = cls(_bare(root), {name: _bare(each) for name, each in names.items()})
            _ = parsed.node.arrow  # fastavro checks not all words
        except ConfigError:
            raise
        except (
            SchemaParseException, Unknown, KeyError, TypeError, ValueError, OverflowError, RecursionError,
        ) as error:  # fmt: skip
            raise ConfigError(f"not an Avro schema: {_reason(error)}") from error
        return parsed

    @cached_property
    def node(self) -> Node:
        """The tree of types."""
        return node_of(self.root, self.names)

    @cached_property
    def is_recursive(self) -> bool:
        """Whether a record of the schema contains itself."""
        return any(isinstance(node, Back) for node in walk(self.node))

    @cached_property
    def physical(self) -> Any:
        """The schema in one piece, without logical types, and with wrapped unions."""
        return _Physical(self.names).of(self.root)

    def below(self, name: str) -> AvroSchema:
        """The schema of one of the named types."""
        return AvroSchema(name, self.names)


class _Physical:
    """Rewrites a schema. Each named type is spelt out where it is met first, under a name without a namespace.

    So a name means the same type wherever it stands, also inside the record that wraps a branch.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._met: dict[str, str] = {}
        self._wraps: Iterator[int] = iter(range(1 << 30))

    def of(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self.of(self._names[schema]) if schema in self._names else schema
        kind = schema["type"]
        if kind == "array":
            return {"type": "array", "items": self.of(schema["items"])}
        if kind == "map":
            return {"type": "map", "values": self.of(schema["values"])}
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(schema)
        return self.of(kind)

    def _union(self, branches: list[Any]) -> Any:
        if sum(branch != "null" for branch in branches) < 2:
            return [self.of(branch) for branch in branches]
        done, number = [], 0
        for branch in branches:
            if branch == "null":
                done.append(branch)
                continue
            field = {"name": f"member{number}", "type": self.of(branch)}
            done.append({"type": "record", "name": f"remote_fetch_branch{next(self._wraps)}", "fields": [field]})
            number += 1
        return done

    def _named(self, schema: Mapping[str, Any]) -> Any:
        name, kind = schema["name"], schema["type"]
        if name in self._met:
            return self._met[name]
        self._met[name] = f"remote_fetch_type{len(self._met)}"
        done: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": self._met[name]}
        if kind == "enum":
            done["symbols"] = list(schema["symbols"])
        elif kind == "fixed":
            done["size"] = schema["size"]
        else:
            done["fields"] = [{"name": field["name"], "type": self.of(field["type"])} for field in schema["fields"]]
        return done


def _json(text: str) -> Any:
    """A schema's JSON. The name of a primitive type may stand without quotation marks."""
    try:
        return json.loads(text)
    except ValueError:
        if text.strip().isidentifier():
            return text.strip()
        raise


def _possible(schema: Any, known: set[str], namespace: str) -> Any:
    """A schema without five forms that Java's parser reads. fastavro refuses the first four.

    - A decimal that cannot be, which the specification says to ignore.
    - The name of a type in an object of its own: {"type": "Name"}.
    - A null for the default of an enum, which has none then.
    - The bare name of a type without a namespace inside a record with one, as Java's library writes it. Such a type is
      meant if the record's namespace has none of the name. Then the name gets a dot in front.
    - The word null in an object of its own: {"type": "null"}. It is the null of its union.

    `known` are the full names of the types before this one. Those of the schema are added.
    """
    if isinstance(schema, list):
        return [_possible(each, known, namespace) for each in schema]
    if isinstance(schema, str):
        is_other = namespace and f"{namespace}.{schema}" not in known and "." not in schema and schema in known
        return f".{schema}" if is_other else schema
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED and isinstance(schema.get("name"), str):
        space, name = schema.get("namespace", namespace), schema["name"]
        full_name = f"{space}.{name}" if space and "." not in name else name
        known.add(full_name)
        namespace = full_name.rpartition(".")[0]
    made = {key: _possible(value, known, namespace) if key in _INNER else value for key, value in schema.items()}
    kind = made.get("type")
    if isinstance(kind, str) and kind not in _KINDS and "name" not in made:  # a field has a name
        return kind
    if made.get("logicalType") == "decimal" and decimal_of(made) is None:
        del made["logicalType"]
    if kind == "enum" and made.get("default", "") is None:
        del made["default"]
    return made


_INNER = ("type", "items", "values", "fields")
"""The words of a schema under which other schemas stand."""
_NAMED = ("record", "error", "enum", "fixed")
_KINDS = ("boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", *_NAMED)
"""The words after which an object has more to say."""


def _bare(schema: Any) -> Any:
    """Without what fastavro notes on a parsed schema."""
    if not isinstance(schema, dict):
        return schema
    return {name: value for name, value in schema.items() if not name.startswith("__")}


def _reason(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__} {text}" if isinstance(error, (KeyError, TypeError)) else text
