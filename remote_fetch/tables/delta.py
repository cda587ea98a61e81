"""Delta tables, by the library deltalake.

Rules of the file:

- Progress is kept in application transactions, which are part of a commit and stay in the table's state: for each
  partition one whose version is the offset at which it goes on, and some for topic id, job and number of partitions.
- Every commit of a topic writes the transaction of its job. Delta refuses a commit if another one of the same
  transaction came in since the version that was read.
- The commit's info repeats the progress for people.
- Names that differ in case alone are one name for Delta, and are refused before anything is read.
- Rows do not pass through deltalake. So a table with rules for rows that a writer has to keep is refused.
- Columns are added, and so are fields of structs. Fields of structs in lists and maps are not: deltalake's own engine
  cannot read the older files then.
- A file has statistics of all the columns that the table's property names, or of none. If it had those of some,
  deltalake's reader would take each of the other columns for one without any row.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from remote_fetch.config.settings import typed_option
from remote_fetch.errors import ConfigError, MissingExtra, TableRefused
from remote_fetch.model import Uuid
from remote_fetch.session.filesystems import open_filesystem
from remote_fetch.tables.job_records import StagedFile
from remote_fetch.tables.parquet_files import CALENDAR_S, directory_values, is_derived
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.table import MISFIT_HINT, Addition, TableChanged, TableFolder, said
from remote_fetch.typed.arrays import holds, is_nanoseconds

__all__ = ["DeltaTarget"]

_INFO = "remote-fetch"
"""The key of a commit's info that has the progress."""
_STORAGE = "delta."
"""Options with this prefix are deltalake's storage options. The others are the filesystem's."""
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_ID_PARTS = (0, 6, 12)
"""Where the parts of a topic id begin; each fits into a version, which is a number of 63 bits."""
_DERIVED = {"day": pa.date32(), "hour": pa.string()}
_SKIPPING = "delta.dataSkippingStatsColumns"
"""The property that names the columns of statistics, for readers and for all that write into the table later."""
_SKIPPED_BY = ("partition", "offset", "timestamp")
"""Its columns in a table that is made here: no row has null there, and most reads of a part are bounded by them."""


_UNWRITTEN = frozenset(
    {
        *("allowColumnDefaults", "clustering", "domainMetadata", "icebergCompatV1", "icebergCompatV2"),
        *("identityColumns", "inCommitTimestamp", "materializePartitionColumns", "rowTracking"),
        *("typeWidening", "vacuumProtocolCheck"),
    }
)
"""Features of tables to which deltalake (1.6.6) does not write. It says so of these and of others with the commit."""
_UNSUPPORTED = "Unsupported table features"
"""How its error begins then. The error's class is that of a commit which another one has overtaken."""
_FORGETTING = "delta.setTransactionRetentionDuration"
"""With this property Spark's next checkpoint leaves out transactions without a time, such as those of an export."""
_GENERATED = "delta.generationExpression"


class DeltaTarget:
    """As `Table`. `url` is a directory, or a URL that both deltalake and fsspec know."""

    is_hive = True
    unsigned_bits = 0

    def __init__(self, url: str, options: Mapping[str, Any] | None) -> None:
        self.name = url if "://" in url else os.path.abspath(url)
        if _ENCODED.search(self.name) and (url.startswith("file://") or "://" not in url):
            raise ConfigError(
                f"to={url}: deltalake writes to a local path with such a % in one place, and reads it from another",
                key="to",
                hint="Name a directory without it",
            )
        given = dict(options or {})
        self._options = given
        self._storage = {key.removeprefix(_STORAGE): str(given[key]) for key in given if key.startswith(_STORAGE)}
        self._fs_options = {
            key: typed_option(key, value) if isinstance(value, str) else value
            for key, value in given.items()
            if not key.startswith(_STORAGE)
        }
        self._lib = _library()
        self._table: Any = None

    def refresh(self) -> bool:
        """As `Table.refresh`."""
        try:
            self._table = self._lib.DeltaTable(self.name, storage_options=self._storage or None)
        except self._lib.exceptions.TableNotFoundError:
            self._table = None
        except Exception as error:
            raise self._refused("cannot be opened", error) from None
        return self._table is not None

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """As `Table.create`."""
        self._check_names([], schema)
        wanted = self._wanted(schema, partition_by)
        self._check_new(wanted)
        try:
            self._lib.DeltaTable.create(
                self.name,
                schema=self._lib.Schema.from_arrow(pa.schema(wanted)),
                mode="ignore",
                partition_by=list(partition_by),
                configuration=_skipping(schema, partition_by),
                storage_options=self._storage or None,
            )
        except Exception as error:
            raise self._refused("cannot be made", error) from None
        self.refresh()
        self.check(schema, partition_by)

    def check(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """As `Table.check`."""
        existing = list(self._table.metadata().partition_columns)
        if existing != list(partition_by):
            raise ConfigError(
                f"partition_by={list(partition_by)}: the table {self.name} is partitioned by {existing}",
                key="partition_by",
            )
        self._check_rules({*schema.names, *partition_by})
        fields = self._fields()
        self._check_names(fields, schema)
        known = {field.name: field.type for field in fields}
        wanted = self._wanted(schema, partition_by)
        for column in wanted:
            found = known.get(column.name)
            if found is not None and not _takes(found, column.type):
                raise ConfigError(
                    f"the table {self.name} has the column {column.name!r} as {found}, and not as {column.type}",
                    key="to",
                    hint=MISFIT_HINT,
                )
        if not any(holds(kind, is_nanoseconds) for kind in known.values()):
            self._check_new(wanted)

    def _check_new(self, columns: Iterable[pa.Field[Any]]) -> None:
        """Raise ConfigError for the first nanoseconds of a table. Spark, polars and deltalake refuse such a table."""
        for column in columns:
            if holds(column.type, is_nanoseconds):
                raise ConfigError(
                    f"the column {column.name!r} has the type {column.type}: few readers know a Delta table with "
                    "nanoseconds",
                    key="to",
                    hint='Cast it to pa.timestamp("us", "UTC") in the transform',
                )

    def _check_rules(self, written: Collection[str]) -> None:
        """Raise ConfigError for rules that files with the columns `written` break, and for what deltalake refuses."""
        columns, properties = self._table.schema(), self._table.metadata().configuration
        found = [f"the feature {name}" for name in self._table.protocol().writer_features or () if name in _UNWRITTEN]
        has_constraints = any(name.startswith("delta.constraints.") for name in properties)
        if has_constraints or '"delta.invariants":' in columns.to_json():
            found.append("CHECK constraints or invariants")
        if properties.get("delta.columnMapping.mode", "none") != "none":
            found.append("column mapping, by which columns have other names in files")
        if _FORGETTING in properties:
            found.append(f"{_FORGETTING}, by which Spark forgets where exports end")
        unwritten = (field for field in columns.fields if field.name not in written)
        bound = (field.name for field in unwritten if not field.nullable or _GENERATED in field.metadata)
        found += [f"the column {name!r}, which is NOT NULL or generated" for name in bound]
        if found:
            raise ConfigError(
                f"the table {self.name} has {found[0]}: an export does not write into such a table",
                key="to",
                hint="Write to another table, and let an engine that keeps the rules of this one copy the rows",
            )

    def _check_names(self, known: Sequence[pa.Field[Any]], wanted: Iterable[pa.Field[Any]]) -> None:
        alike = _alike(known, wanted)
        if alike is not None:
            raise ConfigError(
                f"the table {self.name} cannot have both {alike[0]!r} and {alike[1]!r}: "
                "names of a Delta table differ in more than case",
                key="to",
                hint="Rename one of them in a transform, or write to Parquet files or an Iceberg table",
            )

    def required(self) -> Sequence[str]:
        """As `Table.required`. Nothing else keeps null out: rows do not pass through deltalake."""
        return [field.name for field in self._table.schema().fields if not field.nullable]

    def progress(self, topic: str) -> Progress | None:
        """As `Table.progress`. The ranges are known by their ends."""
        count = self._version(topic, "partitions")
        parts = [self._version(topic, f"id.{at}") for at in _ID_PARTS]
        if count is None or None in parts:
            return None
        raw = b"".join((part or 0).to_bytes(min(6, 16 - at), "big") for at, part in zip(_ID_PARTS, parts, strict=True))
        ends = ((number, self._version(topic, f"offset.{number}")) for number in range(count))
        ranges = {number: (end, end) for number, end in ends if end is not None}
        return Progress(topic, str(Uuid(raw)), ranges, f"{self._version(topic, 'job') or 0:015x}")

    def table_id(self) -> str:
        """As `Table.table_id`."""
        return str(self._table.metadata().id)

    def folder(self) -> TableFolder:
        """As `Table.folder`."""
        filesystem, path = open_filesystem(self.name, self._fs_options, key="to")
        return TableFolder(filesystem, path)

    def commit(self, addition: Addition, schema: pa.Schema) -> None:
        """As `Table.commit`. Missing columns are a version of their own before it: they hold null everywhere."""
        partition_by = list(self._table.metadata().partition_columns)
        try:
            known = {field.name: field.type for field in self._fields()}
            wanted = self._wanted(schema, partition_by)
            missing = [field for field in wanted if field.name not in known or _has_more(field.type, known[field.name])]
            if missing:  # a struct that is there gets the fields that it lacks
                fields = self._lib.Schema.from_arrow(pa.schema([field.with_nullable(True) for field in missing])).fields
                self._table.alter.add_columns(fields)
                # The version that is seen is another one now, and may have a commit that came in between.
                raise TableChanged("columns were added")
            self._table.create_write_transaction(
                [self._action(path, file, schema) for path, file in addition.files],
                mode="append",
                schema=self._table.schema(),
                partition_by=partition_by,
                commit_properties=self._lib.CommitProperties(
                    custom_metadata={_INFO: json.loads(addition.total.dump())},
                    max_commit_retries=15,
                    app_transactions=list(self._transactions(addition)),
                ),
            )
        except TableChanged:
            raise
        except self._lib.exceptions.CommitFailedError as error:
            if str(error).startswith(_UNSUPPORTED):
                raise self._refused("did not take the commit", error) from None
            raise TableChanged(said(error, self._options)) from None
        except Exception as error:
            raise self._refused("did not take the commit", error) from None

    def attempts_of(self, job_id: str) -> set[str]:
        """As `Table.attempts_of`. Known is the version that is seen."""
        paths: Any = pa.table(self._table.get_add_actions(flatten=True)).column("path")
        parts = (path.split("/") for path in paths.to_pylist())
        return {part[2] for part in parts if part[:2] == ["data", job_id]}

    def has_commit_of(self, job_id: str) -> bool:
        """As `Table.has_commit_of`, by the commits of the log that are still there."""
        try:
            commits = self._table.history()
        except Exception as error:
            raise self._refused("does not tell its history", error) from None
        infos = (commit.get(_INFO) for commit in commits)
        return any(isinstance(entry, dict) and entry.get("job") == job_id for entry in infos)

    def close(self) -> None:
        """As `Table.close`. deltalake keeps nothing open that could be closed."""

    def _wanted(self, schema: pa.Schema, partition_by: Sequence[str]) -> list[pa.Field[Any]]:
        """The columns of a schema as Delta has them, with those that are derived. Raises ConfigError if it has not."""
        try:
            whole = self._lib.Schema.from_arrow(_with_derived(schema, partition_by))
            return list(pa.schema(whole.to_arrow()))
        except Exception as error:
            raise ConfigError(
                f"the table {self.name} cannot have the columns: {said(error, self._options)}",
                key="to",
                hint="Convert them to types of Delta in a transform",
            ) from None

    def _fields(self) -> list[pa.Field[Any]]:
        return list(pa.schema(self._table.schema().to_arrow()))

    def _version(self, topic: str, what: str) -> int | None:
        try:  # deltalake reads the log now
            found: int | None = self._table.transaction_version(_app(topic, what))
        except Exception as error:
            raise self._refused("does not tell where it ends", error) from None
        return found

    def _transactions(self, addition: Addition) -> Any:
        total = addition.total
        raw = Uuid.parse(total.topic_id).raw
        values = {f"id.{at}": int.from_bytes(raw[at : at + 6], "big") for at in _ID_PARTS}
        values["job"] = int(addition.job_id, 16)
        values["partitions"] = max(total.ranges) + 1
        values |= {f"offset.{number}": stop for number, (_, stop) in addition.reads.ranges.items()}
        for what, version in values.items():
            yield self._lib.Transaction(_app(total.topic, what), version)

    def _action(self, path: str, file: StagedFile, schema: pa.Schema) -> Any:
        stats: dict[str, Any] = {"numRecords": file.rows}
        names = self._table.metadata().configuration.get(_SKIPPING, "").split(",")
        if file.bounds.keys() >= set(names):
            least = {name: _shown(schema.field(name).type, file.bounds[name][0], up=False) for name in names}
            most = {name: _shown(schema.field(name).type, file.bounds[name][1], up=True) for name in names}
            if None not in (*least.values(), *most.values()):
                stats |= {"minValues": least, "maxValues": most, "nullCount": dict.fromkeys(names, 0)}
        values = directory_values(file.path)
        now_ms = int(time.time() * 1000)
        return self._lib.transaction.AddAction(path, file.size_bytes, values, now_ms, True, json.dumps(stats))

    def _refused(self, what: str, error: BaseException) -> TableRefused:
        return TableRefused(f"the Delta table {self.name} {what}: {said(error, self._options)}")


def _library() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an extra
        import deltalake.exceptions  # noqa: PLC0415 - as above
        import deltalake.transaction  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtra(f"Delta tables need {error.name}", extra="delta") from None
    return deltalake


def _app(topic: str, what: str) -> str:
    return f"remote-fetch:{topic}:{what}"


def _with_derived(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """The schema with the columns `day` and `hour` that files are partitioned by."""
    more = [pa.field(name, _DERIVED[name]) for name in partition_by if is_derived(schema, name)]
    return pa.schema([*schema, *more])


def _skipping(schema: pa.Schema, partition_by: Sequence[str]) -> dict[str, str | None] | None:
    """The property of a new table, which has statistics of those columns alone that each file has; None: of none."""
    kinds = {field.name: field.type for field in schema if field.name in _SKIPPED_BY and field.name not in partition_by}
    moments = (name for name, kind in kinds.items() if pa.types.is_timestamp(kind) and kind.tz is not None)
    names = [*(name for name, kind in kinds.items() if pa.types.is_integer(kind)), *moments]
    return {_SKIPPING: ",".join(names)} if names else None


def _alike(known: Iterable[pa.Field[Any]], wanted: Iterable[pa.Field[Any]], above: str = "") -> tuple[str, str] | None:
    """Two fields, at any depth of both schemas together, whose names differ in case alone. None: there are none."""
    names: dict[str, str] = {}
    below: dict[str, tuple[list[Any], list[Any]]] = {}
    for at, fields in enumerate((known, wanted)):
        for field in fields:
            other = names.setdefault(field.name.lower(), field.name)
            if other != field.name:
                return above + other, above + field.name
            kind: Any = field.type
            inner = [kind.field(number) for number in range(kind.num_fields)]
            below.setdefault(field.name, ([], []))[at].extend(inner)
    found = (_alike(*each, f"{above}{name}.") for name, each in below.items())
    return next((each for each in found if each is not None), None)


def _takes(known: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of the table can hold the other type, if fields are added to its structs.

    Nothing reads a table that has null in a field which is NOT NULL there. Rows have it in a field that they lack.
    """
    if not (pa.types.is_struct(known) and pa.types.is_struct(wanted)):
        return known == wanted
    inner, given = ({field.name: field for field in kind} for kind in (known, wanted))
    needed = {name for name, field in inner.items() if not field.nullable}
    never_null = {name for name, field in given.items() if not field.nullable}
    if not needed <= never_null <= inner.keys():
        return False
    return all(_takes(inner[name].type, given[name].type) for name in inner.keys() & given.keys())


def _has_more(wanted: pa.DataType, known: pa.DataType) -> bool:
    """Whether a struct has fields, at any depth, that the table's lacks."""
    if not (pa.types.is_struct(known) and pa.types.is_struct(wanted)):
        return False
    inner = {field.name: field.type for field in known}
    return any(field.name not in inner or _has_more(field.type, inner[field.name]) for field in wanted)


def _shown(kind: pa.DataType, value: int, *, up: bool) -> int | str | None:
    """A value as Delta's statistics have it: a timestamp in whole milliseconds. None: it cannot be told."""
    if not pa.types.is_timestamp(kind):
        return value
    per_ms = {"s": 0, "ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit]
    if per_ms == 0:
        return None
    whole_ms = -(-value // per_ms) if up else value // per_ms
    first_s, stop_s = CALENDAR_S
    if not first_s * 1000 <= whole_ms < stop_s * 1000:
        return None
    text: Any = pa.scalar(whole_ms, pa.timestamp("ms")).cast(pa.string())
    return f"{text.as_py().replace(' ', 'T')}Z"
