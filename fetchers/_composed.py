"""A fetcher is a layout over an fsspec filesystem: the one place where the two meet.

Rules of the file: the filesystem's exceptions are mapped to `remote_fetch.errors` here, in one table, and nowhere else;
names given to the store are relative to the configured URL; option values are secrets and stay out of every message.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar, cast

import fsspec

from remote_fetch.errors import (
    ConfigError,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.plugins import own_entry_point
from remote_fetch.fetch.spi import Layout, ObjectInfo
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata

__all__ = ["ComposedFetcher", "FsspecStore"]

T = TypeVar("T")

LAYOUTS_GROUP = "remote_fetch.layouts"
_OPTIONS = "remote.storage.options."

_ERRORS: tuple[tuple[type[BaseException], type[RemoteFetchError], str], ...] = (
    (FileNotFoundError, SegmentNotFound, "no such object"),
    (IsADirectoryError, SegmentNotFound, "a folder stands where the object should be"),
    (NotADirectoryError, SegmentNotFound, "no such object"),
    (PermissionError, StorageDenied, "the store refused access"),
    (TimeoutError, StorageTimeout, "the store did not answer in time"),
    (OSError, StorageUnavailable, "the store could not be read"),
)
"""What a filesystem raises, in order of precedence: (its error, ours, what to say)."""


class FsspecStore:
    """An object store over any fsspec filesystem: ranged reads by `cat_file`, listings by `ls`.

    `root` is a path as `ComposedFetcher.root_of` gives it, without a protocol.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def get(self, name: str, start: int = 0, end: int = -1) -> Buffer:
        """As `ObjectStore.get`."""
        if 0 <= end <= start:
            return b""
        path = f"{self._root}/{name}"
        is_range = start > 0 or end >= 0
        try:
            return cast(
                Buffer, self._mapped(name, self._filesystem.cat_file, path, start or None, None if end < 0 else end)
            )
        except StorageUnavailable as error:
            if is_range and isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EINVAL:
                return b""  # what some filesystems say to a range that starts past the end
            raise

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

    def _entries(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What is right below a folder. By `ls`, for fsspec's `find` passes over the folders that it may not read."""
        try:
            found = self._mapped(prefix, self._filesystem.ls, f"{self._root}/{prefix}", detail=True)
        except SegmentNotFound:
            return
        for info in found:
            path = self._filesystem._strip_protocol(info["name"])
            if path.startswith(f"{self._root}/{prefix}/" if prefix else f"{self._root}/"):  # a folder may list itself
                yield path.removeprefix(f"{self._root}/"), info

    def _mapped(self, name: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            for theirs, ours, text in _ERRORS:
                if isinstance(error, theirs):
                    raise ours(text, object_name=name) from error
            raise


class ComposedFetcher:
    """A RemoteStorageFetcher and SegmentLister made of a layout and an fsspec filesystem.

    Subclasses name the filesystem (`protocol`), the store that reads from it, and the layout that is meant when none is
    configured.
    """

    protocol = "file"
    store_type: type[FsspecStore] = FsspecStore
    default_layout = "kafka_local"

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._store: FsspecStore | None = None

    def configure(self, configs: Mapping[str, str]) -> None:
        """Open the filesystem and the layout. Raises ConfigError."""
        url = configs.get("remote.storage.url")
        if not url:
            raise ConfigError("the fetcher needs remote.storage.url", key="remote.storage.url")
        self._layout = _load_layout(configs.get("remote.storage.layout") or self.default_layout)
        self._layout.configure(configs)
        self._store = self.store_type(self.open_filesystem(configs), self.root_of(url))

    def open_filesystem(self, configs: Mapping[str, str]) -> Any:
        """The filesystem, with the options of `remote.storage.options.*`. Raises ConfigError for one it refuses."""
        options = {name.removeprefix(_OPTIONS): value for name, value in configs.items() if name.startswith(_OPTIONS)}
        try:
            return fsspec.filesystem(self.protocol, **options)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the {self.protocol!r} filesystem does not take the options {sorted(options)}", key=_OPTIONS + "*"
            ) from error

    def root_of(self, url: str) -> str:
        """The path that object names are relative to."""
        return cast(str, fsspec.get_filesystem_class(self.protocol)._strip_protocol(url))

    def _opened(self) -> tuple[Layout, FsspecStore]:
        if self._layout is None or self._store is None:
            raise ConfigError("the fetcher is closed, or was never configured")
        return self._layout, self._store

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """As `RemoteStorageFetcher.fetch_log_segment`."""
        layout, store = self._opened()
        return layout.read_segment(store, metadata, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """As `RemoteStorageFetcher.fetch_index`."""
        layout, store = self._opened()
        return layout.read_index(store, metadata, index_type)

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `SegmentLister.list_segments`."""
        layout, store = self._opened()
        return layout.list_segments(store, topic)

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
        self._store = None


def _load_layout(name: str) -> Layout:
    entry = own_entry_point(LAYOUTS_GROUP, name)
    if entry is None:
        found = {entry.name: entry for entry in entry_points(group=LAYOUTS_GROUP)}
        if name not in found:
            raise ConfigError(
                f"no layout is called {name!r}; installed are {', '.join(sorted(found)) or 'none'}",
                key="remote.storage.layout",
            )
        entry = found[name]
    try:
        return cast(Layout, entry.load()())
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot load the layout {name!r}: {error}", key="remote.storage.layout") from error
