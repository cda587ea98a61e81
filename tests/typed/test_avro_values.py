"""Avro's logical types and defaults: what a default may be, and which values need it."""

from __future__ import annotations

from typing import Any

import pytest

from remote_fetch.typed.arrays import pa
from remote_fetch.typed.avro import AvroReader
from remote_fetch.typed.outcome import Undecodable, decode_each
from tests.typed.test_avro import record, text


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "x"), ("int", None), ("int", 2**31), ("long", 1.5), ("double", "many"), ("boolean", 1), ("null", 0),
        ("long", 2**63), ("long", 1e300), ({"type": "long", "logicalType": "time-micros"}, 2**63),
        (["null", "int"], "x"), ({"type": "array", "items": "int"}, {}), ({"type": "array", "items": "int"}, ["x"]),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"), ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
    ],
)  # fmt: skip
def test_a_default_of_another_type_harms_the_values_that_need_it(kind: Any, default: Any) -> None:
    """As Confluent's deserializer for Java, which does not check the defaults of registered schemas."""
    inner = record(("a", "int"), ("b", kind, default), name="In")
    reader, old = record(("i", ["null", inner])), record(("i", ["null", record(("a", "int"), name="In")]))
    assert AvroReader(text(reader)).decoder()(pa.array([b"\0"])).to_pylist() == [{"i": None}]
    of_reader = AvroReader(text(inner))
    with pytest.raises(Undecodable, match="is none of its type"):
        of_reader.decoder(text(record(("a", "int"), name="In")))
    of_reader = AvroReader(text(reader))
    decoded = decode_each(of_reader.decoder(text(old)), pa.array([b"\0", b"\2\2", b"\0"]), of_reader.arrow_type)
    assert decoded.values.to_pylist() == [{"i": None}, None, {"i": None}]
    assert list(decoded.reasons) == [1]


@pytest.mark.parametrize(
    ("kind", "default", "expected"), [("long", 3.0, 3), ("double", "Infinity", float("inf")), ("float", 3, 3.0)]
)
def test_numbers_of_defaults_as_java_writes_and_reads_them(kind: str, default: Any, expected: Any) -> None:
    decode = AvroReader(text(record(("b", kind, default)))).decoder(text(record()))
    assert decode(pa.array([b""])).to_pylist() == [{"b": expected}]


@pytest.mark.parametrize(
    ("of", "is_decimal"),
    [
        ({"type": "bytes", "precision": 2, "scale": 2}, True),
        ({"type": "bytes", "precision": 2, "scale": 3}, False),
        ({"type": "bytes", "precision": 2, "scale": -1}, False),
        ({"type": "bytes", "precision": "2"}, False),
        ({"type": "bytes", "precision": True}, False),
        ({"type": "bytes", "precision": 0}, False),
        ({"type": "bytes", "precision": 77}, False),
        ({"type": "fixed", "name": "F", "size": 2, "precision": 4}, True),
        ({"type": "fixed", "name": "F", "size": 2, "precision": 5}, False),
        ({"type": "fixed", "name": "F", "size": 2, "precision": 2.5}, False),
        ({"type": "fixed", "name": "F", "size": 100, "precision": 76}, True),
        ({"type": "fixed", "name": "F", "size": 0, "precision": 1}, False),
    ],
)
def test_a_decimal_that_cannot_be_is_bytes(of: Any, is_decimal: bool) -> None:
    """The specification says to ignore it, and Java's reader does."""
    deep = record(
        ("l", {"type": "array", "items": record(("d", ["null", {**of, "logicalType": "decimal"}]), name="In")})
    )
    kind = AvroReader(text(deep)).arrow_type.field("l").type.value_type.field("d").type
    assert pa.types.is_decimal(kind) == is_decimal
    assert is_decimal or kind == pa.binary()


@pytest.mark.parametrize("word", [["date"], {"a": 1}, 5, None])
def test_a_logical_type_that_is_no_word_is_ignored(word: Any) -> None:
    """As Java's parser does."""
    assert AvroReader(text({"type": "int", "logicalType": word})).arrow_type == pa.int32()


@pytest.mark.parametrize(
    ("union", "value", "expected"),
    [
        ([{"type": "null"}, "int"], b"\2\6", 3),
        (["int", {"type": "null", "doc": "x"}], b"\2", None),
        ([{"type": "null"}, "int", "string"], b"\4\2a", {"member0": None, "member1": "a"}),
    ],
)
@pytest.mark.parametrize("other", ["int", "bytes"])
def test_a_null_in_an_object_of_its_own(union: Any, value: bytes, expected: Any, other: str) -> None:
    """`other`: as the quick decoder reads it, and the slow one."""
    reader = AvroReader(text(record(("a", union), ("b", other))))
    assert reader.decoder()(pa.array([value + b"\0"])).field("a").to_pylist() == [expected]


def test_forms_of_schemas_that_javas_parser_reads() -> None:
    symbols = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": None}
    wrapped = record(("e", symbols), ("f", {"type": "E"}), ("l", {"type": "array", "items": {"type": "E", "doc": "x"}}))
    reader = AvroReader(text(wrapped))
    assert reader.decoder()(pa.array([b"\0\2\2\2\0"])).to_pylist() == [{"e": "A", "f": "B", "l": ["B"]}]
    later = record(("e", {"type": "enum", "name": "E", "symbols": ["B"], "default": None}))
    with pytest.raises(Undecodable, match="a symbol of E that the reader"):
        AvroReader(text(later)).decoder(text(record(("e", symbols))))(pa.array([b"\0"]))
