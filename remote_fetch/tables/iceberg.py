"""Iceberg tables, by the library pyiceberg and any of its catalogs.

Rules of the file:

- Progress is in the summary of each snapshot that a job adds, and in a property of the table, which outlives snapshots.
  If the table is rolled back, the summary of the snapshot it was rolled back to counts. If all snapshots up to
  that one are known, and none tells of the topic, the table has nothing of it, whatever the property says. If some of
  them expired, the property counts. It does not if a branch that tells of the topic is known to be left: then the table
  has what it had where the branch began. A table without a current snapshot has nothing: CREATE OR REPLACE TABLE
  leaves its properties as they are, and the next commit removes those of all topics.
- Files and progress are one commit, which the catalog takes only upon the snapshot that was seen. pyiceberg's own
  retries are turned off: they would put the same offsets behind those of another job.
- A catalog may call a commit failed that came in: a request that is sent again after a lost answer meets itself. Then
  pyiceberg gets no error, for it removes the files of a failed commit.
- Files have no field ids. Columns are found by the table's name mapping.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from remote_fetch.errors import ConfigError, CorruptSegment, MissingExtra, TableRefused
from remote_fetch.session.filesystems import direct
from remote_fetch.tables.iceberg_columns import misfit
from remote_fetch.tables.parquet_files import is_derived
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.table import MISFIT_HINT, Addition, TableChanged, TableFolder, said

__all__ = ["IcebergTarget"]

_PROGRESS = "remote-fetch.progress."
_READS = "remote-fetch.reads"
_JOB = "remote-fetch.job"
_FIRST = 1
"""The sequence number of a table's first snapshot, from format 2 on. One without a parent may have lost it."""
_NAME = "catalog"
"""The option that names a catalog of pyiceberg's own configuration."""
_UNNAMED = "lake"
"""The name of a catalog that is given by its properties alone. A SQL catalog finds tables by it."""
_RETRIES = "commit.retry.num-retries"
_METRICS = "write.metadata.metrics.column."
_TRIES, _PAUSE_S = 5, 0.2
"""How often a new catalog in a file is opened: two processes that make its tables at once get in each other's way."""
_EXPECTED = "Give NAMESPACE.TABLE"
_SIGNER = "s3.signer"
"""The property that lets a service of the catalog sign each request."""


class IcebergTarget:
    """As `Table`. `identifier` is NAMESPACE.TABLE. `options` are the properties of a catalog of pyiceberg.

    `warehouse` without `type` and `uri`: the catalog is a SQLite file in that directory. `catalog`: its name in
    pyiceberg's own configuration.
    """

    is_hive = False
    unsigned_bits = 16  # pyiceberg takes them for 32 bits with a sign

    def __init__(self, identifier: str, options: Mapping[str, Any] | None) -> None:
        self.name = identifier
        if identifier.count(".") < 1 or not all(identifier.split(".")):
            raise ConfigError(f"to={identifier}: no name of an Iceberg table", key="to", hint=_EXPECTED)
        self._options = {key: str(value) for key, value in (options or {}).items()}
        self._lib = _library()
        self._catalog = self._opened()
        self._table: Any = None

    def refresh(self) -> bool:
        """As `Table.refresh`."""
        known = self._lib.exceptions
        try:
            self._table = self._catalog.load_table(self.name)
        except (known.NoSuchTableError, known.NoSuchNamespaceError):
            self._table = None
        except Exception as error:
            raise self._refused("cannot be opened", error) from None
        return self._table is not None

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """As `Table.create`. The namespace is made, too."""
        known = self._lib.exceptions
        try:
            self._make_namespace(self.name.rpartition(".")[0])
            with self._catalog.create_table_transaction(self.name, schema) as transaction:
                if partition_by:
                    with transaction.update_spec() as spec:
                        for name in partition_by:
                            spec.add_field(*_partition_field(name, schema))
        except (known.TableAlreadyExistsError, known.CommitFailedException):
            pass  # another process was first
        except Exception as error:
            raise self._refused("cannot be made", error) from None
        if not self.refresh():
            raise TableRefused(f"the Iceberg table {self.name} was made, and is not there")
        self.check(schema, partition_by)

    def check(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """As `Table.check`."""
        existing = self._partitioned_by()
        wanted = [_partition_field(name, schema)[:2] for name in partition_by]
        if existing != wanted:
            raise ConfigError(
                f"partition_by={list(partition_by)}: the table {self.name} is partitioned by "
                f"{[name if how == 'identity' else f'{how}({name})' for name, how in existing]}",
                key="partition_by",
                hint="Give day(timestamp) as day and hour(timestamp) as hour. An export has no other transforms",
            )
        try:
            why = misfit(self._table, schema)
        except Exception as error:
            why = said(error, self._options)
        if why is not None:
            raise ConfigError(f"the columns do not fit the table {self.name}: {why}", key="to", hint=MISFIT_HINT)

    def required(self) -> Sequence[str]:
        """As `Table.required`. A commit makes them optional."""
        return ()

    def progress(self, topic: str) -> Progress | None:
        """As `Table.progress`."""
        key = _PROGRESS + topic
        history = list(self._history(self._table.current_snapshot()))
        if not history:
            return None
        saved = next((text for text in (_summary(snapshot).get(key) for snapshot in history) if text is not None), None)
        if saved is not None:
            return self._parsed(saved)
        if history[-1].parent_snapshot_id is None and history[-1].sequence_number == _FIRST:
            return None
        saved = self._table.properties.get(key)
        if saved is None:
            return None
        left = self._left(history, key)
        if left is None:
            return self._parsed(saved)
        return self._parsed(left[key]).without(self._parsed(left[_READS]))

    def _history(self, snapshot: Any) -> Iterator[Any]:
        """The snapshot and those before it, the newest first, as far as they are known."""
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)

    def _left(self, history: Sequence[Any], key: str) -> Mapping[str, str] | None:
        """The first summary with `key` in a branch that left the history; None if none is known. The history has none.

        Any branch will do: they all began with the progress that the history has.
        """
        kept = {snapshot.snapshot_id for snapshot in history}
        for first in self._table.snapshots():
            if key in _summary(first):
                for before in islice(self._history(first), 1, None):
                    if before.snapshot_id in kept:
                        return _summary(first)
                    if key in _summary(before):
                        break
        return None

    def table_id(self) -> str:
        """As `Table.table_id`."""
        return str(self._table.metadata.table_uuid)

    def folder(self) -> TableFolder:
        """As `Table.folder`."""
        location = self._table.location()
        scheme = location.partition("://")[0] if "://" in location else "file"
        try:
            properties = dict(self._table.io.properties)
            filesystem = self._lib.io.fsspec.FsspecFileIO(properties).get_fs(scheme)
            if _SIGNER not in properties:  # the signer is known to the client of this filesystem alone
                filesystem = direct(filesystem)
        except Exception as error:
            raise self._refused(f"has its files in {scheme}://, which cannot be opened", error) from None
        return TableFolder(filesystem, str(filesystem._strip_protocol(location)))

    def commit(self, addition: Addition, schema: pa.Schema) -> None:
        """As `Table.commit`."""
        try:
            self._commit(addition, schema, {})
        except OverflowError:  # pyiceberg takes each bound for a value of Python, whose calendar ends with 9999
            self._commit(addition, schema, _without_bounds(schema))

    def _commit(self, addition: Addition, schema: pa.Schema, metrics: Mapping[str, str]) -> None:
        """As `commit`. `metrics` say which bounds pyiceberg looks for. Without them it may raise OverflowError."""
        table, location = self._table, self._table.location().rstrip("/")
        progress = {_PROGRESS + addition.reads.topic: addition.total.dump()}
        now = {_JOB: addition.job_id, _READS: addition.reads.dump()}
        metadata = table.metadata
        is_empty = table.current_snapshot() is None
        stale = [key for key in metadata.properties if is_empty and key.startswith(_PROGRESS)]
        # pyiceberg takes a file's partition from the bounds. Without them it is that of null, which queries pass over.
        bounds = {_METRICS + name: "full" for name, _ in self._partitioned_by()}
        properties = {**metadata.properties, **metrics, **bounds, _RETRIES: "0"}
        # Of this object only: the properties of the table stay what they are.
        table.metadata = metadata.model_copy(update={"properties": properties})
        table.catalog = _Committing(self._catalog, self._lib)
        try:
            with table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(schema)
                if stale:
                    transaction.remove_properties(*stale)
                transaction.set_properties(progress)
                paths = [posixpath.join(location, path) for path, _ in addition.files]
                # Paths are new: each has the name of an attempt. The check would read all manifests.
                transaction.add_files(paths, snapshot_properties=progress | now, check_duplicate_files=False)
        except self._lib.exceptions.CommitFailedException as error:
            raise TableChanged(said(error, self._options)) from None
        except Exception as error:
            if isinstance(error, OverflowError) and not metrics:
                raise
            if hasattr(self._catalog, "engine"):
                # SQLAlchemy keeps the connection if SQLite refuses COMMIT. Its next query sees what did not come in.
                self._catalog.engine.dispose()
            raise self._refused("did not take the commit", error) from None

    def attempts_of(self, job_id: str) -> set[str]:
        """As `Table.attempts_of`. All snapshots are known: a table that was rolled back has more than its history."""
        below = posixpath.join(self._table.location().rstrip("/"), "data", job_id, "")
        try:
            paths = list(self._paths())
        except Exception as error:
            raise self._refused("does not tell which files it has", error) from None
        return {path[len(below) :].split("/")[0] for path in paths if path.startswith(below)}

    def has_commit_of(self, job_id: str) -> bool:
        """As `Table.has_commit_of`."""
        return any(_summary(snapshot).get(_JOB) == job_id for snapshot in self._table.snapshots())

    def close(self) -> None:
        """As `Table.close`. A SQL catalog has connections to its database."""
        self._catalog.close()

    def _partitioned_by(self) -> list[tuple[str, str]]:
        """The column and the transform of each partition field."""
        columns = self._table.schema()
        return [(columns.find_column_name(one.source_id), str(one.transform)) for one in self._table.spec().fields]

    def _paths(self) -> Iterator[str]:
        """The files of all snapshots."""
        files = self._table.io
        found = (manifest for snapshot in self._table.snapshots() for manifest in snapshot.manifests(files))
        for manifest in {one.manifest_path: one for one in found}.values():
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(files))

    def _make_namespace(self, name: str) -> None:
        """Make the namespace unless it is there. Raises the catalog's error."""
        try:
            self._catalog.create_namespace_if_not_exists(name)
        except Exception:
            # Another process may have made it in between. A SQL catalog then shows an error of its database.
            if not self._catalog.namespace_exists(name):
                raise

    def _parsed(self, text: str) -> Progress:
        try:
            return Progress.load(text)
        except CorruptSegment as error:
            raise TableRefused(f"the Iceberg table {self.name} does not tell where it ends: {error.message}") from None

    def _opened(self) -> Any:
        given = dict(self._options)
        name = given.pop(_NAME, "default" if not given else _UNNAMED)
        warehouse = given.get("warehouse")
        tries = 1
        if warehouse is not None and not {"type", "uri"} & given.keys() and "://" not in warehouse:
            folder = os.path.abspath(warehouse)
            os.makedirs(folder, exist_ok=True)
            given |= {"type": "sql", "uri": _in_file(f"{folder}/catalog.db"), "warehouse": f"file://{folder}"}
            given.setdefault("py-io-impl", "pyiceberg.io.fsspec.FsspecFileIO")
            tries = _TRIES
        while True:
            tries -= 1
            try:
                return self._lib.catalog.load_catalog(name, **given)
            except Exception as error:
                if not tries:
                    raise ConfigError(
                        f"no Iceberg catalog: {said(error, self._options)}",
                        key="to_options",
                        hint="Give a directory as warehouse, or the properties of a catalog (type, uri, warehouse, "
                        "...), or the name of one in pyiceberg's configuration as catalog",
                    ) from None
            time.sleep(_PAUSE_S)

    def _refused(self, what: str, error: BaseException) -> TableRefused:
        return TableRefused(f"the Iceberg table {self.name} {what}: {said(error, self._options)}")


class _Committing:
    """The catalog, for a commit. Says that a commit has failed only if the table is without its snapshot."""

    def __init__(self, catalog: Any, library: Any) -> None:
        self._catalog, self._lib = catalog, library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        """As pyiceberg's. Raises the catalog's error if a failed commit cannot be looked for: it may have come in."""
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except self._lib.exceptions.CommitFailedException:
            now = self._catalog.load_table(table.name())
            added = [one.snapshot for one in updates if isinstance(one, self._lib.table.update.AddSnapshotUpdate)]
            if not added or any(now.snapshot_by_id(snapshot.snapshot_id) is None for snapshot in added):
                raise
            answer = self._lib.table.CommitTableResponse
            return answer(metadata=now.metadata, metadata_location=now.metadata_location)


def _library() -> Any:
    try:
        import pyiceberg.catalog  # noqa: PLC0415 - an extra
        import pyiceberg.exceptions  # noqa: PLC0415 - as above
        import pyiceberg.io.fsspec  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtra(f"Iceberg tables need {error.name}", extra="iceberg") from None
    return pyiceberg


def _in_file(path: str) -> str:
    """The URI of a SQLite catalog. SQLAlchemy writes it, as it reads it: a path may have `?` or `%` in it."""
    try:
        from sqlalchemy import URL  # noqa: PLC0415 - of the extra; only SQL catalogs need it
    except ModuleNotFoundError as error:
        raise MissingExtra(f"Iceberg catalogs in a file need {error.name}", extra="iceberg") from None
    # The annotation is for mypy, which does not read SQLAlchemy (pyproject.toml).
    uri: str = URL.create("sqlite", database=path).render_as_string()
    return uri


def _without_bounds(schema: pa.Schema) -> dict[str, str]:
    """Properties by which pyiceberg does not look for the bounds of dates and timestamps."""
    return {
        _METRICS + one.name: "counts" for one in schema if pa.types.is_date(one.type) or pa.types.is_timestamp(one.type)
    }


def _summary(snapshot: Any) -> Mapping[str, str]:
    """The properties that the commit of a snapshot has given it."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _partition_field(name: str, schema: pa.Schema) -> tuple[str, str, str]:
    """The column, the transform and the name of a partition field."""
    return ("timestamp", name, name) if is_derived(schema, name) else (name, "identity", name)
