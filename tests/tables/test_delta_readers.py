"""Delta tables in the hands of readers: each filter finds all the rows that meet it, in every column."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema

from remote_fetch import read_arrow
from tests.cases import check_each, each_of, of_a_change
from tests.tables.tables import Topic, export, target

OF_TIMES = ("path", "min.timestamp", "max.timestamp")
Rows: TypeAlias = list[tuple[int, int]]

FIRST = datetime.datetime(2024, 2, 1, 10, 0, 0, 5, datetime.UTC)
KINDS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "text": (pa.string(), ("a", "b", None, "é", "")),
    "day_of": (pa.date32(), (datetime.date(2024, 2, 1), None, datetime.date(2024, 2, 3))),
    "moment": (pa.timestamp("us", "UTC"), (FIRST, None, FIRST.replace(year=9999))),
    "clock": (pa.timestamp("us"), (FIRST.replace(tzinfo=None), None)),
    "tiny": (pa.int8(), (-1, 5, None)),
    "small": (pa.int16(), (-300, 5)),
    "number": (pa.int32(), (None, 70_000, -2)),
    "big": (pa.int64(), (1 << 60, None)),
    "flag": (pa.bool_(), (True, None, False)),
    "real": (pa.float64(), (0.5, None, float("nan"), -2.0)),
    "half": (pa.float32(), (0.5, 4.0)),
    "raw": (pa.binary(), (b"k", b"", None)),
    "price": (pa.decimal128(9, 2), (None, 5)),
    "no_number": (pa.int64(), (None,)),
    "no_text": (pa.string(), (None,)),
    "inner_": (
        pa.struct([("number", pa.int64()), ("text", pa.string())]),
        ({"number": 1, "text": "a"}, None, {"number": None, "text": "b"}),
    ),
    "many": (pa.list_(pa.int64()), ([1, 2], None, [])),
}
"""The columns of a transform: each has the values of its tuple in turn."""
PREDICATES = (
    "\"offset\" >= 15", "\"partition\" = 1", "\"partition\" is null", "\"offset\" is not null", "\"timestamp\" is null",
    "topic = 'topic'", "topic is null", "topic <> 'other'", "key is not null", "value is null",
    "text = 'a'", "text = 'é'", "text = ''", "text is null", "text > 'a'", "text in ('b', 'x')", "text is not null",
    "day_of = date '2024-02-03'", "day_of is null", "day_of > date '2024-02-01'",
    "moment is null", "moment is not null", "clock is null", "clock is not null",
    "tiny = 5", "tiny is null", "tiny < 0", "small = -300", "number = 70000", "number is null", "number < 0",
    "big = 1152921504606846976", "big is null", "flag", "flag is null", "not flag",
    "real = 0.5", "real < 0", "real is null", "half > 1", "raw is null", "raw is not null",
    "price = 5", "price is null", "no_number is null", "no_number = 1", "no_text is null", "no_text = 'a'",
    "inner_ is null", "inner_ is not null", "many is null", "many is not null",
    "later is null", "later = 'new'", "later is not null", "later_number is null", "later_number = 7",
    "text is null and \"offset\" < 7", "topic = 'topic' and \"partition\" = 0 and no_text is null",
    "no_number is null or \"offset\" = 3",
)  # fmt: skip
"""Filters that all the engines of SQL understand alike."""


def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the columns of KINDS."""
    offsets: Any = batch.column("offset").to_pylist()
    for name, (kind, values) in KINDS.items():
        column = pa.array([values[at % len(values)] for at in offsets], kind)
        batch = batch.append_column(name, column)
    return batch


def with_later(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, with columns that the table did not begin with."""
    rows = filled(batch)
    rows = rows.append_column("later", pa.array(["new"] * batch.num_rows, pa.string()))
    return rows.append_column("later_number", pa.array([7] * batch.num_rows, pa.int32()))


def ours(columns: Callable[[pa.RecordBatch], pa.RecordBatch]) -> dict[str, Any]:
    """The arguments of an export whose rows are made by a transform, in one file for each task and directory."""
    return {"columns": None, "transform": columns, "file_bytes": 1 << 20, "row_group_bytes": 1 << 20}


def made(directory: Path, *, by_others: bool = False, **how: Any) -> DeltaTable:
    """A table of two runs, the second with more columns. `by_others`: another writer has made it, as writers do."""
    topic, where = Topic(directory / "tier").grow(2), target("delta", directory / "lake")
    if by_others:
        first = filled(read_arrow("topic", config=topic.config).read_next_batch())
        DeltaTable.create(where["to"], schema=Schema.from_arrow(first.schema))
    export(topic, where, **ours(filled), **how)
    export(topic.grow(), where, **ours(with_later), **how)
    return DeltaTable(where["to"])


def placed(found: Any) -> Rows:
    """The rows by partition and offset."""
    columns = (pa.table(found).column(name).to_pylist() for name in ("partition", "offset"))
    return sorted(zip(*columns, strict=True))


def equal(found: Rows, expected: Rows) -> None:
    """Fail if they differ."""
    assert found == expected


def by_duckdb(rows: Any) -> Callable[[str], Rows]:
    """DuckDB over a table in memory, or over a dataset, which is handed the filter."""
    connection = duckdb.connect()
    connection.register("x", rows)
    return lambda one: sorted(connection.execute(f'select "partition", "offset" from x where {one}').fetchall())


def by_dataset(table: DeltaTable) -> Callable[[str], Rows]:
    """DuckDB over the dataset of deltalake."""
    return by_duckdb(table.to_pyarrow_dataset())


def by_datafusion(table: DeltaTable) -> Callable[[str], Rows]:
    """The engine inside deltalake."""
    engine = QueryBuilder().register("x", table)
    return lambda one: placed(engine.execute(f'select "partition", "offset" from x where {one}').read_all())


def by_polars(table: DeltaTable, **how: Any) -> Callable[[str], Rows]:
    """The scan of Polars."""
    rows = pl.scan_delta(table, **how)
    return lambda one: sorted(rows.filter(pl.sql_expr(one)).select("partition", "offset").collect().rows())


def by_polars_dataset(table: DeltaTable) -> Callable[[str], Rows]:
    """Polars over the dataset of deltalake."""
    return by_polars(table, use_pyarrow=True)


HOWS: list[dict[str, Any]] = [
    {},
    {"by_others": True},
    {"partition_by": ["text"]},
    {"partition_by": ["partition", "day"]},
]


# With a change: a table of another writer, and one with two columns of partitions. They notice all rows of
# tests/mutations.toml that name this file.
@pytest.fixture(scope="module", params=of_a_change(HOWS, HOWS[1], HOWS[3]), ids=str)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Tables of all kinds, for reading."""
    return made(tmp_path_factory.mktemp("table"), **request.param)


def test_filters_of_engines(table: DeltaTable) -> None:
    every = pa.table(table.to_pyarrow_table())
    assert every.num_rows == 60
    expected = by_duckdb(every)
    readers = {read.__name__: read(table) for read in (by_dataset, by_datafusion, by_polars, by_polars_dataset)}
    cases = [(name, one) for one in PREDICATES for name in readers]
    check_each(cases, lambda case: equal(readers[case[0]](case[1]), expected(case[1])))


def test_filters_of_arrow(table: DeltaTable) -> None:
    """Each value of each column, and null, by the expressions of the dataset and by the tuples of `filters`."""
    every, dataset = pa.table(table.to_pyarrow_table()), table.to_pyarrow_dataset()
    kinds = {name: found for name, found in KINDS.items() if not pa.types.is_nested(found[0])}
    values = {name: [one for one in found if one is not None] for name, (_, found) in kinds.items()}
    values |= {"topic": ["topic"], "later": ["new"], "later_number": [7], "key": [b"k"], "timestampType": [0]}
    whole = [pc.field(name).is_null() for name in every.column_names]
    number, text = pc.field("inner_", "number"), pc.field("inner_", "text")
    parts = [number == 1, text == "b", number.is_null()]
    equals = [pc.field(name) == pa.scalar(one, every.field(name).type) for name in values for one in values[name]]
    check_each(
        [*whole, *parts, *equals, *(~one for one in whole), *(~one for one in equals)],
        lambda one: equal(placed(dataset.to_table(filter=one)), placed(every.filter(one))),
    )
    for name, value in (("topic", "topic"), ("later", "new"), ("text", "a"), ("number", -2), ("partition", 1)):
        found = pa.table(table.to_pyarrow_table(filters=[(name, "=", value)]))
        assert placed(found) == placed(every.filter(pc.field(name) == value)), name


def replaced(name: str, make: Callable[[Any], Any]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A transform that makes another column of one."""
    return lambda batch: batch.set_column(batch.schema.get_field_index(name), name, make(batch.column(name)))


ODD: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {
    "some have no time": replaced("timestamp", lambda one: pc.if_else(_odd(one), one, pa.scalar(None, one.type))),
    "none has a time": replaced("timestamp", lambda one: pa.nulls(len(one), one.type)),
    "a time beyond the calendar": replaced("timestamp", lambda one: pa.array([1 << 62] * len(one)).cast(one.type)),
    "a time of a clock": replaced("timestamp", lambda one: one.cast(pa.timestamp("us"))),
    "an offset is a text": replaced("offset", lambda one: one.cast(pa.string())),
    "some have no offset": replaced("offset", lambda one: pc.if_else(_odd(one), one, pa.scalar(None, one.type))),
    "there is no time": lambda batch: batch.drop_columns(["timestamp"]),
    "there is a topic alone": lambda batch: batch.select(["topic", "value"]),
}


def _odd(times: Any) -> Any:
    return pa.array([at % 2 == 1 for at in range(len(times))])


@each_of("name", list(ODD))
def test_columns_that_a_transform_has_changed(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    directory = tmp_path_factory.mktemp("odd")
    topic, where = Topic(directory / "tier").grow(2), target("delta", directory / "lake")
    export(topic, where, **ours(ODD[name]))
    found = DeltaTable(where["to"])
    every, dataset = pa.table(found.to_pyarrow_table()), found.to_pyarrow_dataset()
    assert every.num_rows == 40
    fields = [pc.field(column) for column in every.column_names]
    first = [one == every.column(column)[0] for one, column in zip(fields, every.column_names, strict=True)][:-1]
    for one in [*first, *(field.is_null() for field in fields), *(field.is_valid() for field in fields)]:
        assert dataset.to_table(filter=one).num_rows == every.filter(one).num_rows, one


def json_actions(table: Path) -> list[dict[str, Any]]:
    """The files of a table as its log adds them."""
    lines = [line for log in (table / "_delta_log").glob("*.json") for line in log.read_text("utf-8").splitlines()]
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def test_files_are_left_out(tmp_path: Path) -> None:
    """Readers need not open files whose statistics say that they have no such row."""
    topic, where = Topic(tmp_path / "tier"), target("delta", tmp_path / "lake")
    for _ in range(3):
        export(topic.grow(), where, **ours(filled), partitions=[0])
    export(topic, where, **ours(filled), partitions=[1])
    dataset = DeltaTable(where["to"]).to_pyarrow_dataset()
    latest = pc.max(dataset.to_table(["timestamp"]).column("timestamp"))
    filters = (None, pc.field("offset") == 13, pc.field("partition") == 0, pc.field("timestamp") == latest)
    assert [len(list(dataset.get_fragments(one))) for one in filters] == [4, 2, 3, 2]


def test_the_action_of_a_file(tmp_path: Path) -> None:
    """A stream of the table passes over files without a change of data. Bounds are wide: they have milliseconds."""

    def finer(batch: pa.RecordBatch) -> pa.RecordBatch:
        finer_by: Any = pa.array([500 + at for at in range(batch.num_rows)], pa.duration("us"))
        times: Any = pc.add(batch.column("timestamp"), finer_by)
        return batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", times)

    topic, where = Topic(tmp_path / "tier").grow(), target("delta", tmp_path / "lake")
    began_ms = int(time.time() * 1000)
    export(topic, where, transform=finer)
    found = DeltaTable(where["to"])
    actions = pa.table(found.get_add_actions(flatten=True))
    assert {one["dataChange"] for one in json_actions(Path(where["to"]))} == {True}
    assert min(one["modificationTime"] for one in json_actions(Path(where["to"]))) >= began_ms
    for path, least, most in zip(*(actions.column(name).to_pylist() for name in OF_TIMES), strict=True):
        times: list[Any] = pq.read_table(Path(where["to"]) / path).column("timestamp").to_pylist()
        assert least <= min(times) < max(times) <= most


def test_after_housekeeping(tmp_path: Path) -> None:
    """deltalake writes the statistics of compacted files, and keeps to the columns that the table names."""
    table = made(tmp_path)
    table.create_checkpoint()
    assert table.optimize.compact()["numFilesAdded"] == 1
    table.create_checkpoint()
    found = DeltaTable(table.table_uri).to_pyarrow_dataset()
    filters = {"topic": pc.field("topic") == "topic", "later": pc.field("later").is_null()}
    filters |= {"text": pc.field("text") == "a", "nothing": pc.field("no_text").is_null()}
    assert {name: found.to_table(filter=one).num_rows for name, one in filters.items()} == {
        "topic": 60, "later": 40, "text": 12, "nothing": 60,
    }  # fmt: skip
