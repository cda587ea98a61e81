"""Backfills by a real Spark: rows, directories, transforms, tasks that fail, workers and drivers that die, and again.

Rules of the file:

- pyarrow reads the written files, and they are compared with `read_arrow`.
- A call that must not need Spark gets no session.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from remote_fetch import read_arrow
from remote_fetch.errors import ConfigError, OffsetOutOfRange, UnknownTopic
from remote_fetch.spark import backfill, backfill_job
from remote_fetch.spark.backfill_job import _waves
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.planning import plan_backfill, plan_batch, subscribed
from remote_fetch.tables.commit import MANIFEST, LocalCommit
from remote_fetch.tables.job_records import StagedFile, TaskRecord
from remote_fetch.tables.parquet_files import COMPRESSIONS, FileForm
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.report import TableReport
from remote_fetch.tables.saved_tasks import Reading, dump_job, load_job
from remote_fetch.tables.target import Target
from remote_fetch.tables.write_task import TaskWriter, schema_of
from tests.cases import of_a_change
from tests.golden.conftest import SETS, Tier
from tests.scan.bucket import plain_log
from tests.spark.buckets import bucket_alone, tier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
"""A session that runs no job."""
SMALL_TASKS = {"fetch.remote.task.bytes": "10000"}


def options(name: str = SETS[0], **more: str) -> dict[str, str]:
    return {**bucket_alone(Tier(name).url), **SMALL_TASKS, **more}


def rows(table: pa.Table) -> pa.Table:
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def wanted(topic: str, name: str = SETS[0], isolation: str = "read_uncommitted") -> pa.Table:
    config = {"remote.storage.url": Tier(name).url}
    return read_arrow(topic, isolation=isolation, config=config).read_all().combine_chunks()


def found(to: Path) -> pa.Table:
    return rows(ds.dataset(to).to_table())


def is_whole(to: Path, done: TableReport, topic: str = "codecs") -> None:
    """The target has each row once, and nothing is left beside it."""
    assert found(to) == wanted(topic)
    assert [one.name for one in to.parent.iterdir()] == [to.name]
    names = [one.name for one in to.iterdir() if one.name != MANIFEST]
    assert len(names) == len({name.split("-")[1] for name in names}) == done.files


@pytest.mark.parametrize("name", of_a_change(SETS))
@pytest.mark.parametrize(("topic", "isolation"), [("codecs", "read_uncommitted"), ("tx", "read_committed")])
def test_rows_are_those_of_read_arrow(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, topic: str, isolation: str
) -> None:
    to = tmp_path / "lake" / topic
    done = backfill(spark, topic, to=str(to), options=options(name, **{"kafka.isolation.level": isolation}))
    expected = wanted(topic, name, isolation)
    assert found(to) == expected
    assert (done.rows, done.cost.records, done.tasks) == (expected.num_rows, expected.num_rows, done.tasks_run)
    assert done.tasks > 2
    assert (done.cost.broker_bytes, done.cost.fallbacks) == (0, {})
    assert done.cost.remote_gets > 0
    assert sum(one.stat().st_size for one in to.glob("*.parquet")) == done.size_bytes
    assert capsys.readouterr().out == f"{done}\n"
    assert f"{done.rows} rows in {done.files} files" in str(done)


def sized(batch: pa.RecordBatch) -> pa.Table:
    """Of each record where it was and how long."""
    columns = {name: batch.column(name) for name in ("partition", "offset", "timestamp")}
    return pa.table({**columns, "parity": pc.bit_wise_and(batch.column("offset"), 1), "size": _size(batch)})


def _size(batch: pa.RecordBatch) -> Any:
    values: Any = batch.column("value")
    return pc.fill_null(pc.binary_length(values), -1)


def values(table: pa.Table, name: str) -> list[Any]:
    return table.column(name).to_pylist()


def test_transform_and_partition_by(spark: SparkSession, tmp_path: Path) -> None:
    to = tmp_path / "out"
    done = backfill(
        spark, "codecs", to=str(to), options=options(), transform=sized, partition_by=["partition", "parity", "day"]
    )
    kinds: dict[str, pa.DataType] = {"partition": pa.int32(), "parity": pa.int64(), "day": pa.date32()}
    schema = pa.schema(kinds)
    table = rows(ds.dataset(to, partitioning=ds.partitioning(schema, flavor="hive")).to_table())
    expected = wanted("codecs")
    assert table.column("offset") == expected.column("offset")
    assert table.column("size").to_pylist() == [
        -1 if one is None else len(one) for one in expected["value"].to_pylist()
    ]
    assert [one & 1 for one in values(table, "offset")] == table.column("parity").to_pylist()
    assert table.column("day").to_pylist() == [one.date() for one in values(expected, "timestamp")]
    assert done.files > done.tasks
    assert spark.read.parquet(str(to)).count() == expected.num_rows


@pytest.mark.parametrize("compression", of_a_change([*COMPRESSIONS, "SNAPPY"], "zstd", "SNAPPY"))
def test_every_compression_is_one_that_spark_reads(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    to = tmp_path / "out"
    done = backfill(spark, "codecs", to=str(to), options=options(), compression=compression)
    is_whole(to, done)
    assert spark.read.parquet(str(to)).agg({"offset": "sum"}).first() == (sum(values(wanted("codecs"), "offset")),)


def test_the_compression_is_the_sessions_unless_it_is_said(spark: SparkSession, tmp_path: Path) -> None:
    setting = "spark.sql.parquet.compression.codec"
    before = spark.conf.get(setting)
    assert before is not None
    try:
        for name, stored in ((before, "SNAPPY"), ("zstd", "ZSTD")):
            spark.conf.set(setting, name)
            to = tmp_path / name
            backfill(spark, "codecs", to=str(to), options=options())
            paths = list(to.rglob("*.parquet"))
            assert {pq.ParquetFile(one).metadata.row_group(0).column(0).compression for one in paths} == {stored}
        spark.conf.set(setting, "lzo")
        with pytest.raises(ConfigError, match=f"{setting}='lzo': a backfill writes Parquet with zstd"):
            backfill(spark, "codecs", to=str(tmp_path / "lzo"), options=options())
    finally:
        spark.conf.set(setting, before)


def once(mark: Path, act: Callable[[], None]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A transform that does something terrible, after a file was begun, in one task and once."""
    calls: list[int] = []

    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        if len(calls) > 1 and not mark.exists():
            mark.touch()
            act()
        return batch

    return transform


def fail() -> None:
    raise RuntimeError("a task that fails")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("act", [fail, die])
def test_a_task_that_fails_in_mid_write(spark: SparkSession, tmp_path: Path, act: Callable[[], None]) -> None:
    to = tmp_path / "lake" / "out"
    mark = tmp_path / "mark"
    whole = {"fetch.remote.task.bytes": "30000"}  # several partitions in a task, and so several batches
    done = backfill(
        spark, "codecs", to=str(to), options={**options(), **whole}, row_group_bytes=1, transform=once(mark, act)
    )
    assert mark.exists()
    is_whole(to, done)


def test_what_is_done_is_not_done_again(spark: SparkSession, tmp_path: Path) -> None:
    to = tmp_path / "lake" / "out"
    done = backfill(spark, "codecs", to=str(to), options=options())
    before = {one: one.stat().st_mtime_ns for one in to.iterdir()}
    again = backfill(NO_SPARK, "codecs", to=str(to), options=options())
    assert (again.tasks_run, again.rows, again.cost) == (0, done.rows, done.cost)
    assert {one: one.stat().st_mtime_ns for one in to.iterdir()} == before
    is_whole(to, again)


def test_a_driver_that_dies_before_the_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "lake" / "out"

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    for owner, method in ((Target, "decide"), (LocalCommit, "_place")):  # before and after the decision
        with monkeypatch.context() as patched:
            patched.setattr(owner, method, dies)
            with pytest.raises(KeyboardInterrupt):
                backfill(spark, "codecs", to=str(to), options=options())
        assert not to.exists()
    done = backfill(NO_SPARK, "codecs", to=str(to), options=options())
    assert done.tasks_run == 0
    is_whole(to, done)


def test_a_job_goes_on_with_the_tasks_that_are_left(spark: SparkSession, tmp_path: Path) -> None:
    to, broken = tmp_path / "lake" / "out", tmp_path / "broken"
    broken.touch()

    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        if broken.exists() and 3 in batch.column("partition").to_pylist():
            raise RuntimeError("partition 3 cannot be read now")
        return batch

    with pytest.raises(Exception, match="partition 3 cannot be read now"):
        backfill(spark, "codecs", to=str(to), options=options(), transform=transform)
    assert not to.exists()
    broken.unlink()
    done = backfill(spark, "codecs", to=str(to), options=options(), transform=transform)
    assert 0 < done.tasks_run < done.tasks
    is_whole(to, done)


def descriptions(spark: SparkSession) -> list[str | None]:
    """The texts of Spark's jobs, the latest first, as its UI has them."""
    found = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    texts = [found.apply(number).description() for number in range(found.size())]
    return [text.get() if text.isDefined() else None for text in texts]


def test_the_ui_shows_what_a_job_does(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wave with its tasks. The user's own description is back, also after an error."""
    monkeypatch.setattr("remote_fetch.spark.backfill_job._WAVE_BYTES", 1)
    context: Any = spark.sparkContext
    context.setJobDescription("mine")
    try:
        done = backfill(spark, "codecs", to=str(tmp_path / "out"), options=options())
        shown = [text for text in descriptions(spark) if text is not None and text.startswith("remote-fetch: ")]
        waves = shown[: done.tasks]
        assert len(waves) > 3
        ends = [f"tasks {number} to {number} of {done.tasks}" for number in range(done.tasks, 0, -1)]
        assert [text.rpartition(", ")[2] for text in waves] == ends
        assert all(text.startswith("remote-fetch: backfill of codecs, ") for text in waves)
        assert context.getLocalProperty("spark.job.description") == "mine"

        def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
            raise RuntimeError("not today")

        with pytest.raises(Exception, match="not today"):
            backfill(spark, "codecs", to=str(tmp_path / "other"), options=options(), transform=fails)
        assert context.getLocalProperty("spark.job.description") == "mine"
    finally:
        context.setLocalProperty("spark.job.description", None)


def test_attempts_that_run_at_once_leave_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark's speculation makes them: each believes to be the only one."""
    parsed = parse_options(options(subscribe="codecs"))
    tasks = plan_batch(parsed).tasks
    target = Target(str(tmp_path / "lake" / "out"), "job")
    columns = ("partition", "offset")
    form = FileForm(schema_of(columns, None), (), "zstd", 1 << 20)
    writer = TaskWriter(target, parsed.config, columns, None, form)
    with monkeypatch.context() as patched:
        patched.setattr(Target, "record", lambda *_: None)
        attempts = {writer.run(0, tasks[0]).attempt for _ in range(3)}
    assert len(attempts) == 3
    assert writer.run(0, tasks[0]).attempt in attempts
    assert len(target.records()) == 1


def test_tasks_as_text_and_back(tmp_path: Path) -> None:
    where = tier(tmp_path, plain_log().segments())
    parsed = parse_options({**where, "kafka.isolation.level": "read_committed", "minPartitions": "9"})
    job = plan_backfill(parsed, lambda: None, None)
    assert len(job.tasks) > 5
    reading = Reading(parsed.config, parsed.isolation, lambda session: subscribed(session, parsed.subscription))
    assert load_job(dump_job(job, "made from"), reading, "a folder") == ("made from", job)


def test_a_partition_that_a_plan_lost(tmp_path: Path) -> None:
    where = tier(tmp_path, plain_log().segments())
    held, begun = (Progress("topic", str(plain_log().topic_id_partition.topic_id), {9: (7, stop)}) for stop in (7, 8))
    with pytest.raises(OffsetOutOfRange, match=r"topic-9: offsets 7 to 7 were deleted .*failOnDataLoss"):
        plan_backfill(parse_options(where), lambda: None, held, begun)
    passing = parse_options({**where, "failOnDataLoss": "false"})
    assert set(plan_backfill(passing, lambda: None, held, begun).reads.ranges) == {0}


def test_tasks_fill_the_slots_of_spark(tmp_path: Path) -> None:
    where = tier(tmp_path, plain_log().segments())
    given = parse_options({**where, "fetch.remote.task.bytes": "1024"})
    alone = len(plan_backfill(given, lambda: None, None).tasks)
    assert alone > 2
    for slots in {2, alone - 1}:
        tasks = plan_backfill(given, lambda slots=slots: slots, None).tasks  # type: ignore[misc]
        assert len(tasks) % slots == 0
    assert len(plan_backfill(given, lambda: 0, None).tasks) == alone
    assert len(plan_backfill(parse_options(where), lambda: 2, None).tasks) == 1


def test_waves_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse_options(options(subscribe="codecs"))
    tasks = plan_batch(parsed).tasks
    writer: Any = None
    monkeypatch.setattr("remote_fetch.spark.backfill_job._WAVE_BYTES", 1)
    waves = list(_waves(writer, tasks, range(1, len(tasks))))
    assert [wave.numbers for wave in waves] == [(number,) for number in range(1, len(tasks))]


def test_a_target_that_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not empty, and no backfill"):
        backfill(NO_SPARK, "codecs", to=str(tmp_path), options=options())
    to = str(tmp_path / "out")
    backfill(spark, "lat", to=to, options=options(), job_id="mine")
    with pytest.raises(ConfigError, match="holds the job mine of lat"):
        backfill(NO_SPARK, "codecs", to=to, options=options())


def run_here(spark: Any, writer: TaskWriter, tasks: Any, numbers: Any) -> Any:
    """Run the tasks in this process, without Spark."""
    return [writer.run(number, tasks[number]) for number in numbers]


def test_a_target_that_another_job_takes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a scheduler repeats a job with other arguments while the first attempt still runs."""
    to = str(tmp_path / "out")

    def overtaken(spark: Any, writer: TaskWriter, tasks: Any, numbers: Any) -> Any:
        if writer.target.job_id == "mine":
            backfill(NO_SPARK, "lat", to=to, options=options(), job_id="theirs", compression="zstd")
        return run_here(spark, writer, tasks, numbers)

    monkeypatch.setattr(backfill_job, "_run", overtaken)
    with pytest.raises(ConfigError, match="holds the job theirs of lat, and this one is mine"):
        backfill(NO_SPARK, "codecs", to=to, options=options(), job_id="mine", compression="zstd")
    theirs = Target(to, "theirs").committed()
    assert theirs is not None
    assert sum(file.rows for record in theirs.records for file in record.files) == found(Path(to)).num_rows


def test_records_of_an_older_plan_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a driver leaves them that dies while it removes its staging area."""
    to = str(tmp_path / "out")
    stale = Target(to, "mine")
    stale.finish(TaskRecord(0, "gone", (StagedFile("part-00000-0.parquet", 5, 5),), {"notices": ()}))
    monkeypatch.setattr(backfill_job, "_run", run_here)
    done = backfill(NO_SPARK, "codecs", to=to, options=options(), job_id="mine", compression="zstd")
    assert done.tasks_run == done.tasks
    is_whole(Path(to), done)


def test_a_job_of_other_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    to = str(tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(backfill_job, "_run", dies)
        with pytest.raises(KeyboardInterrupt):  # its tasks are saved, and none is run
            backfill(NO_SPARK, "codecs", to=to, options=options(), job_id="mine", compression="zstd")
    with pytest.raises(ConfigError, match="the job mine was begun with other arguments"):
        backfill(NO_SPARK, "codecs", to=to, options=options(), job_id="mine", columns=["offset"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"format": "orc"}, "choose 'parquet', 'iceberg' or 'delta'"),
        ({"row_group_bytes": 0}, "row_group_bytes=0"),
        (
            {"compression": "lzo"},
            "compression='lzo': a backfill writes Parquet with zstd, snappy, gzip, lz4_raw, uncompressed",
        ),
        ({"columns": ["offset", "nothing"]}, "unknown column 'nothing'"),
        ({"partition_by": ["nothing"]}, "partition_by names 'nothing'"),
        ({"job_id": "a/b"}, "job_id='a/b'"),
        ({"transform": lambda batch: batch.to_pylist()}, "transform gave a list"),
        ({"options": {"subscribe": "codecs"}}, "option 'subscribe': pass the topic as backfill's argument"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "",
)
def test_arguments_that_are_wrong(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        backfill(NO_SPARK, "codecs", to=str(tmp_path), **{"options": options(), **more})


def test_several_topics_in_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option `subscribe` takes them. A job's report has the offsets of one topic, by partition."""
    monkeypatch.setattr(backfill_job, "_run", run_here)
    with pytest.raises(UnknownTopic, match="'codecs,lat' is not a topic name"):
        backfill(NO_SPARK, "codecs,lat", to=str(tmp_path / "out"), options=options(), compression="zstd")
    assert list(tmp_path.iterdir()) == []


def test_a_transform_has_one_schema(tmp_path: Path) -> None:
    parsed = parse_options(options(subscribe="codecs"))
    (task, *_) = plan_batch(parsed).tasks
    target = Target(str(tmp_path / "out"), "job")
    form = FileForm(schema_of(("offset",), None), (), "zstd", 1 << 20)
    writer = TaskWriter(target, parsed.config, ("offset",), lambda batch: batch.rename_columns(["o"]), form)
    with pytest.raises(ConfigError, match=r'transform gave the columns \{"o": "int64"\}, and for an empty batch'):
        writer.run(0, task)
    assert target.records() == {}


def test_nothing_to_write(tmp_path: Path) -> None:
    bounds = {"startingOffsets": '{"delete-records": {"0": 60}}', "endingOffsets": '{"delete-records": {"0": 60}}'}
    to = tmp_path / "out"
    done = backfill(NO_SPARK, "delete-records", to=str(to), options=options(**bounds), compression="zstd")
    assert (done.rows, done.files, done.tasks) == (0, 0, 0)
    assert [one.name for one in to.iterdir()] == [MANIFEST]
