"""Protobuf values that ptars reads otherwise than Google's library: what stands twice or not at all, and times."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from remote_fetch.typed.outcome import decode_each
from remote_fetch.typed.protobuf import ProtobufReader
from remote_fetch.typed.schema_text import SchemaText
from tests.typed.test_protobuf import message_class

ODD = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message M {
  message In { oneof how { int32 a = 1; string b = 2; } map<bool, int32> flags = 3; }
  oneof how { int32 a = 1; In in = 2; }
  In alone = 3;
  repeated In many = 4;
  map<string, In> named = 5;
  map<uint64, google.protobuf.Timestamp> times = 6;
  google.protobuf.Duration took = 7;
  google.protobuf.Timestamp at = 8;
}
"""
TWICE = b"\x08\x05\x12\x01x"  # the oneof of an In: a and then b
FIRST: dict[str, Any] = {"a": None, "b": "x", "flags": []}


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (b"\x12\x00\x08\x05", "in", None),
        (b"\x12\x00\x08\x05", "a", 5),
        (b"\x12\x02\x08\x01\x08\x05\x12\x03\x12\x01x", "in", FIRST),
        (b"\x1a\x05" + TWICE, "alone", FIRST),
        (b"\x22\x05" + TWICE + b"\x22\x00", "many", [FIRST, {"a": None, "b": None, "flags": []}]),
        (b"\x2a\x0a\x0a\x01k\x12\x05" + TWICE, "named", [("k", FIRST)]),
        (b"\x2a\x03\x0a\x01k", "named", [("k", {"a": None, "b": None, "flags": []})]),
        (b"\x2a\x05\x0a\x01k\x12\x00\x2a\x0a\x0a\x01k\x12\x05" + TWICE, "named", [("k", FIRST)]),
        (b"\x1a\x0c" + b"\x1a\x04\x08\x01\x10\x02" * 2, "alone", {"a": None, "b": None, "flags": [(True, 2)]}),
        (b"\x32\x02\x08\x07", "times", [(7, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))]),
    ],
)
def test_what_stands_twice_or_not_at_all(value: bytes, name: str, expected: Any) -> None:
    reader = ProtobufReader(SchemaText("PROTOBUF", ODD))
    rows = reader.decoder()(pa.array([b"", value, b"\x08\x01"], pa.binary())).to_pylist()
    assert rows[1][name] == expected
    assert [row["a"] for row in rows[::2]] == [None, 1]


@pytest.mark.parametrize("value", [b"\x10\5\x08\x63", b"\x08\x63\x10\5", b"\x08\1\x10\5\x08\x63"])
def test_a_number_that_an_enum_of_a_oneof_lacks_beside_another_member(value: bytes) -> None:
    """For proto2 such a number is an unknown field, which is no member."""
    text = 'syntax = "proto2"; enum E { A = 1; } message M { oneof o { E a = 1; int32 b = 2; } optional string s = 3; }'
    reader, message = ProtobufReader(SchemaText("PROTOBUF", text)), message_class(SchemaText("PROTOBUF", text), "M")
    rows = reader.decoder()(pa.array([b"\x1a\1x", value + b"\x1a\1y", b"\x08\x63"])).to_pylist()
    assert message.FromString(value).WhichOneof("o") == "b"
    assert rows == [{"a": None, "b": None, "s": "x"}, {"a": None, "b": 5, "s": "y"}, {"a": "99", "b": None, "s": None}]


def test_such_a_number_takes_the_other_unknown_ones_of_its_value_along() -> None:
    text = """syntax = "proto2"; enum E { A = 1; }
    message M { oneof o { E a = 1; int32 b = 2; } optional E e = 3; optional M m = 4; }"""
    reader = ProtobufReader(SchemaText("PROTOBUF", text))
    others = b"\x18\x63\x22\2\x28\7"  # e = 99, and an m with a field of a later schema
    rows = reader.decoder()(pa.array([others + b"\x10\5", others + b"\x08\x63\x10\5"])).to_pylist()
    assert [(row["b"], row["e"], row["m"]) for row in rows] == [(5, "99", b"\x28\7"), (5, None, b"")]


def test_keys_of_different_maps_are_not_the_same_key() -> None:
    text = 'syntax = "proto3"; message M { map<string, int32> m = 1; }'
    reader, message = ProtobufReader(SchemaText("PROTOBUF", text)), message_class(SchemaText("PROTOBUF", text), "M")
    values = [message(m=m).SerializeToString() for m in ({"a": 1}, {"b": 2}, {"a": 3, "b": 4}, {})]
    assert [sorted(row["m"]) for row in reader.decoder()(pa.array(values)).to_pylist()] == [
        [("a", 1)], [("b", 2)], [("a", 3), ("b", 4)], [],
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["took", "at"])
@pytest.mark.parametrize("seconds", [9_223_372_036_855, -9_223_372_036_856, 2**63 - 1, -(2**63)])
def test_a_time_beyond_64_bits_of_microseconds_does_not_decode(field: str, seconds: int) -> None:
    schema = SchemaText("PROTOBUF", ODD)
    reader, message = ProtobufReader(schema), message_class(schema, "M")
    values = [message(**{field: {"seconds": each, "nanos": 5000}}).SerializeToString() for each in (1, seconds)]
    decoded = decode_each(reader.decoder(), pa.array(values), reader.arrow_type)
    assert decoded.reasons == {1: "a time beyond those of microseconds"}
    assert decoded.values.field(field).view(pa.int64()).to_pylist() == [1_000_005, None]


ENTRIES = b"\x2a\x05\x0a\x01k\x12\x00\x2a\x05\x0a\x01a\x12\x00"  # of the map named, not in their order


@pytest.mark.parametrize(
    "odd",
    [
        b"\x12\x00\x08\x05",
        b"\x22\x00\x22\x05" + TWICE,
        b"\x2a\x05\x0a\x01a\x12\x00\x2a\x0a\x0a\x01k\x12\x05" + TWICE,
        b"\x2a\x03\x0a\x01k",
        ENTRIES + ENTRIES,
    ],
)
def test_a_value_is_read_alike_beside_an_odd_one(odd: bytes) -> None:
    """Google's library sorts maps, and joins two times that stand in one value."""
    reader = ProtobufReader(SchemaText("PROTOBUF", ODD))
    plain = ENTRIES + b"\x42\x02\x08\x01\x42\x02\x10\x00"
    values = [plain, odd, plain, b"", odd, plain]
    alone = [reader.decoder()(pa.array([value], pa.binary()))[0].as_py() for value in values]
    assert [key for key, _ in alone[0]["named"]] == ["k", "a"]
    assert reader.decoder()(pa.array(values, pa.binary())).to_pylist() == alone


def test_differences_that_the_documentation_names() -> None:
    """docs/howto/typed-values.md has a line for each."""
    fields = "optional E e = 1; optional string s = 2; repeated fixed32 f = 3; optional int32 d = 4 [default = 9];"
    schema = SchemaText("PROTOBUF", f'syntax = "proto2"; enum E {{ A = 1; }} message M {{ {fields} }}')
    reader, message = ProtobufReader(schema), message_class(schema, "M")
    number, text, packed = b"\x08\x63", b"\x12\1\xff", b"\x1a\5\1\0\0\0\2"
    decoded = decode_each(reader.decoder(), pa.array([number, text, packed, b""]), reader.arrow_type)
    rows: list[Any] = decoded.values.to_pylist()
    assert decoded.reasons == {1: "invalid UTF-8"}
    assert [rows[0]["e"], rows[2]["f"], rows[3]["d"]] == ["99", [1], None]
    assert not message.FromString(number).HasField("e")
    assert message.FromString(text).s == b"\xff"
    with pytest.raises(DecodeError):
        message.FromString(packed)
    assert message.FromString(b"").d == 9
