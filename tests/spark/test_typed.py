"""Typed columns in Spark and in the files of a backfill, with a registry on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.spark import backfill
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.source import KafkaRemoteDataSource
from remote_fetch.spark.typed import plan_of
from tests.spark.buckets import bucket_alone
from tests.spark.queries import run_to_end
from tests.typed.avro_cases import encode
from tests.typed.bucket import write_bucket
from tests.typed.registry_double import RegistryDouble, registry_double

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

V1: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
TIME = {"type": "long", "logicalType": "time-micros"}
V2: dict[str, Any] = {**V1, "fields": [*V1["fields"], {"name": "offset", "type": ["null", TIME], "default": None}]}


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        double.register("orders-value", V1)
        double.register("orders-value", V2)
        yield double


@pytest.fixture
def options(registry: RegistryDouble, tmp_path: Path) -> dict[str, str]:
    """How to read a bucket of 40 values of both versions, one of them broken."""
    values = [b"\0\0\0\0\1" + encode(V1, {"a": at}) for at in range(20)]
    values += [b"\0\0\0\0\2" + encode(V2, {"a": at, "offset": at}) for at in range(20, 39)]
    write_bucket(tmp_path / "tier", [*values, b"poison"])
    return {
        **bucket_alone(str(tmp_path / "tier")),
        "value.format": "avro-confluent",
        "value.on.error": "quarantine",
        "key.format": "string",
        "schema.registry.url": registry.url,
    }


def test_the_source_has_typed_columns(spark: SparkSession, options: dict[str, str], registry: RegistryDouble) -> None:
    frame = spark.read.format("kafka_remote").options(**options, subscribe="orders").load()
    assert frame.schema["value"].dataType.simpleString() == "struct<a:int,offset:bigint>"
    assert frame.columns[:4] == ["key", "value", "value_raw", "value_error"]
    rows = frame.selectExpr("value.a", "value.offset", "key", "value_raw", "value_error", "offset as at").collect()
    assert [(row.a, row.offset, row.at) for row in rows] == [
        *((at, None if at < 20 else at, at) for at in range(39)),
        (None, None, 39),
    ]
    assert {row.key for row in rows} == {"k"}
    assert [bytes(row.value_raw) for row in rows if row.value_raw is not None] == [b"poison"]
    assert "first byte is 112" in rows[-1].value_error
    assert not [path for path in registry.asked if path.startswith("/schemas/ids/")], "no task asks the registry"


def test_a_stream_has_typed_columns_also_of_later_schemas(
    spark: SparkSession, options: dict[str, str], registry: RegistryDouble, tmp_path: Path
) -> None:
    """A stream keeps the schema that it began with. Values of a schema that is newer than the stream are read by it."""
    stream = spark.readStream.format("kafka_remote").options(**options, subscribe="orders", startingOffsets="earliest")
    frame = stream.load()
    third = registry.register("orders-value", {**V2, "fields": [*V2["fields"], {"name": "b", "type": "int"}]})
    front = b"\0" + third.to_bytes(4, "big")
    later = [front + encode(V2, {"a": at, "offset": None}) + encode("int", 7) for at in range(5)]
    files, checkpoint = str(tmp_path / "files"), str(tmp_path / "checkpoint")
    writer = frame.select("offset", "value.a", "value_error").writeStream.format("parquet")
    write_bucket(tmp_path / "tier", [*(b"\0\0\0\0\1" + encode(V1, {"a": at}) for at in range(40)), *later])
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    run_to_end(lambda: writer.start(files))
    rows = sorted(tuple(row) for row in spark.read.parquet(files).collect())
    assert rows == [*((at, at, None) for at in range(40)), *((40 + at, at, None) for at in range(5))]


def test_a_backfill_has_typed_columns(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    to = tmp_path / "lake"
    columns = ["value", "offset"]
    done = backfill(spark, "orders", to=str(to), options=options, columns=columns)
    table = ds.dataset(to).to_table()
    assert done.rows == table.num_rows == 40
    assert table.schema.names == ["value", "value_raw", "value_error", "offset"]
    found = {row["offset"]: row["value"] for row in table.to_pylist()}
    assert found == {39: None, **{at: {"a": at, "offset": None if at < 20 else at} for at in range(39)}}


def test_several_topics_need_one_schema(registry: RegistryDouble, options: dict[str, str]) -> None:
    for how in ({"subscribe": "a,b"}, {"subscribePattern": "a.*"}):
        with pytest.raises(ConfigError, match="several topics"):
            plan_of(parse_options({**options, **how}), learns=False)
    assert plan_of(parse_options({**options, "subscribe": "a,b", "value.schema.subject": "orders-value"}), learns=True)


@pytest.mark.parametrize("column", ["offset", "value"])
def test_a_schema_without_nulls_is_refused_before_a_task_begins(options: dict[str, str], column: str) -> None:
    source = KafkaRemoteDataSource({**options, "subscribe": "orders"})
    schema = source.schema()
    source.reader(schema)
    schema[column].nullable = False
    with pytest.raises(ConfigError, match=r"of the given schema has the type .* NOT NULL|the given schema .* NOT NULL"):
        source.reader(schema)
