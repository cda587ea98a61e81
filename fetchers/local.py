"""Segments on a file system of this machine: a directory, an NFS mount, a copy of a bucket.

Rules of the file:

- A range takes one open and one seek.
- Paths hold no secrets and may be shown whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import pyarrow as pa

from fetchers._composed import ComposedFetcher
from fetchers._identity import Identities
from fetchers._store import FsspecStore
from remote_fetch.errors import StorageDenied, StorageUnavailable
from remote_fetch.model import Buffer

__all__ = ["LocalFetcher"]

T = TypeVar("T")


class _LocalStore(FsspecStore):
    """Reads files into memory of Arrow's pool, which keeps what is given back.

    Python's own allocator gives large pieces back to the system, and new ones cost a page fault every 4 KiB: with
    several ranges under way that took more time than the copying. A refusal names the whole path: one of the
    directories in it may be what cannot be searched.
    """

    def get(self, name: str, start: int = 0, end: int = -1) -> Buffer:
        """As `ObjectStore.get`."""
        if 0 <= end <= start:
            return b""
        return self._mapped(name, _read, self.path_of(name), start, end, self.identities)

    def _entries(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """As `FsspecStore._entries`, one name after another: a partition may have a million files."""
        with self._mapped(prefix, _scan, self.path_of(prefix)) as found:
            while (entry := self._mapped(prefix, next, found, None)) is not None:
                name = f"{prefix}/{entry.name}".lstrip("/")
                info = self._mapped(name, _described, entry)
                if info is not None:
                    yield name, info

    def measure(self, path: str) -> int | None:
        """As `FsspecStore.measure`."""
        status = os.stat(path)
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _mapped(self, name: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return super()._mapped(name, call, *args, **kwargs)
        except StorageDenied as error:
            error.object_name = self.path_of(name)
            raise


class LocalFetcher(ComposedFetcher):
    """The fetcher `local`: `remote.storage.url` is a directory or a `file://` URL."""

    protocol = "file"
    store_type = _LocalStore


def _scan(path: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """The names in a directory. None of them if it is no directory, as with other filesystems."""
    try:
        return os.scandir(path or "/")
    except (FileNotFoundError, NotADirectoryError):
        return nullcontext(iter(()))


def _described(entry: os.DirEntry[str]) -> Mapping[str, Any] | None:
    """Kind and size in bytes of what a directory names. None if it was deleted since it was listed."""
    try:
        return {"type": "directory" if entry.is_dir() else "file", "size": entry.stat().st_size}
    except FileNotFoundError:
        return None


def _read(path: str, start: int, end: int, identities: Identities) -> memoryview:
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        # Mounts of FUSE (sshfs) and of networks give a file another inode or device while it stays the same.
        identities.check(path, (status.st_mtime_ns, status.st_size))
        size_bytes = status.st_size
        wanted_bytes = (size_bytes if end < 0 else min(end, size_bytes)) - start
        if wanted_bytes <= 0:
            return memoryview(b"")
        view = memoryview(pa.allocate_buffer(wanted_bytes)).cast("B")
        file.seek(start)
        read_bytes = 0
        while read_bytes < wanted_bytes:
            got_bytes = file.readinto(view[read_bytes:])
            if not got_bytes:
                raise StorageUnavailable("the file became shorter while it was read")
            read_bytes += got_bytes
    return view.toreadonly()
