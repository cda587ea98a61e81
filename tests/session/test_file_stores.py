"""The places of `remote.locator.cache`: files that are never torn, private, and in time."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.locate.replay_cache import StoreFailed
from remote_fetch.session import file_stores
from remote_fetch.session.file_stores import Directory, TimedStore, UrlStore, open_file_store
from tests.eventually import eventually

NAMES = ["cluster.id/topic.0.replay", "cluster.id/topic.1.replay"]


def opened(place: str, **keys: str) -> TimedStore:
    return open_file_store(Config.parse({name.replace("_", "."): value for name, value in keys.items()}), place)


@pytest.fixture(params=["path", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TimedStore]:
    places = {"path": str(tmp_path / "a b"), "file": f"file://{tmp_path}/c", "memory": f"memory://{uuid4().hex}/d"}
    found = opened(places[request.param])
    yield found
    found.close()


@pytest.mark.parametrize("place", ["~/c", "file://~/c", "file:{home}/c", "FILE://{home}/c"])
def test_a_directory_is_named_as_that_of_a_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = opened(place.format(home=tmp_path))
    store.write({NAMES[0]: b"x"})
    store.close()
    assert (tmp_path / "c" / NAMES[0]).read_bytes() == b"x"


def test_files_are_replaced_and_missing_ones_left_out(store: TimedStore) -> None:
    assert store.read(NAMES) == {}
    store.write({NAMES[0]: b"old", NAMES[1]: b"1"})
    store.write({NAMES[0]: b"new"})
    assert store.read([*NAMES, "cluster.id/none"]) == {NAMES[0]: b"new", NAMES[1]: b"1"}


def test_a_file_is_read_up_to_a_bound(store: TimedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_stores, "MAX_FILE_BYTES", 3)
    store.write({NAMES[0]: b"1234567"})
    assert store.read(NAMES) == {NAMES[0]: b"1234"}


def test_no_draft_is_left(tmp_path: Path) -> None:
    for store in (Directory(tmp_path / "d"), UrlStore(opened("memory://x")._store._filesystem, f"/{uuid4().hex}")):  # type: ignore[union-attr]
        store.write(dict.fromkeys(NAMES, b"x"))
        if isinstance(store, Directory):
            found = sorted(path.name for path in (tmp_path / "d" / "cluster.id").iterdir())
        else:
            found = sorted(name.rsplit("/", 1)[1] for name in store._filesystem.find(store._root))
        assert found == ["topic.0.replay", "topic.1.replay"]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Directory(tmp_path / "new").write({NAMES[0]: b"x"})
    finally:
        os.umask(before)
    file = tmp_path / "new" / NAMES[0]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, file.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Directory(tmp_path)
    store.write({NAMES[0]: b"old"})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        store.write({NAMES[0]: b"new"})
    assert store.read(NAMES) == {NAMES[0]: b"old"}
    assert [path.name for path in (tmp_path / "cluster.id").iterdir()] == ["topic.0.replay"]


def test_many_writers_and_readers_of_one_file_never_see_a_torn_one(tmp_path: Path) -> None:
    contents = [bytes([number]) * 200_000 for number in range(4)]
    stop = threading.Event()

    def write(data: bytes) -> None:
        while not stop.is_set():
            Directory(tmp_path).write({NAMES[0]: data})

    Directory(tmp_path).write({NAMES[0]: contents[0]})
    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    try:
        seen = {Directory(tmp_path).read(NAMES)[NAMES[0]] for _ in range(300)}
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert seen <= set(contents)
    assert len(seen) > 1


def test_a_place_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = opened(str(tmp_path / "file"))
    with pytest.raises(StoreFailed, match="Not a directory"):
        store.read(NAMES)
    with pytest.raises(StoreFailed, match="File exists"):
        store.write({NAMES[0]: b"x"})
    store.close()


class Broken(Directory):
    """Raises `error`, or waits for `release`."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(Path())
        self.error = error
        self.release = threading.Event()

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        if self.error is not None:
            raise self.error
        self.release.wait(60)
        return {}

    def write(self, files: Mapping[str, bytes]) -> None:
        self.read(())


def test_no_message_of_an_sdk_is_shown() -> None:
    for error, text in (
        (ValueError("secret"), "ValueError"),
        (PermissionError("secret"), "PermissionError"),
        (PermissionError(13, "Permission denied", "/secret"), "Permission denied"),
    ):
        store = TimedStore(Broken(error), 1000)
        with pytest.raises(StoreFailed) as caught:
            store.read(NAMES)
        assert str(caught.value) == text
        store.close()


def test_a_store_that_hangs_is_not_waited_for() -> None:
    broken = Broken()
    store = TimedStore(broken, 50)
    with pytest.raises(StoreFailed, match="no answer from the store within 50 ms"):
        store.read(NAMES)
    with pytest.raises(StoreFailed, match="no answer from the store within 300 ms"):
        store.write({NAMES[0]: b""})
    broken.release.set()
    store.close()


def test_a_write_that_has_not_begun_in_time_is_not_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed for its caller, who may have written a newer file before."""

    class Slow(Broken):
        def write(self, files: Mapping[str, bytes]) -> None:
            written.append(next(iter(files)))
            self.release.wait(60)

    written: list[str] = []
    slow = Slow()
    store = TimedStore(slow, 10_000)
    writers = [threading.Thread(target=store.write, args=({name: b""},)) for name in ("first", "second")]
    for writer in writers:  # the store has two threads
        writer.start()
    assert eventually(lambda: len(written) == 2, timeout_s=60)
    monkeypatch.setattr(file_stores, "_WRITES_LONGER", 0.001)
    with pytest.raises(StoreFailed, match="no answer"):
        store.write({"third": b""})
    slow.release.set()
    for writer in writers:
        writer.join(60)
    assert store.read(NAMES) == {}  # its place in the queue is behind the third write
    store.close()
    assert sorted(written) == ["first", "second"]


def test_an_error_of_one_file_is_an_error() -> None:
    class Filesystem:
        def cat_ranges(self, paths: list[str], *_: Any, **__: Any) -> Sequence[object]:
            return [FileNotFoundError(), PermissionError(13, "Permission denied")][: len(paths)]

    store = TimedStore(UrlStore(Filesystem(), "/cache/"), 1000)
    assert store.read(NAMES[:1]) == {}
    with pytest.raises(StoreFailed, match="Permission denied"):
        store.read(NAMES)
    store.close()


def test_an_object_store_gets_one_put_for_a_file() -> None:
    class Filesystem:
        protocol = ("s3", "s3a")
        puts: dict[str, bytes]

        def pipe(self, files: dict[str, bytes]) -> None:
            self.puts = files

    filesystem = Filesystem()
    UrlStore(filesystem, "bucket/cache/").write(dict.fromkeys(NAMES, b"x"))
    assert filesystem.puts == {f"bucket/cache/{name}": b"x" for name in NAMES}


def test_options_of_the_storage_go_to_its_own_kind_of_store_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []

    def fake(url: str, options: dict[str, Any], *, key: str) -> tuple[object, str]:
        assert key == "remote.locator.cache"
        heard.append((url, options))
        return object(), "path"

    monkeypatch.setattr(file_stores, "open_filesystem", fake)
    options = {"remote.storage.options.anon": "true", "remote.storage.options.key": "12"}
    config = Config.parse({"remote.storage.url": "s3://bucket", **options})
    for place in ("s3://other/cache", "S3A://other/cache", "memory://cache"):
        open_file_store(config, place).close()
    ours = {"anon": True, "key": "12"}
    assert heard == [("s3://other/cache", ours), ("S3A://other/cache", ours), ("memory://cache", {})]


def test_an_unknown_scheme_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"remote\.locator\.cache=nowhere://"):
        opened("nowhere://x")


@pytest.mark.parametrize("place", ["s3:/bucket/x", "S3:bucket/x"])
def test_a_url_without_two_slashes_is_not_taken_for_a_directory(place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        opened(place)
    assert raised.value.hint == "Set remote.locator.cache=s3://bucket/x"
