"""The stores of the clouds: one GET for one range, received into one buffer, and listings page by page.

Rules of the file:

- An answer is believed only if its headers name the range that was asked for. Else it is refused before memory is taken
  for its body. That the object ends before the range (416) is believed unless the headers tell another end.
- A body goes into one buffer of Arrow's pool, which keeps memory that is given back.
- Requests are made here, not by fsspec's `cat_file` and `ls`. Those methods retry, ask about sizes, parents and kinds
  of buckets first, and hide the headers that name the range.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import pyarrow as pa
from fsspec.asyn import sync

from fetchers._composed import ComposedFetcher
from fetchers._options import OPTIONS, Timeouts, timeouts_of
from fetchers._retries import asked_again
from fetchers._store import OF_PARTING, FsspecStore, failure_of_library
from remote_fetch.errors import ConfigError, RemoteFetchError, SegmentNotFound, StorageUnavailable
from remote_fetch.failures.causes import as_cause
from remote_fetch.failures.store_errors import failure_of
from remote_fetch.fetch.spi import ObjectInfo, ObjectStore
from remote_fetch.hosts import shown_url
from remote_fetch.model import Buffer

__all__ = ["BODY_BYTES", "CloudFetcher", "CloudStore", "Page", "Questions", "receive"]

T = TypeVar("T")

BODY_BYTES = 256 << 10
"""Most bytes of a body that are received at once."""

_ANSWER_S = 30
"""Longest wait for credentials. Reads that time out before share it."""
_CLOSE_TIMEOUT_S = 1
_OF_CLOSED = (AssertionError, RuntimeError)
"""aiohttp's errors for a request whose session was closed on its way, as by a second look-up of credentials."""
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
"""Python's words for an option that a client does not have. They hold its name, and no value."""
_SIGNED = re.compile(r"\?(.*&)?(sig|x-(amz|goog)-signature)=", re.IGNORECASE)
"""The query of a signed URL: a SAS of Azure, or Signature Version 4."""


class Page(NamedTuple):
    """A part of a listing: the folders and objects right below a prefix. Names are full keys, folders end with `/`."""

    folders: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]
    next_page: str | None


class Questions:
    """Questions for credentials. One goes on if the read that asked is cancelled, and the next read gets its answer.

    An answer may take longer than a read: the Azure CLI and AWS's `credential_process` are processes, which would be
    started again for each read. Used in the loop.
    """

    def __init__(self) -> None:
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    async def ask(self, about: Hashable, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question, which is asked once at a time for each `about`. Raises what the SDK raises."""
        asked = self._asked.get(about)
        if asked is None:
            asked = self._asked[about] = asyncio.ensure_future(asyncio.wait_for(question(), _ANSWER_S))
            asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio would log it
        try:
            return cast(T, await asyncio.shield(asked))
        finally:
            if asked.done():
                self._asked.pop(about, None)


class CloudStore(FsspecStore):
    """A store that uses the client of its filesystem. Subclasses get a range and list a page."""

    has_codes = True

    async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
        """Bytes [start, end) of an object, by one GET. Raises what the SDK raises."""
        raise NotImplementedError

    async def get_size(self, bucket: str, key: str) -> int | None:
        """The size of an object in bytes, by one request for its description. Raises what the SDK raises."""
        raise NotImplementedError

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        """The folders and objects right below `prefix`, from the named page on. Raises the errors of the SDK."""
        raise NotImplementedError

    def signed_urls(self, bucket: str, keys: Sequence[str], expires_s: int) -> Sequence[str]:
        """A URL for each key, for at most `expires_s` seconds. Raises ConfigError and what the SDK raises."""
        raise NotImplementedError

    def sign(self, names: Sequence[str], expires_s: int) -> Mapping[str, str]:
        """As `SigningStore.sign`."""
        places = [self.path_of(name).partition("/") for name in names]
        keys = [key for _, _, key in places]
        return dict(zip(names, self._mapped(names[0], self.signed_urls, places[0][0], keys, expires_s), strict=True))

    async def disconnect(self) -> None:
        """Close the connections. A listing of the store may go on afterwards, with other connections."""
        raise NotImplementedError

    def closed_with_store(self, client: Any) -> None:
        """Have a client closed, at the latest when this store is garbage."""
        weakref.finalize(self, _close_later, client, self._filesystem.loop)

    def close(self) -> None:
        """Close the connections. A read under way may go on until its timeout: aiohttp does not wake it."""
        with contextlib.suppress(Exception):  # the store is not used after this
            sync(self._filesystem.loop, self.disconnect, timeout=_CLOSE_TIMEOUT_S)

    def read(self, path: str, start: int, end: int | None) -> Buffer:
        """As `FsspecStore.read`."""
        bucket, _, key = path.partition("/")
        return self.wait_for(self.get_range, bucket, key, start, end)

    def measure(self, path: str) -> int | None:
        """As `FsspecStore.measure`."""
        bucket, _, key = path.partition("/")
        return self.wait_for(self.get_size, bucket, key)

    def before_request(self) -> None:
        """Prepare each request in the thread that asks. The event loop serves all threads and must not wait.

        Raises what the SDK raises.
        """

    def wait_for(self, ask: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """The answer of a coroutine on the filesystem's event loop, within the read timeout."""
        self.before_request()
        return cast(T, sync(self._filesystem.loop, ask, *args, timeout=self._timeout_s))

    def _mapped(self, name: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return super()._mapped(name, call, *args, **kwargs)
        except RemoteFetchError:
            raise
        except OF_PARTING as error:
            cause = ConnectionError(type(error).__name__)  # its text may have a URL
            raise StorageUnavailable("the store's answer cannot be understood", object_name=name) from cause
        except _OF_CLOSED as error:
            raise StorageUnavailable("the connections were closed during the request", object_name=name) from error
        except Exception as error:
            failure = failure_of_library(error, name)
            if failure is None:
                raise
            raise failure from ConnectionError(type(error).__name__)  # as above

    def kind(self) -> str:
        """As `FsspecStore.kind`. "bare" if no object is stored below the root, because a cloud has no empty folders."""
        return "bare" if next(self._entries(""), None) is None else "folder"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`. A name may have empty parts (`a//b`, `/a`), as keys have, and many of them."""
        listings = [self._entries(prefix)]
        while listings:
            name, info = next(listings[-1], ("", None))
            if info is None:
                listings.pop()
            elif info["type"] == "directory":
                listings.append(self._below(f"{name}/"))
            else:
                yield ObjectInfo(name, int(info["size"] or 0))

    def _entries(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return self._below(f"{prefix}/" if prefix else "")

    def _below(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The names right below a prefix, which ends with `/` unless it is empty. A folder's has no `/` at its end."""
        below = f"{self._root}/{prefix}"
        bucket, _, key = below.partition("/")
        root_chars = len(f"{self._root}/") - len(f"{bucket}/")
        page: str | None = None
        remembered, pages_since, most_pages = page, 0, 1
        while True:
            found = asked_again(partial(self._page, prefix.removesuffix("/"), bucket, key, page))
            _check_names(found, key, below)
            for folder in found.folders:
                yield folder[root_chars:].removesuffix("/"), {"type": "directory"}
            for info in found.objects:
                if info.name != key:  # some tools leave an empty object that stands for the folder
                    yield info.name[root_chars:], {"type": "file", "size": info.size_bytes}
            if found.next_page is None:
                return
            page = found.next_page
            if page == remembered:
                raise StorageUnavailable("the listing goes round: a page names one before it", object_name=below)
            pages_since += 1
            if pages_since == most_pages:  # Brent's way to find a cycle of any length with one page remembered
                remembered, pages_since, most_pages = page, 0, 2 * most_pages

    def _page(self, prefix: str, bucket: str, key: str, page: str | None) -> Page:
        """One page of a listing, by one request.

        Raises StorageUnavailable for an answer that there is no such listing (404, 410, 412). No store gives it: a
        prefix without objects has an empty listing, and a bucket that is not there is refused by the store's own code.
        """
        try:
            found: Page = self._mapped(prefix, self.wait_for, self.list_page, bucket, key, page)
        except SegmentNotFound as error:
            raise StorageUnavailable(
                "the answer says that there is no such listing, as no store does",
                object_name=f"{bucket}/{key}",
                hint="Check the bucket in remote.storage.url, the endpoint, and the proxy before it if there is one",
            ) from error.__cause__
        return found


class CloudFetcher(ComposedFetcher):
    """A fetcher over a `CloudStore`: it prepares the filesystem for the store's requests, and closes connections."""

    usual_options: ClassVar[Sequence[str]] = ()
    """The options that an error about an unknown one names."""
    mistakes: ClassVar[Mapping[str, tuple[str, str, str]]] = {}
    """By the class of the SDK's error: the option that it is about, the text and the hint."""

    def __init__(self) -> None:
        super().__init__()
        self._replaced: ObjectStore | None = None

    def root_of(self, url: str) -> str:
        """As `ComposedFetcher.root_of`. Raises ConfigError also for a signed URL."""
        root = super().root_of(url)
        if not root.partition("/")[0]:
            raise ConfigError(
                f"{shown_url(url)!r} names no bucket",
                key="remote.storage.url",
                hint=f"Give it as {self.protocol}://BUCKET or {self.protocol}://BUCKET/PREFIX",
            )
        if _SIGNED.search(url):  # it would be taken for a part of the prefix, and messages would show it
            raise ConfigError(
                f"{shown_url(url)!r} has a signature, which is no part of the name of a bucket or prefix",
                key="remote.storage.url",
                hint=f"Give a SAS in {OPTIONS}sas_token, other credentials in the options of the store",
            )
        return root

    def prepare(self, filesystem: Any, timeouts: Timeouts) -> None:
        """Make clients and find credentials, which may take longer than a read may. Raises what the SDK raises."""

    def open_filesystem(self, configs: Mapping[str, str]) -> Any:
        """As `ComposedFetcher.open_filesystem`. Raises the errors of a fetcher if the search for credentials fails."""
        try:
            filesystem = super().open_filesystem(configs)
            self.prepare(filesystem, timeouts_of(configs))
        except Exception as error:
            failure = failure_of(error, shown_url(configs["remote.storage.url"]), has_codes=True)
            if failure is error:
                raise
            raise failure or self._mistake(error) from as_cause(error)
        return filesystem

    def _mistake(self, error: Exception) -> ConfigError:
        """The error of options of which no client can be made. Values may be secrets, and are not shown."""
        name = type(error).__name__
        if name in self.mistakes:
            option, text, hint = self.mistakes[name]
            return ConfigError(text, key=OPTIONS + option, hint=hint)
        unknown = _UNKNOWN.search(str(error)) if isinstance(error, TypeError) else None
        if unknown is not None:
            return ConfigError(
                f"the {self.protocol!r} client has no option {unknown[1]!r}",
                key=f"{OPTIONS}*",
                hint=f"Usual options are {', '.join(self.usual_options)}" if self.usual_options else None,
            )
        return ConfigError(f"no {self.protocol!r} client can be made of these options ({name})", key=f"{OPTIONS}*")

    def refresh_credentials(self) -> None:
        """As `ComposedFetcher.refresh_credentials`. Reads under way keep their connections until the next refresh."""
        replaced = self._store
        super().refresh_credentials()
        _close(self._replaced)
        self._replaced = replaced

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
        stores = (self._replaced, self._store)
        super().close()
        for store in stores:
            _close(store)


def _close(store: ObjectStore | None) -> None:
    if isinstance(store, CloudStore):
        store.close()


def _close_later(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Close a client, perhaps once more. Does not wait."""
    if loop.is_running():
        asyncio.run_coroutine_threadsafe(client.close(), loop)


def _check_names(found: Page, key: str, below: str) -> None:
    """Raise StorageUnavailable for a page with a name that is not right below `key`.

    A server that ignores the prefix has folders that would be listed again and again. One that ignores the delimiter,
    or encodes the names and does not say so, has no folders: its tier would look empty.
    """
    for name in (*found.folders, *(info.name for info in found.objects)):
        if not isinstance(name, str) or not name.startswith(key) or "/" in name[len(key) : -1]:
            break
    else:
        if all(len(folder) > len(key) and folder.endswith("/") for folder in found.folders):
            return
    raise StorageUnavailable(
        "the listing has names that were not asked for",
        object_name=below,
        hint="The server, or what stands before it, has to regard the prefix and the delimiter of a listing",
    )


async def receive(body: AsyncIterable[bytes], size_bytes: int) -> memoryview:
    """A body of `size_bytes`. Raises StorageUnavailable if it is longer or shorter."""
    view = memoryview(pa.allocate_buffer(size_bytes)).cast("B") if size_bytes else memoryview(bytearray())
    at = 0
    async for part in body:
        if len(part) > size_bytes - at:
            raise StorageUnavailable(f"the store sent more than the {size_bytes} bytes that it announced")
        view[at : at + len(part)] = part
        at += len(part)
    if at < size_bytes:
        raise StorageUnavailable(f"the store broke off after {at} of {size_bytes} bytes")
    return view.toreadonly()
