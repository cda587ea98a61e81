"""Avro records inside themselves, in bytes of the reader's schema: as Apache Avro's reader for Java gives them."""

from __future__ import annotations

from typing import Any

import pytest

from remote_fetch.typed import avro_decode
from remote_fetch.typed.arrays import pa
from remote_fetch.typed.avro import AvroReader
from remote_fetch.typed.avro_recursive import _Recoder
from remote_fetch.typed.outcome import Undecodable, decode_each
from tests.typed.test_avro import record, text, typed

RECURSIVE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Tree"], "default": None}],
}


def test_a_record_inside_itself_is_kept_as_bytes() -> None:
    rows = [{"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}, {"v": 4, "next": None}]
    reader = AvroReader(text(RECURSIVE))
    assert reader.kept_as_bytes == ("Tree",)
    assert reader.arrow_type.field("next").type == pa.binary()
    assert typed(RECURSIVE, rows) == rows


def test_a_record_inside_itself_is_encoded_by_the_readers_schema() -> None:
    later = {**RECURSIVE, "fields": [*RECURSIVE["fields"], {"name": "w", "type": "string", "default": "x"}]}
    rows = [{"v": 1, "next": {"v": 2, "next": None}}]
    assert typed(RECURSIVE, rows, later) == [{"v": 1, "next": {"v": 2, "next": None, "w": "x"}, "w": "x"}]


@pytest.mark.parametrize("kind", ["int", "long"])
def test_a_record_inside_itself_below_a_null(kind: str) -> None:
    """The builders of Arrow put empty bytes below a null, and these are no value."""

    def pair(number: str) -> dict[str, Any]:
        below = record(("a", "A"), ("tree", {**RECURSIVE, "name": "Tree"}), name="B")
        return record(("v", number), ("b", ["null", below]), ("u", ["string", "B"]), name="A")

    inner = {"v": 2, "b": None, "u": "y"}
    held = {"a": inner, "tree": {"v": 3, "next": None}}
    rows = [{"v": 1, "b": None, "u": "x"}, {"v": 1, "b": held, "u": "x"}]
    assert typed(pair("int"), rows, pair(kind)) == rows


def tree(*fields: tuple[Any, ...]) -> dict[str, Any]:
    return record(*fields, ("next", ["null", "T"], None), name="T")


def inner_bytes(writer: Any, value: bytes, reader: Any) -> Any:
    """The field `next` of a value that `writer` wrote."""
    return AvroReader(text(reader)).decoder(text(writer))(pa.array([value])).field("next").to_pylist()


UNIT = {unit: {"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FLAG = {"type": "fixed", "name": "F", "size": 2}


@pytest.mark.parametrize(
    ("written", "wanted", "value", "expected"),
    [
        # A branch of the writer's own type, though an earlier one has the same values.
        ("int", ["long", "int"], b"\2\2\4\0", b"\2\4\0"),
        (["int", "string"], ["string", "double", "int"], b"\0\2\2\0\4\0", b"\4\4\0"),
        (["bytes", "string"], ["string", "bytes"], b"\0\2a\2\2\2b\0", b"\0\2b\0"),
        # A time keeps its meaning.
        (UNIT["millis"], UNIT["micros"], b"\2\2\2\0", b"\xd0\x0f\0"),
        # Other types of an unchanged meaning.
        (CENTS, ["int", CENTS], b"\2a\2\4\xff\x7f\0", b"\2\4\xff\x7f\0"),
        (FLAG, ["null", FLAG], b"ab\2cd\0", b"\2cd\0"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, b"\0\2\2\2k\2\0\0", b"\2\2k\2\0\0"),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "bytes"}, b"\0\2\2\2k\0\0", b"\2\2k\0\0"),
        # A union of null alone has the number of its branch.
        (["null"], ["null"], b"\0\2\0\0", b"\0\0"),
        (["null"], ["int", "null"], b"\0\2\0\0", b"\2\0"),
        (["null", "int"], ["null"], b"\0\2\0\0", b"\0\0"),
        ("null", ["null"], b"\2\0", b"\0\0"),
        (
            {"type": "array", "items": ["null"]},
            {"type": "array", "items": ["null", "int"]},
            b"\0\2\4\0\0\0\0",
            b"\4\0\0\0\0",
        ),
    ],
)
def test_a_value_of_another_schema(written: Any, wanted: Any, value: bytes, expected: bytes) -> None:
    assert inner_bytes(tree(("v", written)), value, tree(("v", wanted))) == [expected]


def test_a_default_of_bytes_is_not_text() -> None:
    later = tree(("v", "int"), ("b", "bytes", "\u00ff\u0001"))
    assert inner_bytes(tree(("v", "int")), b"\2\2\4\0", later) == [b"\4\4\xff\1\0"]


def test_only_the_value_with_a_time_that_the_reader_lacks_does_not_decode() -> None:
    reader = AvroReader(text(tree(("v", UNIT["millis"]))))
    decode = reader.decoder(text(tree(("v", UNIT["micros"]))))
    values = [b"\0\2" + inner + b"\0" for inner in (b"\xd0\x0f", b"\xd2\x0f")]  # 1000 and 1001 microseconds
    decoded = decode_each(decode, pa.array(values), reader.arrow_type)
    assert decoded.values.field("next").to_pylist() == [b"\2\0", None]
    assert "would lose data: 1001" in decoded.reasons[1]


def test_a_long_of_more_than_64_bits_does_not_decode_inside_either() -> None:
    decode = AvroReader(text(tree(("v", "long")))).decoder()
    with pytest.raises(Undecodable, match="a long of more than 64 bits"):
        decode(pa.array([b"\2\2" + b"\xff" * 10 + b"\1\0"]))


@pytest.mark.parametrize("outer", [["null", "A"], {"type": "array", "items": "A"}])
def test_records_that_contain_each_other(outer: Any) -> None:
    def pair(kind: str) -> Any:
        return record(("v", kind), ("b", ["null", record(("a", outer), ("w", kind), name="B")]), name="A")

    many = isinstance(outer, dict)
    leaf: dict[str, Any] = {"v": 3, "b": None}
    middle: dict[str, Any] = {"v": 2, "b": {"a": [leaf, leaf] if many else leaf, "w": 4}}
    top = {"v": 1, "b": {"a": [middle, leaf] if many else middle, "w": 5}}
    assert typed(pair("int"), [leaf, top], pair("long")) == [leaf, top]


def test_one_of_the_schemas_alone_contains_itself() -> None:
    """The other one stops at a level, or begins at one."""
    bounded = record(("v", "int"), ("next", ["null", {**record(("v", "int"), name="T"), "namespace": "low"}]), name="T")
    value = b"\2\2\4\2\6\0"
    reader = AvroReader(text(bounded))
    assert reader.decoder(text(tree(("v", "int"))))(pa.array([value])).to_pylist() == [{"v": 1, "next": {"v": 2}}]
    assert inner_bytes(bounded, b"\2\2\4", tree(("v", "int"))) == [b"\4\0"]


def test_schemas_whose_records_contain_themselves_at_different_levels() -> None:
    """No level has a record inside itself in both, so the levels have no end."""

    def pair(kind: str, inner: Any) -> Any:
        b = record(("a", ["null", inner]), ("v", kind), name="B")
        return {**record(("b", ["null", b]), name="A"), "namespace": "up"}

    later = pair("long", {**record(("b", ["null", "up.B"]), name="A"), "namespace": "low"})
    value = b"\2\2" * 3 + b"\2\0\10\6\4\2"
    reader = AvroReader(text(later))
    assert reader.kept_as_bytes == ("up.B",)
    decoded = reader.decoder(text(pair("int", "A")))(pa.array([value])).to_pylist()
    assert decoded == [{"b": {"a": {"b": b"\2\2\2\2\0\10\6\4"}, "v": 1}}]


def test_a_record_that_does_not_fit_is_not_met_again() -> None:
    """The records of the reader's B that were resolved inside the one with `more` need it, and are resolved again."""

    def a(space: str, b: Any, *more: Any) -> Any:
        return {**record(("b", ["null", b]), *more, name="A"), "namespace": space}

    def b(space: str, one: Any, other: Any) -> Any:
        return {**record(("a", ["null", one]), ("a2", ["null", other]), name="B"), "namespace": space}

    old = a("n1", b("n1", a("n2", b("n2", "n2.A", "n2.A")), "n2.A"))
    later = a("n1", b("n1", a("y", "n1.B", ("more", "int")), a("z", "n1.B")))
    reader = AvroReader(text(later))
    values = [b"\2\0\2\2\0\2\2" + inner + b"\0" for inner in (b"\0", b"\2\0")]
    decoded = decode_each(reader.decoder(text(old)), pa.array(values), reader.arrow_type)
    assert decoded.values.to_pylist() == [{"b": {"a": None, "a2": {"b": b"\0\2\2\0\0"}}}, None]
    assert decoded.reasons == {1: "a record n2.A, which does not fit the reader's union"}


def graph(kind: str) -> Any:
    """Each of three records contains all three, so the ways to one of them are many."""
    met: set[int] = set()

    def named(number: int) -> Any:
        if number in met:
            return f"R{number}"
        met.add(number)
        fields = [(f"f{each}", ["null", named(each)]) for each in range(3)]
        return record(*fields, ("x", kind), name=f"R{number}")

    return named(0)


def test_a_record_inside_itself_has_one_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(avro_decode, "record_encoder", lambda schema, name: made.append(name))
    AvroReader(text(graph("int"))).decoder()
    assert sorted(made) == ["R0", "R1", "R2"]


def test_records_that_do_not_fit_are_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    resolve = _Recoder._resolver

    def counted(recoder: _Recoder, written: Any, wanted: Any) -> Any:
        asked.append(written.name)
        return resolve(recoder, written, wanted)

    monkeypatch.setattr(_Recoder, "_resolver", counted)
    with pytest.raises(Undecodable, match="the writer's int does not fit the reader's string"):
        AvroReader(text(graph("string"))).decoder(text(graph("int")))
    assert sorted(asked) == ["R0", "R1", "R2"]


def test_schemas_that_are_nested_too_deeply_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their resolution may need more of Python's stack than each of them, by the version of Python."""

    def too_deep(*given: Any) -> Any:
        return too_deep(*given)

    monkeypatch.setattr("remote_fetch.typed.avro.resolver", too_deep)
    with pytest.raises(Undecodable, match="the two schemas are nested too deeply"):
        AvroReader(text(tree(("v", "long")))).decoder(text(tree(("v", "int"))))


def test_a_value_that_is_nested_too_deeply_does_not_decode() -> None:
    deep = b"\x02\x02" * 1_000_000 + b"\x02\x00"
    with pytest.raises(Undecodable, match="too deeply"):
        AvroReader(text(RECURSIVE)).decoder()(pa.array([deep]))


def test_a_value_of_another_schema_that_is_nested_too_deeply_does_not_decode() -> None:
    """Between two depths fastavro reads a value, and Python's limit ends the resolution of its levels."""
    reader = AvroReader(text(tree(("v", "long"))))
    decode = reader.decoder(text(tree(("v", "int"))))
    outcomes = []
    for levels in (20, *range(150, 270, 10), 1000):
        value = b"\2\2" * levels + b"\2\0"
        decoded = decode_each(decode, pa.array([value]), reader.arrow_type)
        outcomes.append(decoded.reasons.get(0, "") or decoded.values.field("next")[0].as_py() == value[2:])
    assert outcomes[0] is True
    assert set(outcomes[1:-1]) <= {True, "nested too deeply"}
    assert outcomes[-1] == "nested too deeply"
