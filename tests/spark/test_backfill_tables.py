"""Backfills into tables: on a real Spark, and, where it is about the job alone, without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remote_fetch.errors import ConfigError, OffsetOutOfRange
from remote_fetch.spark import backfill, backfill_job
from remote_fetch.tables import table_job
from remote_fetch.tables.write_task import TaskWriter
from tests.spark.buckets import bucket_alone
from tests.spark.test_backfill_job import NO_SPARK, die, once
from tests.tables.tables import FORMATS, Topic, files_below, files_of, held, same, target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def run_here(spark: Any, writer: TaskWriter, tasks: Any, numbers: Any) -> Iterator[Any]:
    """Run the tasks in this process, without Spark."""
    for number in numbers:
        yield writer.run(number, tasks[number])


def options(topic: Topic, **more: str) -> dict[str, str]:
    return {**bucket_alone(topic.directory), "fetch.remote.task.bytes": "1024", **more}


@pytest.mark.scheduled
@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_by_executors(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    topic, where = Topic(tmp_path / "tier").grow(3), target(format_, tmp_path / "lake")
    done = backfill(spark, "topic", options=options(topic, minPartitions="4"), partition_by=["hour"], **where)
    assert done.tasks > 2
    topic.grow()
    more = backfill(spark, "topic", options=options(topic), partition_by=["hour"], **where)
    assert (done.rows, more.rows, more.ranges) == (60, 20, {0: (30, 40), 1: (30, 40)})
    assert same(held(where), topic.rows())


@pytest.mark.scheduled
@pytest.mark.parametrize("format_", FORMATS)
def test_a_worker_and_a_driver_that_die(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    topic, where = Topic(tmp_path / "tier").grow(3), target(format_, tmp_path / "lake")
    mark = tmp_path / "mark"
    how: dict[str, Any] = {"options": options(topic), "row_group_bytes": 1, "transform": once(mark, die), **where}

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(table_job, "_commit", dies)
        with pytest.raises(KeyboardInterrupt):
            backfill(spark, "topic", **how)
    assert mark.exists()
    assert held(where).num_rows == 0
    done = backfill(spark, "topic", **how)
    assert (done.tasks_run, done.rows) == (0, 60)
    assert same(held(where), topic.rows())
    assert files_below(where) == files_of(where)


@pytest.mark.parametrize("format_", FORMATS)
def test_it_goes_on_where_the_table_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    monkeypatch.setattr(backfill_job, "_run", run_here)
    topic, where = Topic(tmp_path / "tier").grow(3), target(format_, tmp_path / "lake")
    how: dict[str, Any] = {"compression": "zstd", **where}
    first = backfill(NO_SPARK, "topic", options=options(topic, endingOffsets='{"topic": {"0": 12, "1": 7}}'), **how)
    assert first.ranges == {0: (0, 12), 1: (0, 7)}
    before = backfill(NO_SPARK, "topic", options=options(topic, endingOffsets='{"topic": {"0": 5, "1": 5}}'), **how)
    assert (before.rows, before.starting_offsets) == (0, '{"topic": {"0": 12, "1": 7}}')
    topic.grow()
    done = backfill(NO_SPARK, "topic", options=options(topic), **how)
    assert done.ranges == {0: (12, 40), 1: (7, 40)}
    assert same(held(where), topic.rows())


@pytest.mark.parametrize("format_", FORMATS)
def test_a_log_that_ends_before_the_table_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    """A bucket that is behind for one partition. If that may pass, the table goes on where it ended, and not before."""
    monkeypatch.setattr(backfill_job, "_run", run_here)
    topic, where = Topic(tmp_path / "tier").grow(3), target(format_, tmp_path / "lake")
    how: dict[str, Any] = {"compression": "zstd", **where}
    backfill(NO_SPARK, "topic", options=options(topic), **how)
    behind = Topic(tmp_path / "behind").grow(4)
    for path in behind.directory.rglob("*"):
        if path.is_file() and "-0-" in path.parent.name and path.name >= f"{20:020d}":
            path.unlink()
    with pytest.raises(OffsetOutOfRange, match="the log ends at offset 20, before 30"):
        backfill(NO_SPARK, "topic", options=options(behind), **how)
    done = backfill(NO_SPARK, "topic", options=options(behind, failOnDataLoss="false"), **how)
    assert (done.ranges, done.starting_offsets) == (
        {0: (30, 30), 1: (30, 40)},
        '{"topic": {"0": 30, "1": 40}}',
    )
    assert backfill(NO_SPARK, "topic", options=options(topic.grow()), **how).ranges == {0: (30, 40), 1: (40, 40)}
    assert same(held(where), topic.rows())


def test_a_table_needs_no_job_id(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="job_id='mine'"):
        backfill(
            NO_SPARK, "topic", to=str(tmp_path), format="delta", job_id="mine",
            options=bucket_alone(tmp_path),
        )  # fmt: skip


def test_lost_offsets_are_what_fail_on_data_loss_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill_job, "_run", run_here)
    topic, where = Topic(tmp_path / "tier").grow(2), target("delta", tmp_path / "lake")
    how: dict[str, Any] = {"compression": "zstd", **where}
    backfill(NO_SPARK, "topic", options=options(topic), **how)
    topic.grow(2)
    deleted = tuple(f"{start:020d}" for start in (0, 10, 20))  # by retention
    for path in sorted(topic.directory.rglob("*")):
        if path.is_file() and path.name.startswith(deleted):
            path.unlink()
    with pytest.raises(OffsetOutOfRange, match="offsets 20 to 29 are gone"):
        backfill(NO_SPARK, "topic", options=options(topic), **how)
    done = backfill(NO_SPARK, "topic", options=options(topic, failOnDataLoss="false"), **how)
    assert done.ranges == {0: (30, 40), 1: (30, 40)}
