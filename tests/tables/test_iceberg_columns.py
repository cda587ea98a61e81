"""Columns of an Iceberg table whose type changes from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

from remote_fetch.errors import ConfigError
from tests.cases import each_of
from tests.tables.tables import Topic, export, held, target


def giving(kind: pa.DataType, value: Any = None) -> Callable[[pa.RecordBatch], pa.Table]:
    """A transform that gives each record the same value in a column of a type."""

    def transform(batch: pa.RecordBatch) -> pa.Table:
        made: Any = pa.array([value] * batch.num_rows, kind)
        names = ["partition", "offset"]
        return pa.table([*map(batch.column, names), made], names=[*names, "x"])

    return transform


@contextmanager
def table_of(tmp_path: Path) -> Iterator[Any]:
    """The table, as another engine opens it."""
    with closing(load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/lake/catalog.db")) as catalog:
        yield catalog.load_table("lake.topic")


@contextmanager
def changed(tmp_path: Path) -> Iterator[Any]:
    """An update of the table's schema, as another engine makes it."""
    with table_of(tmp_path) as table, table.update_schema(allow_incompatible_changes=True) as update:
        yield update


MAPPING = "schema.name-mapping.default"
TEXT, BYTES = pa.string(), pa.binary()
WORDS = pa.dictionary(pa.int32(), TEXT)


@each_of(
    ("first", "second"),
    [
        (giving(pa.decimal128(5, 2), Decimal("1.23")), giving(pa.decimal128(10, 3), Decimal("1.234"))),
        (giving(pa.decimal128(10, 3), Decimal("1.234")), giving(pa.decimal128(5, 2))),
        (giving(BYTES, b"\xff"), giving(TEXT)),
        (giving(TEXT, "a"), giving(BYTES)),
        (giving(pa.struct([("a", TEXT)]), {"a": "b"}), giving(pa.struct([("a", BYTES)]), {"a": b"\xff"})),
        (giving(pa.list_(TEXT), ["b"]), giving(pa.list_(BYTES), [b"\xff"])),
        (giving(pa.map_(TEXT, TEXT), {"a": "b"}), giving(pa.map_(TEXT, BYTES), {"a": b"\xff"})),
    ],
)
def test_bytes_that_would_mean_another_value_are_refused(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any
) -> None:
    """pyiceberg takes both types for one. Bounds of the older files would hide their rows, or text would be none."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    export(topic, where, transform=first)
    topic.grow(1)
    with pytest.raises(ConfigError, match=r"do not fit the table lake\.topic: x is .* there, and not"):
        export(topic, where, transform=second)
    assert held(where, ["partition", "offset", "x"]).num_rows == 20


@each_of(
    ("first", "second", "whole"),
    [
        (
            giving(pa.decimal128(5, 2), Decimal("1.23")),
            giving(pa.decimal128(10, 2), Decimal("4.56")),
            "decimal128(10, 2)",
        ),
        (giving(pa.int8(), 1), giving(pa.int64(), 2), "int64"),
        (giving(WORDS, "a"), giving(WORDS, "b"), str(WORDS)),
        (giving(TEXT, "a"), giving(pa.large_string(), "b"), "string"),
        (giving(pa.float32(), 1.5), giving(pa.float64(), 2.5), "double"),
        (
            giving(pa.struct([("a", TEXT)]), {"a": "b"}),
            giving(pa.struct([("b", BYTES)]), {"b": b"\xff"}),
            "struct<a: string, b: binary>",
        ),
    ],
)
def test_a_column_that_may_grow_does(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any, whole: str
) -> None:
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    export(topic, where, transform=first)
    export(topic.grow(1), where, transform=second)
    found = held(where, ["partition", "offset", "x"])
    assert (found.num_rows, str(found.schema.field("x").type).replace("large_", "")) == (40, whole)


@each_of(("before", "after", "column"), [("x", "y", "y"), ("x.a", "b", "x")])
def test_a_renamed_column(tmp_path_factory: pytest.TempPathFactory, before: str, after: str, column: str) -> None:
    """Files have its old name. A new column of that name would take the values of the rows before."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    writes = giving(pa.struct([("a", TEXT)]), {"a": "b"})
    export(topic, where, transform=writes)
    with changed(tmp_path) as update:
        update.rename_column(before, after)
    topic.grow(1)
    with pytest.raises(ConfigError, match=rf"do not fit the table lake\.topic: {before} was renamed to "):
        export(topic, where, transform=writes)
    export(topic, where, columns=["partition", "offset"])
    assert held(where, ["partition", "offset", column]).column(column).null_count == 20


@each_of(("is_deep", "name"), [(False, "x"), (True, r"x\.b")])
def test_a_column_that_the_name_mapping_lacks(
    tmp_path_factory: pytest.TempPathFactory, is_deep: bool, name: str
) -> None:
    """Other engines may add a column and leave the mapping. Of such files some readers find no value, others no row."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    first, second = (pa.struct([(one, TEXT) for one in names]) for names in ("a", "ab"))
    if is_deep:
        export(topic, where, transform=giving(first, {"a": "c"}))
    else:
        export(topic, where, columns=["partition", "offset"])
    with table_of(tmp_path) as table:
        before = {MAPPING: table.properties[MAPPING]}
        with table.update_schema() as update:
            update.union_by_name(pa.schema([("x", second)]))
        with table.transaction() as transaction:
            transaction.set_properties(before)
    topic.grow(1)
    with pytest.raises(ConfigError, match=rf"do not fit .*: {name} is not in the property {MAPPING} there"):
        export(topic, where, transform=giving(second, {"a": "c", "b": "d"}))
    export(topic, where, columns=["partition", "offset"])
    assert held(where, ["partition", "offset"]).num_rows == 40


@each_of(
    ("first", "second", "said"),
    [
        (pa.int64(), TEXT, "x was dropped there as long, and is string: "),
        (TEXT, pa.list_(TEXT), "x was dropped there as string, and is list<string>: "),
        (pa.list_(TEXT), TEXT, "x was dropped there as list<string>, and is string: "),
        (pa.list_(pa.int64()), pa.list_(TEXT), "x.element was dropped there as long, and is string: "),
        (TEXT, TEXT, None),
        (pa.list_(TEXT), pa.list_(TEXT), None),
    ],
)
def test_a_dropped_column(
    tmp_path_factory: pytest.TempPathFactory, first: pa.DataType, second: pa.DataType, said: str | None
) -> None:
    """The values of older files come back. If they are of another type, the table could not be read any more."""
    tmp_path = tmp_path_factory.mktemp("lake")
    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    export(topic, where, transform=giving(first))
    with changed(tmp_path) as update:
        update.delete_column("x")
    topic.grow(1)
    if said is None:
        export(topic, where, transform=giving(second))
        assert held(where, ["partition", "offset", "x"]).num_rows == 40
    else:
        with pytest.raises(ConfigError, match=f"do not fit the table lake.topic: {said}older files could not be read"):
            export(topic, where, transform=giving(second))
        export(topic, where, columns=["partition", "offset"])
        assert held(where, ["partition", "offset"]).num_rows == 40


def test_an_identifier_field(tmp_path: Path) -> None:
    """pyiceberg refuses to make it optional, in pydantic's words."""
    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    export(topic, where, columns=["partition", "offset"])
    with changed(tmp_path) as update:
        update.update_column("offset", required=True)
        update.set_identifier_fields("offset")

    def never_null(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.cast(pa.schema([one.with_nullable(one.name != "offset") for one in batch.schema]))

    topic.grow(1)
    with pytest.raises(ConfigError, match=r"offset is an identifier field there\. Give it as a column that is not"):
        export(topic, where, columns=["partition", "offset"])
    export(topic, where, columns=["partition", "offset"], transform=never_null)
    assert held(where, ["partition", "offset"]).num_rows == 40


def test_a_column_that_each_row_has_to_have(tmp_path: Path) -> None:
    """pyiceberg refuses the files, and prints a table."""
    topic, where = Topic(tmp_path / "tier").grow(1), target("iceberg", tmp_path / "lake")
    export(topic, where, columns=["partition", "offset"])
    with changed(tmp_path) as update:
        update.add_column("place", StringType(), required=True)
    with pytest.raises(ConfigError, match=r"do not fit the table lake\.topic: place is required there"):
        export(topic, where, columns=["partition", "offset"])
