"""A table as jobs use it: a port with one implementation for each format.

Rules of the file:

- A table is seen at one version. `refresh` looks for a newer one.
- A commit brings in files and progress together, or neither of them, and only upon the version that is seen.
- Data files lie under the table's own location and are in no version before the commit.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from remote_fetch.amounts import one_line
from remote_fetch.errors import ConfigError
from remote_fetch.tables.job_records import StagedFile, TaskRecord
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.staging import Staging
from remote_fetch.tables.target_filesystem import of_target
from remote_fetch.typed.arrays import holds

__all__ = ["MISFIT_HINT", "Addition", "Table", "TableChanged", "TableFolder", "check_numbers", "said"]

MISFIT_HINT = (
    "Write to another table, convert the column in a transform, or, if it is typed, name the version of the schema "
    "that the table began with (value.schema.version)"
)
"""The hint of an error about a column that does not fit the table."""
_JOBS = "_remote_fetch"
"""The folder of plans and records below a table. Readers and cleaners of tables pass over names with an underscore."""
_SECRETS = (
    *("authorization", "connection", "credential", "key", "passphrase", "password"),
    *("proxy", "sas", "secret", "token", "uri"),
)
"""Parts of the names of options whose values may be secret, or have a secret in them."""
_MAX_SAID = 600
_NOISE = re.compile(r"\x1b\[[0-9;]*m|\n +0: .*", re.DOTALL)
"""The colours and the backtrace that delta-rs gives an error."""


class TableChanged(Exception):
    """The commit did not come in, because another one did since the table was looked at."""


@dataclass(frozen=True, slots=True)
class Addition:
    """The commit of a job: `reads` are the offsets that it adds, `held` is what the table has before it."""

    job_id: str
    records: Sequence[TaskRecord]
    reads: Progress
    held: Progress | None

    @property
    def total(self) -> Progress:
        """All that the table has after the commit."""
        added = Progress(self.reads.topic, self.reads.topic_id, self.reads.ranges, self.job_id)
        return added if self.held is None else self.held.followed_by(added)

    @property
    def files(self) -> Iterable[tuple[str, StagedFile]]:
        """The data files, each with its path below the table's location."""
        for record in self.records:
            for file in record.files:
                yield posixpath.join("data", self.job_id, record.attempt, file.path), file


class Table(Protocol):
    """A table of one format.

    Raises ConfigError for what the caller gave wrong, MissingExtra, and TableRefused for what the table or its catalog
    refuses. Messages have no secrets.
    """

    name: str
    """The name for messages and reports."""
    is_hive: bool
    """Whether files leave out the columns that they are partitioned by."""
    unsigned_bits: int
    """The widest unsigned numbers that columns may have, in bits. 0: none."""

    def refresh(self) -> bool:
        """Look at the newest version. Returns False if there is no such table."""

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Make an empty table, unless another process has just made it."""

    def check(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Raise ConfigError if files of this schema, partitioned so, do not fit. Columns that are missing are added."""

    def required(self) -> Sequence[str]:
        """The columns that take no null."""

    def progress(self, topic: str) -> Progress | None:
        """The offsets of a topic that the table has, by its own properties; None if it has none."""

    def table_id(self) -> str:
        """The id that the table's format gave it when it was made. It stays, also under another name."""

    def folder(self) -> TableFolder:
        """The table's location. Another table may lie there, too."""

    def commit(self, addition: Addition, schema: pa.Schema) -> None:
        """Add files, progress and missing columns. Raises TableChanged if the table is at another version."""

    def attempts_of(self, job_id: str) -> set[str]:
        """The attempts of a job whose files are in a version that is known: the one that is seen, and maybe others."""

    def has_commit_of(self, job_id: str) -> bool:
        """Whether a version that is known was made by a job, even if its files were replaced since."""

    def close(self) -> None:
        """Close what is open, such as a catalog's connections."""


class TableFolder:
    """The location of a table, in an fsspec filesystem: data files of jobs, and their plans and records."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = of_target(filesystem)
        self._root = root.rstrip("/")

    def staging(self, job_id: str) -> Staging:
        """The working place of a job: its data files are written where they stay."""
        folder = posixpath.join(self._root, _JOBS, job_id)
        return Staging(self._fs, job_id, folder, posixpath.join(self._root, "data", job_id))

    def jobs(self) -> list[str]:
        """The jobs that have files here, such as a plan."""
        folder = posixpath.join(self._root, _JOBS)
        self._fs.invalidate_cache()  # other drivers write here, too
        if not self._fs.exists(folder):
            return []
        names = (name.rstrip("/") for name in self._fs.ls(folder, detail=False))
        return sorted(posixpath.basename(name) for name in names if self._fs.find(name))


def check_numbers(table: Table, schema: pa.Schema) -> None:
    """Raise ConfigError for a column of numbers, at any depth, that the table's format does not have.

    These are half floats, and unsigned numbers that are too wide.
    """
    most = table.unsigned_bits
    for column in schema:
        if holds(column.type, pa.types.is_float16):
            raise ConfigError(
                f"the column {column.name!r} has the type {column.type}: the table {table.name} takes no half floats",
                key="to",
                hint="Cast them to float32 in the transform",
            )
        if holds(column.type, lambda kind: pa.types.is_unsigned_integer(kind) and kind.bit_width > most):
            raise ConfigError(
                f"the column {column.name!r} has the type {column.type}: the table {table.name} takes no unsigned "
                f"numbers{f' of more than {most} bits' if most else ''}",
                key="to",
                hint="Cast them to signed numbers in the transform: to the next wider type, such as uint32 to int64",
            )


def said(error: BaseException, options: Mapping[str, Any]) -> str:
    """The text of a library's error, in one line, without the values of options that may be secret.

    `?` stands for what a terminal may obey.
    """
    secrets = {
        str(value): name
        for name, value in options.items()
        if any(part in name.lower() for part in _SECRETS) and len(str(value)) > 3
    }
    text = _NOISE.sub("", str(error))
    for value in sorted(secrets, key=len, reverse=True):  # one may be a part of another
        text = text.replace(value, f"({secrets[value]})")
    shown = one_line(" ".join(text.split()), "?")
    return f"{type(error).__name__}: {shown}"[:_MAX_SAID]
