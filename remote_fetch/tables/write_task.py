"""A worker's part of a job: it reads one task, writes its files, and then the record of the task.

Rules of the file:

- Each attempt writes under a name of its own, so that attempts at one task never meet.
- A task that has a record is not run again.
- The results of a transform must have the schema of the job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

import pyarrow as pa

from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError
from remote_fetch.observe import Observer, Report, ignore
from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.parquet_files import FileForm, ParquetFiles
from remote_fetch.tables.staging import Staging
from remote_fetch.tables.task_reader import read_rows
from remote_fetch.tables.tasks import Task
from remote_fetch.typed.plan import TypedPlan

__all__ = ["TaskWriter", "Transform", "applied", "schema_of"]

Transform: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]"


def applied(transform: Transform | None, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Apply a transform to a batch. Raises ConfigError if the result is neither a RecordBatch nor a Table."""
    made = batch if transform is None else _arrow(transform(batch))
    yield from [made] if isinstance(made, pa.RecordBatch) else made.to_batches()


def _arrow(made: object) -> pa.RecordBatch | pa.Table:
    if isinstance(made, (pa.RecordBatch, pa.Table)):
        return made
    raise ConfigError(
        f"transform gave a {type(made).__name__}: it has to give an Arrow RecordBatch or Table", key="transform"
    )


@dataclass(frozen=True, slots=True)
class TaskWriter:
    """All that the workers of a job need besides the tasks.

    `loss_hint` says what to do if records of a task were deleted. `typed` tells which keys and values are typed.
    `required` are the columns of the rows that have no null.
    """

    target: Staging
    config: Mapping[str, Any] = field(repr=False)
    columns: Sequence[str]
    transform: Transform | None
    form: FileForm
    loss_hint: str | None = None
    typed: TypedPlan | None = None
    required: Sequence[str] = ()

    def run(self, number: int, task: Task, observer: Observer = ignore) -> TaskRecord:
        """Run a task unless it has a record, and return the record.

        Raises the errors of reading and of writing, ConfigError if the transform changes the schema.
        """
        done = self.target.record(number)
        if done is not None:
            return done
        attempt = f"{number:05d}-{uuid4().hex}"
        reports: list[Report] = []
        files = ParquetFiles(self.form, lambda path: self.target.create(attempt, path), f"part-{number:05d}")
        rows = read_rows(
            task,
            self.config,
            self.columns,
            self.typed,
            observer=observer,
            report=reports.append,
            loss_hint=self.loss_hint,
            may_be_cut=False,  # the target has the offsets of the plan, and other records may come there later
        )
        try:
            # A generator that an error leaves unfinished keeps its session, and the session's threads.
            with closing(rows):
                for batch in rows:
                    for made in applied(self.transform, batch):
                        files.write(self._checked(made))
            written = files.close()
        except BaseException:
            files.abandon()
            raise
        record = TaskRecord(number, attempt, written, asdict(sum(reports, Report())))
        self.target.finish(record)
        return record

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self.form.schema
        if not batch.schema.equals(schema):
            raise ConfigError(
                f"transform gave the columns {_shown(batch.schema)}, and for an empty batch {_shown(schema)}: "
                "one job has one schema",
                key="transform",
            )
        lacking = next((name for name in self.required if batch.column(name).null_count), None)
        if lacking is not None:
            raise ConfigError(
                f"a record has no {lacking}, and that column of the table is NOT NULL",
                key="to",
                hint="Write to another table, or give the column a value in a transform",
            )
        return batch


def _shown(schema: pa.Schema) -> str:
    return json.dumps({column.name: str(column.type) for column in schema})


def schema_of(columns: Sequence[str], transform: Transform | None, typed: pa.Schema | None = None) -> pa.Schema:
    """The schema of a job's rows: that of the transform's result for an empty batch. `typed`: with typed columns.

    Raises ConfigError for unknown columns and for a struct without fields, and the errors of the transform.
    """
    schema = schema_for(columns) if typed is None else typed
    if transform is not None:
        if not callable(transform):
            raise ConfigError(f"transform={transform!r}: give a function of an Arrow RecordBatch", key="transform")
        made = transform(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))
        schema = _arrow(made).schema
    for column in schema:
        _check_struct(column.type, column.name)
    return schema


def _check_struct(kind: pa.DataType, name: str) -> None:
    """Raise ConfigError if the type is, or holds, a struct without fields. `name` is that of the column."""
    is_struct = pa.types.is_struct(kind)
    if is_struct and not kind.num_fields:
        raise ConfigError(
            f"{name} is a record without fields, which Parquet files cannot have",
            hint="Leave out the column, or name a schema without that record by value.schema.file or key.schema.file",
        )
    for number in range(kind.num_fields):
        inner = kind.field(number)
        _check_struct(inner.type, f"{name}.{inner.name}" if is_struct else name)
