"""Layout and filesystem put together: the table of errors, ranges, listings, options, and the closing.

Rules of the file:

- The filesystem is a fake that raises prepared errors.
- The tests with real filesystems are `test_local` and `test_memory`.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import pytest

from fetchers._composed import ComposedFetcher
from fetchers._options import OPTIONS
from fetchers._store import FsspecStore
from remote_fetch.config import Config
from remote_fetch.errors import (
    ConfigError,
    MissingExtra,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch import plugins
from remote_fetch.fetch.plugins import LAYOUTS_GROUP
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.spi import ObjectInfo, ObjectStore
from remote_fetch.model import (
    Buffer,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tests.cases import each_of

URL = "remote.storage.url"
PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"s" * 16)), 0, 9, 10)

ERRORS: list[tuple[Exception, type[RemoteFetchError]]] = [
    (FileNotFoundError(errno.ENOENT, "no such file"), SegmentNotFound),
    (IsADirectoryError(errno.EISDIR, "a folder"), SegmentNotFound),
    (NotADirectoryError(errno.ENOTDIR, "not a folder"), SegmentNotFound),
    (PermissionError(errno.EACCES, "denied"), StorageDenied),
    (PermissionError("Forbidden"), StorageDenied),
    (TimeoutError("timed out"), StorageTimeout),
    (ConnectionResetError(errno.ECONNRESET, "reset"), StorageUnavailable),
    (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), StorageUnavailable),
    (BrokenPipeError(errno.EPIPE, "broken"), StorageUnavailable),
    (OSError(errno.EIO, "input/output error"), StorageUnavailable),
    (OSError("no number"), StorageUnavailable),
]


class Filesystem:
    """A filesystem of one tree of files; every call is noted, and raises `error` when there is one."""

    def __init__(self, files: Mapping[str, bytes] | None = None, error: BaseException | None = None) -> None:
        self.files = dict(files or {})
        self.error = error
        self.calls: list[tuple[Any, ...]] = []

    @staticmethod
    def _strip_protocol(path: str) -> str:
        return path.removeprefix("fake://").rstrip("/")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        self.calls.append(("cat_file", path, start, end))
        if self.error is not None:
            raise self.error
        return self.files[path][start:end]

    def info(self, path: str) -> dict[str, Any]:
        return {"name": path, "size": len(self.files[path]), "type": "file"}

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        assert detail
        path = self._strip_protocol(path)
        self.calls.append(("ls", path))
        if self.error is not None:
            raise self.error
        below = [name for name in self.files if name.startswith(f"{path}/")]
        if not below:
            raise FileNotFoundError(path)
        found: dict[str, dict[str, Any]] = {path: {"name": f"{path}/", "size": 0, "type": "directory"}}  # itself
        for name in below:
            first, _, rest = name.removeprefix(f"{path}/").partition("/")
            kind = "directory" if rest else "file"
            size = None if rest or not self.files[name] else len(self.files[name])
            found[first] = {"name": f"fake://{path}/{first}", "size": size, "type": kind}
        return list(found.values())


class Layout:
    """A layout of one object for each segment; keeps what it was configured with."""

    configured: Mapping[str, str] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        type(self).configured = configs

    def read_segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> Buffer:
        return store.get("segment", start, end)

    def read_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> Buffer | None:
        return store.get(str(index_type))

    def list_segments(self, store: ObjectStore, topic: str | None) -> Iterator[RemoteLogSegmentMetadata]:
        return iter([SEGMENT] if topic in (None, "t") else [])


class Fetcher(ComposedFetcher):
    """The fake filesystem under the fake layout."""

    protocol = "fake"
    default_layout = "one"
    filesystem = Filesystem({"tier/segment": b"0123456789", "tier/offset": b"index"})

    def open_filesystem(self, configs: Mapping[str, str]) -> Any:
        return self.filesystem

    def root_of(self, url: str) -> str:
        return Filesystem._strip_protocol(url)


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("layout_of_this_test")
    module.Layout = Layout  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def entry_points(group: str) -> EntryPoints:
        assert group == LAYOUTS_GROUP
        names = {"one": "Layout", "gone": "Gone"}
        entries = [EntryPoint(name, f"{module.__name__}:{value}", group) for name, value in names.items()]
        return EntryPoints([*entries, EntryPoint("missing", "no_such_module:Layout", group)])

    monkeypatch.setattr(plugins, "entry_points", entry_points)


@each_of(("theirs", "ours"), ERRORS, ids=repr)
@each_of("start", [0, 5])
def test_errors_of_a_read(theirs: Exception, ours: type[RemoteFetchError], start: int) -> None:
    with pytest.raises(RemoteFetchError) as caught:
        FsspecStore(Filesystem(error=theirs), "tier").get("a/b.log", start)
    assert type(caught.value) is ours
    assert caught.value.object_name == "a/b.log"
    assert caught.value.__cause__ is theirs


@pytest.mark.parametrize(("theirs", "ours"), ERRORS, ids=repr)
def test_errors_of_a_listing(theirs: Exception, ours: type[RemoteFetchError]) -> None:
    store = FsspecStore(Filesystem(error=theirs), "tier")
    for listing in (store.list, store.folders):
        if ours is SegmentNotFound:  # no folder, no objects
            assert list(listing("a")) == []
            continue
        with pytest.raises(RemoteFetchError) as caught:  # but what may not be read is never "nothing there"
            list(listing("a"))
        assert type(caught.value) is ours
        assert caught.value.object_name == "a"


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyError("x"), KeyboardInterrupt()])
def test_a_mistake_is_not_dressed_up(error: BaseException) -> None:
    with pytest.raises(type(error)):
        FsspecStore(Filesystem(error=error), "tier").get("x")


def test_no_message_repeats_what_the_store_said() -> None:
    error = OSError("https://host/x?X-Amz-Signature=s3cret refused")
    with pytest.raises(StorageUnavailable) as caught:
        FsspecStore(Filesystem(error=error), "tier").get("x")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("start", "end", "size_bytes"), [(10, -1, 10), (10, 20, 9), (0, 5, 0)])
def test_a_range_past_the_end_is_empty_where_the_store_calls_it_invalid(start: int, end: int, size_bytes: int) -> None:
    error = OSError(errno.EINVAL, "the requested range is not satisfiable")
    store = FsspecStore(Filesystem({"tier/x": bytes(size_bytes)}, error), "tier")
    assert store.get("x", start, end) == b""


def test_an_invalid_range_is_no_end_if_the_object_has_a_byte_there() -> None:
    """Else an index of aborted transactions would be taken for an empty one: the number has other meanings too."""
    store = FsspecStore(Filesystem({"tier/x": bytes(11)}, OSError(errno.EINVAL, "invalid argument")), "tier")
    for start in (0, 10):
        with pytest.raises(StorageUnavailable, match="Invalid argument"):
            store.get("x", start, 20)


def test_a_whole_object_is_never_an_invalid_range() -> None:
    with pytest.raises(StorageUnavailable):
        FsspecStore(Filesystem(error=OSError(errno.EINVAL, "invalid argument")), "tier").get("x")


@pytest.mark.parametrize(
    ("start", "end", "asked", "data"),
    [
        (0, -1, (0, None), b"0123456789"),
        (0, 4, (0, 4), b"0123"),
        (3, -1, (3, None), b"3456789"),
        (3, 5, (3, 5), b"34"),
        (8, 20, (8, 20), b"89"),
        (10, -1, (10, None), b""),
        (11, 20, (11, 20), b""),
    ],
)
def test_ranges(start: int, end: int, asked: tuple[int | None, int | None], data: bytes) -> None:
    filesystem = Filesystem({"tier/x": b"0123456789"})
    assert FsspecStore(filesystem, "tier/").get("x", start, end) == data
    assert filesystem.calls == [("cat_file", "tier/x", *asked)]


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 5), (5, 3)])
def test_an_empty_range_asks_nobody(start: int, end: int) -> None:
    filesystem = Filesystem()
    assert FsspecStore(filesystem, "tier").get("x", start, end) == b""
    assert not filesystem.calls


@pytest.mark.parametrize("root", ["tier", "a/tier/", ""])
def test_names_of_a_listing_are_relative_to_the_root(root: str) -> None:
    names = {"one.log": b"1", "empty.log": b"", "a/two.log": b"22", "a/deep/three.log": b"333", "ab/no.log": b"4"}
    at = f"{root.rstrip('/')}/"
    store = FsspecStore(Filesystem({f"{at}{name}": data for name, data in names.items()}), root)
    assert sorted(store.list(), key=lambda info: info.name) == sorted(
        [ObjectInfo(name, len(data)) for name, data in names.items()], key=lambda info: info.name
    )
    assert sorted(info.name for info in store.list("a")) == ["a/deep/three.log", "a/two.log"]
    assert list(store.list("nowhere")) == []
    assert sorted(store.folders()) == ["a", "ab"]
    assert list(store.folders("a")) == ["deep"]
    assert list(store.folders("nowhere")) == []


@pytest.mark.parametrize(
    ("root", "spelled"),
    [
        ("", lambda path, is_folder: path.lstrip("/")),
        ("tier", lambda path, is_folder: path + "/" * is_folder),
    ],
    ids=["webdav", "smb"],
)
def test_paths_of_a_listing_with_slashes_of_their_own(root: str, spelled: Callable[[str, bool], str]) -> None:
    """WebDAV's begin without one, folders of SMB end with one. The listings were empty."""

    class Spelling(Filesystem):
        @staticmethod
        def _strip_protocol(path: str) -> str:
            return path

        def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
            found = [info for info in super().ls(path.rstrip("/"), detail) if info["name"].startswith("fake://")]
            plain = {info["name"].removeprefix("fake://"): info for info in found}
            return [{**info, "name": spelled(name, info["type"] == "directory")} for name, info in plain.items()]

    store = FsspecStore(Spelling({f"{root}/a": b"1", f"{root}/b/c": b"22"}), root)
    assert list(map(astuple, store.list())) == [("a", 1), ("b/c", 2)]
    assert list(store.folders()) == ["b"]


def test_a_folder_that_may_not_be_read_fails_the_listing_above_it() -> None:
    class Guarded(Filesystem):
        def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
            if "private" in path:
                raise PermissionError(errno.EACCES, path)
            return super().ls(path, detail)

    store = FsspecStore(Guarded({"tier/public/x": b"1", "tier/private/y": b"2"}), "tier")
    with pytest.raises(StorageDenied) as caught:
        list(store.list())
    assert caught.value.object_name == "private"


def test_links_of_a_listing_are_what_they_lead_to() -> None:
    """A listing of SFTP has the kind and size of the link. A partition behind one was missing without an error."""

    class Linking(Filesystem):
        def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
            links = ("folder", "log", "nowhere") if path.rstrip("/") == "tier" else ()
            found = [info for info in super().ls(path, detail) if not info["name"].endswith("/folder")]
            return [*found, *({"name": f"tier/{name}", "size": 7, "type": "link"} for name in links)]

        def info(self, path: str) -> dict[str, Any]:
            if path == "tier/nowhere":
                raise FileNotFoundError(path)
            return {"name": path, "size": 123, "type": "directory" if path == "tier/folder" else "file"}

    store = FsspecStore(Linking({"tier/a": b"1", "tier/folder/b": b"22"}), "tier")
    assert list(map(astuple, store.list())) == [("a", 1), ("folder/b", 2), ("log", 123)]
    assert list(store.folders()) == ["folder"]


@pytest.mark.usefixtures("layouts")
def test_layout_and_store_meet() -> None:
    fetcher = Fetcher()
    configs = {URL: "fake://tier/", "remote.storage.options.token": "s3cret"}
    fetcher.configure(configs)
    assert Layout.configured is configs
    assert fetcher.fetch_log_segment(SEGMENT, 2, 5) == b"234"
    assert fetcher.fetch_log_segment(SEGMENT, 7) == b"789"
    assert fetcher.fetch_index(SEGMENT, IndexType.OFFSET) == b"index"
    assert list(fetcher.list_segments()) == [SEGMENT]
    assert list(fetcher.list_segments("t")) == [SEGMENT]
    assert list(fetcher.list_segments("other")) == []


@pytest.mark.usefixtures("layouts")
@pytest.mark.parametrize("closed", [True, False])
def test_closed_or_never_configured(closed: bool) -> None:
    fetcher = Fetcher()
    if closed:
        fetcher.configure({URL: "fake://tier"})
        fetcher.close()
        fetcher.close()
    for call in (
        lambda: fetcher.fetch_log_segment(SEGMENT, 0),
        lambda: fetcher.fetch_index(SEGMENT, IndexType.OFFSET),
        fetcher.list_segments,
    ):
        with pytest.raises(ConfigError, match="closed, or was never configured"):
            call()


@pytest.mark.usefixtures("layouts")
@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("nosuch", "no layout is called 'nosuch'; installed are gone, missing, one"),
        ("gone", "cannot load the layout 'gone'"),
        ("missing", "cannot load the layout 'missing'"),
    ],
)
def test_a_layout_that_cannot_be_had(layout: str, text: str) -> None:
    fetcher = Fetcher()
    with pytest.raises(ConfigError) as caught:
        fetcher.configure({URL: "fake://tier", "remote.storage.layout": layout})
    assert caught.value.key == "remote.storage.layout"
    assert text in str(caught.value)


def test_no_layout_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints())
    with pytest.raises(ConfigError, match="installed are none") as caught:
        ComposedFetcher().configure({URL: "/tier", "remote.storage.layout": "nosuch"})
    assert "--py-files" in str(caught.value.hint)


@pytest.mark.parametrize("configs", [{}, {URL: ""}])
def test_the_url_is_needed(configs: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        ComposedFetcher().configure(configs)
    assert caught.value.key == URL


@pytest.mark.parametrize(("url", "root"), [("file:///tier/", "/tier"), ("/tier/a", "/tier/a"), ("/", "/")])
def test_the_root_is_a_path_of_the_filesystem(url: str, root: str) -> None:
    assert ComposedFetcher().root_of(url) == root


class Opened:
    """A filesystem's class that keeps how it was opened."""

    error: Exception | None = None
    options: Mapping[str, Any] = {}

    def __init__(self, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        type(self).options = options

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, Any]:
        return {"host": "of the URL", "user": "of the URL"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> type[Opened]:
    kind = type("Kind", (Opened,), {})
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda protocol: kind)
    return kind


class Handing(ComposedFetcher):
    """Its filesystem gives options to an SDK."""

    hands_options_on = True


def test_options_reach_the_filesystem_under_the_rest_of_their_name(opened: type[Opened]) -> None:
    Handing().open_filesystem({URL: "/tier", OPTIONS + "client.key": "k", OPTIONS + "user": "given"})
    assert opened.options == {"host": "of the URL", "user": "given", "client.key": "k", "skip_instance_cache": True}


@pytest.mark.parametrize("error", [TypeError("token=s3cret"), ValueError("token=s3cret"), KeyError("s3cret")])
def test_options_that_the_filesystem_refuses(opened: type[Opened], error: Exception) -> None:
    opened.error = error
    with pytest.raises(ConfigError) as caught:
        Handing().open_filesystem({OPTIONS + "token": "s3cret"})
    assert "'token'" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.key == "remote.storage.options.*"


def test_a_filesystem_that_asks_the_store_as_soon_as_it_is_made(opened: type[Opened]) -> None:
    opened.error = ConnectionRefusedError("user:s3cret@host")
    with pytest.raises(StorageUnavailable) as caught:
        ComposedFetcher().open_filesystem({URL: "ftp://user:s3cret@host:21/tier?token=s3cret"})
    assert caught.value.object_name == "ftp://host:21/tier"
    assert "s3cret" not in str(caught.value)


def test_an_extra_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(ComposedFetcher):
        protocol = "s3"
        extra: str | None = "s3"

    def missing(protocol: str) -> None:
        raise ImportError("Install s3fs")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(MissingExtra, match="Install s3fs") as caught:
        Missing().open_filesystem({})
    assert caught.value.extra == "s3"
    Missing.extra = None  # one that we have no extra for: fsspec knows what brings it
    with pytest.raises(MissingExtra, match="Install s3fs"):
        Missing().open_filesystem({})


def test_each_fetcher_has_a_filesystem_of_its_own_that_keeps_no_listings() -> None:
    one, other = (ComposedFetcher().open_filesystem({URL: "/tier"}) for _ in range(2))
    assert one is not other
    assert not one.dircache.use_listings_cache


@pytest.mark.usefixtures("layouts")
def test_new_credentials_are_a_new_filesystem_with_the_same_options() -> None:
    class Renewed(Fetcher):
        opened = 0

        def open_filesystem(self, configs: Mapping[str, str]) -> Any:
            type(self).opened += 1
            assert configs[OPTIONS + "token"] == "s3cret"
            return super().open_filesystem(configs)

    fetcher = Renewed()
    with pytest.raises(ConfigError):
        fetcher.refresh_credentials()
    fetcher.configure({URL: "fake://tier/", OPTIONS + "token": "s3cret"})
    fetcher.refresh_credentials()
    assert Renewed.opened == 2
    assert fetcher.fetch_log_segment(SEGMENT, 2, 5) == b"234"


@pytest.mark.usefixtures("layouts")
def test_a_fetcher_that_is_closed_during_a_look_up_stays_closed() -> None:
    """The look-up is under way in the thread of a GET, for which `close` waits a second at most."""

    class Closed(Fetcher):
        def open_store(self, configs: Mapping[str, str]) -> ObjectStore:
            if self._store is not None:
                self.close()
            opened.append(super().open_store(configs))
            return opened[-1]

        def close(self) -> None:
            closed.append(self._store)
            super().close()

    opened: list[ObjectStore] = []
    closed: list[ObjectStore | None] = []
    fetcher = Closed()
    fetcher.configure({URL: "fake://tier/"})
    fetcher.refresh_credentials()
    assert closed == opened
    with pytest.raises(ConfigError, match="is closed"):
        fetcher.opened_store()


@pytest.mark.parametrize(
    ("url", "option", "near"),
    [
        ("{}", "mkdir", "auto_mkdir"),
        ("memory://tier", "global", "global_store"),
        ("gs://tier", "tokn", "token"),
        ("gs://tier", "list_cache", "listings_cache"),
        ("abfs://tier@account.dfs.core.windows.net/x", "account_kye", "account_key"),
    ],
)
def test_an_option_that_no_filesystem_has(url: str, option: str, near: str, tmp_path: Path) -> None:
    """fsspec's classes ignore it: gcsfs would look for other credentials than those of the misspelt option."""
    configs = {URL: url.format(tmp_path), OPTIONS + option: "s3cret"}
    with pytest.raises(ConfigError, match=f"has no option {OPTIONS}{option}; the nearest one is .*{near}") as caught:
        load_fetcher(Config.parse(configs))
    assert caught.value.key == OPTIONS + option
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("option", ["auto_mkdir", "use_listings_cache", "listings_expiry_time", "max_paths"])
def test_options_of_the_class_and_of_what_it_hands_them_on_to(option: str, tmp_path: Path) -> None:
    load_fetcher(Config.parse({URL: str(tmp_path), OPTIONS + option: "1"})).close()


@pytest.mark.parametrize(("start", "end"), [(-1, -1), (-5, 10), (-5, -5), (0, -2)])
@pytest.mark.parametrize("url", ["{}", "memory://{}"])
def test_positions_below_0_are_a_mistake_of_the_caller(url: str, start: int, end: int, tmp_path: Path) -> None:
    """`memory` gave bytes from the end of the object, and `local` an error that is tried again."""
    fetcher = load_fetcher(Config.parse({URL: url.format(tmp_path)}))
    with pytest.raises(ValueError, match="below 0"):
        fetcher.fetch_log_segment(SEGMENT, start, end)
