"""Exports into tables: each record once, again and again, beside others, and with everything that may be in the way."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlalchemy
from fsspec.implementations.local import LocalFileSystem
from pyiceberg.catalog.sql import SqlCatalog

from remote_fetch import Counters
from remote_fetch.errors import ConfigError, OffsetOutOfRange, TableRefused, TopicRecreated, UnknownTopic
from remote_fetch.model import Uuid
from remote_fetch.tables import table_job
from remote_fetch.tables.formats import open_table
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.staging import Staging
from remote_fetch.tables.table import Addition
from tests.cases import each_of
from tests.tables.tables import COLUMNS, FORMATS, Topic, export, files_below, files_of, held, opened, same, target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=FORMATS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A table of each format that is not there yet."""
    return target(request.param, tmp_path / "lake")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "tier").grow(3)


def is_clean(where: dict[str, Any]) -> bool:
    """Whether nothing is left beside the table's files."""
    return files_below(where) == files_of(where) and opened(where).folder().jobs() == []


def before_the_commit(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> None:
    """Let `run` happen once, when the next job is about to commit."""
    commit = table_job._commit

    def late(*given: Any) -> Progress | None:
        monkeypatch.setattr(table_job, "_commit", commit)
        run()
        return commit(*given)

    monkeypatch.setattr(table_job, "_commit", late)


def test_a_table_goes_on_where_it_ends(where: dict[str, Any], topic: Topic) -> None:
    done = export(topic, where)
    assert same(held(where), topic.rows())
    assert (done.rows, done.ranges, done.starting_offsets) == (
        60,
        {0: (0, 30), 1: (0, 30)},
        '{"topic": {"0": 30, "1": 30}}',
    )
    again = export(topic, where)
    assert (again.rows, again.tasks_run, again.starting_offsets) == (0, 0, done.starting_offsets)
    topic.grow(2)
    more = export(topic, where)
    assert (more.rows, more.ranges) == (40, {0: (30, 50), 1: (30, 50)})
    assert same(held(where), topic.rows())
    assert is_clean(where)
    progress = opened(where).progress("topic")
    assert progress is not None
    assert progress.ends == {0: 50, 1: 50}
    assert (progress.topic_id, progress.job) == (str(Uuid(b"0123456789abcdef")), more.job_id)


@pytest.mark.parametrize("by", [["day"], ["hour"], ["partition", "hour"], ["partition"]])
def test_partitioned_tables(where: dict[str, Any], topic: Topic, by: list[str]) -> None:
    export(topic, where, partition_by=by)
    topic.grow()
    export(topic, where, partition_by=by)
    assert same(held(where), topic.rows())
    assert is_clean(where)
    with pytest.raises(ConfigError, match="is partitioned by"):
        export(topic.grow(), where, partition_by=["timestampType"])


ODD = ["a b", "c/d", "e%f", "g=h", "ä:?", "", "i'j", "__HIVE_DEFAULT_PARTITION__"]


def test_directories_of_odd_names(where: dict[str, Any], topic: Topic) -> None:
    def named(batch: pa.RecordBatch) -> pa.RecordBatch:
        offsets: Any = batch.column("offset").to_pylist()
        names = pa.array([ODD[offset % len(ODD)] for offset in offsets], pa.string())
        return batch.append_column("name", names)

    export(topic, where, transform=named, partition_by=["name"])
    found = held(where, ["partition", "offset", "name"])
    expected: list[str | None] = [ODD[offset % len(ODD)] for offset in [*range(30), *range(30)]]
    if where["format"] == "delta":  # where an empty text and null are the same partition
        expected = [name or None for name in expected]
    assert found.column("name").to_pylist() == expected
    assert is_clean(where)


def test_a_directory_of_an_odd_column(where: dict[str, Any], topic: Topic) -> None:
    """A Delta table could not be opened any more, for it got values of a column `a`."""
    name = "a=b/c%41"

    def named(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column(name, pa.array(["x"] * batch.num_rows, pa.string()))

    export(topic, where, transform=named, partition_by=[name])
    assert held(where, ["partition", "offset", name]).column(name).to_pylist() == ["x"] * 60
    assert is_clean(where)


def test_null_is_a_partition_of_its_own(topic: Topic, tmp_path: Path) -> None:
    """Also where null and a text would have one directory, by Hive's names."""
    where = target("iceberg", tmp_path / "lake")
    texts = ["", None, "__HIVE_DEFAULT_PARTITION__", "a"]

    def named(batch: pa.RecordBatch) -> pa.RecordBatch:
        offsets: Any = batch.column("offset").to_pylist()
        return batch.append_column("name", pa.array([texts[at % 4] for at in offsets], pa.string()))

    export(topic, where, transform=named, partition_by=["name"])
    table: Any = opened(where)
    every = held(where, ["partition", "offset", "name"])
    assert every.num_rows == 60
    for text in texts:
        wanted = "name is null" if text is None else f"name = '{text}'"
        found = table._table.scan(row_filter=wanted).to_arrow().column("name").to_pylist()
        assert found == [one for one in every.column("name").to_pylist() if one == text], text


def test_parts_of_a_topic(where: dict[str, Any], topic: Topic) -> None:
    done = export(topic, where, partitions=[1], start=5)
    assert json.loads(done.starting_offsets or "") == {"topic": {"0": -2, "1": 30}}
    assert export(topic, where, partitions=[1]).starting_offsets == done.starting_offsets
    export(topic, where, start=10, end=20)  # of partition 1 the table has that already
    ends = opened(where).progress("topic")
    assert ends is not None
    assert ends.ends == {0: 20, 1: 30}
    export(topic, where)
    of_0 = held(where).filter(pc.field("partition") == 0).column("offset").to_pylist()
    of_1 = held(where).filter(pc.field("partition") == 1).column("offset").to_pylist()
    assert (of_0, of_1) == (list(range(10, 30)), list(range(5, 30)))


def test_the_attempts_of_a_job(where: dict[str, Any], topic: Topic) -> None:
    """They are known, so that no file of them is removed as one that is left."""
    done = export(topic, where)
    export(topic.grow(), where)
    paths = [path.split("/") for path in files_of(where)]
    attempts = {path[2] for path in paths if path[1] == done.job_id}
    assert len(attempts) < len({path[2] for path in paths})
    assert opened(where).attempts_of(done.job_id) == attempts
    assert not opened(where).attempts_of("0" * 15)


def test_new_columns_are_added(where: dict[str, Any], topic: Topic) -> None:
    def sized(batch: pa.RecordBatch) -> pa.RecordBatch:
        values: Any = batch.column("value")
        return batch.append_column("size", pc.binary_length(values))

    export(topic, where)
    topic.grow()
    export(topic, where, transform=sized)
    assert held(where, ["partition", "offset", "size"]).column("size").null_count == 60
    topic.grow()
    export(topic, where)  # a job without the column still fits
    found = held(where, ["partition", "offset", "size", "value", "timestamp"])
    assert (found.num_rows, found.column("size").null_count) == (100, 80)
    assert is_clean(where)


def test_columns_that_do_not_fit(where: dict[str, Any], topic: Topic) -> None:
    def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(4, "offset", batch.column("offset").cast(pa.string()))

    export(topic, where)
    before = files_below(where)
    with pytest.raises(ConfigError, match=r"offset"):
        export(topic.grow(), where, transform=texts)
    assert files_below(where) == before


UNSIGNED = [(pa.uint8(), False), (pa.uint16(), False), (pa.uint32(), True), (pa.uint64(), True)]


@pytest.mark.parametrize(("kind", "is_wide"), UNSIGNED, ids=str)
def test_unsigned_numbers(
    where: dict[str, Any], topic: Topic, tmp_path: Path, kind: pa.DataType, is_wide: bool
) -> None:
    """Delta has none, and Iceberg those that fit into 32 bits with a sign. A refusal makes no table."""
    values: Any = pa.array([2**kind.bit_width - 1], kind)

    def greatest(batch: pa.RecordBatch) -> pa.RecordBatch:
        inner = pa.array([values] * batch.num_rows, pa.list_(kind))
        made = pa.StructArray.from_arrays([inner], ["inner"])
        return batch.append_column("made", made)

    if is_wide or where["format"] == "delta":
        with pytest.raises(ConfigError, match=f"the column 'made' has the type .*{kind}.* takes no unsigned numbers"):
            export(topic, where, transform=greatest)
        assert not list(tmp_path.glob("lake/**/*.json"))
        export(topic, where)
        with pytest.raises(ConfigError, match="takes no unsigned numbers"):
            export(topic.grow(), where, transform=greatest)
        assert held(where).num_rows == 60
    else:
        export(topic, where, transform=greatest)
        (found, *_) = held(where, ["partition", "offset", "made"]).column("made").to_pylist()
        assert found == {"inner": values.to_pylist()}


def test_half_floats(where: dict[str, Any], topic: Topic, tmp_path: Path) -> None:
    """Neither format has them. A refusal makes no table."""

    def halves(batch: pa.RecordBatch) -> pa.RecordBatch:
        made: Any = pa.array([None] * batch.num_rows, pa.list_(pa.float16()))
        return batch.append_column("made", made)

    with pytest.raises(ConfigError, match=r"the column 'made' has the type .* takes no half floats"):
        export(topic, where, transform=halves)
    assert not list(tmp_path.glob("lake/**/*.json"))


def test_a_topic_that_was_made_again(where: dict[str, Any], topic: Topic, tmp_path: Path) -> None:
    export(topic, where)
    other = Topic(tmp_path / "other", Uuid(b"another topic id")).grow(9)
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        export(other, where)
    assert same(held(where), topic.rows())


def test_what_was_deleted_before_it_came_in(where: dict[str, Any], topic: Topic) -> None:
    export(topic, where)
    topic.grow(2)
    with pytest.raises(OffsetOutOfRange, match="offsets 30 to 34 were deleted before they were exported") as info:
        export(topic, where, log_start=35)
    assert "--allow-lost" in str(info.value)
    assert same(held(where), topic.rows().filter(pc.field("offset") < 30))
    done = export(topic, where, log_start=35, allow_lost=True)
    assert done.ranges == {0: (35, 50), 1: (35, 50)}
    assert held(where).num_rows == 90


def test_a_log_that_ends_before_the_table_does(where: dict[str, Any], topic: Topic, tmp_path: Path) -> None:
    export(topic, where)
    said = "the table holds topic-0 up to offset 30, and the log ends at offset 20"
    with pytest.raises(OffsetOutOfRange, match=said):
        export(Topic(tmp_path / "other").grow(2), where)


def test_nothing_is_lost_if_the_table_holds_all_that_is_wanted(where: dict[str, Any], topic: Topic) -> None:
    export(topic, where, end=20)
    for log_start in (15, 25):
        for more in ({}, {"allow_lost": True}):
            assert export(topic, where, end=20, log_start=log_start, **more).rows == 0
    assert held(where).num_rows == 40


def test_a_mistyped_topic_makes_no_table(where: dict[str, Any], topic: Topic, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopic):
        export(topic, {**where, "partitions": [7]})
    assert not (tmp_path / "lake" / "table").exists()
    assert not (tmp_path / "lake" / "lake").exists()


def test_two_jobs_at_once(where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with the same arguments, and one with others, come in first. Records that both wanted are there once."""
    export(topic, where, end=10)
    others: tuple[dict[str, Any], ...]
    others = ({}, {"columns": ["partition", "offset", "timestamp", "value", "topic"]}, {"partitions": [0]})
    for other in others:
        topic.grow()
        before_the_commit(monkeypatch, partial(export, topic, where, **other))
        export(topic, where)
        assert same(held(where), topic.rows()), other
        assert is_clean(where)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_table_that_is_dropped_while_a_job_runs(
    where: dict[str, Any], topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """Before the commit, or while the catalog refuses it."""
    export(topic, where, end=10)
    kind: Any = type(opened(where))

    def drop() -> None:
        if where["format"] == "delta":
            shutil.rmtree(tmp_path / "lake" / "table")
        else:
            inner: Any = opened(where)
            inner._catalog.drop_table("lake.topic")

    def refused(*_: Any) -> None:
        drop()
        raise TableRefused("the catalog says: forbidden")

    with monkeypatch.context() as patched:
        if refuses:
            patched.setattr(kind, "commit", refused)
        else:
            before_the_commit(patched, drop)
        with pytest.raises(TableRefused, match=r"is not there any more|does not tell where it ends"):
            export(topic, where)
    assert export(topic, where).rows == 60
    assert same(held(where), topic.rows())


def test_another_process_makes_the_namespace_first(
    tmp_path: Path, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SQL catalog looks for a namespace and then inserts it. A row that comes in between makes its database fail."""
    real, looked = SqlCatalog.namespace_exists, []

    def looks(catalog: SqlCatalog, name: Any) -> bool:
        looked.append(name)
        if len(looked) > 1:
            return real(catalog, name)
        catalog.create_namespace(name)  # as another process, behind the look
        return False

    monkeypatch.setattr(SqlCatalog, "namespace_exists", looks)
    where = target("iceberg", tmp_path / "lake")
    assert export(topic, where).rows == 60
    assert same(held(where), topic.rows())


def test_another_job_makes_the_table_first(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job planned for a table that was not there. The table that it finds has records that it planned to read."""
    with closing(open_table(where["format"], where["to"], where.get("to_options"))) as table:
        kind: Any = type(table)
    create = kind.create

    def late(*given: Any) -> None:
        monkeypatch.setattr(kind, "create", create)
        export(topic, where, partitions=[1])
        create(*given)

    monkeypatch.setattr(kind, "create", late)
    done = export(topic, where)
    assert (done.rows, done.ranges) == (30, {0: (0, 30), 1: (30, 30)})
    assert same(held(where), topic.rows())
    assert is_clean(where)


def test_another_driver_writes_into_what_is_removed(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = LocalFileSystem.rm
    left: list[Any] = []

    def rm(filesystem: LocalFileSystem, name: Any, recursive: bool = False, **how: Any) -> None:
        if recursive and "_remote_fetch" in str(name) and len(left) < 2:
            left.append(name)
            raise OSError(errno.ENOTEMPTY, "Directory not empty", name)
        remove(filesystem, name, recursive=recursive, **how)

    monkeypatch.setattr(LocalFileSystem, "rm", rm)
    assert export(topic, where).rows == 60
    assert len(left) == 2
    topic.grow()
    assert export(topic, where).rows == 20
    assert same(held(where), topic.rows())
    assert is_clean(where)


def test_columns_are_added_beside_a_commit_of_the_same_offsets(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding columns looks at the table again. Offsets that came in by another commit are not read a second time."""
    export(topic, where, end=10, columns=COLUMNS)
    before_the_commit(monkeypatch, lambda: export(topic, where, end=20, columns=COLUMNS))
    assert export(topic, where, columns=[*COLUMNS, "key"]).rows == 20
    assert same(held(where), topic.rows())
    assert held(where, ["partition", "offset", "key"]).column("key").null_count == 40


def test_another_job_adds_the_column_with_another_type(
    where: dict[str, Any], topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns fit the version that the job was planned for, and not the one that it commits upon."""

    def giving(kind: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("x", batch.column("offset").cast(kind))

    other = Topic(tmp_path / "other", name="other").grow(1)
    export(topic, where, end=10, columns=COLUMNS)
    texts = partial(giving, pa.string())
    before_the_commit(monkeypatch, lambda: export(other, where, columns=COLUMNS, transform=texts))
    with pytest.raises(ConfigError, match=r"'x' as string|x: string -> long"):
        export(topic, where, columns=COLUMNS, transform=partial(giving, pa.int64()))
    assert held(where, ["partition", "offset", "x"]).num_rows == 40
    assert export(topic, where, columns=COLUMNS).rows == 40


def test_a_local_delta_table_with_an_encoded_name(tmp_path: Path, topic: Topic) -> None:
    """deltalake writes its log to `a%20b`, and then reads that of `a b`."""
    for to in (str(tmp_path / "a%20b"), (tmp_path / "c").as_uri() + "%2fd"):
        with pytest.raises(ConfigError, match="Name a directory without it"):
            export(topic, {"to": to, "format": "delta"})
    assert not [*tmp_path.glob("[ac]*")]
    assert export(topic, {"to": str(tmp_path / "a b 100%"), "format": "delta"}).rows == 60


def test_jobs_of_different_partitions(where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both come in: the second finds the table changed, but not where it reads."""
    export(topic, where, end=10)
    before_the_commit(monkeypatch, lambda: export(topic, where, partitions=[1]))
    counters = Counters()
    done = export(topic, where, partitions=[0], observer=counters)
    assert (done.ranges, done.tasks_run) == ({0: (10, 30)}, done.tasks)
    assert done.starting_offsets == '{"topic": {"0": 30, "1": 30}}', "a stream goes on behind both"
    assert counters.report().records == 20, "nothing is read again for another partition's sake"
    assert same(held(where), topic.rows())


def failing(before: bool) -> Callable[..., Callable[..., None]]:
    """A commit after which an error comes, or before which it does."""

    def around(commit: Callable[..., None]) -> Callable[..., None]:
        def failed(*given: Any) -> None:
            if not before:
                commit(*given)
            raise TableRefused("the catalog says: forbidden")

        return failed

    return around


def test_a_catalog_that_refuses(where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the commit is in the table, and the same call again only commits."""
    export(topic, where, end=10)
    kind: Any = type(opened(where))
    with monkeypatch.context() as patched:
        patched.setattr(kind, "commit", failing(before=True)(kind.commit))
        with pytest.raises(TableRefused, match="forbidden"):
            export(topic, where)
    assert held(where).num_rows == 20
    done = export(topic, where)
    assert (done.tasks_run, done.rows) == (0, 40)
    assert same(held(where), topic.rows())
    assert is_clean(where)


def test_a_catalog_that_another_process_reads(topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not commit then, and the connection still shows what was to be committed."""
    (tmp_path / "lake").mkdir()
    database, where = tmp_path / "catalog.db", target("iceberg", tmp_path / "lake")
    where["to_options"] |= {"type": "sql", "uri": f"sqlite:///{database}?timeout=0.1"}
    export(topic, where, end=10)
    kind: Any = type(opened(where))
    commit = kind.commit
    with closing(sqlite3.connect(database, isolation_level=None)) as reader, monkeypatch.context() as patched:

        def read_and_commit(*given: Any) -> None:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM iceberg_tables").fetchone()
            commit(*given)

        patched.setattr(kind, "commit", read_and_commit)
        with pytest.raises(TableRefused, match="database is locked"):
            export(topic, where)
    assert held(where).num_rows == 20
    assert (export(topic, where).tasks_run, held(where).num_rows) == (0, 60)


def test_an_answer_that_is_lost(where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit came in, and the catalog's answer did not."""
    export(topic, where, end=10)
    kind: Any = type(opened(where))
    with monkeypatch.context() as patched:
        patched.setattr(kind, "commit", failing(before=False)(kind.commit))
        done = export(topic, where)
    assert done.starting_offsets == '{"topic": {"0": 30, "1": 30}}'
    assert same(held(where), topic.rows())
    assert is_clean(where)


@pytest.mark.parametrize("is_lost", [False, True])
def test_tidying_up_that_fails(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """The commit is in, also if its answer is lost. The next run removes what is left, or names it."""
    export(topic, where, end=10)
    kind: Any = type(opened(where))

    def fails(*_: Any) -> None:
        raise TableRefused("503 SlowDown")

    with monkeypatch.context() as patched:
        if is_lost:
            patched.setattr(kind, "commit", failing(before=False)(kind.commit))
        patched.setattr(Staging, "attempt_names", fails)
        patched.setattr(table_job, "_tidy_up", lambda *_: [])
        done = export(topic, where)
    assert done.starting_offsets == '{"topic": {"0": 30, "1": 30}}'
    (said,) = done.cost.notices
    assert "may be left (TableRefused)" in said
    assert export(topic, where).rows == 0
    assert same(held(where), topic.rows())
    assert is_clean(where)


def test_commits_of_others_between(where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another topic of the table is committed first, three times: this one comes in all the same."""
    export(topic, where, end=10)
    kind: Any = type(opened(where))
    commit, left = kind.commit, [3]

    def late(self: Any, addition: Any, schema: Any) -> None:
        if left[0] and addition.reads.topic == "topic":
            left[0] -= 1
            other = opened(where)
            reads = Progress("other", str(Uuid(b"0" * 16)), {0: (left[0], left[0] + 1)})
            commit(other, Addition("f" * 15, (), reads, other.progress("other")), schema)
        commit(self, addition, schema)

    monkeypatch.setattr(kind, "commit", late)
    export(topic, where)
    assert same(held(where), topic.rows())
    assert left == [0 if where["format"] == "iceberg" else 2]  # Delta takes both: they have no transaction in common


def die_before_the_commit(monkeypatch: pytest.MonkeyPatch, topic: Topic, where: dict[str, Any], **more: Any) -> None:
    """An export that writes its files, and ends before its commit."""

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(table_job, "_commit", dies)
        with pytest.raises(KeyboardInterrupt):
            export(topic, where, **more)


def test_what_a_killed_job_leaves_when_others_go_on(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(topic, where, end=10)

    die_before_the_commit(monkeypatch, topic, where, partitions=[0])
    export(topic, where)
    topic.grow()
    done = export(topic, where)
    assert opened(where).folder().jobs() == []
    assert same(held(where), topic.rows())
    assert files_below(where) >= files_of(where)
    (said,) = done.cost.notices
    (orphan, *_) = files_below(where) - files_of(where)
    assert f"{orphan.split('/')[1]} is left of a job that ended early" in said


def test_a_job_that_an_older_release_began(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name was made without the table's id. It is resumed under that name, and the next job has another one."""
    name = table_job._job_id
    with monkeypatch.context() as patched:
        patched.setattr(table_job, "_job_id", lambda spec, held, *_: name(spec, held))
        die_before_the_commit(patched, topic, where)
    (begun,) = opened(where).folder().jobs()
    done = export(topic, where)
    assert (done.job_id, done.tasks_run, done.rows) == (begun, 0, 60)
    assert same(held(where), topic.rows())
    assert is_clean(where)


def test_a_killed_job_of_another_topic(
    where: dict[str, Any], topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the same partitions, by number. A run of this topic leaves it alone, and it resumes its tasks."""
    other = Topic(tmp_path / "other", Uuid(b"another topic id"), "other").grow()
    export(other, where)

    die_before_the_commit(monkeypatch, topic, where)
    assert export(other.grow(), where).cost.notices == ()
    assert export(topic, where).tasks_run == 0
    assert is_clean(where)
    assert held(where).num_rows == 100


def test_staged_files_that_housekeeping_removed(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a vacuum does it with files that are in no version: the job writes them again."""
    export(topic, where, end=10)

    die_before_the_commit(monkeypatch, topic, where)
    folder: Any = opened(where).folder()
    staged = sorted(files_below(where) - files_of(where))
    folder._fs.rm(f"{folder._root}/{staged[0]}")
    done = export(topic, where)
    assert 0 < done.tasks_run < done.tasks
    assert same(held(where), topic.rows())
    assert is_clean(where)


def test_plans_of_drivers_that_run_the_same_job(
    where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one saw more of the topic, so that its tasks have other offsets under the same numbers."""
    export(topic, where, end=10)
    plan = Staging.keep_plan
    calls = []

    def meanwhile(self: Staging, text: str) -> None:
        calls.append(self.job_id)
        if len(calls) == 1:
            topic.grow(2)
            with monkeypatch.context() as patched:
                patched.setattr(table_job, "_commit", dies)
                with pytest.raises(KeyboardInterrupt):
                    export(topic, where)
        plan(self, text)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Staging, "keep_plan", meanwhile)
    done = export(topic, where)
    assert calls[0] == calls[1]
    assert done.ranges == {0: (10, 30), 1: (10, 30)}
    export(topic, where)
    assert same(held(where), topic.rows())
    assert is_clean(where)


def test_duckdb_reads_the_files(where: dict[str, Any], topic: Topic) -> None:
    export(topic, where, partition_by=["hour"])
    folder: Any = opened(where).folder()
    names = sorted(f"{folder._root}/{path}" for path in files_of(where))
    with duckdb.connect() as connection:
        found = connection.execute(f'select count(*), sum("offset") from read_parquet({names!r})').fetchone()
    assert found == (60, 2 * sum(range(30)))


@each_of(
    ("given", "said"),
    [
        ({"format": "iceberg", "to": "orders"}, "Give NAMESPACE.TABLE"),
        ({"format": "iceberg", "to": "a.b", "to_options": {"type": "nothing"}}, "no Iceberg catalog"),
        ({"format": "hudi", "to": "a"}, "choose 'parquet', 'iceberg' or 'delta'"),
    ],
)
def test_wrong_targets(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        export(Topic(tmp_path / "tier").grow(), given)


def test_no_secret_in_a_message(tmp_path: Path) -> None:
    options = {"type": "rest", "uri": "http://127.0.0.1:1/secret-path", "token": "hush-hush"}
    with pytest.raises((ConfigError, TableRefused)) as info:
        export(Topic(tmp_path / "tier").grow(), {"format": "iceberg", "to": "a.b", "to_options": options})
    assert "hush" not in str(info.value)


def test_warehouses_of_odd_names(tmp_path: Path) -> None:
    """The catalog of each lies in it, and not in a directory of a similar name."""
    topic, base = Topic(tmp_path / "tier").grow(), tmp_path / "lakes"
    names = {"a b", "a%20b", "p?q", "50%", "ä#'"}
    for name in sorted(names):
        where = target("iceberg", base / name)
        assert export(topic, where).rows == 20
        assert same(held(where), topic.rows())
    assert {path.parent.name for path in base.rglob("catalog.db")} == {path.name for path in base.iterdir()} == names


def test_a_job_leaves_no_catalog_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is done nor one that fails. pyiceberg keeps the connections of a SQL catalog in a pool."""
    seen: list[Any] = []
    dispose = sqlalchemy.Engine.dispose

    def hear(engine: sqlalchemy.Engine) -> None:
        seen.append(engine.pool)
        dispose(engine)

    monkeypatch.setattr(sqlalchemy.Engine, "dispose", hear)
    topic, where = Topic(tmp_path / "tier").grow(), target("iceberg", tmp_path / "lake")
    export(topic, where)
    assert [pool.checkedin() for pool in seen] == [0]
    with pytest.raises(ConfigError):
        export(topic, where, partition_by=["day"])
    assert [pool.checkedin() for pool in seen] == [0, 0]


def test_timestamps_beyond_the_calendar(tmp_path: Path) -> None:
    from remote_fetch.testing.log_builder import LogBuilder
    from remote_fetch.testing.records import Record
    from remote_fetch.testing.stores import write_kafka_local

    topic = Topic(tmp_path / "tier")
    log = LogBuilder()
    log.append_batch([Record(0, 1_700_000_000_000_000, b"k", b"micros"), Record(1, 1_700_000_000_000, b"k", b"millis")])
    log.roll()
    write_kafka_local(topic.directory, log.segments())
    delta, iceberg = target("delta", tmp_path / "a"), target("iceberg", tmp_path / "b")
    export(topic, delta, partition_by=["day"])
    assert held(delta, ["partition", "offset"]).num_rows == 2
    with pytest.raises(ConfigError, match="beyond the year 9999"):
        export(topic, iceberg, partition_by=["day"])
    assert held(iceberg, ["partition", "offset"]).num_rows == 0
    plain = target("iceberg", tmp_path / "c")
    export(topic, plain)
    assert same(held(plain), topic.rows())
    inner: Any = opened(plain)
    assert inner._table.scan(row_filter="offset = 0").to_arrow().num_rows == 1


def test_dates_beyond_the_calendar(tmp_path: Path, topic: Topic) -> None:
    def dated(batch: pa.RecordBatch) -> pa.RecordBatch:
        days = pa.array([None, *([2_932_897] * (batch.num_rows - 1))][: batch.num_rows], pa.int32())
        return batch.append_column("due", days.cast(pa.date32()))

    iceberg = target("iceberg", tmp_path / "lake")
    done = export(topic, iceberg, transform=dated)
    inner: Any = opened(iceberg)
    assert inner._table.scan(row_filter="due is null").to_arrow().num_rows == done.tasks
    assert same(held(iceberg), topic.rows())


@pytest.mark.parametrize("beyond", [True, False])
def test_partitions_without_the_bounds_of_other_columns(tmp_path: Path, topic: Topic, beyond: bool) -> None:
    """pyiceberg knows a file's partition by the bounds of its column. A query passes over files of another one."""

    def dated(batch: pa.RecordBatch) -> pa.RecordBatch:
        days = pa.array([2_932_897 if beyond else 0] * batch.num_rows, pa.int32())
        return batch.append_column("due", days.cast(pa.date32()))

    iceberg = target("iceberg", tmp_path / "lake")
    for _ in range(2):
        export(topic, iceberg, transform=dated, partition_by=["day"])
        inner: Any = opened(iceberg)
        found = inner._table.scan(row_filter="timestamp > '2000-01-01T00:00:00+00:00'", selected_fields=("offset",))
        assert found.to_arrow().num_rows == topic.rows().num_rows
        with inner._table.transaction() as change:
            change.set_properties({"write.metadata.metrics.default": "none"})
        topic.grow()
