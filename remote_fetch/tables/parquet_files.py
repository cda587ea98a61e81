"""Arrow batches to Parquet files, a directory for each value of the columns they are partitioned by.

Rules of the file:

- Rows that wait for a row group are bounded in bytes, over all files together. So is the number of open files.
- A row group is written when it is large enough, or when the bound is reached.
- Directories are named as Hive and Spark name them, and their columns are left out of the files.
- For a table whose format has the values elsewhere, files keep all columns, and a file has rows of one partition alone.
"""

from __future__ import annotations

import datetime
import errno
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Integral
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from remote_fetch.errors import ConfigError
from remote_fetch.tables.job_records import StagedFile
from remote_fetch.typed.arrays import holds

__all__ = [
    "CALENDAR_S",
    "COMPRESSIONS",
    "FileForm",
    "ParquetFiles",
    "check_compression",
    "check_partition_by",
    "check_size",
    "directory_values",
    "is_derived",
]

COMPRESSIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4_raw": "lz4", "uncompressed": "none", "none": "none"}
)
"""Spark's names of the Parquet codecs that it reads without further libraries, and Arrow's names of them."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_TEXT_OF_NULL = f"%5F{_NULL[1:]}"
"""The directory of that text itself. Delta tables and Spark tell it from null by the escape."""
_DERIVED = ("day", "hour")
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000}
CALENDAR_S = (-62_135_596_800, 253_402_300_800)
"""The years 1 to 9999 in seconds since 1970, the end exclusive."""
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
"""The characters that Spark escapes in the name of a directory."""
_Key: TypeAlias = tuple[Any, ...]
"""The rows of a file have it in common: the names of their directories, or the values if the format has those
elsewhere. There null is another partition than a text that would have the same directory.
"""


def check_size(name: str, size: object) -> None:
    """Raise ConfigError if the argument `name` is no number of bytes above 0."""
    if not isinstance(size, Integral) or isinstance(size, bool) or size <= 0:
        raise ConfigError(f"{name}={size!r}: give a number of bytes above 0", key=name)


def check_compression(name: object, job: str, key: str = "compression") -> str:
    """The name in COMPRESSIONS; upper case is accepted, as in Spark. Raises ConfigError for another.

    `job` is the job of the user, for the message. `key` is the argument or setting that the name comes from.
    """
    if not isinstance(name, str) or name.lower() not in COMPRESSIONS:
        raise ConfigError(f"{key}={name!r}: {job} writes Parquet with {', '.join(COMPRESSIONS)}", key=key)
    return name.lower()


def check_partition_by(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Raise ConfigError for columns that files of this schema cannot be partitioned by.

    Possible are columns of whole numbers, strings, booleans and dates; and `day` and `hour` of `timestamp`, in UTC, if
    the schema has no columns of these names.
    """
    if isinstance(partition_by, str):
        raise ConfigError(
            f"partition_by={partition_by!r}: give a list of names, such as [{partition_by!r}]", key="partition_by"
        )
    if not isinstance(partition_by, Collection):
        raise ConfigError(f"partition_by={partition_by!r}: give a list of names", key="partition_by")
    if len(set(partition_by)) != len(partition_by):
        raise ConfigError(f"partition_by={list(partition_by)}: a column is named twice", key="partition_by")
    for name in partition_by:
        column = "timestamp" if is_derived(schema, name) else name
        # Arrow looks for no name that is not UTF-8.
        at = schema.get_field_index(column) if column in schema.names else -1
        if at < 0:
            raise ConfigError(
                f"partition_by names {name!r}; there are {', '.join(schema.names)}, and day and hour of timestamp",
                key="partition_by",
            )
        kind = schema.field(at).type
        plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind)
        fits = pa.types.is_timestamp(kind) if is_derived(schema, name) else plain or pa.types.is_date(kind)
        if not fits:
            raise ConfigError(
                f"partition_by={name!r} is of type {kind}; choose whole numbers, strings, booleans, dates, "
                "or day and hour of timestamp",
                key="partition_by",
            )
    if set(schema.names) <= set(partition_by):
        raise ConfigError("partition_by names every column: nothing is left for the files", key="partition_by")


def is_derived(schema: pa.Schema, name: str) -> bool:
    """Whether `day` or `hour` means that of `timestamp`: a column of the schema comes first."""
    return name in _DERIVED and name not in schema.names


@dataclass(slots=True)
class _OpenFile:
    path: str
    sink: Any
    writer: pq.ParquetWriter
    footers: list[pq.FileMetaData]
    rows: int = 0
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FileForm:
    """How the files of a job look. `schema` is that of the rows, `compression` a name in COMPRESSIONS.

    - `row_group_bytes` bounds one row group, and all rows of a task that wait for one, in bytes of memory.
    - With `file_bytes` a file is closed after the row group that makes it so large.
    - `is_hive` false: files keep the columns that they are partitioned by. A timestamp beyond the calendar has no day
      and no hour, and is refused with a ConfigError.
    - `of_table`: the types of columns are those of a table. Then files have no Arrow schema of their own: by it some
      readers find other types than the table's, as lists of fixed size. `_needs_arrow` tells the exceptions.
    """

    schema: pa.Schema
    partition_by: Sequence[str]
    compression: str
    row_group_bytes: int
    file_bytes: int | None = None
    is_hive: bool = True
    of_table: bool = False


class ParquetFiles:
    """The files of one task. `create` opens a new file by its path in the target; file names begin with `name`.

    If more than `max_open` files would be open, the least recently used one is closed; later rows for it begin a new
    file.
    """

    def __init__(self, form: FileForm, create: Callable[[str], Any], name: str, *, max_open: int = 32) -> None:
        check_partition_by(form.schema, form.partition_by)
        self._form = form
        self._schema = pa.schema([one for one in form.schema if not form.is_hive or one.name not in form.partition_by])
        self._create = create
        self._name = name
        self._max_open = max_open
        self._how: Any = {
            "compression": COMPRESSIONS[form.compression],
            "use_dictionary": _may_repeat(self._schema),
            "store_schema": not form.of_table or any(holds(field.type, _needs_arrow) for field in form.schema),
        }
        self._open: dict[_Key, _OpenFile] = {}
        self._pending_bytes = 0
        self._begun = 0
        self._written: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of the schema."""
        if batch.num_rows == 0:
            return
        batch = _of_whole_days(batch)
        pieces = max(1, -(-batch.nbytes // self._form.row_group_bytes))
        rows = -(-batch.num_rows // pieces)
        for at in range(0, batch.num_rows, rows):
            self._take(batch.slice(at, rows))

    def _take(self, batch: pa.RecordBatch) -> None:
        for key, part in self._parts(batch):
            file = self._open.pop(key, None) or self._begin(key)
            self._open[key] = file  # the file used last is the last in the dict
            file.pending.append(part)
            file.pending_bytes += part.nbytes
            self._pending_bytes += part.nbytes
            if self._pending_bytes >= self._form.row_group_bytes:
                fullest = max(self._open, key=lambda one: self._open[one].pending_bytes)
                self._flush(self._open[fullest])
                if self._form.file_bytes is not None and self._open[fullest].sink.tell() >= self._form.file_bytes:
                    self._end(fullest)

    def close(self) -> tuple[StagedFile, ...]:
        """Write all waiting rows and close all files; returns the written files."""
        for key in list(self._open):
            self._end(key)
        return tuple(self._written)

    def abandon(self) -> None:
        """Close the open files without finishing them."""
        for file in self._open.values():
            with suppress(Exception):  # the task has failed already, and what it wrote does not count
                file.writer.close()
                file.sink.close()
        self._open.clear()

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[_Key, pa.RecordBatch]]:
        """The rows of the batch by the key of their file, without the columns that name the directory."""
        rows = batch.select(self._schema.names)
        if not self._form.partition_by:
            yield (), rows
            return
        columns = [_values(batch, self._form, name) for name in self._form.partition_by]
        keys = pa.table(columns, names=[str(at) for at in range(len(columns))])
        try:
            distinct = keys.group_by(keys.column_names).aggregate([]).to_pylist()
        except OverflowError:  # of Python's date
            raise ConfigError(
                f"partition_by={list(self._form.partition_by)}: a date outside of the years 1 to 9999 names no "
                "directory",
                key="partition_by",
                hint="Leave its column out of partition_by, or replace such dates in a transform",
            ) from None
        for found in distinct:
            values = list(found.values())
            key = self._directories(values) if self._form.is_hive else tuple(values)
            if len(distinct) == 1:
                yield key, rows
                return
            mask: Any = None
            for column, value in zip(columns, values, strict=True):
                same: Any = pc.is_null(column)
                if value is not None:  # of the column's type: Arrow takes a number of Python for int64
                    same = pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
                mask = same if mask is None else pc.and_(mask, same)
            yield key, rows.filter(mask)

    def _begin(self, key: _Key) -> _OpenFile:
        if len(self._open) >= self._max_open:
            self._end(next(iter(self._open)))
        folders = key if self._form.is_hive else self._directories(key)
        path = "/".join([*folders, f"{self._name}-{self._begun}.parquet"])
        self._begun += 1
        try:
            sink = self._create(path)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG or not folders:
                raise
            raise self._too_long(folders) from error
        footers: list[pq.FileMetaData] = []
        writer = pq.ParquetWriter(sink, self._schema, metadata_collector=footers, **self._how)
        return _OpenFile(path, sink, writer, footers)

    def _directories(self, values: Iterable[Any]) -> tuple[str, ...]:
        return tuple(map(_directory, self._form.partition_by, values))

    def _too_long(self, folders: Sequence[str]) -> ConfigError:
        """The error for directories whose names a disk does not take. It shows no value: that may be secret."""
        longest, name = max(zip(folders, self._form.partition_by, strict=True), key=lambda pair: len(pair[0].encode()))
        return ConfigError(
            f"partition_by={list(self._form.partition_by)}: the target takes no directory as long as that of a value "
            f"of {name!r} ({len(longest.encode())} bytes)",
            key="partition_by",
            hint="Leave the column out of partition_by, or shorten its values in a transform",
        )

    def _flush(self, file: _OpenFile) -> None:
        if file.pending:
            table = pa.Table.from_batches(file.pending, schema=self._schema)
            file.writer.write_table(table, row_group_size=table.num_rows)
            file.rows += table.num_rows
            self._pending_bytes -= file.pending_bytes
            file.pending, file.pending_bytes = [], 0

    def _end(self, key: _Key) -> None:
        file = self._open[key]
        self._flush(file)
        file.writer.close()
        size_bytes = file.sink.tell()
        file.sink.close()
        del self._open[key]
        bounds = _bounds(file.footers[0], self._schema) if file.footers else {}
        self._written.append(StagedFile(file.path, file.rows, size_bytes, bounds))


def _may_repeat(schema: pa.Schema) -> list[str]:
    """The columns, by their paths in a file, that a dictionary may help: all but `offset`, which never repeats."""
    empty = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), empty)
    columns = pq.ParquetFile(pa.BufferReader(empty.getvalue())).schema
    return [path for path in (columns.column(at).path for at in range(len(columns))) if path != "offset"]


def _needs_arrow(kind: pa.DataType) -> bool:
    """Whether files of a table have to tell the Arrow type.

    Parquet has no type of nothing but null. Dictionaries and views are in the files of older versions, and pyiceberg
    reads no table in which some files tell them and others do not.
    """
    is_view = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    return is_view or pa.types.is_null(kind) or pa.types.is_dictionary(kind)


def _bounds(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, tuple[int, int]]:
    """The least and the greatest value of columns of whole numbers and timestamps, as the row groups tell them.

    Without columns that have nulls.
    """
    found: dict[str, tuple[int, int]] = {}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        place = schema.get_field_index(name)
        if place < 0:
            continue
        kind = schema.field(place).type
        if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
            continue
        groups = [footer.row_group(number).column(at).statistics for number in range(footer.num_row_groups)]
        known: list[tuple[Any, Any]] = [
            (one.min_raw, one.max_raw) for one in groups if one is not None and one.has_min_max and one.null_count == 0
        ]
        if known and len(known) == len(groups):
            found[name] = min(low for low, _ in known), max(high for _, high in known)
    return found


def directory_values(path: str) -> dict[str, str | None]:
    """The values that the directories of a file's path stand for, by column: the reverse of how they are named."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1])
    return {unquote(name): None if value == _NULL else unquote(value) for name, value in pairs}


def _of_whole_days(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without times of day in its columns `date64`: other libraries than Arrow's write them.

    A `date64` with a time of day is equal to no date. For one before 1970 Arrow writes the next day into the file.
    """
    for at, field_ in enumerate(batch.schema):
        if pa.types.is_date64(field_.type):
            days: Any = batch.column(at).cast(pa.timestamp("ms")).cast(pa.date32())
            batch = batch.set_column(at, field_, days.cast(pa.date64()))
    return batch


def _values(batch: pa.RecordBatch, form: FileForm, name: str) -> Any:
    if not is_derived(form.schema, name):
        return batch.column(name)
    times = _in_calendar(_in_utc(batch.column("timestamp")))
    if not form.is_hive and times.null_count > batch.column("timestamp").null_count:
        raise ConfigError(
            f"partition_by={name!r}: a timestamp lies beyond the year 9999, and has no {name} in this kind of table",
            key="partition_by",
            hint="Leave it out of partition_by, or replace such timestamps in a transform",
        )
    if name == "day":
        return times.cast(pa.date32())
    return pc.floor_temporal(times, unit="hour")


def _in_utc(times: Any) -> Any:
    """The same times in UTC. Arrow takes days and hours in the time zone of the column."""
    return times if times.type.tz is None else times.cast(pa.timestamp(times.type.unit, "UTC"))


def _in_calendar(times: Any) -> Any:
    """The times, with null for those outside the years 1 to 9999: producers that mistake the unit write such."""
    per_second = _PER_SECOND.get(times.type.unit)
    if per_second is None:
        return times  # nanoseconds in 64 bits do not leave the calendar
    count = times.cast(pa.int64())
    first, stop = (pa.scalar(seconds * per_second, pa.int64()) for seconds in CALENDAR_S)
    begun: Any = pc.greater_equal(count, first)
    not_over: Any = pc.less(count, stop)
    return pc.if_else(pc.and_(begun, not_over), times, pa.scalar(None, times.type))


def _directory(name: str, value: Any) -> str:
    return f"{_escaped(name)}={_shown(value)}"


def _shown(value: Any) -> str:
    if value is None:
        return _NULL
    if isinstance(value, datetime.datetime):  # %Y of the year 54 has two digits on Linux, and sorts behind 2024
        return f"{value.date()}-{value:%H}"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _TEXT_OF_NULL if text == _NULL else _escaped(text) or _NULL


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
