"""Scans with typed columns: the rows of an export, under filters on fields, by each engine and in other processes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from remote_fetch import scan_topic
from remote_fetch.engines.topic_scan import TopicScan
from remote_fetch.errors import ConfigError, RegistryUnavailable, UndecodableValue, UnknownSchema
from tests.cases import each_of
from tests.typed.avro_cases import encode
from tests.typed.bucket import write_bucket
from tests.typed.registry_double import RegistryDouble, registry_double

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ROWS = [{"id": at, "at": 1000 * at, "note": None if at % 2 else f"n{at}"} for at in range(50)]


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        yield double


def scan_of(tmp_path: Path, registry: RegistryDouble, **more: Any) -> TopicScan:
    front = b"\0" + registry.register("orders-value", SCHEMA).to_bytes(4, "big")
    write_bucket(tmp_path / "tier", [front + encode(SCHEMA, row) for row in ROWS])
    config = {"remote.storage.url": str(tmp_path / "tier"), "schema.registry.url": registry.url}
    return scan_topic("orders", value_format="avro-confluent", key_format="string", config=config, **more)


@each_of("engine", ["arrow", "polars", "duckdb", "tasks"])
def test_a_field_in_a_filter(tmp_path: Path, registry: RegistryDouble, engine: str) -> None:
    scan = scan_of(tmp_path, registry)
    wanted: list[Any] = [(at, at, f"n{at}", "k") for at in (42, 44, 46, 48)]
    found: list[Any]
    if engine == "polars":
        value = pl.col("value").struct
        lazy = scan.polars().filter(value.field("id") > 40, value.field("note").is_not_null(), pl.col("offset") >= 10)
        found = lazy.select("offset", value.field("id"), value.field("note"), "key").collect().rows()
    elif engine == "duckdb":
        with duckdb.connect() as connection:
            relation = scan.duckdb(connection).filter("value.id > 40 and value.note is not null")
            found = relation.project('"offset", value.id, value.note, key').fetchall()
    else:
        seen: Any = (pc.field("value", "id") > 40) & pc.field("value", "note").is_valid()
        if engine == "arrow":
            batches = list(scan.batches(["offset", "value", "key"], seen))
        else:
            there: TopicScan = pickle.loads(pickle.dumps(scan))
            tasks = scan.tasks(filter=seen)
            batches = [batch.filter(seen) for task in tasks for batch in there.read(task, ["offset", "value", "key"])]
        rows: list[Any] = [row for batch in batches for row in batch.to_pylist()]
        found = [(row["offset"], row["value"]["id"], row["value"]["note"], row["key"]) for row in rows]
    assert found == wanted


def test_types_are_those_of_files(tmp_path: Path, registry: RegistryDouble) -> None:
    scan = scan_of(tmp_path, registry)
    assert str(scan.schema.field("value").type) == "struct<id: int64, at: int32, note: string>"
    assert scan.schema == next(scan.batches()).schema
    assert scan.schema.field("value") == next(scan.batches(["value"])).schema.field("value")


def json_scan(tmp_path: Path, on_error: str) -> TopicScan:
    write_bucket(tmp_path / "tier", [b'{"a": 1}', b'{"a": "x"}', b'{"a": 3}'])
    schema = tmp_path / "a.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    config = {"remote.storage.url": str(tmp_path / "tier"), "value.schema.file": str(schema)}
    return scan_topic("orders", value_format="json", config={**config, "value.on.error": on_error})


def test_a_value_that_does_not_decode(tmp_path: Path) -> None:
    scan = json_scan(tmp_path, "fail")
    with pytest.raises(UndecodableValue, match="orders-0, offset 1"):
        list(scan.batches(["value"]))
    assert [batch.num_rows for batch in scan.batches(["offset"])] == [3]  # values are not asked for


@each_of("engine", ["arrow", "polars", "duckdb"])
def test_quarantine_is_columns_of_their_own(tmp_path: Path, engine: str) -> None:
    scan = json_scan(tmp_path, "quarantine")
    assert [name for name in scan.schema.names if name.startswith("value")] == ["value", "value_raw", "value_error"]
    if engine == "arrow":
        batches = list(scan.batches(["value_raw", "offset"], pc.field("value_error").is_valid()))
        assert [row for batch in batches for row in batch.to_pylist()] == [{"value_raw": b'{"a": "x"}', "offset": 1}]
    elif engine == "polars":
        lazy = scan.polars().filter(pl.col("value_error").is_not_null()).select("value_raw", "offset")
        assert lazy.collect().rows() == [(b'{"a": "x"}', 1)]
    else:
        with duckdb.connect() as connection:
            relation = scan.duckdb(connection).filter("value_error is not null").project('value_raw, "offset"')
            assert relation.fetchall() == [(b'{"a": "x"}', 1)]


@each_of("engine", ["arrow", "dataset", "polars", "duckdb"])
def test_quarantine_is_there_if_no_column_is_named(tmp_path: Path, engine: str) -> None:
    scan = json_scan(tmp_path, "quarantine")
    if engine == "arrow":
        given = pa.Table.from_batches(scan.batches())
    elif engine == "dataset":
        given = scan.dataset().to_table()
    elif engine == "polars":
        given = scan.polars().collect().to_arrow()
    else:
        with duckdb.connect() as connection:
            given = scan.duckdb(connection).to_arrow_table()
    assert given.schema.names == scan.schema.names
    assert given["value_raw"].to_pylist() == [None, b'{"a": "x"}', None]


def test_what_is_wrong_is_known_at_once(tmp_path: Path, registry: RegistryDouble) -> None:
    scan = scan_of(tmp_path, registry)
    with pytest.raises(UnknownSchema, match="elsewhere"):
        scan_topic("orders", config={**scan.config, "value.schema.subject": "elsewhere"})
    with pytest.raises(ConfigError, match="unknown column 'value_raw'"):
        next(scan.batches(["value_raw"]))  # the column is not in quarantine
    away = {**scan.config, "schema.registry.url": "http://127.0.0.1:9", "fetch.remote.broker.timeout.ms": 1000}
    with pytest.raises(RegistryUnavailable):
        scan_topic("orders", config=away)
