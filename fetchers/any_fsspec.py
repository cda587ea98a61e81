"""Segments on any filesystem that fsspec knows: SFTP, HDFS, WebDAV, SMB, OSS and what else is installed.

Rules of the file:

- Nothing here is for one store, except for hints about what is not installed.
- Libraries have exceptions of their own for what can happen to a connection (paramiko's SSHException), and no table has
  them all. One that is in no table is a failure of the store, also one of a module of the standard library. One of
  Python's builtins (TypeError) is a mistake, and is passed on; a ValueError is none.
- A filesystem that is not asynchronous serves one call at a time. Most have one connection: two threads would read each
  other's answers (FTP), or wait for ever (SFTP). After a failure each call opens its connection again.
- An asynchronous filesystem whose `cat_file` takes no `start` gives the whole object for each range, as that of SSH in
  sshfs does. Its files are opened and read from a position. Such a read has no limit of time, and a connection of SSH
  that broke stays broken. So the filesystem is used as one that is not asynchronous.
- A filesystem that is not asynchronous may wait for ever: requests and paramiko do if a server takes the connection and
  says nothing. A call is made in a thread of its own, so that a listing ends too. Calls that were given up are bounded
  in number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from threading import BoundedSemaphore
from typing import Any, TypeVar

import fsspec
from fsspec import AbstractFileSystem

from fetchers._composed import ComposedFetcher
from fetchers._identity import Identities
from fetchers._options import Timeouts, check_objects, timeouts_of
from fetchers._ranges import is_all, wrong_range
from fetchers._store import FsspecStore, failure_of_library
from remote_fetch.caller_thread import CallerThread
from remote_fetch.errors import ConfigError, MissingExtra, RemoteFetchError, StorageTimeout, StorageUnavailable
from remote_fetch.failures.causes import as_cause
from remote_fetch.hosts import shown_url
from remote_fetch.model import Buffer
from remote_fetch.sdks.ssh import close_ssh_with

__all__ = ["AnyStore", "FsspecFetcher"]

T = TypeVar("T")

_NO_LIBRARY = re.compile(r"Unable to load (lib\w+)")
"""The words of pyarrow's HDFS, which begin an OSError without a number. The rest of it are the paths of its search."""
_RANGE = re.compile("bytes=([0-9]+)-([0-9]+)")
_URL = "remote.storage.url"
_LONGEST_S = 60.0
"""Longest wait for a call of a filesystem that is not asynchronous, unless the read timeout is longer."""
_MOST_CALLS = 64
"""Most calls at a time, those that were given up among them."""
_ANSWERS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors by which a filesystem answers a call: its connection is good."""
_OF_HADOOP = "Install Java and Hadoop's client, and set JAVA_HOME, HADOOP_HOME (or ARROW_LIBHDFS_DIR) and CLASSPATH"


class AnyStore(FsspecStore):
    """As its parent, for a filesystem of which nothing is known.

    - An object that came whole is held against its size. Some filesystems do not notice that a body was cut off, and an
      index that ends between two entries looks like a shorter one. Layouts read indexes with a bound, so an answer from
      the beginning that is shorter than its bound counts as a whole object.
    - Each call of a filesystem that is not asynchronous has it alone. `open_another` opens one if none is free. Without
      it all calls share `filesystem`.
    """

    def __init__(
        self,
        filesystem: Any,
        root: str,
        timeout_s: float | None = None,
        identities: Identities | None = None,
        open_another: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(filesystem, root, timeout_s, identities)
        self._open_another = open_another
        self._free = [filesystem]
        self._calls = BoundedSemaphore(_MOST_CALLS)

    def _call(self, method: str, path: str, *, timeout_s: float | None, **arguments: Any) -> Any:
        """As `FsspecStore._call`, by a filesystem that no other call uses. Raises TimeoutError."""
        if self._open_another is None or _is_shared(self._filesystem):
            return super()._call(method, path, timeout_s=timeout_s, **arguments)
        alone = partial(self._call_alone, self._open_another, method, path, arguments)
        return _in_time(alone, max(timeout_s or 0.0, _LONGEST_S), self._calls)

    def _call_alone(self, open_another: Callable[[], Any], method: str, path: str, arguments: Mapping[str, Any]) -> Any:
        try:
            filesystem = self._free.pop()
        except IndexError:
            filesystem = _opened_again(open_another)
        try:
            if method == "cat_file" and not _takes_ranges(filesystem):
                found = AbstractFileSystem.cat_file(filesystem, path, **arguments)  # opens the file
            else:
                found = getattr(filesystem, method)(path, **arguments)
        except _ANSWERS:
            self._free.append(filesystem)
            raise
        except BaseException:  # a server that went away took the others with it
            self._free.clear()
            raise
        self._free.append(filesystem)
        return found

    def read(self, path: str, start: int, end: int | None) -> Buffer:
        """As `FsspecStore.read`. Raises StorageUnavailable for an object that came in part."""
        data = super().read(path, start, end)
        if start == 0 and (end is None or len(data) < end):
            try:
                size_bytes = self._call("info", path, timeout_s=self._timeout_s).get("size")
            except FileNotFoundError as error:  # an index that is missing would be none
                raise StorageUnavailable("the object came, and is not there any more") from error
            if size_bytes is not None and size_bytes != len(data):
                raise StorageUnavailable(f"{len(data)} bytes came of an object of {size_bytes}")
        return data

    def _mapped(self, name: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        inner = super()._mapped
        return _of_library(name, lambda: inner(name, call, *args, **kwargs))


class FsspecFetcher(ComposedFetcher):
    """The fetcher `fsspec`: the scheme of `remote.storage.url` names the filesystem.

    Options go to the filesystem as they are; those that hold its timeouts have names of its own, and what it does not
    bound itself ends with the reader's deadline.
    """

    hands_options_on = True

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `ComposedFetcher.configure`."""
        scheme, found, _ = configs.get(_URL, "").partition("://")
        if found and scheme not in (*fsspec.available_protocols(), *fsspec.registry):
            raise ConfigError(f"fsspec knows no filesystem {scheme!r}", key=_URL)
        self.protocol = scheme if found else "file"
        super().configure(configs)

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """As `ComposedFetcher.options`. Clients of HTTP take a user and a password as a tuple, which JSON has not."""
        auth = given.get("auth")
        given = {**given, "auth": tuple(auth)} if isinstance(auth, list) else given
        if self.protocol not in ("http", "https"):
            return given
        from aiohttp import TraceConfig  # noqa: PLC0415 - fsspec's HTTP needs it

        traces = TraceConfig()
        traces.on_request_end.append(_refuse_whole)
        check_objects(given, ("client_kwargs",))
        return {**given, "client_kwargs": {**given.get("client_kwargs", {}), "trace_configs": [traces]}}

    def open_store(self, configs: Mapping[str, str]) -> AnyStore:
        """As `ComposedFetcher.open_store`."""
        root, open_one = self.root_of(configs[_URL]), partial(self.open_filesystem, configs)
        try:
            first = _in_time(open_one, _LONGEST_S, BoundedSemaphore())
        except TimeoutError:
            raise StorageTimeout("the filesystem was not opened in time") from None
        return AnyStore(first, root, timeouts_of(configs).read_s, self._identities, open_one)

    def open_filesystem(self, configs: Mapping[str, str]) -> Any:
        """As `ComposedFetcher.open_filesystem`. Raises MissingExtra also for a native library, as HDFS needs."""
        try:
            inner = super().open_filesystem
            filesystem = _of_library(shown_url(configs[_URL]), lambda: inner(configs))
        except StorageUnavailable as error:
            library = _NO_LIBRARY.match(str(error.__cause__))
            if library is None:
                raise
            hint = _OF_HADOOP if library[1] in ("libjvm", "libhdfs") else None
            raise MissingExtra(f"{self.protocol}:// cannot be read: {library[0]}", hint=hint) from error
        close_ssh_with(filesystem)
        return filesystem


def _is_shared(filesystem: Any) -> bool:
    """Whether calls at the same time share the filesystem."""
    return bool(getattr(filesystem, "async_impl", False)) and _takes_ranges(filesystem)


def _takes_ranges(filesystem: Any) -> bool:
    """Whether `cat_file` reads a range. A filesystem that takes `*args` hands them on to another filesystem."""
    parameters = signature(filesystem.cat_file).parameters
    return "start" in parameters or any(each.kind is each.VAR_POSITIONAL for each in parameters.values())


async def _refuse_whole(session: Any, context: Any, asked: Any) -> None:
    """Raise StorageUnavailable before a body is read that is not the range: many whole objects may fill the memory."""
    answer, wanted = asked.response, _RANGE.fullmatch(asked.headers.get("Range", ""))
    if answer.status == 200 and wanted is not None:
        size_bytes = answer.content_length
        if size_bytes is None or not is_all(int(wanted[1]), int(wanted[2]) + 1, size_bytes):
            answer.close()
            raise wrong_range("the server answers a range with the whole object")


def _in_time(call: Callable[[], T], limit_s: float, calls: BoundedSemaphore) -> T:
    """The result of a call in a thread of its own, which counts among `calls` until it ends. Raises TimeoutError."""
    if not calls.acquire(timeout=limit_s):
        raise TimeoutError("earlier calls have not come back")

    def counted() -> T:
        try:
            return call()
        finally:
            calls.release()

    try:
        thread = CallerThread("remote-fetch-fsspec")
    except BaseException:  # the process has no thread left, and no call will give its place back
        calls.release()
        raise
    result = thread.submit(counted)
    thread.end()
    return result.result(limit_s)


def _opened_again(open_another: Callable[[], Any]) -> Any:
    """Another filesystem. Raises StorageUnavailable if it refuses the options, because it took them before."""
    try:
        return open_another()
    except ConfigError as error:
        raise StorageUnavailable("the filesystem cannot be opened again") from error


def _of_library(name: str, call: Callable[[], T]) -> T:
    """The result of a call. Raises StorageUnavailable about the object `name` as `failure_of_library` says."""
    try:
        return call()
    except RemoteFetchError:
        raise
    except Exception as error:
        failure = failure_of_library(error, name)
        if failure is None:
            raise
        raise failure from as_cause(error)
