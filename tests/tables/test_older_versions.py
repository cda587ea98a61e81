"""Tables that are rolled back, compacted, or whose older versions expire: what they hold then, and which files stay."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import pytest

from remote_fetch.decode.columns import schema_for
from remote_fetch.model import Uuid
from remote_fetch.tables import table_job
from remote_fetch.tables.formats import open_table
from tests.tables.tables import COLUMNS, Topic, export, held, opened, same, target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def where(tmp_path: Path) -> dict[str, Any]:
    return target("iceberg", tmp_path / "lake")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "tier").grow(2)


@pytest.fixture
def other(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "other", Uuid(b"another topic id"), "other").grow(1)


def snapshot(where: dict[str, Any]) -> int:
    """The id of the table's snapshot."""
    inner: Any = opened(where)
    return int(inner._table.current_snapshot().snapshot_id)


def roll_back(where: dict[str, Any], to: int) -> None:
    inner: Any = opened(where)
    inner._table.manage_snapshots().rollback_to_snapshot(to).commit()


def expire(where: dict[str, Any], one: int) -> None:
    inner: Any = opened(where)
    inner._table.maintenance.expire_snapshots().by_id(one).commit()


def replace(where: dict[str, Any]) -> None:
    """As CREATE OR REPLACE TABLE, which leaves snapshots and properties, but no main branch."""
    inner: Any = opened(where)
    inner._table.manage_snapshots().remove_branch("main").commit()


def ends(where: dict[str, Any], topic: Topic) -> dict[int, int] | None:
    """The offsets at which the table's partitions go on; None if it has nothing of the topic."""
    progress = opened(where).progress(topic.name)
    return None if progress is None else progress.ends


def test_the_progress_of_the_snapshot_counts(where: dict[str, Any], topic: Topic) -> None:
    export(topic, where)
    first = snapshot(where)
    export(topic.grow(), where)
    roll_back(where, first)
    assert ends(where, topic) == {0: 20, 1: 20}
    assert export(topic, where).rows == 20
    assert same(held(where), topic.rows())


def test_the_files_of_a_snapshot_stay(where: dict[str, Any], topic: Topic) -> None:
    """After a rollback the same call is the same job again, and writes below the same folder."""
    export(topic, where)
    first = snapshot(where)
    export(topic.grow(), where)
    later = snapshot(where)
    roll_back(where, first)
    export(topic, where)
    inner: Any = opened(where)
    assert inner._table.scan(snapshot_id=later).to_arrow().num_rows == 60


def test_a_rollback_to_before_a_topic(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    export(other, where)
    first = snapshot(where)
    export(topic, where)
    left = snapshot(where)
    roll_back(where, first)
    assert (ends(where, other), ends(where, topic)) == ({0: 10, 1: 10}, None)
    expire(where, left)
    assert ends(where, topic) is None, "all snapshots up to the first one are known"
    assert export(topic, where).rows == 40
    assert held(where).num_rows == 60


def test_a_table_that_is_replaced_by_an_empty_one(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    export(other, where)
    export(topic, where)
    replace(where)
    assert ends(where, topic) is None
    assert export(topic, where).rows == 40
    assert ends(where, other) is None, "its rows were replaced too"
    assert export(other, where).rows == 20
    assert held(where).num_rows == 60
    assert export(topic, where).rows == export(other, where).rows == 0


def test_a_rollback_to_before_a_topic_in_format_1(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    """There all snapshots have the sequence number 0: none is known to be the table's first one."""
    with closing(open_table(where["format"], where["to"], where["to_options"])) as table:
        inner: Any = table
        inner._catalog.create_namespace("lake")
        inner._catalog.create_table("lake.topic", schema_for(COLUMNS), properties={"format-version": "1"})
    export(other, where, columns=COLUMNS)
    first = snapshot(where)
    export(topic, where, columns=COLUMNS)
    roll_back(where, first)
    assert (ends(where, other), ends(where, topic)) == ({0: 10, 1: 10}, None)
    assert export(topic, where, columns=COLUMNS).rows == 40
    assert held(where).num_rows == 60


def test_a_rollback_to_where_the_history_expired(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    export(other, where)
    first = snapshot(where)
    export(other.grow(), where)
    second = snapshot(where)
    export(topic, where)
    expire(where, first)
    roll_back(where, second)
    assert (ends(where, other), ends(where, topic)) == ({0: 20, 1: 20}, None)
    assert export(topic, where).rows == 40
    assert held(where).num_rows == 80


def test_a_rollback_to_where_older_snapshots_of_the_topic_expired(
    where: dict[str, Any], topic: Topic, other: Topic
) -> None:
    """The first commit of the branch that is left tells what it found, for each partition."""
    export(topic, where, partitions=[1])
    first = snapshot(where)
    export(other, where)
    second = snapshot(where)
    export(topic.grow(), where)
    export(topic.grow(), where)
    expire(where, first)
    roll_back(where, second)
    assert ends(where, topic) == {1: 20}
    assert export(topic, where).ranges == {0: (0, 40), 1: (20, 40)}
    assert held(where).num_rows == 100


def test_a_rollback_from_two_branches(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    """The table has what both of them began with, in whatever order its snapshots are, and if the later one expired."""
    export(topic, where, partitions=[1])
    first = snapshot(where)
    export(other, where)
    second = snapshot(where)
    export(other.grow(), where)
    export(topic.grow(), where)
    export(topic.grow(), where)
    expire(where, first)
    roll_back(where, second)
    assert export(topic, where).ranges == {0: (0, 40), 1: (20, 40)}
    later = snapshot(where)
    roll_back(where, second)
    assert ends(where, topic) == {1: 20}
    expire(where, later)
    assert ends(where, topic) == {1: 20}
    inner: Any = opened(where)
    metadata = inner._table.metadata
    inner._table.metadata = metadata.model_copy(update={"snapshots": metadata.snapshots[::-1]})
    assert inner.progress(topic.name).ends == {1: 20}
    assert export(topic, where).ranges == {0: (0, 40), 1: (20, 40)}
    assert held(where).num_rows == 100


def test_a_snapshot_that_is_kept_while_later_ones_expire(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    """The history has a gap. A snapshot behind it is no branch that was left."""
    export(topic, where)
    export(other, where)
    gap = snapshot(where)
    export(other.grow(), where)
    expire(where, gap)
    assert ends(where, topic) == {0: 20, 1: 20}
    assert export(topic, where).rows == 0


def test_snapshots_that_expired(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    """pyiceberg takes the parent from a snapshot if that expires. The property of the table tells the progress."""
    export(topic, where)
    first = snapshot(where)
    export(other, where)
    expire(where, first)
    inner: Any = opened(where)
    assert [one.parent_snapshot_id for one in inner._table.snapshots()] == [None]
    assert ends(where, topic) == {0: 20, 1: 20}
    assert export(topic, where).rows == 0


def test_a_table_that_was_renamed(where: dict[str, Any], topic: Topic) -> None:
    """Its files stay where they are, and the next table of the old name has the same location. Both stay whole."""
    export(topic, where)
    renamed = {**where, "to": "lake.renamed"}
    inner: Any = opened(where)
    inner._catalog.rename_table("lake.topic", "lake.renamed")
    assert export(topic, where).rows == 40
    places = {opened(one)._table.location() for one in (where, renamed)}  # type: ignore[attr-defined]
    assert len(places) == 1
    assert same(held(where), topic.rows())
    assert same(held(renamed), topic.rows())
    assert export(topic.grow(), renamed).rows == 20
    assert same(held(renamed), topic.rows())


@pytest.mark.parametrize("later", [False, True])
def test_the_files_of_a_job_that_another_driver_committed_stay(
    tmp_path: Path, topic: Topic, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """The table was compacted before this driver commits, and maybe another job came in."""
    table = target("delta", tmp_path / "lake")
    export(topic, table, end=10)
    commit = table_job._commit
    versions = []

    def late(*given: Any) -> Any:
        monkeypatch.setattr(table_job, "_commit", commit)
        export(topic, table)
        lake = deltalake.DeltaTable(table["to"])
        versions.append(lake.version())
        lake.optimize.compact()
        if later:
            export(topic.grow(), table)
        return commit(*given)

    monkeypatch.setattr(table_job, "_commit", late)
    done = export(topic, table)
    assert (done.rows, opened(table).folder().jobs()) == (0, [])
    assert "is left of a job that ended early" in "".join(done.cost.notices)
    assert deltalake.DeltaTable(table["to"], version=versions[0]).to_pyarrow_table().num_rows == 40
    assert same(held(table), topic.rows())


def test_the_files_of_a_version_that_was_compacted_stay(
    tmp_path: Path, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job was killed behind its commit. The newest version has none of its files when the next run begins."""

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    table = target("delta", tmp_path / "lake")
    with monkeypatch.context() as patched:
        patched.setattr(table_job, "_drop", dies)
        with pytest.raises(KeyboardInterrupt):
            export(topic, table)
    lake = deltalake.DeltaTable(table["to"])
    version = lake.version()
    lake.optimize.compact()
    done = export(topic, table)
    assert (done.rows, opened(table).folder().jobs()) == (0, [])
    assert "is left of a job that ended early" in "".join(done.cost.notices)
    assert deltalake.DeltaTable(table["to"], version=version).to_pyarrow_table().num_rows == 40
