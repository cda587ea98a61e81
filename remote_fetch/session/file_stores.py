"""Where `remote.locator.cache` keeps its files: a directory, or a URL that fsspec knows.

Rules of the file:

- A file is replaced at once: by a rename in a directory, by one PUT in an object store.
- Files in a directory are readable for their owner alone, and so is the directory if it is made here.
- A call that takes too long fails, and its thread is left behind. Reading may take `fetch.remote.read.timeout.ms`,
  because the first record waits for it. Writing may take six times as long: twenty processes that end at once on a busy
  machine would otherwise save nothing.
- No message has the text of an SDK, which may hold a secret.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from remote_fetch.config import Config
from remote_fetch.config.settings import typed_option
from remote_fetch.errors import RemoteFetchError
from remote_fetch.fetch.plugins import kind_of
from remote_fetch.fetch.pool import DaemonPool
from remote_fetch.fetch.registry import check_slashes
from remote_fetch.locate.replay_cache import MAX_FILE_BYTES, StoreFailed
from remote_fetch.session.filesystems import folder_of, is_object_store, open_filesystem

__all__ = ["Directory", "TimedStore", "UrlStore", "open_file_store", "write_whole"]

T = TypeVar("T")

_KEY = "remote.locator.cache"
_OURS_ALONE = 0o700
_WRITES_LONGER = 6


def open_file_store(config: Config, place: str) -> TimedStore:
    """The store of `remote.locator.cache`. A URL of the storage's kind takes `remote.storage.options.*` too.

    Raises ConfigError for an unknown scheme and for `s3:/bucket`, MissingExtra if its SDK is not installed.
    """
    timeout_ms = config.settings.read_timeout_ms
    folder = folder_of(place)
    if folder is not None:
        check_slashes(place, _KEY)
        return TimedStore(Directory(Path(folder)), timeout_ms)
    is_ours = kind_of(place) == kind_of(config.settings.storage_url or "")
    options = {name: typed_option(name, text) for name, text in config.options.items()} if is_ours else {}
    filesystem, path = open_filesystem(place, options, key=_KEY)
    return TimedStore(UrlStore(filesystem, path), timeout_ms)


class Directory:
    """Files below a directory, which is made when the first file is written."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        """As `FileStore.read`. Raises OSError."""
        found = {}
        for name in names:
            with suppress(FileNotFoundError), open(self._root / name, "rb") as file:
                found[name] = file.read(MAX_FILE_BYTES + 1)
        return found

    def write(self, files: Mapping[str, bytes]) -> None:
        """As `FileStore.write`. Raises OSError."""
        self._root.mkdir(mode=_OURS_ALONE, parents=True, exist_ok=True)
        for name, data in files.items():
            path = self._root / name
            path.parent.mkdir(mode=_OURS_ALONE, exist_ok=True)
            write_whole(path, data)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that its owner alone may read. It has all of `data`, or stays as it was. Raises OSError."""
    # The name is new, so that no two processes write one file. `mkstemp` lets its owner alone read it.
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".draft")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


class UrlStore:
    """Files below a path of an fsspec filesystem. Several files are read or written at once, if the filesystem can."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        """As `FileStore.read`. Raises what the filesystem raises."""
        paths = [posixpath.join(self._root, name) for name in names]
        count = len(paths)
        contents = self._filesystem.cat_ranges(paths, [0] * count, [MAX_FILE_BYTES + 1] * count, on_error="return")
        found = {}
        for name, data in zip(names, contents, strict=True):
            if isinstance(data, FileNotFoundError):
                continue
            if isinstance(data, Exception):
                raise data
            found[name] = bytes(data)
        return found

    def write(self, files: Mapping[str, bytes]) -> None:
        """As `FileStore.write`. Raises what the filesystem raises."""
        paths = {posixpath.join(self._root, name): data for name, data in files.items()}
        if is_object_store(self._filesystem):
            self._filesystem.pipe(paths)
            return
        for folder in {posixpath.dirname(path) for path in paths}:
            self._filesystem.makedirs(folder, exist_ok=True)
        for path, data in paths.items():
            draft = f"{path}.{uuid4().hex}.draft"
            self._filesystem.pipe_file(draft, data)
            self._filesystem.mv(draft, path)


class TimedStore:
    """A store whose calls end in time, with StoreFailed for every error."""

    def __init__(self, store: Directory | UrlStore, timeout_ms: int) -> None:
        self._store = store
        self._timeout_ms = timeout_ms
        self._pool = DaemonPool(2, "remote-fetch-cache")

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        """As `FileStore.read`."""
        wanted = tuple(names)
        return self._timed(lambda: self._store.read(wanted), self._timeout_ms)

    def write(self, files: Mapping[str, bytes]) -> None:
        """As `FileStore.write`."""
        self._timed(lambda: self._store.write(files), _WRITES_LONGER * self._timeout_ms)

    def close(self) -> None:
        """As `FileStore.close`, after the calls under way."""
        self._pool.close(self._timeout_ms)

    def _timed(self, call: Callable[[], T], timeout_ms: int) -> T:
        try:
            return self._pool.submit(call).wait_or_cancel(timeout_ms)
        except RemoteFetchError as error:
            raise StoreFailed(error.message) from None
        except OSError as error:
            raise StoreFailed(error.strerror or type(error).__name__) from None
        except Exception as error:
            raise StoreFailed(type(error).__name__) from None
