"""Columns as Spark wants them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from remote_fetch.decode.columns import DEFAULT_COLUMNS, schema_for
from remote_fetch.errors import ConfigError
from remote_fetch.spark.schema import as_spark, columns_of, source_columns, source_schema


def test_the_columns_of_the_source() -> None:
    plain = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert source_columns(include_headers=False) == plain
    assert source_columns(include_headers=True) == (*plain, "headers")


def test_the_schema_names_types_as_json_does() -> None:
    fields = source_schema(("offset", "timestamp", "partition", "key"))["fields"]
    assert [field["type"] for field in fields] == ["long", "timestamp", "integer", "binary"]


def test_fewer_columns_in_another_order() -> None:
    assert columns_of([("offset", "bigint"), ("value", "binary")]) == ("offset", "value")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("Offset", "bigint")], "kafka_remote: the column 'Offset' of the given schema does not exist"),
        ([("offset", "int")], "kafka_remote: the column 'offset' of the given schema has the type bigint, not int"),
        ([("leaderEpoch", "int")], "kafka_remote: the column 'leaderEpoch' of the given schema does not exist"),
        ([("offset", "bigint")] * 2, "a column is named twice"),
        ([], "no column is named"),
    ],
)
def test_columns_that_are_not_there(fields: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        columns_of(fields)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "headers", [[[], [{"key": "a", "value": None}], []], [[], []], [[{"key": "a", "value": b"1"}]]]
)
def test_without_headers_there_are_none(headers: list[list[dict[str, object]]]) -> None:
    schema = schema_for(("offset", "headers"))
    for skipped in (0, 1):
        arrays = [pa.array(range(skipped + len(headers)), schema.field(0).type)]
        arrays.append(pa.array([[]] * skipped + headers, schema.field(1).type))
        batch = as_spark(pa.RecordBatch.from_arrays(arrays, schema=schema).slice(skipped))
        assert batch.schema == schema
        assert batch.column(1).to_pylist() == [one or None for one in headers]


def test_other_columns_are_left_alone() -> None:
    schema = schema_for(DEFAULT_COLUMNS[:7])
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, field.type) for field in schema], schema=schema)
    assert as_spark(batch) is batch
