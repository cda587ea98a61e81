"""Random Avro schemas, later versions of them, and values; and typed rows in the form in which fastavro gives them."""

from __future__ import annotations

import io
from typing import Any

import fastavro
from hypothesis import strategies as st

from remote_fetch.typed.avro_nodes import Array, Back, Enum, Field, Fixed, Map, Node, Record, Scalar, Union
from remote_fetch.typed.avro_schema import AvroSchema

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(width=32, allow_nan=False)
DOUBLE = st.floats(allow_nan=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(), "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE, "string": TEXT,
    "bytes": st.binary(max_size=8), "null": st.none(),
}  # fmt: skip
QUICK = ("boolean", "int", "long", "float", "double", "string")
LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 3},
    {"type": "string", "logicalType": "uuid"},
)


class Names:
    """Names that were not given yet."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, what: str) -> str:
        self._last += 1
        return f"{what}{self._last}"


@st.composite
def schemas(draw: st.DrawFn, quick: bool = False) -> Any:
    """A record with up to four fields, three levels deep. `quick`: of what the quick decoder takes."""
    return draw(_record(Names(), quick, 2))


@st.composite
def _record(draw: st.DrawFn, names: Names, quick: bool, depth: int) -> Any:
    count = draw(st.integers(1 if quick else 0, 4))
    fields = [{"name": names.next("f"), "type": draw(_type(names, quick, depth))} for _ in range(count)]
    return {"type": "record", "name": names.next("R"), "fields": fields}


@st.composite
def _type(draw: st.DrawFn, names: Names, quick: bool, depth: int) -> Any:  # noqa: PLR0911 - one for each kind
    kinds = ["plain", "plain", "logical", "enum"] + ([] if quick else ["fixed"])
    if depth:
        kinds += ["record", "array", "map", "optional"] + ([] if quick else ["union"])
    kind = draw(st.sampled_from(kinds))
    if kind == "plain":
        return draw(st.sampled_from(QUICK if quick else tuple(KINDS)))
    if kind == "logical":
        return draw(st.sampled_from([one for one in LOGICAL if one["type"] != "bytes" or not quick]))
    if kind == "enum":
        return {"type": "enum", "name": names.next("E"), "symbols": ["A", "B", "C"]}
    if kind == "fixed":
        return {"type": "fixed", "name": names.next("F"), "size": draw(st.integers(1, 5))}
    if kind == "record":
        return draw(_record(names, quick, depth - 1))
    inner = draw(_type(names, quick, depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner if takes_bytes(inner) else "int"}
    if kind == "map":
        return {"type": "map", "values": inner}
    if kind == "optional":
        plain = inner if inner != "null" and not isinstance(inner, list) else "string"
        return draw(st.sampled_from([["null", plain], [plain, "null"]]))
    branches = ["boolean", "long", "string", {"type": "array", "items": "int"}, draw(_record(names, quick, 0))]
    chosen = draw(st.lists(st.sampled_from(branches), min_size=2, max_size=4, unique_by=str))
    return draw(st.sampled_from([chosen, ["null", *chosen]]))


def takes_bytes(schema: Any) -> bool:
    if isinstance(schema, dict) and schema["type"] == "record":
        return any(takes_bytes(field["type"]) for field in schema["fields"])
    return bool(schema != "null")


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Values that fastavro writes by a schema, before logical types: numbers for times, bytes for decimals."""
    if isinstance(schema, list):
        return st.one_of([_branch(each) for each in schema])
    if isinstance(schema, str):
        return KINDS[schema]
    kind = schema["type"]
    if kind == "record":
        return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=3)
    if kind == "map":
        return st.dictionaries(TEXT, values(schema["values"]), max_size=3)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    return _logical(schema)


def _branch(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, dict) and schema["type"] in ("record", "enum", "fixed"):
        return values(schema).map(lambda value: (schema["name"], value))
    return values(schema)


def _logical(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    logical = schema["logicalType"]
    if logical == "uuid":
        return st.uuids().map(str)
    if logical == "decimal":
        limit = 10 ** schema["precision"] - 1
        return st.integers(-limit, limit).map(lambda number: number.to_bytes(32, "big", signed=True))
    if logical.startswith("time-"):
        return st.integers(0, 86_399_999)
    if logical == "date":
        return st.integers(-100_000, 100_000)
    return st.integers(-(10**12), 10**12)


@st.composite
def evolved(draw: st.DrawFn, schema: Any) -> Any:
    """A later version of a schema that reads what `schema` wrote."""
    if isinstance(schema, list) or schema in ("boolean", "double", "null"):
        return schema
    if isinstance(schema, str):
        wider = {
            "int": ["long", "float", "double"],
            "long": ["float", "double"],
            "float": ["double"],
            "string": ["bytes"],
        }
        options = [schema, *wider.get(schema, []), ["null", schema]]
        return draw(st.sampled_from(options))
    if schema["type"] == "array":
        return {"type": "array", "items": draw(evolved(schema["items"]))}
    if schema["type"] == "map":
        return {"type": "map", "values": draw(evolved(schema["values"]))}
    if schema["type"] == "enum":
        return {**schema, "symbols": draw(st.permutations([*schema["symbols"], "D"]))}
    return draw(_later(schema)) if schema["type"] == "record" else schema


@st.composite
def _later(draw: st.DrawFn, schema: Any) -> Any:
    fields = []
    for field in schema["fields"]:
        change = draw(st.sampled_from(["keep", "keep", "drop", "rename", "evolve"]))
        if change == "drop":
            continue
        new = {**field, "type": draw(evolved(field["type"])) if change == "evolve" else field["type"]}
        if change == "rename":
            new = {**new, "name": f"{field['name']}_new", "aliases": [field["name"]]}
        fields.append(new)
    for number in range(draw(st.integers(0, 2))):
        kind, default = draw(st.sampled_from(DEFAULTS))
        fields.append({"name": f"added{number}", "type": kind, "default": default})
    return {**schema, "fields": draw(st.permutations(fields))}


DEFAULTS: tuple[tuple[Any, Any], ...] = (
    ("int", 7),
    ("string", "x"),
    ("bytes", "\u00ff\u0001"),
    (["null", "long"], None),
    (["long", "null"], 5),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "string"}, {"a": "b"}),
    ("double", 1.5),
)


def encode(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary encoding, as written by the schema without its logical types."""
    parsed = AvroSchema(fastavro.parse_schema(schema), {})
    plain = fastavro.parse_schema(without_logical(parsed.root))
    data = io.BytesIO()
    fastavro.schemaless_writer(data, plain, value)
    return data.getvalue()


def without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_logical(each) for each in schema]
    if isinstance(schema, dict):
        return {
            name: without_logical(value)
            for name, value in schema.items()
            if name not in ("logicalType", "precision", "scale") and not name.startswith("__")
        }
    return schema


def as_fastavro(schema: AvroSchema, node: Node, value: Any) -> Any:
    """A row of a typed column, as Arrow gives it, in the form in which fastavro gives the same value."""
    if value is None:
        return None
    if isinstance(node, Record):
        return {field.name: as_fastavro(schema, field.node, value[field.name]) for field in node.fields}
    if isinstance(node, Union):
        if len(node.branches) == 1:
            return as_fastavro(schema, node.branches[0], value)
        given = [(number, each) for number, each in enumerate(value.values()) if each is not None]
        assert len(given) == 1, "one member of a union has a value"
        return as_fastavro(schema, node.branches[given[0][0]], given[0][1])
    if isinstance(node, Array):
        return [as_fastavro(schema, node.items, item) for item in value]
    if isinstance(node, Map):
        return {key: as_fastavro(schema, node.values, item) for key, item in value}
    if isinstance(node, Back):
        parsed = {**schema.names[node.name], "__fastavro_parsed": True, "__named_schemas": schema.names}
        return fastavro.schemaless_reader(io.BytesIO(value), parsed, None)
    assert isinstance(node, (Scalar, Enum, Fixed, Field))
    return value
