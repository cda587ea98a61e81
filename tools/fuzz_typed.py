"""Typed values for the fuzzers: schemas of every kind of type, values of them, and what is read of damaged ones.

Rules of the file:

- An input is one value. It is read between two sound ones, which have to come out as they are alone.
- A value that does not decode is an error with a reason: `Undecodable` comes out as UndecodableValue.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from remote_fetch.errors import UndecodableValue
from remote_fetch.typed.avro import AvroReader
from remote_fetch.typed.framing import groups_of
from remote_fetch.typed.json_values import JsonReader
from remote_fetch.typed.outcome import Decoder, decode_each
from remote_fetch.typed.protobuf import ProtobufReader
from remote_fetch.typed.schema_text import SchemaText
from tools.fuzz_damage import damage_json, damage_varints

__all__ = ["TypedKind", "read_framings", "typed_kinds"]

_ITEM: dict[str, Any] = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": ["null", "long"], "default": None}],
}
_PLAIN: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "int"},
        {"name": "ratio", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "items", "type": {"type": "array", "items": _ITEM}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
_SLOW_FIELDS: list[dict[str, Any]] = [
    {"name": "raw", "type": "bytes"},
    {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "either", "type": ["null", "string", "long", "Item"], "default": None},
]
_WITH_BYTES = {**_PLAIN, "fields": [*_PLAIN["fields"], *_SLOW_FIELDS]}
_WIDER = [{**each, "type": "double"} if each["name"] == "amount" else each for each in reversed(_PLAIN["fields"])]
_LATER = {**_PLAIN, "fields": [*_WIDER, {"name": "new", "type": ["null", "int"], "default": None}]}
_INNER = {"type": ["null", "Node"], "default": None}
_NODE = {"type": "record", "name": "Node", "fields": [{"name": "v", "type": "long"}, {"name": "next", **_INNER}]}
_ROW: dict[str, Any] = {
    "id": 7, "amount": 3, "ratio": 0.5, "paid": True, "state": "PAID", "note": "a note", "tags": {"a": 1, "b": -2},
    "items": [{"sku": "s1", "count": 4}, {"sku": "s2", "count": None}], "at": 1_700_000_000_000_000,
}  # fmt: skip
_SLOW_ROW = {**_ROW, "raw": b"\0\1", "digest": b"abcd", "price": b"\x01\x02", "either": 9}
_PROTOBUF = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  message Item { string name = 1; optional uint64 count = 2; }
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  State state = 2;
  repeated Item items = 3;
  map<string, int32> tags = 4;
  oneof how { string card = 6; bool cash = 7; }
  google.protobuf.Timestamp at = 8;
  bytes raw = 10;
  repeated sint32 diffs = 12;
  Order parent = 13;
}
"""
_PROTOBUF_VALUE = bytes.fromhex(
    "0807" "1001" "1a060a0273311004" "1a040a027332" "22050a01611001" "320463617264" "42060880e2cfaa06" "52020001"
    "6203020406" "6a020801"
)  # fmt: skip
_JSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "ratio": {"type": "number"},
        "name": {"type": "string"},
        "is": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}
_JSON_VALUE = {"id": 1, "ratio": 0.5, "name": "\u00e9\\", "is": True, "items": [{"sku": "a"}, {}], "tags": {"k": 2}}


@dataclass(frozen=True, slots=True)
class TypedKind:
    """One kind of value: its name, values that decode, what reads an input, and what damages one inside."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]
    damage: Callable[[bytes, random.Random], bytes]


def typed_kinds() -> Iterator[TypedKind]:
    """Avro in columns, value by value, of an older schema and inside itself; Protobuf; JSON in columns and without."""
    plain, slow = _avro(_PLAIN, _ROW), _avro(_WITH_BYTES, _SLOW_ROW)
    yield _kind("avro values", plain, AvroReader(_text(_PLAIN)).decoder())
    yield _kind("avro values with bytes", slow, AvroReader(_text(_WITH_BYTES)).decoder())
    yield _kind("avro values of an older schema", plain, AvroReader(_text(_LATER)).decoder(_text(_PLAIN)))
    node = _avro(_NODE, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}})
    yield _kind("avro values in themselves", node, AvroReader(_text(_NODE)).decoder())
    yield _kind("protobuf values", _PROTOBUF_VALUE, ProtobufReader(SchemaText("PROTOBUF", _PROTOBUF)).decoder())
    data = json.dumps(_JSON_VALUE).encode()
    yield _kind("json values", data, JsonReader(SchemaText("JSON", json.dumps(_JSON))).decoder())
    quick = {**_JSON, "properties": {name: _JSON["properties"][name] for name in ("id", "ratio", "name", "items")}}
    yield _kind("json values in columns", data, JsonReader(SchemaText("JSON", json.dumps(quick))).decoder())


def read_framings(data: bytes) -> object:
    """The framing of a value, in front of it and in a header, of both kinds."""
    values = pa.array([b"\0\0\0\0\1x", data, None], pa.binary())
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    headers = pa.array([None, [{"key": "__value_schema_id", "value": data}], None], kind)
    found = []
    for has_path in (False, True):
        for given in (None, headers):
            groups = list(groups_of(values, given, "__value_schema_id", has_path))
            rows = sorted(row for group in groups for row in group.rows.to_pylist())
            if rows != [0, 1]:
                raise AssertionError(f"rows {rows} have a framing, and [0, 1] have a value")
            found.append([str(group.ref) for group in groups])
    return found


def _kind(name: str, seed: bytes, decode: Decoder) -> TypedKind:
    alone = decode(pa.array([seed], pa.binary()))

    def read(data: bytes) -> object:
        decoded = decode_each(decode, pa.array([seed, data, seed], pa.binary()), alone.type)
        values = decoded.values
        if len(values) != 3 or not values.slice(0, 1).equals(alone) or not values.slice(2, 1).equals(alone):
            raise AssertionError("the values beside it changed")
        if not set(decoded.reasons) <= {1}:
            raise AssertionError(f"values {sorted(decoded.reasons)} do not decode, and only 1 is damaged")
        values.validate(full=True)
        if decoded.reasons:
            reason = decoded.reasons[1]
            raise UndecodableValue(
                reason, column="value", schema=None, reason=reason, topic="topic", partition=0, offset=1
            )
        return values

    return TypedKind(name, (seed,), read, damage_json if seed.startswith(b"{") else damage_varints)


def _text(schema: dict[str, Any]) -> SchemaText:
    return SchemaText("AVRO", json.dumps(schema))


def _avro(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    import fastavro

    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(_without_logical(schema)), row)
    return data.getvalue()


def _without_logical(schema: Any) -> Any:
    """A schema whose values are given as they are encoded."""
    if isinstance(schema, dict):
        return {name: _without_logical(value) for name, value in schema.items() if name != "logicalType"}
    return [_without_logical(each) for each in schema] if isinstance(schema, list) else schema
