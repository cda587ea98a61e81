"""Typed columns of JSON: the types that a schema gives, and random values as Python's reader reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import ConfigError
from remote_fetch.typed import json_values
from remote_fetch.typed.json_values import JsonReader
from remote_fetch.typed.outcome import Undecodable, decode_each
from remote_fetch.typed.schema_text import SchemaText
from tests.searches import examples

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "price": {"type": "number"},
        "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "inner": {"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
    },
}
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "name": st.text(max_size=6) | st.none(),
        "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-100, 100),
        "ok": st.booleans(),
        "tags": st.lists(st.text(max_size=3) | st.none(), max_size=3),
        "inner": st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5), "more": st.lists(st.integers())}),
        "more": st.text(max_size=3),
    },
)


@pytest.fixture(autouse=True, scope="module", params=["by Arrow", "by Python"])
def by_either_reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both read all that is tried here, and read it alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "_FEW", 0 if request.param == "by Arrow" else 1000)
        yield


def reader(schema: Any, references: Any = ()) -> JsonReader:
    return JsonReader(SchemaText("JSON", json.dumps(schema), tuple(references)))


def rows_of(schema: Any, *values: Any) -> list[Any]:
    payloads = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    found: list[Any] = reader(schema).decoder()(pa.array(payloads, pa.binary())).to_pylist()
    return found


def expected(row: dict[str, Any]) -> dict[str, Any]:
    made = {name: row.get(name) for name in SCHEMA["properties"]}
    if made["inner"] is not None:
        made["inner"] = {"x": made["inner"].get("x")}
    return made


@examples(100)
@given(st.lists(ROWS, max_size=5), st.sampled_from((None, 2)), st.booleans())
def test_random_values_are_read_as_python_reads_them(rows: list[Any], indent: int | None, ascii_only: bool) -> None:
    values = [json.dumps(row, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for row in rows]
    assert rows_of(SCHEMA, *values) == [expected(row) for row in rows]


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b'{"id": 1.0}', {"id": 1}),
        (b'{"id": 1e2}', {"id": 100}),
        (b'{"id": 1, "id": 2}', {"id": 2}),
        (b' \n{"id": 3}\r\n ', {"id": 3}),
        (b'{"id": 4, "inner": null}', {"id": 4}),
        (b'{"id": 5, "price": 1' + b"0" * 400 + b"}", {"id": 5, "price": float("inf")}),
        (b'{"id": 6, "price": -1' + b"0" * 400 + b"}", {"id": 6, "price": float("-inf")}),
    ],
)
def test_what_arrows_reader_refuses_and_json_allows(value: bytes, row: Any) -> None:
    assert rows_of(SCHEMA, {"id": 0}, value) == [expected({"id": 0}), expected(row)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not JSON"),
        (b'{"id": 1}{"id": 2}', "not JSON"),
        (b'{"id": 1}\n{"id": 2}', "not JSON"),
        (b'{"id": 1', "not JSON"),
        (b'{"name": "\xff"}', "not JSON"),
        (b'{"price": Inf}', "not JSON"),
        (b'{"price":-Inf}', "not JSON"),
        (b'{"more": [1, Inf]}', "not JSON"),
        (b'{"price": -NaN}', "not JSON"),
        (b"[1]", r"\$: list where the schema has an object"),
        (b'{"id": "1"}', r"\$\.id: str where the schema has an integer"),
        (b'{"id": true}', "bool where the schema has an integer"),
        (b'{"price": true}', "bool where the schema has a number"),
        (b'{"price": "1.5"}', "str where the schema has a number"),
        (b'{"name": 1}', "int where the schema has a string"),
        (b'{"ok": 1}', "int where the schema has a boolean"),
        (b'{"tags": [1]}', r"\$\.tags\[0\]"),
        (b'{"tags": {}}', "dict where the schema has an array"),
        (b'{"id": 9223372036854775808}', "more than 64 bits"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_of_the_schema(value: bytes, reason: str) -> None:
    of_schema = reader(SCHEMA)
    with pytest.raises(Undecodable, match=reason):
        of_schema.decoder()(pa.array([value]))
    decoded = decode_each(of_schema.decoder(), pa.array([b'{"id": 1}', value, b'{"id": 2}']), of_schema.arrow_type)
    assert list(decoded.reasons) == [1]
    assert [row and row["id"] for row in decoded.values.to_pylist()] == [1, None, 2]


def test_a_zero_keeps_its_sign_beside_what_arrows_reader_refuses() -> None:
    rows = rows_of(SCHEMA, b'{"price": -0, "id": -0}', b'{"price": -0, "id": 1.0}', b'{"price": 0}')
    assert [(str(row["price"]), str(row["id"])) for row in rows] == [("-0.0", "0"), ("-0.0", "1"), ("0.0", "None")]


def test_a_number_of_more_digits_than_python_converts() -> None:
    digits = b"9" * 5000
    rows = rows_of(SCHEMA, b'{"price": %b}' % digits, b'{"price": -%b}' % digits, b'{"more": %b}' % digits)
    assert [row["price"] for row in rows] == [math.inf, -math.inf, None]
    with pytest.raises(Undecodable, match="an integer of more than 64 bits"):
        rows_of(SCHEMA, b'{"id": %b}' % digits)
    with pytest.raises(Undecodable, match="not JSON"):
        rows_of({"type": "object", "properties": {"any": {}}}, b'{"any": %b}' % digits)


@pytest.mark.parametrize(
    "text", ["12345678901234567.89", "1e400", "1.10", "-0", "-0.0", '[1.50,{"é\\"":1E5,"b":[]}]', '"1.0"', "{}", "7"]
)
def test_a_number_that_is_kept_as_text_keeps_its_digits(text: str) -> None:
    schema = {"type": "object", "properties": {"any": {}, "price": {"type": "number"}, "id": {"type": "integer"}}}
    row = rows_of(schema, f'{{"any": {text}, "price": 1.10, "id": 2.0}}'.encode())
    assert row == [{"any": text, "price": 1.1, "id": 2}]
    with pytest.raises(Undecodable, match="float where the schema has an integer"):
        rows_of(schema, b'{"id": 1.5}')


def test_arrows_reader_is_not_asked_for_each_broken_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of it takes as long as Python's reader does for many values."""
    asked: list[int] = []
    monkeypatch.setattr(json_values, "_FEW", 16)
    monkeypatch.setattr(json_values, "_by_arrow", lambda payloads, schema: asked.append(len(payloads)))
    by_schema = reader(SCHEMA)
    decoded = decode_each(by_schema.decoder(), pa.array([b"no JSON"] * 64), by_schema.arrow_type)
    assert len(decoded.reasons) == 64
    assert sorted(asked) == [16, 16, 16, 16, 32, 32, 64]


def test_values_that_would_join_into_one_are_told_apart() -> None:
    decoded = decode_each(reader(SCHEMA).decoder(), pa.array([b'{"name": "}', b'{"}']), reader(SCHEMA).arrow_type)
    assert sorted(decoded.reasons) == [0, 1]


def test_other_types() -> None:
    schema = {
        "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "type": "object",
        "properties": {
            "map": {"type": "object", "additionalProperties": {"type": "number"}},
            "any": {},
            "mixed": {"type": ["string", "integer"]},
            "point": {"$ref": "#/$defs/Point"},
            "kind": {"enum": ["a", "b", None]},
            "untyped": {"type": "array"},
            "self": {"$ref": "#"},
            "both": {"type": ["integer", "number"]},
            "other": {"$ref": "other.json#/$defs/N"},
        },
    }
    other = SchemaText("JSON", json.dumps({"$defs": {"N": {"type": "number"}}}))
    of_schema = reader(schema, [("other.json", other)])
    assert {field.name: str(field.type) for field in of_schema.arrow_type} == {
        "map": "map<string, double>",
        "any": "string",
        "mixed": "string",
        "point": "struct<x: int64>",
        "kind": "string",
        "untyped": "list<item: string>",
        "self": "string",
        "both": "double",
        "other": "double",
    }
    value = {"map": {"a": 1}, "any": {"b": [1, None]}, "mixed": 5, "untyped": [{}, "é"], "self": {"any": 1}, "other": 2}
    row = of_schema.decoder()(pa.array([json.dumps(value).encode()])).to_pylist()[0]
    assert row == {
        "map": [("a", 1.0)], "any": '{"b":[1,null]}', "mixed": "5", "point": None, "kind": None,
        "untyped": ["{}", '"é"'], "self": '{"any":1}', "both": None, "other": 2.0,
    }  # fmt: skip


def test_words_of_later_drafts() -> None:
    """Items with schemas of their own are kept as text, and a `$ref` is a part of a URL."""
    schema = {
        "type": "object",
        "properties": {
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
            "there": {"$ref": "#/$defs/x%20y~1z"},
        },
        "$defs": {"x y/z": {"type": "integer"}},
    }
    assert rows_of(schema, {"pair": [1, "x"], "there": 7}) == [{"pair": ["1", '"x"'], "there": 7}]


@pytest.mark.parametrize("kind", [[["string"]], [{}, "null"], {"a": 1}, 5, [5], [[], "integer"]])
def test_a_type_that_is_no_word_is_any(kind: Any) -> None:
    assert rows_of({"type": "object", "properties": {"a": {"type": kind}}}, {"a": [1]}) == [{"a": "[1]"}]


def test_items_of_any_type_are_texts_of_json() -> None:
    """Also where all of them are strings, which pyarrow's reader takes."""
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    assert rows_of(schema, {"a": ["x", "1"]}) == [{"a": ['"x"', '"1"']}]


def test_a_value_need_not_be_an_object() -> None:
    assert rows_of({"type": "string"}, "a", None) == ["a", None]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not a JSON Schema"),
        ('{"type": "record", "name": "Order", "fields": []}', "an Avro schema, and no JSON Schema"),
        ('{"$ref": "#/no"}', "does not exist"),
        ('{"$ref": "a.json"}', "does not give beside"),
        ('{"properties": {"\\ud800": {}}}', "name is not in UTF-8"),
    ],
)
def test_a_schema_that_is_none(schema: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        JsonReader(SchemaText("JSON", schema))


def test_a_writers_schema_changes_nothing() -> None:
    decode = reader(SCHEMA).decoder(SchemaText("JSON", '{"type": "string"}'))
    assert decode(pa.array([b'{"id": 1}'])).to_pylist() == [expected({"id": 1})]


def test_a_writers_schema_of_another_kind() -> None:
    with pytest.raises(Undecodable, match="one of AVRO"):
        reader(SCHEMA).decoder(SchemaText("AVRO", '"int"'))


def test_schemas_inside_schemas_without_end_are_refused() -> None:
    """Each stands twice in the next one."""
    made: dict[str, Any] = {"D0": {"type": "integer"}}
    for number in range(1, 60):
        ref = {"$ref": f"#/made/D{number - 1}"}
        made[f"D{number}"] = {"type": "object", "properties": {"a": ref, "b": ref}}
    with pytest.raises(ConfigError, match="more than 50000 schemas"):
        JsonReader(SchemaText("JSON", json.dumps({"$ref": "#/made/D59", "made": made})))
