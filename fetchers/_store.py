"""An object store over any fsspec filesystem: the one place that calls it.

Rules of the file:

- A range takes one request, without a question about its size before.
- A request to an asynchronous filesystem is cancelled at the read timeout.
- Every exception goes through `store_errors`.
- Names of objects are relative to the root. Messages show these names. A cause whose text shows a URL is not kept.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from fsspec.asyn import sync

from fetchers._identity import Identities
from fetchers._ranges import EndTold, check_end
from remote_fetch.errors import CorruptSegment, SegmentNotFound, StorageUnavailable
from remote_fetch.failures.causes import as_cause
from remote_fetch.failures.store_errors import failure_of, is_past_the_end
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.hosts import is_path, shown_url
from remote_fetch.model import Buffer

__all__ = ["OF_PARTING", "FsspecStore", "below_root", "failure_of_library"]

T = TypeVar("T")

OF_PARTING = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of SDKs and parsers that part an answer without a check."""
_KINDS = frozenset({"directory", "file"})
_DOTS = frozenset({".", ".."})
_LISTING_TIMEOUT_S = 60.0
"""Longest wait for the listing of one folder, which may take many pages."""


class FsspecStore:
    """An object store over any fsspec filesystem: ranged reads by `cat_file`, listings by `ls`.

    `root` is a path as `ComposedFetcher.root_of` gives it, without a protocol; `timeout_s` bounds one read of an
    asynchronous filesystem, None leaves that to the filesystem. `identities` are those of the fetcher, which outlive
    the store.
    """

    has_codes = False
    """Whether the store gives a code for an object that is not there. `store_errors` has the rule."""

    def __init__(
        self, filesystem: Any, root: str, timeout_s: float | None = None, identities: Identities | None = None
    ) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        # Paths of archives begin without a slash. Those of HDFS and SFTP need it.
        self._start = f"{self._root}/" if self._root else filesystem._strip_protocol("/x").removesuffix("x")
        self._timeout_s = timeout_s
        self.identities = Identities() if identities is None else identities

    def get(self, name: str, start: int = 0, end: int = -1) -> Buffer:
        """As `ObjectStore.get`."""
        if 0 <= end <= start:
            return b""
        try:
            data = self._mapped(name, self.read, self.path_of(name), start, None if end < 0 else end)
        except StorageUnavailable as error:
            if (start > 0 or end >= 0) and _is_invalid(error.__cause__) and self._ends_by(name, start):
                return b""  # what some filesystems say to a range that starts past the end
            raise
        except Exception as error:
            if not is_past_the_end(error):
                raise
            if not isinstance(error.__cause__, EndTold):
                self._check_end(name, start)
            return b""
        if 0 <= end < start + len(data):
            raise StorageUnavailable(f"{len(data)} bytes came for a range of {end - start}", object_name=name)
        return data

    def _check_end(self, name: str, start: int) -> None:
        """Raise StorageUnavailable if the object has a byte at `start`, which a range refused."""
        try:
            check_end(start, self.size(name))
        except SegmentNotFound as error:  # a filesystem says so of whatever fails, and an index that is missing is none
            raise StorageUnavailable("the store refuses a range, and tells no size", object_name=name) from error
        except StorageUnavailable as error:
            raise error.at(object_name=name) from error.__cause__

    def _ends_by(self, name: str, start: int) -> bool:
        """Whether the filesystem says that an object has no byte from `start` on. "Invalid" may mean anything else."""
        size_bytes = self.size(name)
        return size_bytes is not None and size_bytes <= start

    def path_of(self, name: str) -> str:
        """The path of an object below the root. Raises CorruptSegment for a name that leads elsewhere."""
        return f"{self._start}{below_root(name)}"

    def read(self, path: str, start: int, end: int | None) -> Buffer:
        """Bytes [start, end) of the object at `path`, in one request. Raises what the filesystem raises."""
        return cast(Buffer, self._call("cat_file", path, timeout_s=self._timeout_s, start=start, end=end))

    def size(self, name: str) -> int | None:
        """As `SizedStore.size`. Raises CorruptSegment for a name that leads elsewhere."""
        try:
            return self._mapped(name, self.measure, self.path_of(name))
        except OF_PARTING as error:
            raise StorageUnavailable(
                "the store's answer about a size cannot be understood", object_name=name
            ) from error

    def measure(self, path: str) -> int | None:
        """The size of the object at `path` in bytes, without its bytes. Raises what the filesystem raises."""
        found = self._call("info", path, timeout_s=self._timeout_s)
        size_bytes = found.get("size")
        return None if found.get("type") == "directory" or size_bytes is None else int(size_bytes)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`."""
        for name, info in self._entries(prefix):
            if info["type"] == "directory":
                yield from self.list(name)
            else:
                yield ObjectInfo(name, int(info["size"] or 0))

    def folders(self, prefix: str = "") -> Iterator[str]:
        """The names of the folders right below `prefix`. May be empty."""
        for name, info in self._entries(prefix):
            if info["type"] == "directory":
                yield name.rpartition("/")[2]

    def names(self) -> Iterator[str]:
        """The names of folders and objects right below the root."""
        return (name for name, _ in self._entries(""))

    def kind(self) -> str:
        """The kind of the root: "folder" if there is something below it, else "empty", "file" or "missing"."""
        if next(self._entries(""), None) is not None:
            return "folder"
        try:
            found = self._mapped("", self._info, self._root or "/")
        except SegmentNotFound:
            return "missing"
        return "empty" if found["type"] == "directory" else "file"

    def _info(self, path: str) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self._call("info", path, timeout_s=_LISTING_TIMEOUT_S))

    def _entries(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The names right below a folder, from `ls`: fsspec's `find` passes over folders that it may not read.

        Paths of WebDAV begin without a slash, and folders of SMB end with one.
        """
        try:
            found = self._mapped(prefix, self._ls, self.path_of(prefix))
        except SegmentNotFound:
            return
        root = self._start.lstrip("/")
        below = f"{root}{prefix}/" if prefix else root
        for info in found:
            path = self._filesystem._strip_protocol(info["name"]).strip("/")
            if path.startswith(below) and path != below:  # a folder may list itself
                name = path.removeprefix(root)
                target = info if info["type"] in _KINDS else self._target(name)
                if target is not None:
                    yield name, target

    def _target(self, name: str) -> Mapping[str, Any] | None:
        """The description of what a link leads to, None if that is not there. A listing of SFTP has the link's own."""
        try:
            return self._mapped(name, self._info, self.path_of(name))
        except SegmentNotFound:
            return None

    def _ls(self, path: str) -> Iterable[Mapping[str, Any]]:
        return cast(Iterable[Mapping[str, Any]], self._call("ls", path, timeout_s=_LISTING_TIMEOUT_S, detail=True))

    def _call(self, method: str, path: str, *, timeout_s: float | None, **arguments: Any) -> Any:
        """Call the filesystem; one that is asynchronous is called off when the time is over."""
        filesystem = self._filesystem
        if getattr(filesystem, "async_impl", False):
            return sync(filesystem.loop, getattr(filesystem, f"_{method}"), path, timeout=timeout_s, **arguments)
        return getattr(filesystem, method)(path, **arguments)

    def _mapped(self, name: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            shown = self._root if is_path(self._root) else shown_url(self._root)  # that of fsspec's HTTP is a URL
            failure = failure_of(error, name or shown, has_codes=self.has_codes)
            if failure is None:
                raise
            raise failure from as_cause(error.__cause__ if failure is error else error)


def below_root(name: str) -> str:
    """The name, if it stays below the root that it is relative to. Raises CorruptSegment if it may lead elsewhere.

    Names are made of what metadata, listings and manifests say. A name that has a part `..` or `.`, a backslash or a
    NUL is none that a storage plug-in writes.
    """
    if "\0" in name or "\\" in name or not _DOTS.isdisjoint(name.split("/")):
        raise CorruptSegment(f"the object's name {name[:300]!r} leads out of the storage", object_name=name[:300])
    return name


def failure_of_library(error: Exception, name: str) -> StorageUnavailable | None:
    """The failure of the store by an exception that no table has. None for a mistake: an exception of Python's own.

    ValueError counts as a failure: sshfs raises it if the server went away, and other filesystems for names that they
    cannot decode.
    """
    kind = type(error)
    if kind.__module__ == "builtins" and not isinstance(error, ValueError):
        return None
    shown = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}".removeprefix("builtins.")
    return StorageUnavailable(f"the store's client failed ({shown})", object_name=name)


def _is_invalid(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EINVAL
