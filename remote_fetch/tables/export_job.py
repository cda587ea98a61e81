"""Runs an export: this process reads task by task, and commits at the end.

Rules of the file:

- Wrong arguments are refused before a file is opened or a broker is asked.
- One task is read at a time, in bounded memory.
- The fingerprint is part of saved plans and of directory names: it must not change between releases.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from remote_fetch.config import Config
from remote_fetch.config.client import of_librdkafka
from remote_fetch.decode.columns import wanted_columns
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Observer, ReadPlanned
from remote_fetch.prepare.arguments import check_observer, check_topic, in_order
from remote_fetch.prepare.subscribed import topic_name
from remote_fetch.tables.directory_job import run_directory_job
from remote_fetch.tables.export_plan import LOSS_HINT, ExportBounds, plan_export
from remote_fetch.tables.formats import TABLES, check_format, check_options, checked_target, open_table
from remote_fetch.tables.job import JobSpec
from remote_fetch.tables.parquet_files import check_compression, check_partition_by, check_size
from remote_fetch.tables.saved_tasks import Reading
from remote_fetch.tables.table_job import run_table_job
from remote_fetch.tables.target import Target
from remote_fetch.tables.task_reader import typed_columns
from remote_fetch.tables.write_task import TaskWriter, Transform, schema_of
from remote_fetch.typed.plan import plan_typed

if TYPE_CHECKING:
    import pyarrow as pa

    from remote_fetch.tables.job_records import TaskRecord
    from remote_fetch.tables.report import TableReport
    from remote_fetch.tables.tasks import Task
    from remote_fetch.typed.plan import TypedPlan

__all__ = ["Destination", "TableForm", "run_export"]

_SETTINGS = "remote.storage.url", "bootstrap.servers", "fetch.remote.bucket.only"
"""The configuration that says what is read, and not how."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an export goes. The fields are arguments of `export_topic`. Options may hold secrets."""

    format: str
    to: object
    options: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TableForm:
    """The rows and files of an export. The fields are arguments of `export_topic`."""

    columns: Sequence[str] | None
    transform: Transform | None
    partition_by: Sequence[str]
    compression: str
    file_bytes: int
    row_group_bytes: int


def run_export(bounds: ExportBounds, form: TableForm, destination: Destination, observer: Observer) -> TableReport:
    """As `remote_fetch.export_topic`."""
    to = destination
    check_format(to.format)
    name = checked_target(to.to, to.format)
    check_options(to.options)
    check_topic(bounds.topic)
    check_observer(observer)
    spec = _spec(bounds, form, observer)
    if to.format in TABLES:
        with closing(open_table(to.format, name, to.options)) as table:
            return run_table_job(table, spec)
    return run_directory_job(Target(name, spec.fingerprint, to.options), name, spec)


def _spec(bounds: ExportBounds, form: TableForm, observer: Observer) -> JobSpec:
    check_size("row_group_bytes", form.row_group_bytes)
    compression = check_compression(form.compression, "an export")
    columns = wanted_columns(form.columns)
    config = Config.parse(bounds.config)
    typed = plan_typed(config, [topic_name(bounds.topic)], learns=True)
    typed_schema = None if typed is None else typed_columns(typed, config, columns).schema
    schema = schema_of(columns, form.transform, typed_schema)
    check_partition_by(schema, form.partition_by)
    passing = {"auto.offset.reset": "earliest" if bounds.may_lose else "error"}
    return JobSpec(
        topic=bounds.topic,
        fingerprint=_fingerprint(bounds, columns, form.partition_by, schema, typed),
        columns=columns,
        schema=schema,
        transform=form.transform,
        partition_by=tuple(form.partition_by),
        compression=lambda: compression,
        row_group_bytes=form.row_group_bytes,
        reading=Reading({**of_librdkafka(bounds.config), **passing}, bounds.isolation, bounds.find),
        plan=partial(plan_export, bounds, observer=observer),
        run=partial(_run_here, observer),
        file_bytes=form.file_bytes,
        loss_hint=LOSS_HINT,
        typed=typed,
    )


def _run_here(
    observer: Observer, writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]
) -> Iterator[TaskRecord]:
    observer(_planned(tasks[number] for number in numbers))
    for number in numbers:
        yield writer.run(number, tasks[number], observer)


def _planned(tasks: Iterable[Task]) -> ReadPlanned:
    """The event of a read of these tasks, which are in order of partition and offset."""
    ranges: dict[TopicIdPartition, tuple[int, int]] = {}
    for part in (part for task in tasks for part in task.parts if part.steps):
        partition, stop = part.opened.partition, part.steps[-1].stop_offset
        ranges[partition] = ranges.get(partition, (part.steps[0].first_offset, stop))[0], stop
    return ReadPlanned(ranges)


def _fingerprint(
    bounds: ExportBounds,
    columns: Sequence[str],
    partition_by: Sequence[str],
    schema: pa.Schema,
    typed: TypedPlan | None,
) -> str:
    """Hash that identifies an export's input and output. Secrets and tuning options are left out."""
    naming = {key: str(bounds.config[key]) for key in _SETTINGS if key in bounds.config}
    start, end, log_start = (str(in_order(bound)) for bound in (bounds.start, bounds.end, bounds.log_start))
    read = [bounds.topic, start, end, bounds.partitions, str(bounds.isolation)]
    made = [list(columns), list(partition_by), str(schema)]
    if typed is not None:  # two of them may give the same Arrow schema, and other values
        made.append(typed.identity)
    text = json.dumps([naming, read, log_start, made], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
