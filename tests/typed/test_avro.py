"""Typed columns of Avro: random schemas and values, as fastavro reads them; resolution; what does not decode."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from remote_fetch.errors import ConfigError
from remote_fetch.typed.arrays import pa
from remote_fetch.typed.avro import AvroReader
from remote_fetch.typed.avro_decode import _is_quick
from remote_fetch.typed.avro_schema import AvroSchema
from remote_fetch.typed.outcome import Undecodable, decode_each
from remote_fetch.typed.schema_text import SchemaText
from tests.searches import examples
from tests.typed.avro_cases import as_fastavro, encode, evolved, schemas, values


def text(schema: Any) -> SchemaText:
    return SchemaText("AVRO", json.dumps(schema))


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    named = [{"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})} for each in fields]
    return {"type": "record", "name": name, "fields": named}


def typed(writer: Any, rows: list[Any], reader: Any = None) -> list[Any]:
    """The rows of a typed column, of values that `writer` encoded."""
    of_reader = AvroReader(text(writer if reader is None else reader))
    payloads = pa.array([encode(writer, row) for row in rows], pa.binary())
    column = of_reader.decoder(text(writer))(payloads)
    assert column.type == of_reader.arrow_type
    column.validate(full=True)
    schema = AvroSchema.parse(of_reader._text)
    return [as_fastavro(schema, schema.node, row) for row in column.to_pylist()]


def as_peer(writer: Any, rows: list[Any], reader: Any = None) -> list[Any]:
    """The same rows as fastavro reads them."""
    old = fastavro.parse_schema(writer)
    new = None if reader is None else fastavro.parse_schema(reader)
    return [_rounded(fastavro.schemaless_reader(io.BytesIO(encode(writer, row)), old, new)) for row in rows]


def _rounded(value: Any) -> Any:
    """uuid as text, as the column has it."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return str(value) if isinstance(value, uuid.UUID) else value


@examples(150)
@given(data=st.data(), quick=st.booleans())
def test_random_values_are_read_as_fastavro_reads_them(data: st.DataObject, quick: bool) -> None:
    schema = data.draw(schemas(quick=quick))
    assert not quick or _is_quick(AvroSchema.parse(text(schema)).node)
    rows = data.draw(st.lists(values(schema), max_size=4))
    assert typed(schema, rows) == as_peer(schema, rows)


@examples(150)
@given(data=st.data(), quick=st.booleans())
def test_values_of_an_older_schema_are_read_as_fastavro_reads_them(data: st.DataObject, quick: bool) -> None:
    writer = data.draw(schemas(quick=quick))
    reader = data.draw(evolved(writer))
    rows = data.draw(st.lists(values(writer), max_size=4))
    expected = as_peer(writer, rows, reader)
    try:
        assert _same(typed(writer, rows, reader), expected)
    except ConfigError as error:
        # A version that drops all fields of an array's items leaves items without bytes, and these are refused.
        if "an array whose items may take no bytes" not in str(error):
            raise
        reject()


def _same(found: Any, expected: Any) -> bool:
    """Equal, but for a number that was promoted to a float of 32 bits: fastavro leaves it as wide as Python has it."""
    if isinstance(expected, float) and isinstance(found, float):
        return found == expected or found == pa.scalar(expected, pa.float32()).as_py()
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_same(found[key], expected[key]) for key in expected)
    if isinstance(expected, int) and isinstance(found, float):
        return found in (float(expected), pa.scalar(float(expected), pa.float32()).as_py())
    if isinstance(found, bytes) and isinstance(expected, str):  # fastavro leaves the default of bytes as it stands
        return found == expected.encode("latin-1")
    return bool(found == expected)


def test_a_uuid_of_bytes_below_a_null() -> None:
    """The builders of Arrow put empty bytes below a null, and these are no uuid."""
    of_bytes = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    inner = record(("id", of_bytes), name="In")
    schema = record(("maybe", ["null", inner]), ("either", ["string", "In"]))
    one = {"id": bytes(16)}
    rows: list[Any] = [{"maybe": None, "either": "x"}, {"maybe": one, "either": one}]
    text_of_one = {"id": str(uuid.UUID(int=0))}
    assert typed(schema, rows) == [rows[0], {"maybe": text_of_one, "either": text_of_one}]


def test_logical_types_become_those_of_arrow() -> None:
    schema = record(
        ("d", {"type": "int", "logicalType": "date"}),
        ("t", {"type": "long", "logicalType": "timestamp-millis"}),
        ("n", {"type": "long", "logicalType": "timestamp-nanos"}),
        ("u", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
        ("m", {"type": "fixed", "name": "M", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("o", {"type": "bytes", "logicalType": "something-else"}),
    )
    one = uuid.UUID(int=7)
    row = {"d": 1, "t": 2, "n": 3, "u": one.bytes, "m": (-150).to_bytes(4, "big", signed=True), "o": b"x"}
    reader = AvroReader(text(schema))
    column = reader.decoder()(pa.array([encode(schema, row)]))
    assert [str(field.type) for field in reader.arrow_type] == [
        "date32[day]", "timestamp[ms, tz=UTC]", "timestamp[ns, tz=UTC]", "string", "decimal128(9, 2)", "binary",
    ]  # fmt: skip
    assert column.field("n").cast(pa.int64()).to_pylist() == [3]
    assert column.field("d")[0].as_py() == datetime.date(1970, 1, 2)
    assert column.field("u")[0].as_py() == str(one)
    assert column.field("m")[0].as_py() == decimal.Decimal("-1.50")


def test_milliseconds_become_the_readers_microseconds() -> None:
    old, new = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
    expected = datetime.datetime.fromtimestamp(5, datetime.UTC)
    assert typed(record(("t", old)), [{"t": 5000}], record(("t", new))) == [{"t": expected}]


def test_a_time_of_milliseconds_becomes_the_readers_microseconds() -> None:
    old = {"type": "int", "logicalType": "time-millis"}
    new = {"type": "long", "logicalType": "time-micros"}
    assert typed(record(("t", old)), [{"t": 5000}], record(("t", new))) == [{"t": datetime.time(0, 0, 5)}]
    assert typed(record(("t", "int")), [{"t": 5000}], record(("t", new))) == [{"t": datetime.time(0, 0, 0, 5000)}]


@pytest.mark.parametrize("written", ["timestamp-millis", "timestamp-micros", "local-timestamp-micros"])
def test_a_timestamp_is_no_time_of_day(written: str) -> None:
    """Arrow's cast cuts the date off. fastavro gives the timestamp, and Java takes its number for another time."""
    old, new = ({"type": "long", "logicalType": each} for each in (written, "time-micros"))
    with pytest.raises(Undecodable, match="which has no date"):
        typed(record(("t", old)), [{"t": 5000}], record(("t", new)))


@pytest.mark.parametrize("unit", ["micros", "nanos"])
def test_digits_that_the_reader_lacks_are_not_cut(unit: str) -> None:
    old, new = ({"type": "long", "logicalType": f"timestamp-{each}"} for each in (unit, "millis"))
    reader = AvroReader(text(record(("t", new))))
    payloads = [encode(record(("t", old)), {"t": number}) for number in (5_000_000, 5_000_001)]
    decoded = decode_each(reader.decoder(text(record(("t", old)))), pa.array(payloads), reader.arrow_type)
    assert decoded.values.field("t").is_null().to_pylist() == [False, True]
    assert "would lose data: 5000001" in decoded.reasons[1]


@pytest.mark.parametrize(
    ("writer", "reader", "row", "reason"),
    [
        (record(("a", "string")), record(("a", "int")), {"a": "x"}, "string does not fit the reader's int"),
        (record(), record(("a", "int")), {}, "field a has no default"),
        (record(("a", ["null", "int"])), record(("a", "int")), {"a": None}, "a null"),
        (record(("a", ["null", "int"])), record(("a", ["int", "string"])), {"a": None}, "a null"),
        (record(("a", ["string", "int"])), record(("a", "int")), {"a": "x"}, "a string, which does not fit"),
        (record(("a", ["null", "string"])), record(("a", ["null", "R"])), {"a": "x"}, "a string, which does not fit"),
        (record(("a", ["null", "R"])), record(("a", ["null", "string"])), {"a": {"a": None}}, "record R, which does"),
        (record(("a", "bytes")), record(("a", "string")), {"a": b"\xff"}, "does not fit the reader's string"),
        (record(name="A"), record(name="B"), {}, "record A does not fit the reader's record B"),
        ("int", ["null", "string"], 1, "int does not fit the reader's union"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            b"xy",
            "fixed F does not fit the reader's fixed F",
        ),
    ],
)
def test_what_does_not_resolve_says_why(writer: Any, reader: Any, row: Any, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason):
        typed(writer, [row], reader)


KINDS: dict[str, Any] = {
    "boolean": "boolean", "int": "int", "string": "string", "array": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "int"}, "enum E": {"type": "enum", "name": "E", "symbols": ["a"]},
    "enum O": {"type": "enum", "name": "O", "symbols": ["a"]}, "fixed F": {"type": "fixed", "name": "F", "size": 2},
    "fixed G": {"type": "fixed", "name": "G", "size": 2}, "record R": record(("a", "int")),
    "record S": record(("a", "int"), name="S"),
}  # fmt: skip


def test_no_kind_is_another() -> None:
    for wanted, reader in KINDS.items():
        of_reader = AvroReader(text(reader))
        for written, writer in KINDS.items():
            if written != wanted:
                with pytest.raises(Undecodable, match=f"the writer's {written} does not fit the reader's {wanted}"):
                    of_reader.decoder(text(writer))


@pytest.mark.parametrize(
    ("written", "wanted", "value", "promoted"),
    [
        ("int", "long", -5, -5),
        ("int", "float", 2**24 + 1, float(2**24)),
        ("int", "double", 2**31 - 1, float(2**31 - 1)),
        ("long", "float", 2**40 + 1, float(2**40)),
        ("long", "double", 2**53 + 1, float(2**53)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "\u00e9", "\u00e9".encode()),
        ("bytes", "string", "\u00e9".encode(), "\u00e9"),
    ],
)
def test_promotions(written: str, wanted: str, value: Any, promoted: Any) -> None:
    old, new = record(("a", ["null", written])), record(("a", ["null", wanted]))
    assert typed(old, [{"a": value}, {"a": None}], new) == [{"a": promoted}, {"a": None}]
    assert typed(record(("a", written)), [{"a": value}], record(("a", wanted))) == [{"a": promoted}]


@pytest.mark.parametrize("kind", ["record R", "enum E", "fixed F"])
def test_a_named_type_is_found_by_the_readers_alias(kind: str) -> None:
    old = {**KINDS[kind], "namespace": "old"}
    value = {"record R": {"a": 5}, "enum E": "a", "fixed F": b"xy"}[kind]
    for alias in (f"old.{old['name']}", old["name"]):
        new = {**KINDS[kind], "name": "New", "namespace": "old", "aliases": [alias]}
        assert typed(record(("v", old)), [{"v": value}], record(("v", new))) == [{"v": value}]


@pytest.mark.parametrize(
    ("written", "wanted", "values_", "found"),
    [
        (["null", "string", "bytes"], ["null", "bytes"], ["x", None, b"y", "z"], [b"x", None, b"y", b"z"]),
        (["int", "float"], "double", [1, 0.5, 2], [1.0, 0.5, 2.0]),
    ],
)
def test_branches_that_one_of_the_readers_takes(
    written: Any, wanted: Any, values_: Sequence[Any], found: Sequence[Any]
) -> None:
    rows = [{"a": value} for value in values_]
    assert typed(record(("a", written)), rows, record(("a", wanted))) == [{"a": value} for value in found]


def test_a_branch_of_the_same_full_name_wins_over_an_earlier_namesake() -> None:
    near, far = ({**record(("a", "int")), "namespace": namespace} for namespace in ("near", "far"))
    reader = AvroReader(text(record(("u", [far, near]), name="Top")))
    writer = record(("u", near), name="Top")
    found = reader.decoder(text(writer))(pa.array([encode(writer, {"u": {"a": 5}})])).to_pylist()
    assert found == [{"u": {"member0": None, "member1": {"a": 5}}}]


def test_a_branch_of_the_same_type_wins_over_an_earlier_wider_one() -> None:
    reader = AvroReader(text(record(("a", ["double", "int"]))))
    payloads = pa.array([encode(record(("a", "int")), {"a": 5})])
    found = reader.decoder(text(record(("a", "int"))))(payloads).to_pylist()
    assert found == [{"a": {"member0": None, "member1": 5}}]


def test_a_null_below_a_null_is_no_null_of_its_own() -> None:
    inner = [record(("x", kind), name="In") for kind in (["null", "int"], "int")]
    old, new = (record(("i", ["null", each])) for each in inner)
    assert typed(old, [{"i": None}, {"i": {"x": 5}}], new) == [{"i": None}, {"i": {"x": 5}}]


def test_a_branch_that_does_not_fit_harms_only_its_own_rows() -> None:
    writer, reader = record(("a", ["null", "string", "int"])), record(("a", ["null", "long"]))
    payloads = pa.array([encode(writer, {"a": value}) for value in (1, None, "x", 2)])
    of_reader = AvroReader(text(reader))
    decoded = decode_each(of_reader.decoder(text(writer)), payloads, of_reader.arrow_type)
    assert decoded.values.to_pylist() == [{"a": 1}, {"a": None}, None, {"a": 2}]
    assert list(decoded.reasons) == [2]


@pytest.mark.parametrize("written", ["int", {"type": "array", "items": "int"}, record(("x", "int"), name="In")])
@pytest.mark.parametrize("wanted", [["null", "string"], "null", ["string", "null", "boolean"]])
def test_a_null_fits_where_no_other_branch_does(written: Any, wanted: Any) -> None:
    writer, reader = record(("a", ["null", written])), record(("a", wanted))
    other: Any = {"int": 1}.get(str(written)) or ([1] if written["type"] == "array" else {"x": 1})
    assert typed(writer, [{"a": None}] * 2, reader) == as_peer(writer, [{"a": None}] * 2, reader)
    of_reader = AvroReader(text(reader))
    payloads = pa.array([encode(writer, {"a": value}) for value in (None, other, None)])
    decoded = decode_each(of_reader.decoder(text(writer)), payloads, of_reader.arrow_type)
    assert decoded.values.to_pylist() == [{"a": None}, None, {"a": None}]
    assert list(decoded.reasons) == [1]


def test_an_unknown_symbol_becomes_the_readers_default() -> None:
    writer = record(("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    symbols = {"type": "enum", "name": "E", "symbols": ["A", "X"]}
    assert typed(writer, [{"e": "A"}, {"e": "B"}], record(("e", {**symbols, "default": "X"}))) == [
        {"e": "A"},
        {"e": "X"},
    ]
    with pytest.raises(Undecodable, match="a symbol of E"):
        typed(writer, [{"e": "B"}], record(("e", symbols)))


def test_references_are_parsed_before_what_refers_to_them() -> None:
    inner = SchemaText("AVRO", json.dumps({"type": "record", "name": "a.In", "fields": [{"name": "x", "type": "int"}]}))
    outer = SchemaText("AVRO", json.dumps(record(("i", "a.In"), ("j", ["null", "a.In"]))), (("a.In", inner),))
    reader = AvroReader(outer)
    assert reader.decoder()(pa.array([b"\x02\x00", b"\x04\x02\x06"])).to_pylist() == [
        {"i": {"x": 1}, "j": None},
        {"i": {"x": 2}, "j": {"x": 3}},
    ]


@pytest.mark.parametrize("fields", [(("a", "string"),), (("a", "string"), ("b", "bytes"))])
def test_only_the_broken_values_do_not_decode(fields: Any) -> None:
    schema = record(*fields)
    good = encode(schema, {"a": "abc", "b": b"d"})
    reader = AvroReader(text(schema))
    payloads = [good] * 9
    for place in (0, 4, 8):
        payloads[place] = b"\x08a"
    decoded = decode_each(reader.decoder(), pa.array(payloads), reader.arrow_type)
    assert sorted(decoded.reasons) == [0, 4, 8]
    assert [row is None for row in decoded.values.to_pylist()] == [place in (0, 4, 8) for place in range(9)]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "record"}', "not an Avro schema"),
        ('{"type": "array", "items": "null"}', "items may take no bytes"),
        (json.dumps(record(("a", "no.Such"))), "not an Avro schema.*no.Such"),
        (json.dumps(record((["a"], "int"))), "not an Avro schema: TypeError"),
        (json.dumps(record(("\ud800", "int"))), "not an Avro schema: 'utf-8'"),
        (json.dumps(record(("a", "int"), ("a", "string"))), "record R of the Avro schema has the field a twice"),
        (json.dumps(record(("a", "double", 10**400))), "not an Avro schema: int too large"),
        (json.dumps({**record(), "aliases": 5}), "aliases that are not a list of names"),
        (json.dumps({**record(), "aliases": [5]}), "aliases that are not a list of names"),
        (json.dumps(record()).replace("[]", '[{"name": "a", "type": "int", "aliases": [["x"]]}]'), "are not a list of"),
        ('{"type": "array", "items": [[], "int"]}', "a union that is a branch of a union"),
        ('{"type": "fixed", "name": "F", "size": -1}', "a fixed of -1 bytes"),
        ('{"type": "fixed", "name": "F", "size": true}', "a fixed of True bytes"),
    ],
)
def test_a_schema_that_is_none_is_an_error_of_the_configuration(schema: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        AvroReader(SchemaText("AVRO", schema))


def test_values_of_plain_types_need_no_record() -> None:
    assert typed("string", ["a", "b"]) == ["a", "b"]
    assert typed(["null", "long"], [None, 5]) == [None, 5]
    assert typed("int", [5], ["null", "long"]) == [5]


@pytest.mark.parametrize(("outer", "inner"), [("", ""), ("shop", ""), ("", "shop"), ("shop", "shop"), ("a", "b.c")])
def test_names_in_a_union_are_found_in_each_namespace(outer: str, inner: str) -> None:
    """A branch is decoded inside a record of our own. The meaning of a name does not depend on it."""
    item = {**record(("sku", "string"), name="Item"), "namespace": inner}
    name = f"{inner}.Item" if inner else "Item"
    held = {**record(("items", {"type": "array", "items": item}), name="Held"), "namespace": inner}
    fields: list[tuple[str, Any]] = [("held", held)]
    if inner or not outer:  # else the name means outer.Item
        fields.append(("either", ["null", "string", name]))
    schema = {**record(*fields, ("raw", "bytes")), "namespace": outer}
    rows = [{"held": {"items": [{"sku": "a"}]}, "either": each, "raw": b""} for each in (None, "s", {"sku": "b"})]
    rows = [{name: row[name] for name, _ in [*fields, ("raw", "")]} for row in rows]
    assert typed(schema, rows) == as_peer(schema, rows)


def test_a_type_without_a_namespace_inside_one_with_it() -> None:
    bare = {**record(("x", "long"), name="Bare"), "namespace": ""}
    inner = {**record(("bare", bare), name="Inner"), "namespace": "shop"}
    schema = record(("inner", inner), ("again", ["null", "Bare", "string"]), ("raw", "bytes"))
    rows: list[Any] = [{"inner": {"bare": {"x": 1}}, "again": each, "raw": b""} for each in ({"x": 2}, "s", None)]
    parsed = fastavro.parse_schema(schema)
    payloads = []
    for row in rows:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, parsed, row)
        payloads.append(data.getvalue())
    found = AvroReader(text(schema)).decoder()(pa.array(payloads, pa.binary())).to_pylist()
    assert [row["inner"] for row in found] == [{"bare": {"x": 1}}] * 3
    assert [row["again"] for row in found] == [
        {"member0": {"x": 2}, "member1": None},
        {"member0": None, "member1": "s"},
        None,
    ]


def test_a_bare_name_inside_a_namespace_means_the_type_without_one_if_no_other_has_it() -> None:
    """Apache Avro for Java 1.12.1 writes its own schemas so: `y` of c.N3 has the type of `x`."""
    bare = {"type": "enum", "name": "N2", "namespace": "", "symbols": ["A", "B"]}
    inner = {**record(("x", bare), ("y", "N2"), ("u", ["null", "N2", "N3"]), name="N3"), "namespace": "c"}
    of_java = AvroReader(text(record(("inner", inner), ("z", "N2"), ("w", ["null", "c.N3"]), name="N4")))
    row = of_java.decoder()(pa.array([b"\0\2\2\2\2\0"]))[0].as_py()
    assert row == {"inner": {"x": "A", "y": "B", "u": {"member0": "B", "member1": None}}, "z": "B", "w": None}
    own = {**bare, "namespace": "c", "symbols": ["C"]}
    both = {**record(("x", bare), ("o", own), ("y", "N2"), name="N3"), "namespace": "c"}
    assert AvroReader(text(both)).decoder()(pa.array([bytes(3)])).to_pylist() == [{"x": "A", "o": "C", "y": "C"}]
    with pytest.raises(ConfigError, match=r"c\.N2"):
        AvroReader(text({**record(("x", bare), ("y", "c.N2"), name="N3"), "namespace": "c"}))


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 3_000_000_000, 2**40, 2**63 - 1])
@pytest.mark.parametrize("wrap", [lambda kind: kind, lambda kind: ["null", kind], lambda kind: {"type": kind}])
def test_an_int_beyond_32_bits_does_not_decode(number: int, wrap: Any) -> None:
    """fastavro writes such ones, and so does Confluent's serializer."""
    items = {"type": "array", "items": record(("x", wrap("int")), name="In")}
    schema = record(("a", wrap("int")), ("m", {"type": "map", "values": wrap("int")}), ("l", items))
    rows: list[Any] = [{"a": 1, "m": {"k": -1}, "l": [{"x": 2**31 - 1}, {"x": -(2**31)}]} for _ in range(4)]
    rows[0]["a"] = rows[1]["m"]["k"] = rows[2]["l"][1]["x"] = number
    wide = json.loads(json.dumps(schema).replace('"int"', '"long"'))
    reader = AvroReader(text(schema))
    assert _is_quick(AvroSchema.parse(text(schema)).node)
    payloads = pa.array([encode(wide, row) for row in rows], pa.binary())
    decoded = decode_each(reader.decoder(), payloads, reader.arrow_type)
    assert decoded.reasons == dict.fromkeys(range(3), "an int of more than 32 bits")
    assert decoded.values.to_pylist()[3] == {**rows[3], "m": [("k", -1)]}


def test_a_string_that_is_not_in_utf_8_does_not_decode() -> None:
    of_reader = AvroReader(text(record(("a", "string"), ("b", {"type": "map", "values": "string"}))))
    sound = encode(record(("a", "string"), ("b", {"type": "map", "values": "string"})), {"a": "x", "b": {"k": "v"}})
    broken = [sound.replace(letter, b"\xff") for letter in (b"x", b"k", b"v")]
    payloads = pa.array([sound, *broken, sound], pa.binary())
    decoded = decode_each(of_reader.decoder(), payloads, of_reader.arrow_type)
    assert sorted(decoded.reasons) == [1, 2, 3]
    assert set(decoded.reasons.values()) == {"a string is not in UTF-8"}
    decoded.values.validate(full=True)
    assert decoded.values.to_pylist()[0] == decoded.values.to_pylist()[4] == {"a": "x", "b": [("k", "v")]}


def test_types_inside_types_without_end_are_refused() -> None:
    """Each record stands twice in the next one, once by its name."""
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for number in range(1, 40):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(ConfigError, match="more than 50000 types"):
        AvroReader(SchemaText("AVRO", json.dumps(schema)))


def test_records_inside_records_are_read_beyond_the_depth_that_pyruhvro_has() -> None:
    schema, row = record(("x", "long"), name="R0"), dict[str, Any](x=1)
    for level in range(1, 41):
        schema, row = record(("r", ["null", schema]), name=f"R{level}"), {"r": row}
    assert _is_quick(AvroSchema.parse(text(schema)).node)
    assert typed(schema, [row]) == [row]


def test_references_that_many_share_are_parsed_once() -> None:
    schema = SchemaText("AVRO", '{"type": "record", "name": "R0", "fields": []}')
    for number in range(1, 60):
        text = json.dumps({"type": "record", "name": f"R{number}", "fields": []})
        schema = SchemaText("AVRO", text, (("a", schema), ("b", schema)))
    assert len(list(schema.in_order())) == 60


@pytest.mark.parametrize("wrap", [lambda t: {"type": "array", "items": t}, lambda t: {"type": "map", "values": t}])
def test_an_empty_array_is_read_though_its_items_do_not_fit(wrap: Any) -> None:
    """As Java's reader does. A value with items does not decode."""

    def of(kind: Any) -> Any:
        return {"type": "record", "name": "R", "fields": [{"name": "f", "type": wrap(kind)}]}

    full = {"f": ["x"]} if wrap("int")["type"] == "array" else {"f": {"k": "x"}}
    reader = AvroReader(SchemaText("AVRO", json.dumps(of("int"))))
    payloads = [encode(of("string"), row) for row in ({"f": type(full["f"])()}, full)]
    decode = reader.decoder(SchemaText("AVRO", json.dumps(of("string"))))
    decoded = decode_each(decode, pa.array(payloads, pa.binary()), reader.arrow_type)
    assert decoded.values.to_pylist() == [{"f": []}, None]
    assert decoded.reasons == {1: "the writer's string does not fit the reader's int"}
