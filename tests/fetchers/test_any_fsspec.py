"""The fetcher for whatever fsspec knows: the scheme, options out of the URL, timeouts of asynchronous filesystems."""

from __future__ import annotations

import asyncio
import gc
import io
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from struct import pack
from typing import Any, ClassVar
from zipfile import ZipFile

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem

from fetchers import _store, any_fsspec
from fetchers._store import FsspecStore
from fetchers.any_fsspec import AnyStore, FsspecFetcher
from remote_fetch.config import Config
from remote_fetch.errors import (
    ConfigError,
    MissingExtra,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tests.answering import Quiet, serving

URL = "remote.storage.url"
OPTIONS = "remote.storage.options."


class Slow(AsyncFileSystem):  # type: ignore[misc]
    """An asynchronous filesystem of one object, which answers late or with too much."""

    protocol = "slow-of-the-tests"
    cancelled = 0

    def __init__(self, delay_s: float = 0.0, extra: int = 0, size: int | None = 10, **options: Any) -> None:
        super().__init__(**options)
        self._delay_s = delay_s
        self._extra = extra
        self._size = size

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        try:
            await asyncio.sleep(self._delay_s)
        except asyncio.CancelledError:
            type(self).cancelled += 1
            raise
        return b"0123456789"[start : None if end is None else end + self._extra]

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": self._size}

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> list[dict[str, Any]]:
        await asyncio.sleep(self._delay_s)
        return [{"name": f"{path}a", "size": 10, "type": "file"}]


class NoRanges(AsyncFileSystem):  # type: ignore[misc]
    """A filesystem with one connection, whose `_cat_file` knows no ranges, as sshfs's. Its files do."""

    is_broken = False

    async def _cat_file(self, path: str, **options: Any) -> bytes:
        raise AssertionError("the whole object was read")

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": 10}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.BytesIO:
        if self.is_broken:
            raise SSHException("Socket is closed")
        return io.BytesIO(b"0123456789")


class HandsOn(Slow):
    """A filesystem that hands all arguments on, as fsspec's DirFileSystem. `asked` has them."""

    asked: ClassVar[list[dict[str, Any]]] = []

    async def _cat_file(self, path: str, *args: Any, **options: Any) -> bytes:
        self.asked.append(options)
        return await super()._cat_file(path, *args, **options)


class CutOff(AbstractFileSystem):  # type: ignore[misc]
    """A filesystem that is not asynchronous, and loses the last byte of a whole object."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        return b"0123456789"[start:end]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": 11}


@pytest.fixture
def slow() -> Iterator[None]:
    fsspec.register_implementation(Slow.protocol, Slow, clobber=True)
    yield
    _registry.pop(Slow.protocol)


def opened(url: str, **options: str) -> FsspecFetcher:
    fetcher = FsspecFetcher()
    fetcher.configure({URL: url, **{f"remote.storage.options.{name}": value for name, value in options.items()}})
    return fetcher


@pytest.mark.usefixtures("slow")
def test_a_late_answer_is_a_timeout_and_the_call_is_cancelled() -> None:
    Slow.cancelled = 0
    store = FsspecStore(Slow(delay_s=60, skip_instance_cache=True), "x", timeout_s=1)
    with pytest.raises(StorageTimeout):
        store.get("a", 0, 5)
    assert Slow.cancelled == 1


def test_a_listing_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [info.name for info in FsspecStore(Slow(skip_instance_cache=True), "x").list()] == ["a"]
    monkeypatch.setattr(_store, "_LISTING_TIMEOUT_S", 0.05)
    with pytest.raises(StorageTimeout):
        list(FsspecStore(Slow(delay_s=60, skip_instance_cache=True), "x").list())


def test_more_than_was_asked_for_is_no_data() -> None:
    store = FsspecStore(Slow(extra=1, skip_instance_cache=True), "x", timeout_s=60)
    with pytest.raises(StorageUnavailable, match="4 bytes came for a range of 3"):
        store.get("a", 2, 5)


def test_a_range() -> None:
    store = FsspecStore(Slow(skip_instance_cache=True), "x", timeout_s=60)
    assert store.get("a", 2, 5) == b"234"
    assert store.get("a", 8, 50) == b"89"
    assert store.get("a") == b"0123456789"


def test_a_range_of_a_filesystem_that_gives_whole_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registry, "sftp", NoRanges)
    store = opened("sftp://host/x").opened_store()
    assert isinstance(store, AnyStore)
    assert store.get("a", 2, 5) == b"234"
    assert store.get("a", 8, 50) == b"89"
    assert store.get("a", 10, 50) == b""
    assert store.get("a") == b"0123456789"
    monkeypatch.setattr(store._filesystem, "is_broken", True)  # the server was started again
    with pytest.raises(StorageUnavailable, match="SSHException"):
        store.get("a", 2, 5)
    assert store.get("a", 2, 5) == b"234"


def test_a_filesystem_that_hands_ranges_on_is_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registry, "sftp", HandsOn)
    monkeypatch.setattr(HandsOn, "asked", [])
    assert opened("sftp://host/x").opened_store().get("a", 2, 5) == b"234"
    assert HandsOn.asked == [{"start": 2, "end": 5}]


@pytest.mark.parametrize("size", [10, None])
def test_an_object_that_came_whole_as_far_as_anybody_knows(size: int | None) -> None:
    store = AnyStore(Slow(size=size, skip_instance_cache=True), "x", timeout_s=60)
    assert store.get("a") == b"0123456789"


@pytest.mark.parametrize("size", ["x", float("inf"), []])
def test_a_size_that_is_no_number(size: Any) -> None:
    """Python's parser of JSON makes 1e999 of a server infinite."""
    with pytest.raises(StorageUnavailable, match="about a size cannot be understood"):
        FsspecStore(Slow(size=size, skip_instance_cache=True), "x", timeout_s=60).size("a")


def test_a_refused_range_of_an_object_without_a_size_is_not_absent() -> None:
    """fsspec's HTTP says that there is no file if it cannot tell its size, whatever failed."""

    class Refusing(Slow):
        async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
            error = Exception()
            error.status = 416  # type: ignore[attr-defined]
            raise error

        async def _info(self, path: str, **options: Any) -> dict[str, Any]:
            raise FileNotFoundError(path)

    with pytest.raises(StorageUnavailable, match="tells no size") as caught:
        AnyStore(Refusing(skip_instance_cache=True), "x", timeout_s=60).get("a", 0, 5)
    assert caught.value.object_name == "a"


@pytest.mark.parametrize("filesystem", [Slow(size=11, skip_instance_cache=True), CutOff(skip_instance_cache=True)])
def test_an_object_that_came_in_part(filesystem: Any) -> None:
    """An index that ends between two entries looks whole."""
    store = AnyStore(filesystem, "x", timeout_s=60)
    with pytest.raises(StorageUnavailable, match="10 bytes came of an object of 11"):
        store.get("a")
    assert store.get("a", 2, 5) == b"234", "a range that is short is noticed by whoever asked for it"


class Cut(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that breaks off the body of every index between its two entries, or loses sight of the object."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    is_gone = False

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        data: bytes = super().cat_file(path, start, end, **options)
        return data if path.endswith(".log") or self.is_gone else data[: len(data) // 2]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if self.is_gone:
            raise FileNotFoundError(path)
        found: dict[str, Any] = super().info(path, **options)
        return found


INDEX = pack(">hqqqq", 0, 1, 0, 10, 11) + pack(">hqqqq", 0, 2, 20, 30, 31)
LAYOUTS = {
    "kafka_local": ({}, "kafka-tiered-storage/{0.topic}-{0.partition}-{0.topic_id}/{1:020d}-{2}"),
    "plain": ({"remote.storage.layout.template": "{segment_id}.{file}"}, "{2}"),
    "url": ({}, "{2}"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("is_gone", "says"), [(False, "34 bytes came of an object of 68"), (True, "is not there any more")]
)
def test_an_index_that_came_in_part_is_not_taken_for_a_shorter_one(
    monkeypatch: pytest.MonkeyPatch, layout: str, is_gone: bool, says: str
) -> None:
    """Layouts read indexes with a bound. Half of this one would show the records of the second transaction."""
    monkeypatch.setitem(_registry, "memory", Cut)
    monkeypatch.setattr(Cut, "is_gone", is_gone)
    partition = TopicIdPartition(Uuid(bytes(range(16))), "orders", 0)
    segment_id = RemoteLogSegmentId(partition, Uuid(bytes(range(16, 32))))
    configs, name = LAYOUTS[layout]
    stem = name.format(partition, 0, segment_id.id)
    segment = RemoteLogSegmentMetadata(segment_id, 0, 99, 3, custom_metadata=f"{stem}.log".encode())
    fetcher = FsspecFetcher()
    fetcher.configure({URL: "memory://tier", "remote.storage.layout": layout, **configs})
    files = Cut(skip_instance_cache=True)
    files.pipe({f"/tier/{stem}.log": b"log", f"/tier/{stem}.txnindex": INDEX})
    with pytest.raises(StorageUnavailable, match=says):
        fetcher.fetch_index(segment, IndexType.TRANSACTION)
    assert fetcher.fetch_log_segment(segment, 0, 3) == b"log"


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("url", ["slow-of-the-tests://x/y", "local:///tier", "memory://tier"])
def test_what_fsspec_knows_is_read_by_it(url: str) -> None:
    fetcher = load_fetcher(Config.parse({URL: url, "remote.storage.fetcher.class": "fsspec"}))
    assert type(fetcher) is FsspecFetcher
    assert fetcher.protocol == url.partition("://")[0]
    fetcher.close()


@pytest.mark.parametrize("url", ["zip://", "zip://tier"])
def test_paths_of_an_archive_begin_without_a_slash(url: str, tmp_path: Path) -> None:
    """An archive has nothing below `/tier`, so a tier at its root was empty."""
    with ZipFile(tmp_path / "tier.zip", "w") as archive:
        archive.writestr("tier/a/b", b"0123456789")
    configs = {URL: url, "remote.storage.fetcher.class": "fsspec", OPTIONS + "fo": str(tmp_path / "tier.zip")}
    fetcher = load_fetcher(Config.parse(configs))
    assert isinstance(fetcher, FsspecFetcher)
    store, folder = fetcher.opened_store(), "tier/a" if url == "zip://" else "a"
    assert [info.name for info in store.list(folder)] == [f"{folder}/b"]
    assert [info.name for info in store.list()] == [f"{folder}/b"]
    assert bytes(store.get(f"{folder}/b", 2, 5)) == b"234"
    fetcher.close()


def test_options_stand_in_the_url_too(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Any] = {}

    class Host(Slow):
        @staticmethod
        def _get_kwargs_from_urls(path: str) -> dict[str, str]:
            return {"host": "example.com", "user": "of the url"}

        def __init__(self, **options: Any) -> None:
            super().__init__()
            taken.update(options)

    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda protocol: Host)
    opened("sftp://of%20the%20url@example.com/tier", user="given", port="22").close()
    assert taken == {"host": "example.com", "user": "given", "port": 22}


def test_a_user_with_a_password_is_a_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx and requests refuse a list, and the option is JSON."""
    taken: dict[str, Any] = {}

    class Host(Slow):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            taken.update(options)

    monkeypatch.setitem(_registry, "webdav", Host)
    opened("webdav://tier", auth='["me", "s3cret"]', base_url="https://host/").close()
    assert taken == {"auth": ("me", "s3cret"), "base_url": "https://host/"}


@pytest.mark.parametrize("options", [{}, {"auth": '["me", "s3cret"]'}])
def test_an_option_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """The URL of webdav does not tell its server. The options that were given were blamed."""

    class Host(Slow):
        def __init__(self, base_url: str, auth: Any = None, **options: Any) -> None:
            super().__init__()

    monkeypatch.setitem(_registry, "webdav", Host)
    with pytest.raises(ConfigError, match=r"'webdav' filesystem needs remote\.storage\.options\.base_url") as caught:
        opened("webdav://host/tier", **options)
    assert "s3cret" not in str(caught.value)


def test_a_url_that_cannot_be_understood_lacks_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    class Host(Slow):
        def __init__(self, host: str, **options: Any) -> None:
            super().__init__()

        @staticmethod
        def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
            raise ValueError("the port is no number")

    monkeypatch.setitem(_registry, "sftp", Host)
    with pytest.raises(ConfigError, match="the 'sftp' filesystem cannot be opened without options"):
        opened("sftp://host:port/tier")


def test_what_nobody_knows() -> None:
    with pytest.raises(ConfigError, match="fsspec knows no filesystem 'nosuch'"):
        opened("nosuch://s3cret@host/x")
    for url in ("dir:///tmp", "generic://x"):
        with pytest.raises(ConfigError, match="cannot be opened"):
            opened(url)


def test_what_is_missing_is_named_as_fsspec_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(protocol: str) -> None:
        raise ImportError('SFTPFileSystem requires "paramiko" to be installed')

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(MissingExtra) as caught:
        opened("sftp://user:s3cret@host/x")
    assert "paramiko" in str(caught.value)
    assert "s3cret" not in str(caught.value)


class WithoutLibrary(AbstractFileSystem):  # type: ignore[misc]
    """As pyarrow's HDFS where a library is missing: it fails with `words`."""

    def __init__(self, words: str, **options: Any) -> None:
        raise OSError(f"{words}\ndlopen(/usr/lib/x.so) failed")


@pytest.mark.parametrize(
    ("words", "kind", "says", "hint"),
    [
        ("Unable to load libhdfs", MissingExtra, ": Unable to load libhdfs", "HADOOP_HOME"),
        ("Unable to load libother", MissingExtra, ": Unable to load libother", None),
        ("HDFS connection failed", StorageUnavailable, "could not be reached", None),
    ],
)
def test_a_library_of_the_machine_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, words: str, kind: type[StorageUnavailable], says: str, hint: str | None
) -> None:
    monkeypatch.setitem(_registry, "hdfs", WithoutLibrary)
    with pytest.raises(kind) as caught:
        opened("hdfs://name-node/x", words=words)
    assert says in str(caught.value)
    assert "dlopen" not in str(caught.value)
    assert (hint or "") in (caught.value.hint or "")


class SSHException(Exception):
    """As paramiko's: an exception of a library, which no table has."""


class Dropping(AbstractFileSystem):  # type: ignore[misc]
    """A filesystem that fails with `error`: when it is made, or in each call."""

    error: ClassVar[Exception] = SSHException("s3cret: server connection dropped")

    def __init__(self, *, fails_at_once: bool = False, **options: Any) -> None:
        super().__init__(**options)
        if fails_at_once:
            raise self.error

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        raise self.error

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[dict[str, Any]]:
        raise self.error


def test_an_exception_of_a_library_is_a_failure_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again, and then the broker is, as for a connection that broke off."""
    monkeypatch.setitem(_registry, "sftp", Dropping)
    store = opened("sftp://host/x").opened_store()
    for fails in (
        lambda: store.get("a", 0, 5),
        lambda: list(store.list()),
        lambda: opened("sftp://host/x", fails_at_once="true"),
    ):
        with pytest.raises(StorageUnavailable, match=r"SSHException\)") as caught:
            fails()
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is Dropping.error


def behind(error: Exception, context: Exception) -> Exception:
    error.__context__ = context
    return error


@pytest.mark.parametrize("name", ["", "a"])
@pytest.mark.parametrize(
    "error",
    [
        SSHException("https://host/tier?sig=s3cret"),
        OSError("Max retries exceeded with url: /webhdfs/v1/a?delegation=s3cret"),
        TimeoutError(110, "https://user:s3cret@host/tier"),
        behind(OSError("reset"), ValueError("https://host/tier?sig=s3cret")),
    ],
)
def test_no_error_shows_a_url(monkeypatch: pytest.MonkeyPatch, error: Exception, name: str) -> None:
    """The root of fsspec's HTTP is a URL, with user, password and query. requests shows URLs without their host."""
    monkeypatch.setattr(Dropping, "error", error)
    monkeypatch.setattr(Dropping, "_strip_protocol", lambda path: path)
    store = AnyStore(Dropping(skip_instance_cache=True), "https://user:s3cret@host/tier?sig=s3cret")
    monkeypatch.setitem(_registry, "sftp", Dropping)
    for fails in (
        lambda: list(store.list(name)) if name == "" else store.get(name),
        lambda: opened("sftp://host/x", fails_at_once="true"),
    ):
        with pytest.raises((StorageTimeout, StorageUnavailable)) as caught:
            fails()
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))
        assert type(error).__name__ in repr(caught.value.__cause__)


def test_a_status_is_known_although_its_error_shows_a_url() -> None:
    """The status tells that a range begins at the end."""

    class Refusing(Slow):
        async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
            error = ConnectionError("416, url='https://host/a?sig=s3cret'")
            error.status = 416  # type: ignore[attr-defined]
            raise error

    assert AnyStore(Refusing(skip_instance_cache=True), "x", timeout_s=60).get("a", 10, 15) == b""


class Whole(Quiet):
    """Knows no ranges, as Python's own server. Nothing comes after the headers of a large object."""

    def do_GET(self) -> None:
        if self.path.endswith("index"):
            self.answer(200, b"an index")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()

    do_HEAD = do_GET


def test_a_server_of_http_that_knows_no_ranges_sends_no_whole_object() -> None:
    """Sixteen whole segments at once would fill the memory."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Whole)) as url:
        store = opened(url).opened_store()
        assert bytes(store.get("index", 0, 1000)) == b"an index"
        for start, end in ((0, 1000), (5, 1000)):
            with pytest.raises(StorageUnavailable, match="with the whole object"):
                store.get("log", start, end)
        with pytest.raises(StorageUnavailable, match="with the whole object"):
            store.get("index", 1, 1000)


def test_an_exception_of_pythons_own_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dropping, "error", ValueError("Can't create any SFTP connections!"))
    with pytest.raises(StorageUnavailable, match="ValueError"):
        AnyStore(Dropping(skip_instance_cache=True), "x").get("a")
    monkeypatch.setattr(Dropping, "error", AttributeError("no such name"))
    with pytest.raises(AttributeError):
        AnyStore(Dropping(skip_instance_cache=True), "x").get("a")


class Connected(AbstractFileSystem):  # type: ignore[misc]
    """A filesystem with one connection, which its calls `use`. `opened` has all that were made."""

    opened: ClassVar[list[Connected]] = []

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.used = 0
        self.opened.append(self)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self.used += 1
        self.use(path)
        return b"0123456789"[start:end]

    def use(self, path: str) -> None: ...


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> FsspecStore:
    monkeypatch.setitem(_registry, "sftp", Connected)
    monkeypatch.setattr(Connected, "opened", [])
    store = opened("sftp://host/x").opened_store()
    assert isinstance(store, FsspecStore)
    return store


def test_calls_at_the_same_time_have_a_connection_each(connected: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads with one connection of FTP get each other's answers, with one of SFTP they wait for ever."""
    both = threading.Barrier(2)
    monkeypatch.setattr(Connected, "use", lambda self, path: both.wait(30))
    for _ in range(2):
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda name: connected.get(name, 2, 5), "ab")) == [b"234", b"234"]
    assert [one.used for one in Connected.opened] == [2, 2]


def test_a_connection_that_failed_is_not_used_again(connected: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was started again has forgotten all its connections."""

    def use(self: Connected, path: str) -> None:
        if path.endswith("missing"):
            raise FileNotFoundError(path)
        if self is Connected.opened[0]:
            raise SSHException("Socket is closed")

    monkeypatch.setattr(Connected, "use", use)
    for name, error in (("missing", SegmentNotFound), ("a", StorageUnavailable), ("missing", SegmentNotFound)):
        with pytest.raises(error):
            connected.get(name, 2, 5)
    assert connected.get("a", 2, 5) == b"234"
    assert [one.used for one in Connected.opened] == [2, 2]


class Client:
    """As paramiko's."""

    __module__ = "paramiko.client"
    closed = 0

    def close(self) -> None:
        Client.closed += 1


def test_a_connection_of_ssh_ends_with_its_filesystem(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not with another filesystem that shows the client of the first one as its own."""

    class WithClient(Connected):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.client = Client()

    class Cache(Connected):
        @property
        def client(self) -> Client:
            return Client()

    monkeypatch.setattr(Connected, "opened", [])
    monkeypatch.setattr(Client, "closed", 0)
    for kind in (WithClient, Cache):
        monkeypatch.setitem(_registry, "sftp", kind)
        fetcher = opened("sftp://host/x")
        assert fetcher.opened_store().get("a", 2, 5) == b"234"
        fetcher.close()
        Connected.opened.clear()
        gc.collect()
        assert Client.closed == 1


def test_a_filesystem_that_waits_for_ever_holds_up_no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """requests and paramiko wait without a limit. Calls that do not come back are bounded in number."""
    monkeypatch.setitem(_registry, "sftp", Connected)
    monkeypatch.setattr(any_fsspec, "_MOST_CALLS", 2)
    store = opened("sftp://host/x").opened_store()
    monkeypatch.setattr(any_fsspec, "_LONGEST_S", 0.05)
    monkeypatch.setattr(_store, "_LISTING_TIMEOUT_S", 0.05)
    goes_on, calls = threading.Event(), []

    def waits(*arguments: Any, **options: Any) -> list[Any]:
        calls.append(arguments)
        goes_on.wait(30)
        return []

    monkeypatch.setattr(Connected, "ls", waits)
    for _ in range(4):
        with pytest.raises(StorageTimeout):
            list(store.list())
    assert len(calls) <= 2
    monkeypatch.setattr(Connected, "__init__", waits)
    with pytest.raises(StorageTimeout, match="not opened in time"):
        opened("sftp://host/x")
    goes_on.set()


def test_a_thread_that_cannot_start_keeps_no_place(connected: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def has_none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", has_none)
        for _ in range(any_fsspec._MOST_CALLS):
            with pytest.raises(RuntimeError, match="new thread"):
                connected.get("a", 2, 5)
    assert connected.get("a", 2, 5) == b"234"


def test_options_that_were_taken_once_are_not_to_blame(connected: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an error of the store lets the broker go on."""

    def fails(*arguments: Any, **options: Any) -> None:
        raise ValueError("the negotiation failed")

    monkeypatch.setattr(Connected, "__init__", fails)
    monkeypatch.setattr(Connected, "use", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        connected.get("a", 0, 5)
    with pytest.raises(StorageUnavailable, match="cannot be opened again"):
        connected.get("a", 0, 5)


def test_a_server_that_is_away_is_no_wrong_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """smbprotocol raises a ValueError for it, whose cause is the error of the connection."""

    def fails(*arguments: Any, **options: Any) -> None:
        raise ValueError("Failed to connect to 'host:445'") from ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setitem(_registry, "smb", Connected)
    monkeypatch.setattr(Connected, "__init__", fails)
    with pytest.raises(StorageUnavailable, match="Connection refused"):
        opened("smb://host/share/x", timeout="5")


def test_a_key_that_is_gone_is_no_missing_object(connected: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is opened in the middle of a read. An index that counts as absent shows aborted records."""

    def fails(*arguments: Any, **options: Any) -> None:
        raise SSHException("Socket is closed")

    def without_key(self: Any, **options: Any) -> None:
        raise FileNotFoundError("id_rsa")

    monkeypatch.setattr(Connected, "use", fails)
    with pytest.raises(StorageUnavailable):
        connected.get("a", 0, 5)
    monkeypatch.setattr(Connected, "__init__", without_key)
    with pytest.raises(StorageDenied, match="a file of this machine"):
        connected.get("a", 0, 5)
