"""Maps that have a key twice: Avro values as fastavro reads them, whichever decoder a schema gets."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from remote_fetch.typed.avro import AvroReader
from remote_fetch.typed.map_keys import has_twins
from tests.typed.test_avro import record, text

MAP = {"type": "map", "values": "int"}
TWICE, ONCE = b"\4\2a\2\2a\4\0", b"\4\2b\2\2a\4\0"


@pytest.mark.parametrize(
    ("kind", "front", "rear"),
    [
        (MAP, b"", b""),
        (["null", MAP], b"\2", b""),
        ({"type": "array", "items": MAP}, b"\2", b"\0"),
        ({"type": "map", "values": MAP}, b"\2\2k", b"\0"),
        (record(("in", MAP), name="In"), b"", b""),
    ],
)
@pytest.mark.parametrize("more", ["string", "bytes"])  # pyruhvro, fastavro
def test_the_last_entry_of_a_key_counts(kind: Any, front: bytes, rear: bytes, more: str) -> None:
    schema = record(("m", kind), ("more", more))
    values = [front + each + rear + b"\2x" for each in (ONCE, TWICE, ONCE)]
    parsed = fastavro.parse_schema(schema)
    found: list[Any] = AvroReader(text(schema)).decoder()(pa.array(values)).to_pylist()
    assert [_plain(row["m"]) for row in found] == [
        fastavro.schemaless_reader(io.BytesIO(value), parsed, None)["m"]  # type: ignore[call-overload,index]
        for value in values
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        assert len(value) == len(dict(value))
        return {key: _plain(each) for key, each in value}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def test_the_same_key_in_two_maps_is_no_twin() -> None:
    maps = pa.map_(pa.string(), pa.int32())
    kind = pa.struct([("m", pa.list_(maps)), ("x", pa.int32())])
    column = pa.array([{"m": [[("a", 1)], [("a", 2), ("b", 1)], [("b", 1), ("a", 1)], None]}, None], kind)
    assert not has_twins(column)
    assert has_twins(pa.array([{"m": [[("a", 1)], [("b", 2), ("b", 1)]]}], kind))
