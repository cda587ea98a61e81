"""Files of tables have the types of the table alone: readers find no other ones in them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remote_fetch.tables import parquet_files
from tests.cases import each_of
from tests.tables.tables import FORMATS, Topic, export, opened, target

KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "embedding": (pa.list_(pa.float32(), 2), [0.5, 1.5]),
    "wide": (pa.large_string(), "wide"),
    "day_of": (pa.date64(), datetime.date(2024, 2, 1)),
    "items": (pa.list_view(pa.int32()), [1, 2]),
}
"""Types that Arrow has beside those of a table, and a value of each."""
ONLY_DELTA = ("day_of", "items")


@pytest.mark.parametrize("format_", FORMATS)
def test_polars_reads_columns_that_a_transform_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    kinds = {name: one for name, one in KINDS.items() if format_ == "delta" or name not in ONLY_DELTA}

    def transform(batch: pa.RecordBatch) -> pa.Table:
        made: Any = [pa.array([value] * batch.num_rows, kind) for kind, value in kinds.values()]
        return pa.table([batch.column("partition"), *made], names=["partition", *kinds])

    topic, where = Topic(tmp_path / "tier").grow(1), target(format_, tmp_path / "lake")
    export(topic, where, transform=transform)
    inner: Any = opened(where)
    frame = pl.scan_delta(where["to"]) if format_ == "delta" else pl.scan_iceberg(inner._table)
    assert frame.select(list(kinds)).unique().collect().to_dicts() == [{name: kinds[name][1] for name in kinds}]


def test_a_column_of_nothing_but_null(tmp_path: Path) -> None:
    """Parquet has no type for it. Without Arrow's schema Polars would find whole numbers."""

    def transform(batch: pa.RecordBatch) -> pa.Table:
        return pa.table([batch.column("partition"), pa.nulls(batch.num_rows)], names=["partition", "nothing"])

    where = target("delta", tmp_path / "lake")
    export(Topic(tmp_path / "tier").grow(1), where, transform=transform)
    assert pl.scan_delta(where["to"]).select("nothing").unique().collect().to_dicts() == [{"nothing": None}]


TEXTS = pa.dictionary(pa.int32(), pa.string())


@each_of("kind", [TEXTS, pa.string_view(), pa.binary_view(), pa.list_(TEXTS), pa.struct([("a", pa.string_view())])])
def test_a_table_that_an_older_version_began(tmp_path_factory: pytest.TempPathFactory, kind: Any) -> None:
    """All its files had the Arrow schema, and pyiceberg does not put a dictionary or a view together with text."""
    tmp_path = tmp_path_factory.mktemp("lake")

    def transform(batch: pa.RecordBatch) -> pa.Table:
        names = ["partition", "offset"]
        return pa.table([*map(batch.column, names), pa.nulls(batch.num_rows, kind)], names=[*names, "x"])

    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_files, "_needs_arrow", lambda _: True)
        export(topic, where, transform=transform)
    export(topic.grow(1), where, transform=transform)
    inner: Any = opened(where)
    assert inner._table.scan().to_arrow().num_rows == 40


def test_a_directory_keeps_the_types_of_arrow(tmp_path: Path) -> None:
    """It has no table that would tell them."""

    def transform(batch: pa.RecordBatch) -> pa.Table:
        made: Any = pa.array([[0.5, 1.5]] * batch.num_rows, KINDS["embedding"][0])
        return pa.table([made], names=["embedding"])

    export(Topic(tmp_path / "tier").grow(1), {"format": "parquet", "to": str(tmp_path / "out")}, transform=transform)
    found = pq.read_schema(next((tmp_path / "out").glob("*.parquet"))).field("embedding").type
    assert pa.types.is_fixed_size_list(found)
