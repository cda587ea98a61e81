"""Typed columns of Protobuf: as google.protobuf reads the same messages; versions, paths and imports."""

from __future__ import annotations

import base64
import datetime
import io
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from remote_fetch.errors import ConfigError
from remote_fetch.typed.framing import groups_of
from remote_fetch.typed.outcome import Undecodable, decode_each
from remote_fetch.typed.protobuf import ProtobufReader, _compiled
from remote_fetch.typed.schema_text import SchemaRef, SchemaText
from tests.searches import examples

INNER = SchemaText("PROTOBUF", 'syntax = "proto3"; package in; message Point { double x = 1; double y = 2; }')
TEXT = """
syntax = "proto3";
package shop;
import "geo/point.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  message Item { string name = 1; optional uint64 count = 2; }
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  State state = 2;
  repeated Item items = 3;
  map<string, int32> tags = 4;
  in.Point place = 5;
  oneof how { string card = 6; bool cash = 7; }
  google.protobuf.Timestamp at = 8;
  google.protobuf.Int32Value maybe = 9;
  bytes raw = 10;
  float ratio = 11;
  sint32 diff = 12;
  Order parent = 13;
}
message Other { int32 v = 1; }
"""
SCHEMA = SchemaText("PROTOBUF", TEXT, (("geo/point.proto", INNER),))
INT64 = st.integers(-(2**63), 2**63 - 1)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "id": INT64,
        "state": st.sampled_from(["NEW", "PAID"]),
        "items": st.lists(
            st.fixed_dictionaries({"name": st.text(max_size=4)}, optional={"count": st.integers(0, 2**64 - 1)}),
            max_size=3,
        ),
        "tags": st.dictionaries(st.text(max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=3),
        "place": st.fixed_dictionaries({"x": st.floats(allow_nan=False)}),
        "card": st.text(max_size=3),
        "raw": st.binary(max_size=4),
        "ratio": st.floats(width=32, allow_nan=False),
        "diff": st.integers(-(2**31), 2**31 - 1),
        "maybe": st.fixed_dictionaries({"value": st.integers(0, 9)}),
        "at": st.fixed_dictionaries({"seconds": st.integers(-(10**10), 10**11)}),
    },
)


@pytest.fixture(scope="module")
def reader() -> ProtobufReader:
    return ProtobufReader(SCHEMA)


def message_class(schema: SchemaText, name: str) -> Any:
    return GetMessageClass(_compiled(schema).pool.FindMessageTypeByName(name))


@examples(60)
@given(st.lists(MESSAGES, max_size=4))
def test_random_messages_are_read_as_googles_library_reads_them(rows: list[Any]) -> None:
    of_schema, order = ProtobufReader(SCHEMA), message_class(SCHEMA, "shop.Order")
    payloads = [order(**row).SerializeToString() for row in rows]
    column = of_schema.decoder(SCHEMA, (0,))(pa.array(payloads, pa.binary()))
    assert column.type == of_schema.arrow_type
    found = [{**row, "tags": dict(row["tags"])} for row in column.to_pylist()]
    assert found == [as_row(order.FromString(payload)) for payload in payloads]


@examples(60)
@given(st.lists(st.tuples(MESSAGES, MESSAGES), max_size=4))
def test_joined_messages_are_read_as_googles_library_reads_them(pairs: list[Any]) -> None:
    """Of a oneof and of a key of a map the last one counts."""
    of_schema, order = ProtobufReader(SCHEMA), message_class(SCHEMA, "shop.Order")
    kept_whole = ("at", "maybe")  # ptars takes the last
    payloads = [
        b"".join(order(**{k: v for k, v in one.items() if k not in kept_whole}).SerializeToString() for one in pair)
        for pair in pairs
    ]
    found = of_schema.decoder()(pa.array(payloads, pa.binary())).to_pylist()
    assert [{**row, "tags": sorted(row["tags"])} for row in found] == [
        {**row, "tags": sorted(row["tags"].items())} for row in map(as_row, map(order.FromString, payloads))
    ]


def as_row(message: Any) -> dict[str, Any]:
    """A message as a row: null for what is not set and tells so."""

    def given_or_none(name: str, value: Any) -> Any:
        return value if message.HasField(name) else None

    return {
        "id": message.id,
        "state": message.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[message.state].name,
        "items": [{"name": i.name, "count": i.count if i.HasField("count") else None} for i in message.items],
        "tags": dict(message.tags),
        "place": given_or_none("place", {"x": message.place.x, "y": message.place.y}),
        "card": given_or_none("card", message.card),
        "cash": given_or_none("cash", message.cash),
        "at": given_or_none("at", message.at.ToDatetime(tzinfo=datetime.UTC)),
        "maybe": given_or_none("maybe", message.maybe.value),
        "raw": message.raw,
        "ratio": message.ratio,
        "diff": message.diff,
        "parent": None,
    }


def test_a_message_inside_itself_is_kept_as_bytes(reader: ProtobufReader) -> None:
    order = message_class(SCHEMA, "shop.Order")
    assert reader.kept_as_bytes == ("shop.Order",)
    row = reader.decoder()(pa.array([order(parent=order(id=7)).SerializeToString()])).to_pylist()[0]
    assert order.FromString(row["parent"]).id == 7


def test_an_older_writer_is_read_by_the_readers_numbers(reader: ProtobufReader) -> None:
    older = SchemaText("PROTOBUF", 'syntax = "proto3"; package shop; message Order { int64 id = 1; int32 gone = 99; }')
    value = message_class(older, "shop.Order")(id=5, gone=6).SerializeToString()
    row = reader.decoder(older, (0,))(pa.array([value])).to_pylist()[0]
    assert (row["id"], row["state"], row["items"]) == (5, "NEW", [])


def test_the_message_is_chosen_by_name_and_by_path() -> None:
    item = ProtobufReader(SCHEMA, "shop.Order.Item")
    value = message_class(SCHEMA, "shop.Order.Item")(name="a").SerializeToString()
    assert item.decoder(SCHEMA, (0, 0))(pa.array([value])).to_pylist() == [{"name": "a", "count": None}]
    for path, reason in (((1,), "message shop.Other, and the reader's is"), ((7,), r"no message at \[7\]")):
        with pytest.raises(Undecodable, match=reason):
            item.decoder(SCHEMA, path)


def test_only_the_broken_values_do_not_decode(reader: ProtobufReader) -> None:
    values = [b"\x08\x01", b"\x08", b"\x32\x01\xff", b"", b"\xff" * 12]
    decoded = decode_each(reader.decoder(), pa.array(values), reader.arrow_type)
    assert sorted(decoded.reasons) == [1, 2, 4]
    assert "UTF-8" in decoded.reasons[2]
    assert [row and row["id"] for row in decoded.values.to_pylist()] == [1, None, None, 0, None]


def test_a_length_near_two_to_the_64_is_the_fault_of_its_value(reader: ProtobufReader) -> None:
    """ptars adds it to a position and panics. The other values are read."""
    Order = message_class(SCHEMA, "shop.Order")
    good = Order(id=3).SerializeToString()
    huge = b"\x32" + b"\xff" * 9 + b"\x01"
    decoded = decode_each(reader.decoder(), pa.array([good, huge, good]), reader.arrow_type)
    assert [row and row["id"] for row in decoded.values.to_pylist()] == [3, None, 3]
    assert decoded.reasons == {1: "the decoder broke off"}


@pytest.mark.parametrize(
    "text",
    [
        "message M { optional int32 a = 1; optional group G = 2 { optional int32 g = 1; } }",
        "message M { repeated group G = 2 { optional int32 g = 1; } }",
        "message M { map<string, Inner> m = 1; } message Inner { optional M m = 1; optional group G = 2 { } }",
    ],
)
def test_a_group_is_refused_because_it_would_be_null(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the field (M|Inner)\.g is a group"):
        ProtobufReader(SchemaText("PROTOBUF", f'syntax = "proto2"; {text}'))


def test_a_number_that_the_enum_lacks_is_text(reader: ProtobufReader) -> None:
    assert reader.decoder()(pa.array([b"\x10\x07"])).field("state").to_pylist() == ["7"]


def test_a_message_without_fields() -> None:
    empty = ProtobufReader(SchemaText("PROTOBUF", 'syntax = "proto3"; message E {}'))
    assert empty.decoder()(pa.array([b"", b"\x08\x01"])).to_pylist() == [{}, {}]


@pytest.mark.parametrize(
    ("schema", "message", "reason"),
    [
        (SchemaText("PROTOBUF", "no proto"), None, "protoc refuses"),
        (SchemaText("PROTOBUF", "bm8gZGVzY3JpcHRvcg=="), None, "neither text nor a descriptor"),
        (SchemaText("PROTOBUF", 'syntax = "proto3";'), None, "has no message"),
        (SchemaText("PROTOBUF", "// \ud800"), None, "is not in UTF-8"),
        (SchemaText("PROTOBUF", "", (("\ud800.proto", INNER),)), None, "is not in UTF-8"),
        (SCHEMA, "shop.No", "no message 'shop.No'"),
        (SchemaText("PROTOBUF", "", (("../a.proto", INNER),)), None, "not the name of a file"),
        (SchemaText("PROTOBUF", "", (("/a.proto", INNER),)), None, "not the name of a file"),
        (SchemaText("PROTOBUF", "", (("a", INNER), ("a/b", INNER))), None, "names that no files can have: File exists"),
        (SchemaText("PROTOBUF", "", (("a/b", INNER), ("a", INNER))), None, "names that no files can have: Is a dir"),
        (SchemaText("PROTOBUF", "", (("a/b/c", INNER), ("a/b", INNER))), None, "names that no files can have: Is a"),
        (SchemaText("PROTOBUF", "", (("a", INNER), ("a/b/c", INNER))), None, "names that no files can have"),
        (SchemaText("PROTOBUF", "", (("a" * 300, INNER),)), None, "names that no files can have: File name too long"),
    ],
)
def test_a_schema_that_is_none(schema: SchemaText, message: str | None, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ProtobufReader(schema, message)


def test_a_writers_schema_of_another_kind(reader: ProtobufReader) -> None:
    with pytest.raises(Undecodable, match="one of AVRO"):
        reader.decoder(SchemaText("AVRO", '"int"'), (0,))
    with pytest.raises(ConfigError, match="protoc refuses"):
        reader.decoder(SchemaText("PROTOBUF", "no proto"), (0,))


def test_paths_of_framings() -> None:
    framing = b"\0\0\0\0\7"
    values = [framing + path + b"rest" for path in (b"\0", b"\2\0", b"\2\2", b"\4\2\4", b"\1", b"\xff" * 6, b"\2\1")]
    groups = list(groups_of(pa.array(values), None, "__value_schema_id", True))
    found = {row: (group.ref, value) for group in groups for row, value in zip(
        group.rows.to_pylist(), group.payloads.to_pylist(), strict=True
    )}  # fmt: skip
    assert [found[row][0] for row in range(4)] == [SchemaRef(7, None, path) for path in ((0,), (0,), (1,), (1, 2))]
    assert all(found[row][1] == b"rest" for row in range(4))
    assert all("path" in str(found[row][0]) for row in (4, 5, 6))


@pytest.mark.parametrize("which", ["both", "root", "reference"])
def test_schemas_may_be_descriptors_in_base64(which: str) -> None:
    def described(schema: SchemaText, name: str) -> str:
        return base64.b64encode(_compiled(schema).pool.FindFileByName(name).serialized_pb).decode()

    inner = described(SCHEMA, "geo/point.proto") if which != "root" else INNER.text
    outer = described(SCHEMA, "remote_fetch_schema.proto") if which != "reference" else TEXT
    schema = SchemaText("PROTOBUF", outer, (("geo/point.proto", SchemaText("PROTOBUF", inner)),))
    assert ProtobufReader(schema).arrow_type == ProtobufReader(SCHEMA).arrow_type


@pytest.mark.parametrize("own_last", [True, False])
def test_of_two_versions_of_a_reference_the_schemas_own_is_read(own_last: bool) -> None:
    def of(text: str, *references: tuple[str, SchemaText]) -> SchemaText:
        return SchemaText("PROTOBUF", f'syntax = "proto3"; {text}', references)

    old, new = of("message C { int32 x = 1; }"), of("message C { int32 x = 1; int32 y = 2; }")
    by_new = ("a.proto", of('import "c.proto"; message A { C c = 1; }', ("c.proto", new)))
    by_old = ("b.proto", of('import "c.proto"; message B { C c = 1; }', ("c.proto", old)))
    own = [by_new, by_old, ("c.proto", new)] if own_last else [("c.proto", new), by_old]
    imports = " ".join(f'import "{name}";' for name, _ in own)
    schema = of(f"{imports} message M {{ C c = 1; }}", *own)
    assert ProtobufReader(schema).decoder()(pa.array([b"\x0a\x02\x10\x05"])).to_pylist() == [{"c": {"x": 0, "y": 5}}]


def test_groups_that_nest_without_end_harm_only_their_own_value() -> None:
    """ptars follows each group that it does not know, and the process ends with its stack."""
    reader = ProtobufReader(SCHEMA)
    deep = b"\xd3\x05" * 5000 + b"\xd4\x05" * 5000  # 100,000 end the process
    long = b"\x52" + b"\x80\x80\x04" + b"x" * 65_536  # the field raw
    decoded = decode_each(reader.decoder(), pa.array([b"\x08\x01", deep, long], pa.binary()), reader.arrow_type)
    assert list(decoded.reasons) == [1]
    assert decoded.reasons[1].startswith("broken, or nested too deeply")
    assert [row and len(row["raw"]) for row in decoded.values.to_pylist()] == [0, None, 65_536]


def test_groups_that_nest_too_deeply_for_a_small_stack_do_not_reach_ptars(reader: ProtobufReader) -> None:
    """A thread of 1 MB has room for 12,000."""
    with pytest.raises(Undecodable, match="broken, or nested too deeply"):
        reader.decoder()(pa.array([b"\x7b" * 10_000], pa.binary()))


@pytest.mark.parametrize("within", [b"", b"\x1a", b"\x2a", b"\x7a"])  # a message, the items, the place
def test_groups_may_nest_in_a_message_of_the_schema(within: bytes) -> None:
    inner = b"\xd3\x05" * 9000 + b"\xd4\x05" * 9000
    text = (
        'syntax = "proto2"; message M { required In in = 3; map<int32, In> m = 5; optional In i = 15; } message In {}'
    )
    reader = ProtobufReader(SchemaText("PROTOBUF", text))
    if within == b"\x2a":
        inner = b"\x12\xa0\x99\x02" + inner
    length = b"\xa4\x99\x02" if within == b"\x2a" else b"\xa0\x99\x02"
    value = within + length + inner if within else inner
    with pytest.raises(Undecodable, match="broken, or nested too deeply"):
        reader.decoder()(pa.array([value], pa.binary()))


def test_a_schema_may_have_a_message_set() -> None:
    message_set = "message Set { option message_set_wire_format = true; extensions 4 to max; }"
    text = f'syntax = "proto2"; message M {{ optional int32 a = 1; optional Set s = 2; }} {message_set}'
    reader = ProtobufReader(SchemaText("PROTOBUF", text))
    assert reader.decoder()(pa.array([b"\x08\x07"], pa.binary())).to_pylist() == [{"a": 7, "s": None}]


def test_a_long_message_without_a_required_field_is_read() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; optional bytes b = 2; }'
    reader = ProtobufReader(SchemaText("PROTOBUF", text))
    value = b"\x12\x80\x80\x04" + b"x" * 65_536
    found = reader.decoder()(pa.array([value, value[:1] + b"\x00"], pa.binary())).to_pylist()
    assert [(row["a"], len(row["b"])) for row in found] == [(found[1]["a"], 65_536), (found[1]["a"], 0)]


def test_an_edition_is_refused_because_ptars_panics_at_it() -> None:
    edition = 'edition = "2023"; package e; message E { int32 a = 1; }'
    imports = 'syntax = "proto3"; import "e.proto"; message M { e.E e = 1; }'
    with pytest.raises(ConfigError, match="only proto2 and proto3 can be decoded"):
        ProtobufReader(SchemaText("PROTOBUF", edition))
    with pytest.raises(ConfigError, match=r"an edition in e\.proto"):
        ProtobufReader(SchemaText("PROTOBUF", imports, (("e.proto", SchemaText("PROTOBUF", edition)),)))


def test_a_writers_schema_may_have_an_edition() -> None:
    reader = ProtobufReader(SchemaText("PROTOBUF", 'syntax = "proto3"; message M { int32 a = 1; }'))
    writer = SchemaText("PROTOBUF", 'edition = "2023"; message M { int32 a = 1; int32 b = 2; }')
    decode = reader.decoder(writer, (0,))
    assert decode(pa.array([b"\x08\x07\x10\x01"], pa.binary())).to_pylist() == [{"a": 7}]


DATES = ("year: 2024 month: 2 day: 3", "", "year: 2024", "month: 2 day: 29", "year: 2024 month: 2 day: 30", "year: -5")
HOURS = ("", "hours: 24", "hours: 1 nanos: 4005", "hours: -1", "hours: 2147483647")


@pytest.mark.parametrize(("kind", "file", "texts"), [("Date", "date", DATES), ("TimeOfDay", "timeofday", HOURS)])
def test_a_date_of_google_type_is_the_message_that_it_is(kind: str, file: str, texts: Sequence[str]) -> None:
    """Its year or day may be 0, and ptars makes 1970-01-01 of each that is no date."""
    fields = "google.type.X d = 1; repeated google.type.X l = 2; map<int32, google.type.X> m = 3;".replace("X", kind)
    text = f'syntax = "proto3"; import "google/type/{file}.proto"; message M {{ message N {{ {fields} }} N n = 1; }}'
    reader = ProtobufReader(SchemaText("PROTOBUF", text))
    made = import_module(f"google.type.{file}_pb2")
    values = [text_format.Parse(each, getattr(made, kind)()) for each in texts]
    expected = [{field.name: getattr(value, field.name) for field in value.DESCRIPTOR.fields} for value in values]
    outer = GetMessageClass(reader._message)
    payloads = [
        outer.FromString(outer(n={"d": b, "l": [b], "m": {7: b}}).SerializeToString()).SerializeToString()
        for b in expected
    ]
    found = reader.decoder()(pa.array(payloads, pa.binary())).to_pylist()
    assert found == [{"n": {"d": each, "l": [each], "m": [(7, each)]}} for each in expected]
    of_itself = ProtobufReader(SchemaText("PROTOBUF", text), f"google.type.{kind}")
    raw = pa.array([value.SerializeToString() for value in values], pa.binary())
    assert of_itself.decoder()(raw).to_pylist() == expected


@pytest.mark.parametrize(
    ("imported", "field"),
    [
        ("google/type/money.proto", "google.type.Money x = 1;"),
        ("google/type/datetime.proto", "google.type.DateTime x = 1;"),
        ("confluent/meta.proto", 'int32 x = 1 [(confluent.field_meta) = { doc: "x" }];'),
        ("confluent/type/decimal.proto", "confluent.type.Decimal x = 1;"),
        ("confluent/types/decimal.proto", "confluent.type.Decimal x = 1;"),
    ],
)
def test_files_that_confluents_serializers_know_need_no_reference(imported: str, field: str) -> None:
    text = f'syntax = "proto3"; import "{imported}"; message M {{ {field} int32 y = 2; }}'
    reader = ProtobufReader(SchemaText("PROTOBUF", text))
    assert reader.decoder()(pa.array([b"\x10\x07"], pa.binary())).field("y").to_pylist() == [7]
    proto = FileDescriptorProto()
    reader._file.CopyToProto(proto)
    described = SchemaText("PROTOBUF", base64.b64encode(proto.SerializeToString()).decode())
    assert ProtobufReader(described).arrow_type == reader.arrow_type


def test_a_reference_stands_before_a_known_file_of_its_name() -> None:
    """Also as a descriptor: protoc takes the first of two."""
    proto = FileDescriptorProto(name="m", package="google.type", syntax="proto3")
    proto.message_type.add(name="Money").field.add(name="own", number=1, type=5, label=1)
    own = SchemaText("PROTOBUF", base64.b64encode(proto.SerializeToString()).decode())
    text = 'syntax = "proto3"; import "google/type/money.proto"; message M { google.type.Money x = 1; }'
    reader = ProtobufReader(SchemaText("PROTOBUF", text, (("google/type/money.proto", own),)))
    assert reader.arrow_type == pa.struct([("x", pa.struct([("own", pa.int32())]))])


def test_a_file_that_no_library_has_is_missing() -> None:
    text = 'syntax = "proto3"; import "google/type/none.proto"; message M { int32 x = 1; }'
    with pytest.raises(ConfigError, match="protoc refuses"):
        ProtobufReader(SchemaText("PROTOBUF", text))


def test_messages_inside_messages_without_end_are_refused() -> None:
    names = [f"message M{n} {{ M{n - 1} a = 1; M{n - 1} b = 2; }}" for n in range(60, 0, -1)]
    text = f'syntax = "proto3"; {" ".join(names)} message M0 {{ int32 x = 1; }}'
    with pytest.raises(ConfigError, match="more than 50000 messages inside messages"):
        ProtobufReader(SchemaText("PROTOBUF", text))


def test_a_null_beside_messages_can_be_written_to_parquet() -> None:
    """Parquet's writer refuses a null in a field that is declared to have none, also below a null."""
    fields = "int32 x = 1; repeated N n = 2; map<int32, N> m = 3;"
    text = f'syntax = "proto3"; message M {{ {fields} }} message N {{ string s = 1; }}'
    reader = ProtobufReader(SchemaText("PROTOBUF", text))
    payloads = pa.array([b"\x08\x01\x12\x00\x1a\x04\x08\x01\x12\x00", b"\xff"], pa.binary())
    column = decode_each(reader.decoder(), payloads, reader.arrow_type).values
    assert column.type == reader.arrow_type
    file = io.BytesIO()
    parquet.write_table(pa.table({"value": column}), file)
    assert parquet.read_table(file)["value"].to_pylist() == [{"x": 1, "n": [{"s": ""}], "m": [(1, {"s": ""})]}, None]
