"""A target sees nothing of a job or all of it, wherever its driver dies."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Barrier, current_thread
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from fsspec.implementations.memory import MemoryFileSystem
from s3fs.errors import translate_boto_error

from remote_fetch.errors import ConfigError, MissingExtra, RetriableError, StorageTimeout
from remote_fetch.tables.commit import MANIFEST, LocalCommit, MovingCommit, ObjectStoreCommit
from remote_fetch.tables.job_records import Committed, StagedFile, TaskRecord
from remote_fetch.tables.target import Target
from tests.cases import each_of


class Died(BaseException):
    """The driver is gone."""


@pytest.fixture(params=["local", "memory"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """URLs of targets: below a directory, and in a store in which files are moved one by one."""
    root = str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}"
    numbers = count()
    return lambda: f"{root}/lake/orders{next(numbers)}"


def staged(target: Target) -> Committed:
    """Two tasks of which one was tried twice."""
    records = []
    for task, attempt in ((0, "a"), (1, "b"), (1, "c")):
        path = f"day=1/part-{task}.parquet"
        with target.create(attempt, path) as file:
            file.write(f"{task}{attempt}".encode())
        record = TaskRecord(task, attempt, (StagedFile(path, 1, 2),), {"records": 1})
        target.finish(record)
        records.append(record)
    assert target.records() == {0: records[0], 1: records[2]}
    assert (target.record(1), target.record(2)) == (records[2], None)
    return Committed(target.job_id, "orders", (records[0], records[2]))


def commit(target: Target, committed: Committed) -> None:
    target.decide(committed)
    target.complete(committed)


def seen(target: Target) -> dict[str, bytes]:
    """The data files that a reader of the target finds."""
    if not target._fs.exists(target.path):
        return {}
    names = target._fs.find(target.path)
    return {name.rsplit("/", 1)[1]: target._fs.cat_file(name) for name in names if not name.endswith(MANIFEST)}


def test_files_count_once_and_the_rest_is_removed(new_url: Callable[[], str]) -> None:
    target = Target(new_url(), "job")
    assert target.is_free()
    committed = staged(target)
    assert (seen(target), target.committed(), target.decided()) == ({}, None, None)
    commit(target, committed)
    assert seen(target) == {"part-0.parquet": b"0a", "part-1.parquet": b"1c"}
    assert (target.committed(), target.is_free()) == (committed, False)
    assert not target._fs.exists(target.staging)


def test_a_driver_that_dies_anywhere(new_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    dies_anywhere(lambda: Target(new_url(), "job"), monkeypatch)


def dies_anywhere(new_target: Callable[[], Target], monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit given up at each of its steps, and done again: all is there once, and nothing is left beside it."""
    steps = 0
    while True:
        target = new_target()
        committed = staged(target)
        left = count(steps, -1)
        with monkeypatch.context() as patched:
            strategy = type(target._commit)
            puts = "_replace" if issubclass(strategy, MovingCommit) else "put"  # the draft is written, or nothing
            steps_of = [(strategy, puts), (strategy, "_place"), (Target, "clean_up")]
            steps_of += [] if strategy is MovingCommit else [(strategy, "put_new")]  # with a call of its own
            for owner, name in steps_of:
                patched.setattr(owner, name, dying(getattr(owner, name), left))
            try:
                commit(target, committed)
                died = False
            except Died:
                died = True
        if not died:
            break
        again = Target(*target._arguments)
        if again.committed() is None:
            if isinstance(target._commit, LocalCommit):
                assert seen(again) == {}, "before the manifest nothing is seen"
            assert again.decided() in (None, committed)
            commit(again, again.decided() or committed)
        else:
            again.clean_up()
        assert seen(again) == {"part-0.parquet": b"0a", "part-1.parquet": b"1c"}
        assert again.committed() == committed
        assert not again._fs.exists(again.staging)
        steps += 1
    # The decision, the claim of the target unless one rename makes it, two files, the manifest, cleaning up.
    assert steps == (5 if isinstance(target._commit, LocalCommit) else 6)


def dying(method: Callable[..., Any], left: count[int]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        if next(left) <= 0:
            raise Died
        return method(*arguments, **named)

    return run


def test_each_filesystem_has_its_strategy(tmp_path: Path) -> None:
    kinds = {str(tmp_path / "out"): LocalCommit, "memory://lake/out": MovingCommit, "s3://lake/out": ObjectStoreCommit}
    assert {url: type(Target(url, "job")._commit) for url in kinds} == kinds


def test_a_driver_that_dies_anywhere_over_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the strategy for object stores without a server."""

    def new_target() -> Target:
        target = Target(f"memory://{uuid4().hex}/lake/orders", "job")
        target._commit = ObjectStoreCommit(target._fs)
        return target

    dies_anywhere(new_target, monkeypatch)


def test_a_driver_that_dies_before_it_removes_its_claim(flat: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = staged(flat)
    with monkeypatch.context() as patched:
        patched.setattr(Target, "_remove", dying(Target._remove, count(0, -1)))
        with pytest.raises(Died):
            commit(flat, committed)
    assert flat.committed() == committed
    assert "_claim.json" in seen(flat)
    flat.clean_up()
    assert seen(flat) == {"part-0.parquet": b"0a", "part-1.parquet": b"1c"}


def test_an_attempt_that_ends_after_the_decision_changes_nothing(new_url: Callable[[], str]) -> None:
    target = Target(new_url(), "job")
    committed = staged(target)
    target._put(f"{target.staging}/{MANIFEST}", committed.dump())
    with target.create("late", "day=1/part-0.parquet") as file:
        file.write(b"late")
    target.finish(TaskRecord(0, "late", (StagedFile("day=1/part-0.parquet", 1, 4),), {}))
    decided = target.decided()
    assert decided == committed
    target.complete(decided)
    assert seen(target)["part-0.parquet"] == b"0a"


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target in a store that knows no directories and no renaming."""
    monkeypatch.setattr("remote_fetch.tables.staging.choose_commit", ObjectStoreCommit)
    monkeypatch.setattr("remote_fetch.tables.commit._COPY_PAUSE_S", 0.0)
    return Target(f"memory://{uuid4().hex}/lake/orders", "job")


def test_copies_that_have_only_begun_are_waited_for(flat: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Azure may make them: an empty object is there at once, and the whole one some time later."""
    begun: dict[str, str] = {}
    copy, info = flat._fs.cp_file, flat._fs.info

    def begins(source: str, to: str) -> None:
        begun[to] = source
        flat._fs.pipe_file(to, b"")

    def ends_later(name: str) -> Any:
        found = info(name)
        if name in begun:
            copy(begun.pop(name), name)
        return found

    committed = staged(flat)
    monkeypatch.setattr(flat._fs, "cp_file", begins)
    monkeypatch.setattr(flat._fs, "info", ends_later)
    commit(flat, committed)
    assert begun == {}
    assert seen(flat) == {"part-0.parquet": b"0a", "part-1.parquet": b"1c"}
    assert not flat._fs.exists(flat.staging)


def test_a_copy_that_never_ends_removes_nothing(flat: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remote_fetch.tables.commit._COPY_TIMEOUT_S", 0.0)
    committed = staged(flat)
    with monkeypatch.context() as patched:
        patched.setattr(flat._fs, "cp_file", lambda source, to: flat._fs.pipe_file(to, b""))
        with pytest.raises(StorageTimeout, match=r"day=1/part-0.parquet was not copied to .* within 0 s"):
            commit(flat, committed)
    assert flat.committed() is None
    flat.complete(committed)
    assert seen(flat) == {"part-0.parquet": b"0a", "part-1.parquet": b"1c"}


def unconditional(target: Target, error: Exception) -> Callable[..., None]:
    """The `pipe_file` of a target's store in which each write with a condition fails."""
    pipe = target._fs._inner.pipe_file

    def pipe_file(name: str, content: bytes, **mode: str) -> None:
        if mode:
            raise error
        pipe(name, content)

    return pipe_file


def answer(status: int) -> OSError:
    """As s3fs raises it."""
    said: Any = {"Error": {"Code": str(status)}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate_boto_error(ClientError(said, "PutObject"))  # type: ignore[no-any-return]


@each_of("error", [answer(501), answer(400), TypeError("unexpected keyword argument 'mode'")])
def test_a_store_that_does_not_know_the_condition_of_a_new_file(
    flat: Target, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As some servers of S3, or an older adlfs (TypeError)."""
    committed = staged(flat)
    with monkeypatch.context() as patched:
        patched.setattr(flat._fs._inner, "pipe_file", unconditional(flat, error))
        for attempt in (committed, Committed("job", "orders", ())):
            flat.decide(attempt)
            assert flat.decided() == committed
    flat.clean_up()


@each_of("error", [answer(500), answer(503), TimeoutError("read timed out")])
def test_a_store_that_fails_while_a_file_is_made(
    flat: Target, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Without the condition the file could replace what another driver has decided since."""
    with monkeypatch.context() as patched:
        patched.setattr(flat._fs._inner, "pipe_file", unconditional(flat, error))
        with pytest.raises((RetriableError, TimeoutError)):
            flat.decide(Committed("job", "orders", ()))
    assert flat.decided() is None


@each_of("error", [answer(409), answer(412), FileExistsError("orders")])
def test_a_refused_file_is_not_written_without_the_condition(
    flat: Target, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Also if the other driver has removed its own since."""
    with monkeypatch.context() as patched:
        patched.setattr(flat._fs._inner, "pipe_file", unconditional(flat, error))
        flat.decide(Committed("job", "orders", ()))
    assert flat.decided() is None


@pytest.mark.parametrize("has_links", [True, False])
def test_the_first_decision_on_a_disk_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError))
    target = Target(str(tmp_path / "out"), "job")
    committed = staged(target)
    for attempt in (committed, Committed("job", "orders", ())):
        target.decide(attempt)
        assert target.decided() == committed
    assert sorted(os.listdir(target.staging)) == [MANIFEST, "attempts", "done"]


@each_of("name", ["or*s", "orde?s", "orders[1]"])
def test_a_name_that_fsspec_takes_for_a_pattern(flat: Target, name: str) -> None:
    """Its own files are removed, and no others."""
    others, target = flat, Target(flat._arguments[0].replace("orders", name), "job")
    staged(others)
    committed = staged(target)
    target.forget(committed.records[0])
    assert (set(others.records()), set(target.records())) == ({0, 1}, {1})
    commit(target, committed)
    assert target.committed() == committed
    assert not target._fs.exists(target.staging)
    records = tuple(others.records().values())
    assert others.whole(records) == records
    target._fs.rm_file(f"{target.path}/{MANIFEST}")


def test_a_filesystem_that_cannot_remove_one_file(flat: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """As adlfs before 2026.2: only its `rm` removes files, and one with an option takes a name as it is."""
    remove, remove_file = flat._fs._inner.rm, flat._fs._inner.rm_file

    def rm(name: str, *, expand_path: bool = True, **how: Any) -> None:
        remove(name, **how) if expand_path else remove_file(name)

    with monkeypatch.context() as patched:
        patched.setattr(flat._fs._inner, "rm", rm)
        patched.setattr(flat._fs, "rm_file", Mock(side_effect=NotImplementedError), raising=False)
        for name in ("orders", "order?"):
            target = Target(flat._arguments[0].replace("orders", name), "job")
            target._fs, target._commit = flat._fs, ObjectStoreCommit(flat._fs)
            committed = staged(target)
            target.forget(committed.records[0])
            assert set(target.records()) == {1}
            target.clean_up()
            assert not target._fs.exists(target.staging)


def meeting(method: Callable[..., Any]) -> Callable[..., Any]:
    """As `method`, but a call waits for a second one. Without that, BrokenBarrierError."""
    barrier = Barrier(2)

    def run(*arguments: Any) -> Any:
        barrier.wait(20)
        return method(*arguments)

    return run


def test_a_store_is_asked_for_several_files_at_once(flat: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may have thousands of tasks."""
    monkeypatch.setattr("remote_fetch.tables.staging.is_object_store", lambda filesystem: True)
    committed = staged(flat)
    for name, ask in ("cat_file", flat.records), ("info", lambda: flat.whole(committed.records)):
        with monkeypatch.context() as patched:
            patched.setattr(flat._fs, name, meeting(getattr(flat._fs, name)))
            assert len(ask()) == 2
    flat.decide(committed)
    with monkeypatch.context() as patched:
        patched.setattr(flat._fs, "cp_file", meeting(flat._fs.cp_file))
        flat.complete(committed)
    assert seen(flat) == {"part-0.parquet": b"0a", "part-1.parquet": b"1c"}


def test_another_filesystem_is_asked_for_one_file_after_another(new_url: Callable[[], str]) -> None:
    """A connection of FTP cannot do more."""
    target = Target(new_url(), "job")
    staged(target)
    threads = {current_thread(), *target._of_each(lambda _: current_thread(), [1, 2, 3])}
    assert threads == {current_thread()}


def test_an_empty_directory_may_be_the_target(tmp_path: Path) -> None:
    target = Target(str(tmp_path), "job")
    assert target.is_free()
    commit(target, Committed("job", "orders", ()))
    assert [one.name for one in tmp_path.iterdir()] == [MANIFEST]


def test_a_target_travels(new_url: Callable[[], str]) -> None:
    target = Target(new_url(), "job")
    again = pickle.loads(pickle.dumps(target))
    assert (again.path, again.staging, again.job_id) == (target.path, target.staging, "job")
    target.keep_plan("plan")
    assert (again.plan(), Target(new_url(), "job").plan()) == ("plan", None)


@each_of("name", ["or*s", "orde?s", "orders[1]"])
def test_a_directory_that_fsspec_takes_for_a_pattern(tmp_path: Path, name: str) -> None:
    """It could neither move nor remove the files. A local disk can."""
    with pytest.raises(ConfigError, match=r"fsspec takes this name for a pattern"):
        Target(f"memory://lake/{name}/topic", "job")
    target = Target(str(tmp_path / name), "job")
    commit(target, staged(target))
    assert f"_{name}.job" not in os.listdir(tmp_path)


def test_an_unknown_store() -> None:
    with pytest.raises(ConfigError, match=r"to=nowhere://\.\.\.: Protocol not known"):
        Target("nowhere://bucket/orders", "job")


def test_a_removal_over_ftp() -> None:
    """fsspec's FTP removes a folder if a file is not there, or if it is to be removed with what is in it."""

    class Ftp(MemoryFileSystem):  # type: ignore[misc]
        def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
            if recursive != self.isdir(path) or not self.exists(path):
                raise AssertionError("550 Not a directory")
            super().rm(path, recursive, maxdepth)

    filesystem, root = Ftp(), f"/{uuid4().hex}"
    commit = MovingCommit(filesystem)
    for name in ("a", "folder/b"):
        commit.put(f"{root}/{name}", b"x")
    for name in ("a", "folder"):
        commit.remove(f"{root}/{name}")
        with pytest.raises(FileNotFoundError):
            commit.remove(f"{root}/{name}")
    assert filesystem.ls(root) == []


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "/"])
def test_a_whole_bucket_is_no_target(url: str) -> None:
    with pytest.raises(ConfigError, match=f"to={url}: name a directory in it"):
        Target(url, "job")


def test_a_store_without_its_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("Install s3fs")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(MissingExtra, match=r'pip install "remote-fetch\[s3\]"'):
        Target("s3://bucket/orders", "job")
    with pytest.raises(ConfigError, match="another library"):
        Target("sftp://host/orders", "job")
