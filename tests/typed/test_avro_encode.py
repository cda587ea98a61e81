"""Avro's binary encoding of columns and of decoded values: random ones, as fastavro writes them."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.typed.arrays import pa
from remote_fetch.typed.avro import AvroReader
from remote_fetch.typed.avro_encode import encoded, record_encoder
from remote_fetch.typed.avro_schema import AvroSchema
from tests.searches import examples
from tests.typed.avro_cases import encode, schemas, values
from tests.typed.test_avro import record, text


@examples(50)
@given(data=st.data())
def test_random_values_get_the_bytes_that_they_came_from(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    written = [encode(schema, row) for row in data.draw(st.lists(values(schema), max_size=4))]
    parsed = AvroSchema.parse(text(schema))
    column = AvroReader(text(schema)).decoder()(pa.array(written, pa.binary()))
    physical = fastavro.parse_schema(parsed.physical)
    decoded = [fastavro.schemaless_reader(io.BytesIO(each), physical, None) for each in written]
    found = encoded(parsed.node, column)
    assert list(map(record_encoder(parsed, schema["name"]), decoded)) == written
    # Columns have no decimals with sign bytes that are not needed.
    assert AvroReader(text(schema)).decoder()(pa.array(found, pa.binary())).equals(column)
    if "decimal" not in str(schema):
        assert found == written


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, b"\2\0"), (127, b"\2\x7f"), (128, b"\4\0\x80"), (-128, b"\2\x80"), (-129, b"\4\xff\x7f")],
)
def test_a_decimal_takes_the_fewest_bytes(number: int, expected: bytes) -> None:
    """As Java's and Confluent's serializers write them."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
    schema = AvroSchema.parse(text(kind))
    column = AvroReader(text(kind)).decoder()(pa.array([b"\x08" + number.to_bytes(4, "big", signed=True)]))
    assert encoded(schema.node, column) == [expected]


def test_fixed_decimals_and_uuids_have_their_size() -> None:
    fields: list[Any] = [
        ("m", {"type": "fixed", "name": "M", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("u", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
        ("n", {"type": "long", "logicalType": "timestamp-nanos"}),
    ]
    schema = AvroSchema.parse(text(record(*fields)))
    value = b"\xff\xff\xff\x01" + bytes(range(16)) + b"\7"
    assert encoded(schema.node, AvroReader(text(record(*fields))).decoder()(pa.array([value]))) == [value]


@pytest.mark.parametrize(("kind", "bits"), [("int", 32), ("long", 64)])
def test_a_number_beyond_its_bits_is_refused(kind: str, bits: int) -> None:
    encode_record = record_encoder(AvroSchema.parse(text(record(("x", kind)))), "R")
    least = -(1 << (bits - 1))
    assert encode_record({"x": least}) == b"\xff" * (bits // 7) + bytes([(1 << bits % 7) - 1])
    for number in (least - 1, -least):
        with pytest.raises(ValueError, match=f"more than {bits} bits"):
            encode_record({"x": number})
