"""Buckets on disk that the tests of the Spark source read, and what a batch of them gives, task by task."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from remote_fetch.observe import Report
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.planning import JobPlan, plan_batch
from remote_fetch.spark.reader import read_task
from remote_fetch.testing.oracle import LogRecord
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.bucket import snapshot_config

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
Row = tuple[Any, ...]


def bucket_alone(url: str | Path) -> dict[str, str]:
    """The options that read what a bucket holds, and no broker."""
    return {"remote.storage.url": str(url), "fetch.remote.bucket.only": "true"}


def tier(directory: Path, segments: Iterable[BuiltSegment]) -> dict[str, str]:
    """The options that read segments from a directory they are written to, with exact metadata."""
    built = list(segments)
    write_kafka_local(directory, built)
    return {
        "subscribe": "topic",
        **bucket_alone(directory),
        **snapshot_config((one.metadata for one in built), directory),
    }


def planned(options: Mapping[str, str]) -> JobPlan:
    """The plan of a batch, after a journey through pickle."""
    found = plan_batch(parse_options(options))
    again: JobPlan = pickle.loads(pickle.dumps(found))
    assert again == found
    return again


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Plain rows of batches with COLUMNS."""
    return [
        (*row[:3], row[3] // 1000, *row[4:6], None if row[6] is None else tuple((h["key"], h["value"]) for h in row[6]))
        for batch in batches
        for row in zip(
            *(batch.column(name).to_pylist() for name in COLUMNS[:3]),
            batch.column("timestamp").cast(pa.int64()).to_pylist(),
            *(batch.column(name).to_pylist() for name in COLUMNS[4:]),
            strict=True,
        )
    ]


def read(options: Mapping[str, str], plan: JobPlan | None = None) -> tuple[list[Row], Report]:
    """The rows of all tasks, each read alone and the last one first, in order; and what they cost."""
    config = parse_options(options).config
    reports: list[Report] = []
    tasks = (plan or planned(options)).tasks
    rows = [rows_of(read_task(task, config, COLUMNS, report=reports.append)) for task in reversed(tasks)]
    return [row for group in reversed(rows) for row in group], sum(reports, Report())


def at(offset: int) -> str:
    """An offset of partition 0, as Spark's options give it."""
    return json.dumps({"topic": {"0": offset}})


def expected(records: Iterable[LogRecord], partition: int = 0) -> list[Row]:
    """The oracle's records as Spark has them: a record without headers has null."""
    return [("topic", partition, r.offset, r.timestamp_ms, r.key, r.value, r.headers or None) for r in records]
