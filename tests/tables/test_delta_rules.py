"""Delta tables of other writers, with rules for rows or with features that deltalake does not write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from remote_fetch.errors import ConfigError, TableRefused
from remote_fetch.tables import delta
from tests.cases import each_of
from tests.tables.tables import Topic, export, held, same

Field = dict[str, Any]


def column(name: str, kind: str, metadata: Mapping[str, str] | None = None, *, nullable: bool = True) -> Field:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": dict(metadata or {})}


COLUMNS = [column("partition", "integer"), column("offset", "long"), column("timestamp", "timestamp")]
COLUMNS += [column("value", "binary")]
GENERATED = {"delta.generationExpression": "CAST(timestamp AS DATE)"}
INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "offset > 5"}})}
OF_READERS = ("typeWidening", "vacuumProtocolCheck")
MAPPED = [
    {**one, "metadata": {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"}}
    for at, one in enumerate(COLUMNS, 1)
]


def made(
    directory: Path,
    columns: Sequence[Field] = COLUMNS,
    properties: Mapping[str, str] | None = None,
    feature: str | None = None,
    partition_by: Sequence[str] = (),
) -> dict[str, str]:
    """A table as another writer makes it, with a log of one version."""
    protocol: dict[str, Any] = {"minReaderVersion": 2, "minWriterVersion": 5}
    if feature is not None:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
        if feature in OF_READERS:
            protocol |= {"minReaderVersion": 3, "readerFeatures": [feature]}
    described = {
        "id": "0a1b2c3d-0000-0000-0000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": list(partition_by),
        "configuration": dict(properties or {}),
    }
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": described})]
    (log / f"{0:020d}.json").write_text("\n".join(lines))
    return {"format": "delta", "to": str(directory)}


@each_of(
    ("how", "why"),
    [
        ({"columns": [*COLUMNS, column("more", "string", nullable=False)]}, "the column 'more', which is NOT NULL"),
        ({"columns": [*COLUMNS, column("day", "date", GENERATED)]}, "the column 'day', which is .* generated"),
        ({"columns": [*COLUMNS, column("at", "long", INVARIANT)]}, "CHECK constraints or invariants"),
        ({"properties": {"delta.constraints.first": "partition < 1"}}, "CHECK constraints or invariants"),
        ({"properties": {"delta.setTransactionRetentionDuration": "interval 7 days"}}, "delta.setTransactionRetention"),
        ({"columns": MAPPED, "properties": {"delta.columnMapping.mode": "name"}}, "column mapping"),
        ({"columns": MAPPED, "properties": {"delta.columnMapping.mode": "id"}}, "column mapping"),
        ({"feature": "rowTracking"}, "the feature rowTracking"),
    ],
)
def test_a_rule_that_an_export_does_not_keep(tmp_path_factory: pytest.TempPathFactory, how: Any, why: str) -> None:
    """Rows that break it, or whose columns no reader finds, are not put in. Nothing is read."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), made(tmp_path / "table", **how)
    with pytest.raises(ConfigError, match=rf"the table .* has {why}.*: an export does not write into such a table"):
        export(topic, where, columns=["partition", "offset", "timestamp", "value"])
    assert not list(tmp_path.rglob("*.parquet"))


@each_of(
    ("how", "by"),
    [
        ({"columns": [*COLUMNS, column("day", "date", GENERATED)], "partition_by": ["day"]}, ["day"]),
        ({"columns": [*COLUMNS[:-1], column("value", "binary", nullable=False)]}, []),
        ({"properties": {"delta.columnMapping.mode": "none"}}, []),
        ({"feature": "checkConstraints"}, []),
    ],
)
def test_a_table_without_such_rules(tmp_path_factory: pytest.TempPathFactory, how: Any, by: Any) -> None:
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), made(tmp_path / "table", **how)
    export(topic, where, columns=["partition", "offset", "timestamp", "value"], partition_by=by)
    assert same(held(where), topic.rows())


def test_null_in_a_column_that_takes_none(tmp_path: Path) -> None:
    """deltalake would take the file: then `IS NULL` finds no row there, and `count` of the column fails."""
    columns = [*COLUMNS[:-1], column("value", "binary", nullable=False), column("day", "date", GENERATED)]
    where = made(tmp_path / "table", columns, partition_by=["day"])

    def without_values(batch: pa.RecordBatch) -> pa.RecordBatch:
        nulls: Any = pa.array([None] * batch.num_rows, pa.binary())
        return batch.select(["partition", "offset", "timestamp"]).append_column("value", nulls)

    with pytest.raises(ConfigError, match=r"a record has no value, and that column of the table is NOT NULL"):
        export(Topic(tmp_path / "tier").grow(1), where, transform=without_values, partition_by=["day"])
    assert held(where).num_rows == 0


@each_of("kind", [pa.timestamp("us", "+00:00"), pa.uuid()])
def test_a_type_that_delta_does_not_have(tmp_path_factory: pytest.TempPathFactory, kind: pa.DataType) -> None:
    """A new table is not made, and of one that is there nothing is read."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic = Topic(tmp_path / "tier").grow(1)

    def transform(batch: pa.RecordBatch) -> pa.Table:
        nulls: Any = pa.array([None] * batch.num_rows, kind)
        return pa.table([batch.column("offset"), nulls], names=["offset", "value"])

    for where in ({"format": "delta", "to": str(tmp_path / "new")}, made(tmp_path / "table")):
        with pytest.raises(ConfigError, match=r"the table .* cannot have the columns: \w+: .*in a transform$"):
            export(topic, where, transform=transform)
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.rglob("*.parquet"))


def of_structs(fields: Any, *, mixed: bool = False) -> Any:
    """A transform that gives a struct `s` of these fields: 7 in each; with `mixed` null in those that may be null."""

    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = {one.name: None if mixed and one.nullable else 7 for one in fields}
        structs: Any = pa.array([values] * batch.num_rows, pa.struct(fields))
        return batch.select(["partition", "offset"]).append_column("s", structs)

    return transform


_A, _A_NEVER_NULL, _B_NEVER_NULL, _B = (
    pa.field("a", pa.int64()), pa.field("a", pa.int64(), nullable=False),
    pa.field("b", pa.int64(), nullable=False), pa.field("b", pa.int64()),
)  # fmt: skip


@each_of(
    ("first", "second", "fits"),
    [
        ([_A_NEVER_NULL], [_A], False),
        ([_A_NEVER_NULL, _B], [_B], False),
        ([_A], [_A, _B_NEVER_NULL], False),
        ([_A_NEVER_NULL], [_A_NEVER_NULL, _B], True),
        ([_A, _B], [_A_NEVER_NULL], True),
    ],
)
def test_null_in_a_field_that_takes_none(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any, fits: bool
) -> None:
    """No row of the table could be read any more: Arrow casts no null to a field that is NOT NULL."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), {"format": "delta", "to": str(tmp_path / "table")}
    export(topic, where, transform=of_structs(first))
    topic.grow(1)
    if fits:
        export(topic, where, transform=of_structs(second, mixed=True))
    else:
        with pytest.raises(ConfigError, match=r"has the column 's' as struct<.*>, and not as struct<.*>"):
            export(topic, where, transform=of_structs(second, mixed=True))
    assert held(where, ["partition", "offset", "s"]).num_rows == (40 if fits else 20)


@each_of("is_new", [True, False])
def test_nanoseconds(tmp_path_factory: pytest.TempPathFactory, is_new: bool) -> None:
    """deltalake makes a table of them that its own reader refuses, and Spark's."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), {"format": "delta", "to": str(tmp_path / "table")}
    if not is_new:
        export(topic, where)

    def in_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("at", batch.column("timestamp").cast(pa.timestamp("ns", "UTC")))

    with pytest.raises(ConfigError, match=r"the column 'at' has the type timestamp\[ns, tz=UTC\]: few readers"):
        export(topic.grow(1), where, transform=in_nanoseconds)
    assert (tmp_path / "table").exists() is not is_new
    assert is_new or held(where).num_rows == 20


def test_a_table_that_has_nanoseconds_takes_more(tmp_path: Path) -> None:
    """Its readers know them. A struct gets a field beside them, and the table a column."""
    nanoseconds, place = pa.timestamp("ns", "UTC"), tmp_path / "table"
    columns = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("s", pa.struct([("at", nanoseconds)]))])
    deltalake.DeltaTable.create(str(place), schema=deltalake.Schema.from_arrow(columns))

    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        at: Any = batch.column("timestamp").cast(nanoseconds)
        kind: Any = pa.struct([("at", nanoseconds), ("more", nanoseconds)])
        both: Any = pa.StructArray.from_arrays([at, at], fields=list(kind))
        return batch.select(["partition", "offset"]).append_column("s", both).append_column("at", at)

    topic = Topic(tmp_path / "tier").grow(1)
    assert export(topic, {"format": "delta", "to": str(place)}, transform=transform).rows == 20


def test_a_feature_that_deltalake_does_not_write(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known ones are refused before anything is read. The error of another one is not that of a lost race."""
    refused = "did not take the commit: CommitFailedError: Unsupported table features"
    features = [*delta._UNWRITTEN, "unheard of"]
    monkeypatch.setattr(delta, "_UNWRITTEN", ())
    for feature in features:
        tmp_path = tmp_path_factory.mktemp("lake")
        topic, where = Topic(tmp_path / "tier").grow(1), made(tmp_path / "table", feature=feature)
        with pytest.raises(TableRefused, match=refused):
            export(topic, where, columns=["partition", "offset"])
