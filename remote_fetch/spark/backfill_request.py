"""The arguments of `backfill` as one value, the checks on them, and the name that they give to a job.

Rules of the file:

- No broker is asked, and nothing is opened but the schemas of typed columns.
- The user's transform is called once, with an empty batch.
- The fingerprint is part of saved plans and of directory names: it must not change between releases.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remote_fetch.decode.columns import wanted_columns
from remote_fetch.errors import ConfigError
from remote_fetch.spark.options import SourceOptions, Subscription, parse_options
from remote_fetch.spark.typed import plan_of, typed_schema
from remote_fetch.tables.formats import TABLES, check_format, check_options, checked_target
from remote_fetch.tables.parquet_files import check_compression, check_partition_by, check_size
from remote_fetch.tables.write_task import Transform, schema_of
from remote_fetch.typed.plan import TypedPlan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BackfillRequest", "CheckedRequest"]

_SUBSCRIBING = ("subscribe", "subscribepattern", "assign")
_NAMING = (
    *("starting", "ending", "kafka.isolation.level", "kafka.bootstrap.servers", "fetch.remote.bucket.only"),
    *("remote.storage.url", "assign"),
)
"""Prefixes of the options that say what is read. All other options say how, and do not name a job."""


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """The arguments of `backfill`, whose docstring describes each field. Options may hold secrets."""

    topic: str
    to: object
    options: Mapping[str, Any] = field(repr=False)
    format: str = "parquet"
    columns: Sequence[str] | None = None
    partition_by: Sequence[str] = ()
    compression: str | None = None
    transform: Transform | None = None
    to_options: Mapping[str, Any] | None = field(default=None, repr=False)
    job_id: str | None = None
    row_group_bytes: int = 32 << 20

    def check(self) -> CheckedRequest:
        """Check all arguments. Raises ConfigError for the first wrong one, and the errors of the transform."""
        check_format(self.format)
        url = checked_target(self.to, self.format)
        check_options(self.to_options)
        if self.job_id is not None and self.format in TABLES:
            raise ConfigError(
                f"job_id={self.job_id!r}: a table knows what is in it, and its jobs have no names of their own",
                key="job_id",
            )
        check_size("row_group_bytes", self.row_group_bytes)
        compression = None if self.compression is None else check_compression(self.compression, "a backfill")
        source = self._source_options()
        columns = tuple(wanted_columns(self.columns))
        typed = plan_of(source, learns=True)
        schema = schema_of(columns, self.transform, None if typed is None else typed_schema(typed, source, columns))
        check_partition_by(schema, self.partition_by)
        fingerprint = self._fingerprint(columns, schema, typed)
        job_id = self._checked_id() or fingerprint
        return CheckedRequest(source, columns, schema, compression, fingerprint, job_id, url, typed)

    def _source_options(self) -> SourceOptions:
        if not isinstance(self.options, Mapping):
            kind = type(self.options).__name__
            raise ConfigError(f"options is a dict of names and values, not a {kind}", key="options")
        for name in self.options:
            if name.lower() in _SUBSCRIBING:
                raise ConfigError(f"option '{name}': pass the topic as backfill's argument", key=name)
        source = parse_options({**self.options, "subscribe": self.topic})
        # The option takes names with commas between them. A job has one topic, whose name is taken as it is.
        return replace(source, subscription=Subscription((self.topic,)))

    def _fingerprint(self, columns: Sequence[str], schema: pa.Schema, typed: TypedPlan | None) -> str:
        """Hash identifying a job's input and output. Secrets and tuning options are left out."""
        naming = {name.lower(): str(value) for name, value in self.options.items() if name.lower().startswith(_NAMING)}
        made = [self.topic, columns, list(self.partition_by), str(schema)]
        if typed is not None:  # two of them may give the same Arrow schema, and other values
            made.append(typed.identity)
        text = json.dumps([naming, made], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]

    def _checked_id(self) -> str | None:
        job_id = self.job_id
        if job_id is not None and not (job_id and all(char.isalnum() or char in "-_." for char in job_id)):
            raise ConfigError(f"job_id={job_id!r}: use letters, digits, '-', '_' and '.'", key="job_id")
        return job_id


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request whose arguments are right, and what follows from them.

    `schema` is that of the files' rows. `compression` None: the session's setting decides. `fingerprint` identifies
    the job's input and output, `job_id` is it or the caller's, `url` is the target's, with an absolute path.
    `typed` tells which keys and values are typed.
    """

    source: SourceOptions
    columns: tuple[str, ...]
    schema: pa.Schema
    compression: str | None
    fingerprint: str
    job_id: str
    url: str
    typed: TypedPlan | None = None
