"""Two drivers run the job of a directory at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import fsspec
import pyarrow.dataset as ds
import pytest

from remote_fetch.errors import ConfigError, StorageUnavailable
from remote_fetch.session.session import Session
from remote_fetch.tables import export_job, staging
from remote_fetch.tables.commit import MANIFEST, LocalCommit, MovingCommit, ObjectStoreCommit
from remote_fetch.tables.export_plan import plan_export
from remote_fetch.tables.job_records import Committed
from remote_fetch.tables.staging import Staging
from remote_fetch.tables.target import Target
from tests.tables.tables import COLUMNS, Topic, export, same
from tests.tables.test_outdated_plans import delete, killed_in_partition_1


def first_calls(patch: pytest.MonkeyPatch, owner: type, name: str, other: Callable[[], object]) -> None:
    """The first call of a method waits for `other`."""
    method = getattr(owner, name)

    def later(*arguments: Any, **named: Any) -> Any:
        patch.setattr(owner, name, method)
        other()
        return method(*arguments, **named)

    patch.setattr(owner, name, later)


OVERTAKEN = "another driver of the job was first: the target has what that one has read"


def directory(tmp_path: Path) -> dict[str, str]:
    return {"format": "parquet", "to": str(tmp_path / "out")}


def test_one_commits_while_the_other_looks_at_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is the job's own, although it was not there a moment before."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    first_calls(monkeypatch, Target, "is_free", lambda: export(topic, where))
    done = export(topic, where)
    assert (done.rows, done.tasks_run) == (20, 0)


def test_one_is_committing_while_the_other_looks_at_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are moved one by one there. The other driver finishes the commit."""
    topic = Topic(tmp_path / "tier").grow(1)
    where = {"format": "parquet", "to": f"memory://{uuid4().hex}/lake/orders"}

    def begin() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(MovingCommit, "_put", ended(MovingCommit._put, "/lake/orders/_manifest.json"))
            with pytest.raises(KeyboardInterrupt):
                export(topic, where)

    first_calls(monkeypatch, Target, "is_free", begin)
    assert export(topic, where).rows == 20


def ended(put: Callable[..., None], name: str) -> Callable[..., None]:
    """As `put`, but the driver is killed where it puts the file of that name."""

    def run(commit: MovingCommit, at: str, *more: Any) -> None:
        if at.endswith(name):
            raise KeyboardInterrupt
        put(commit, at, *more)

    return run


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Staging, "finish"), (Staging, "records"), (Target, "decide"), (LocalCommit, "publish"), (LocalCommit, "_put")],
)
def test_one_commits_while_the_other_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """Its working place is gone, and the job is done."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    first_calls(monkeypatch, owner, name, lambda: export(topic, where))
    done = export(topic, where)
    assert done.rows == 20
    assert done.tasks_run == done.tasks or str(done).endswith(f"\nnote: {OVERTAKEN}")
    assert [path.name for path in tmp_path.iterdir() if path.name != "tier"] == ["out"]


def test_one_commits_while_the_other_finishes_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other driver finds a commit that was begun, and begins with that."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(LocalCommit, "_put", ended(LocalCommit._put, "/ready/_manifest.json"))
        with pytest.raises(KeyboardInterrupt):
            export(topic, where)
    first_calls(monkeypatch, LocalCommit, "_replace", lambda: export(topic, where))
    assert export(topic, where).rows == 20


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RuntimeError("Job aborted due to stage failure: FileNotFoundError"), id="Spark"),
        pytest.param(FileNotFoundError(2, "No such file or directory", "/a/file"), id="a file"),
    ],
)
def test_one_commits_while_a_task_of_the_other_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A file of it is gone. Spark's error of a task is no OSError, whatever its cause."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)

    def commit() -> None:
        export(topic, where)
        raise error

    first_calls(monkeypatch, Staging, "finish", commit)
    assert export(topic, where).rows == 20


def test_one_saves_its_plan_while_the_other_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both work by the plan that was saved first: the files of two plans have the same names."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)

    def begin() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Staging, "finish", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                export(topic, where)
        topic.grow(1)

    first_calls(monkeypatch, Session, "__init__", begin)
    done = export(topic, where)
    assert done.rows == 20
    assert done.notices == ("another driver of the job planned it first: this one has worked by that plan",)


@pytest.mark.parametrize("is_local", [True, False])
def test_two_drivers_decide_by_plans_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """The first one decides, and the other one finishes its commit."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    if not is_local:
        monkeypatch.setattr(staging, "choose_commit", ObjectStoreCommit)
        where["to"] = f"memory://{uuid4().hex}/lake/orders"
    strategy, put = (LocalCommit, "_put") if is_local else (ObjectStoreCommit, "put")
    decisions: list[tuple[Target, Committed]] = []

    def dies(target: Target, committed: Committed) -> None:
        decisions.append((target, committed))
        raise KeyboardInterrupt

    def begin() -> None:
        """Another driver plans more, and runs its tasks."""
        topic.grow(1)
        with monkeypatch.context() as patch:
            patch.setattr(Target, "decide", dies)
            with pytest.raises(KeyboardInterrupt):
                export(topic, where)

    def go_on() -> None:
        """The other driver decides, and puts all files in place but the manifest."""
        [(target, committed)] = decisions
        target.decide(committed)
        with monkeypatch.context() as patch:
            patch.setattr(strategy, put, ended(getattr(strategy, put), MANIFEST))
            with pytest.raises(KeyboardInterrupt):
                target.complete(committed)

    first_calls(monkeypatch, Staging, "keep_plan", begin)
    first_calls(monkeypatch, Target, "decide", go_on)
    done = export(topic, where)
    assert (done.rows, done.notices) == (40, (OVERTAKEN,))
    filesystem, path = fsspec.core.url_to_fs(where["to"])
    found = ds.dataset(path, filesystem=filesystem, exclude_invalid_files=True).to_table(columns=COLUMNS)
    assert same(found.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks(), topic.rows())


def test_one_begins_the_job_again_when_the_other_has_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    decide = Target.decide

    def decided(target: Target, committed: Committed) -> None:
        decide(target, committed)
        target.clean_up()

    with monkeypatch.context() as patch:
        patch.setattr(Target, "decide", decided)
        with pytest.raises(StorageUnavailable, match=r"does not have the manifest .* The same call again goes on"):
            export(topic, where)
    assert export(topic, where).rows == 20


def test_one_begins_the_job_again_before_the_other_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the decision are gone, and each run says what to remove."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    decide = Target.decide

    def decided(target: Target, committed: Committed) -> None:
        target.clean_up()
        decide(target, committed)

    monkeypatch.setattr(Target, "decide", decided)
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match=r"lacks a file of the commit .* If that fails too, remove"):
            export(topic, where)
    [staged] = (path for path in tmp_path.iterdir() if path.name != "tier")
    shutil.rmtree(staged)
    monkeypatch.undo()
    assert export(topic, where).rows == 20


def test_another_job_commits_while_one_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is the other job's, and stays so."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    first_calls(monkeypatch, LocalCommit, "publish", lambda: export(topic, where, partitions=[0]))
    with pytest.raises(ConfigError, match=r"holds the job .* and this one is"):
        export(topic, where)
    assert export(topic, where, partitions=[0]).rows == 10


def test_both_move_the_files_of_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either finds what the other one has moved."""
    topic, where = Topic(tmp_path / "tier").grow(1), directory(tmp_path)
    place = LocalCommit._place

    def twice(commit: Any, placement: Any, name: str) -> None:
        inner = commit._fs.mv

        def mv(*names: str) -> None:
            inner(*names)
            inner(*names)

        with monkeypatch.context() as patch:
            patch.setattr(commit._fs, "mv", mv)
            place(commit, placement, name)

    monkeypatch.setattr(LocalCommit, "_place", twice)
    assert export(topic, where).rows == 20


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A target in a store that knows no directories and no renaming."""
    monkeypatch.setattr(staging, "choose_commit", ObjectStoreCommit)
    return {"format": "parquet", "to": f"memory://{uuid4().hex}/lake/orders"}


def files_in(where: dict[str, str]) -> list[str]:
    """The names of the files of a target, and of those beside it."""
    filesystem, path = fsspec.core.url_to_fs(where["to"])
    parent = path.rpartition("/")[0]
    return sorted(name.removeprefix(f"{parent}/") for name in filesystem.find(parent))


def test_another_job_commits_before_one_commits_to_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, str]
) -> None:
    """Their files may have the same names there."""
    topic = Topic(tmp_path / "tier").grow(1)
    first_calls(monkeypatch, Target, "_claim", lambda: export(topic, store, partitions=[0]))
    with pytest.raises(ConfigError, match=r"holds the job .* and this one is"):
        export(topic, store)
    assert export(topic, store, partitions=[0]).rows == 10
    assert "orders/_claim.json" not in files_in(store)


def test_another_job_begins_to_commit_to_a_store_while_one_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, str]
) -> None:
    """It is refused, whether it looks at the target before or after it has run its tasks."""
    topic = Topic(tmp_path / "tier").grow(1)

    def begin() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStoreCommit, "put", ended(ObjectStoreCommit.put, MANIFEST))
            with pytest.raises(KeyboardInterrupt):
                export(topic, store, partitions=[0])

    first_calls(monkeypatch, Target, "_claim", begin)
    with pytest.raises(StorageUnavailable, match=r"another commit has begun to put its files into .*/lake/orders"):
        export(topic, store)
    with pytest.raises(ConfigError, match=r"is not empty, and no backfill\(\) or export has ended in it"):
        export(topic, store, end={0: 5})
    assert export(topic, store, partitions=[0]).rows == 10
    with pytest.raises(ConfigError, match=r"holds the job .* and this one is"):
        export(topic, store)


def test_one_commits_while_the_other_begins_the_job_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, str]
) -> None:
    """The decision stays, and is finished: the tasks that the other driver cannot run any more have been run."""
    topic = Topic(tmp_path / "tier").grow(4)
    killed_in_partition_1(topic, store)
    shutil.copytree(topic.directory, tmp_path / "kept")
    delete(topic, 1, 10)

    def planned(*arguments: Any, **named: Any) -> Any:
        """Another driver has read what is gone now, and has begun to commit."""
        monkeypatch.setattr(export_job, "plan_export", plan_export)
        shutil.copytree(tmp_path / "kept", topic.directory, dirs_exist_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStoreCommit, "put", ended(ObjectStoreCommit.put, MANIFEST))
            with pytest.raises(KeyboardInterrupt):
                export(topic, store)
        delete(topic, 1, 10)
        return plan_export(*arguments, **named)

    monkeypatch.setattr(export_job, "plan_export", planned)
    with pytest.raises(StorageUnavailable, match=r"has begun to commit to .*The same call again finishes that commit"):
        export(topic, store, allow_lost=True)
    assert export(topic, store, allow_lost=True).rows == 80
