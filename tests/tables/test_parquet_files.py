"""Parquet files of one task: what went in comes out, in bounded pieces, in the directories that readers expect."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from remote_fetch.decode.columns import COLUMNS, schema_for
from remote_fetch.errors import ConfigError
from remote_fetch.tables.parquet_files import FileForm, ParquetFiles, check_partition_by, check_size
from tests.cases import each_of

_KINDS: dict[str, pa.DataType] = {"name": pa.string(), "number": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}
SCHEMA = pa.schema(_KINDS)


def batch(rows: Sequence[tuple[Any, Any, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def at(hour: int, day: int = 1) -> datetime.datetime:
    return datetime.datetime(2024, 2, day, hour, 59, 59, tzinfo=datetime.UTC)


class Disk:
    """Opens files below a directory, and counts how many are open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: list[Any] = []
        self.most_open = 0

    def create(self, path: str) -> Any:
        name = self.directory / path
        name.parent.mkdir(parents=True, exist_ok=True)
        self.files.append(name.open("xb"))
        self.most_open = max(self.most_open, sum(not one.closed for one in self.files))
        return self.files[-1]


def form(schema: pa.Schema, **more: Any) -> FileForm:
    return FileForm(schema, **{"partition_by": (), "compression": "zstd", "row_group_bytes": 32 << 20, **more})


def written(
    directory: Path, batches: Sequence[pa.RecordBatch], *, max_open: int = 32, **more: Any
) -> tuple[list[str], Disk]:
    disk = Disk(directory)
    files = ParquetFiles(form(SCHEMA, **more), disk.create, "part-00007", max_open=max_open)
    for one in batches:
        files.write(one)
    found = files.close()
    assert sum(one.rows for one in found) == sum(one.num_rows for one in batches)
    assert [(directory / one.path).stat().st_size for one in found] == [one.size_bytes for one in found]
    assert all(one.closed for one in disk.files)
    return sorted(one.path for one in found), disk


def test_row_groups_are_bounded(tmp_path: Path) -> None:
    batches = [batch([("x" * 100, n, at(1)) for n in range(50)]) for _ in range(20)]
    bound = 4 * batches[0].nbytes
    (path,), _ = written(tmp_path, batches, row_group_bytes=bound)
    meta = pq.ParquetFile(tmp_path / path).metadata
    assert [meta.row_group(number).num_rows for number in range(meta.num_row_groups)] == [200] * 5
    assert {meta.row_group(0).column(number).compression for number in range(3)} == {"ZSTD"}
    assert pq.read_table(tmp_path / path) == pa.Table.from_batches(batches)


@pytest.mark.parametrize(
    ("compression", "stored"),
    [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("gzip", "GZIP"), ("lz4_raw", "LZ4"), ("uncompressed", "UNCOMPRESSED")],
)
def test_compression(tmp_path: Path, compression: str, stored: str) -> None:
    rows = batch([("x" * 100, n, at(1)) for n in range(50)])
    (path,), _ = written(tmp_path, [rows], compression=compression)
    group = pq.ParquetFile(tmp_path / path).metadata.row_group(0)
    assert {group.column(number).compression for number in range(3)} == {stored}
    assert pq.read_table(tmp_path / path) == pa.Table.from_batches([rows])


def test_only_what_may_repeat_has_a_dictionary(tmp_path: Path) -> None:
    """A dictionary of offsets is as long as the column, and took a fifth of the time to write small records."""
    schema, disk = schema_for(COLUMNS), Disk(tmp_path)
    files = ParquetFiles(form(schema), disk.create, "part-00007")
    row = {"key": b"k", "value": b"v", "topic": "t", "headers": [{"key": "h", "value": b"x"}], "leaderEpoch": 1}
    files.write(pa.RecordBatch.from_pylist([{**row, "offset": n} for n in range(1000)], schema=schema))
    (file,) = files.close()
    with pq.ParquetFile(tmp_path / file.path) as written_file:
        group = written_file.metadata.row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
        plain = [column.path_in_schema for column in columns if not column.has_dictionary_page]
        assert plain == ["offset"]
        assert written_file.read().column("offset").to_pylist() == list(range(1000))


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6)])
@pytest.mark.parametrize(("by", "known"), [("day", "1970-01-02"), ("hour", "1970-01-02-00")])
def test_a_time_that_no_calendar_has(tmp_path: Path, by: str, known: str, unit: Any, per_second: int) -> None:
    fields: dict[str, pa.DataType] = {"offset": pa.int64(), "timestamp": pa.timestamp(unit, "UTC")}
    times = pa.array(
        [86_400 * per_second, 253_402_300_800 * per_second, -62_135_596_801 * per_second, None], pa.int64()
    )
    rows = pa.RecordBatch.from_arrays([pa.array(range(4)), times.cast(fields["timestamp"])], schema=pa.schema(fields))
    files = ParquetFiles(form(rows.schema, partition_by=[by]), Disk(tmp_path).create, "part")
    files.write(rows)
    found = {one.path.partition("/")[0]: one.rows for one in files.close()}
    assert found == {f"{by}={known}": 1, f"{by}=__HIVE_DEFAULT_PARTITION__": 3}


@each_of(("by", "known"), [("day", "2024-02-02"), ("hour", "2024-02-02-02")])
def test_days_and_hours_are_those_of_utc(tmp_path: Path, by: str, known: str) -> None:
    """A transform may give another time zone."""
    times = pa.array([at(2, day=2)], pa.timestamp("us", "America/New_York"))
    rows = pa.record_batch([pa.array([0]), times], names=["offset", "timestamp"])
    files = ParquetFiles(form(rows.schema, partition_by=[by]), Disk(tmp_path).create, "part")
    files.write(rows)
    assert [one.path.partition("/")[0] for one in files.close()] == [f"{by}={known}"]


@each_of("days", [2_932_897, -719_163])
def test_a_date_that_no_calendar_has(tmp_path: Path, days: int) -> None:
    """The column is not in the files of its directories, so that null would lose the date."""
    due = pa.array([0, days], pa.int32()).cast(pa.date32())
    rows = pa.RecordBatch.from_arrays([pa.array([0, 1]), due], names=["offset", "due"])
    files = ParquetFiles(form(rows.schema, partition_by=["due"]), Disk(tmp_path).create, "part")
    with pytest.raises(ConfigError, match=r"partition_by=\['due'\]: a date outside of the years 1 to 9999 names"):
        files.write(rows)
    files.abandon()


@each_of(("by", "known"), [("day", "%Y-%m-%d"), ("hour", "%Y-%m-%d-%H")])
def test_a_year_has_four_digits(tmp_path: Path, by: str, known: str) -> None:
    times: Any = pa.array([-60_435_596_800, 0], pa.timestamp("s", "UTC"))
    rows = pa.RecordBatch.from_arrays([pa.array([0, 1]), times], names=["offset", "timestamp"])
    files = ParquetFiles(form(rows.schema, partition_by=[by]), Disk(tmp_path).create, "part")
    files.write(rows)
    expected: Any = pc.strftime(times, format=known).to_pylist()
    assert sorted(one.path.partition("/")[0] for one in files.close()) == [f"{by}={each}" for each in expected]


def test_what_is_held_back_is_bounded_over_all_files(tmp_path: Path) -> None:
    rows = [[("x" * 50, n, at(n % 24)) for n in range(at_row, at_row + 24)] for at_row in range(0, 2400, 24)]
    disk = Disk(tmp_path)
    bound = 8 * batch(rows[0]).nbytes
    files = ParquetFiles(form(SCHEMA, partition_by=["hour"], row_group_bytes=bound), disk.create, "part")
    for one in rows:
        files.write(batch(one))
        assert sum(file.pending_bytes for file in files._open.values()) == files._pending_bytes < bound
    assert len(files.close()) == 24


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    batches = [batch([(f"n{n % 7}", n, None)]) for n in range(70)]
    paths, disk = written(tmp_path, batches, partition_by=["name"], max_open=3)
    assert disk.most_open == 3
    assert len(paths) == 70  # each value has gone before it comes again
    found = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert set(found.column("number").to_pylist()) == set(range(70))
    assert found.num_rows == 70


def test_directories(tmp_path: Path) -> None:
    rows = [("a/b=c%", 1, at(3)), ("a/b=c%", 2, at(4)), (None, 3, at(3)), ("", 4, at(3)), ("\u00e9 x", 5, None)]
    paths, _ = written(tmp_path, [batch(rows)], partition_by=["name", "day", "hour"])
    assert [path.rsplit("/", 1)[0] for path in paths] == [
        "name=__HIVE_DEFAULT_PARTITION__/day=2024-02-01/hour=2024-02-01-03",
        "name=a%2Fb%3Dc%25/day=2024-02-01/hour=2024-02-01-03",
        "name=a%2Fb%3Dc%25/day=2024-02-01/hour=2024-02-01-04",
        "name=\u00e9 x/day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__",
    ]
    found = ds.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert sorted((one["number"], one["name"]) for one in found) == [
        (1, "a/b=c%"),
        (2, "a/b=c%"),
        (3, None),
        (4, None),
        (5, "\u00e9 x"),
    ]
    assert pq.ParquetFile(tmp_path / paths[0]).schema_arrow.names == ["number", "timestamp"]


@pytest.mark.parametrize("is_hive", [True, False])
def test_a_value_that_is_too_long_for_a_directory(tmp_path: Path, is_hive: bool) -> None:
    """The error names the column, and not the value."""
    long = batch([("ö" * 126, 1, None)])  # each letter is two bytes
    with pytest.raises(ConfigError, match=r"of 'name' \(257 bytes\)") as failed:
        written(tmp_path, [long], partition_by=["number", "name"], is_hive=is_hive)
    assert failed.value.key == "partition_by"
    with pytest.raises(OSError, match="too long"):  # of another cause
        written(tmp_path / ("x" * 256), [long], partition_by=[])
    assert len(written(tmp_path, [batch([("ö" * 125, 1, None)])], partition_by=["name"], is_hive=is_hive)[0]) == 1


def test_dates_with_a_time_of_day(tmp_path: Path) -> None:
    """Other libraries than Arrow's write them into a date64. Rows were lost, and others were there twice."""
    days = pa.array([5, 7, 86_400_000, 0, -1], pa.int64()).view(pa.date64())
    rows = pa.record_batch([days, pa.array(range(5))], names=["day_of", "n"])
    files = ParquetFiles(form(rows.schema, partition_by=["day_of"]), Disk(tmp_path).create, "part")
    files.write(rows)
    found = {one.path.partition("/")[0]: pq.read_table(tmp_path / one.path, partitioning=None) for one in files.close()}
    assert {day: table.column("n").to_pylist() for day, table in found.items()} == {
        "day_of=1970-01-01": [0, 1, 3],
        "day_of=1970-01-02": [2],
        "day_of=1969-12-31": [4],
    }
    files = ParquetFiles(form(rows.schema, is_hive=False, of_table=True), Disk(tmp_path).create, "rows")
    files.write(rows)
    (whole,) = files.close()
    first, second = datetime.date(1970, 1, 1), datetime.date(1970, 1, 2)
    day_before = datetime.date(1969, 12, 31)
    assert pq.read_table(tmp_path / whole.path)["day_of"].to_pylist() == [first, first, second, first, day_before]


def test_the_name_of_a_column_is_escaped_in_a_directory(tmp_path: Path) -> None:
    rows = pa.record_batch([pa.array([0]), pa.array(["x"])], names=["n", "a=b/c%41"])
    files = ParquetFiles(form(rows.schema, partition_by=["a=b/c%41"]), Disk(tmp_path).create, "part")
    files.write(rows)
    assert [one.path for one in files.close()] == ["a%3Db%2Fc%2541=x/part-0.parquet"]
    assert ds.dataset(tmp_path, partitioning="hive").to_table().to_pylist() == [{"n": 0, "a=b/c%41": "x"}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.uint64(), [2**64 - 1, 2**63, 2**63 - 1]),
        (pa.int64(), [-(2**63), 2**63 - 1, 0]),
        (pa.uint8(), [0, 255, 1]),
        (pa.bool_(), [True, False, None]),
        (pa.date64(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None]),
    ],
    ids=str,
)
def test_values_of_each_type(tmp_path: Path, kind: Any, values: list[Any]) -> None:
    """Each value has a directory with its rows, also those beyond the numbers that Arrow takes from Python."""
    rows = pa.record_batch([pa.array(values * 2, kind), pa.array(range(6), pa.int64())], names=["by", "n"])
    files = ParquetFiles(form(rows.schema, partition_by=["by"]), Disk(tmp_path).create, "part")
    files.write(rows)
    tables = [pq.read_table(tmp_path / one.path, partitioning=None) for one in files.close()]
    found: list[Any] = [one["n"].to_pylist() for one in tables]
    assert sorted(found) == [[0, 3], [1, 4], [2, 5]]


def test_nothing_is_written_of_nothing(tmp_path: Path) -> None:
    assert written(tmp_path, [batch([])])[0] == []
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_abandoned_are_closed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    files = ParquetFiles(form(SCHEMA), disk.create, "part")
    files.write(batch([("a", 1, None)]))
    files.abandon()
    assert [one.closed for one in disk.files] == [True]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["nothing"], "names 'nothing'; there are name, number, timestamp"),
        (["name", "name"], "named twice"),
        (["timestamp"], "of type timestamp"),
        (["name", "number", "timestamp"], "of type timestamp"),
    ],
)
def test_what_cannot_be_a_directory(names: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_partition_by(SCHEMA, names)


def test_something_has_to_be_left() -> None:
    with pytest.raises(ConfigError, match="nothing is left"):
        check_partition_by(pa.schema([("name", pa.string())]), ["name"])
    with pytest.raises(ConfigError, match="names 'day'"):
        check_partition_by(pa.schema([("name", pa.string())]), ["day"])


@Integral.register
class Whole:
    """A whole number that is no `int`, such as NumPy's."""

    def __le__(self, other: int) -> bool:
        return False


def test_a_size_may_be_a_number_of_another_library() -> None:
    check_size("file_bytes", Whole())
    with pytest.raises(ConfigError, match="file_bytes=True"):
        check_size("file_bytes", True)
