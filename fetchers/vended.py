"""Segments by signed URLs that a service gives (`remote-fetch serve`, KIP-1254): without a key to the bucket.

Rules of the file:

- The service names the layout. A layout and its options that the user sets win.
- A URL is used for an object only if the object's name belongs to the segment, the URL's path ends with that name, and
  the scheme is https. http is accepted on loopback, from a service that is itself reached by http.
- URLs are secrets. They are in no error, no log and no repr.
- The service refuses access to what it does not name. So an object that has no URL is StorageDenied and never counts
  as absent: a layout that reads a missing transaction index as "there is none" would show aborted records. Absent is
  an object of which the store says so by its code: then the layout decides, as in a bucket. A segment that the service
  does not know is SegmentNotFound before the layout is asked, so that no index of it counts as absent either.
- A URL that was refused is asked for once more, and read once more. The second refusal is the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from fetchers._composed import LayoutFetcher, load_layout
from fetchers._logging import hold_back_debug
from fetchers._options import Timeouts, options_of, timeouts_of
from fetchers._secrets import hidden
from fetchers._url_cache import Located, UrlCache
from fetchers.http import HttpStore, open_urls
from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    Unlocatable,
)
from remote_fetch.fetch.spi import Layout, LocationSource, ObjectInfo
from remote_fetch.formats.object_names import belongs_to
from remote_fetch.hosts import is_loopback
from remote_fetch.model import Buffer, RemoteLogSegmentMetadata

__all__ = ["VendedFetcher"]

T = TypeVar("T")

_URL = "remote.locator.url"
_LAYOUT = "remote.storage.layout"
_LOCAL_OPTIONS = "encryption."
"""Options of layouts that name files of this machine: keys. A service may not set them."""
_MAX_URL_CHARS = 16_384
_MAX_OPTIONS = 256


class VendedFetcher(LayoutFetcher):
    """The fetcher `vended`: the one of `remote.locator=service`, if no storage is configured beside it.

    Options: `proxy`, `ca_certs`, `verify` and `redirect_hosts`, as those of the fetcher `http`, for the store's URLs.
    """

    def __init__(self) -> None:
        self._configs: Mapping[str, str] = {}
        self._source: LocationSource | None = None
        self._timeouts = Timeouts(1.0, 5.0)
        self._http: HttpStore | None = None
        self._cache: UrlCache | None = None
        self._opening = threading.Lock()
        self._takes_http = False

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `RemoteStorageFetcher.configure`. Raises ConfigError, MissingExtra."""
        url = configs.get(_URL)
        if not url:
            raise ConfigError(f"the fetcher 'vended' needs {_URL}, the service that signs URLs", key=_URL)
        hold_back_debug()
        self._takes_http = url.lower().startswith("http://")
        self._timeouts = timeouts_of(configs)
        self._http = open_urls(options_of(configs), self._timeouts)
        self._configs = configs
        self._begin()

    def take_locations(self, source: LocationSource) -> None:
        """As `LocationTaker.take_locations`."""
        self._source = source
        self._begin()

    def _begin(self) -> None:
        if self._source is not None and self._http is not None:
            self._cache = UrlCache(self._source, self._timeouts.connect_s + self._timeouts.read_s)

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
        http, self._http, self._cache = self._http, None, None
        if http is not None:
            http.close()

    def _opened(self, metadata: RemoteLogSegmentMetadata) -> tuple[Layout, _SegmentStore]:
        """The layout, and the objects of one segment as a store. Raises the errors of the source."""
        http, cache = self._http, self._cache
        if http is None or cache is None:
            raise ConfigError("the fetcher is closed, was never configured, or has no service to ask for URLs")
        layout = self._layout or self._open_layout()
        store = _SegmentStore(metadata, http, cache, self._takes_http)
        store.locate()
        return layout, store

    def _open_layout(self) -> Layout:
        if not self._opening.acquire(timeout=self._timeouts.connect_s + self._timeouts.read_s):
            raise StorageTimeout("the service did not say in time which layout the storage has")
        try:
            if self._layout is None and self._source is not None:
                name, options = self._source.layout()
                self._layout = _layout_of(name, options, self._configs)
            if self._layout is None:
                raise ConfigError("the fetcher has no service to ask for its layout")
            return self._layout
        finally:
            self._opening.release()


def _layout_of(name: str, options: Mapping[str, str], configs: Mapping[str, str]) -> Layout:
    """The layout that the service names, unless the user names another one. Raises ConfigError."""
    own = configs.get(_LAYOUT)
    if own is not None and own != name:
        name, options = own, {}
    for option in options:
        if option.startswith(_LOCAL_OPTIONS) or len(options) > _MAX_OPTIONS:
            raise ConfigError(
                f"the service sets the layout's option {option!r:.100}, which only its user may set", key=_LAYOUT
            )
    try:
        layout = load_layout(name)
        layout.configure({**{f"{_LAYOUT}.{option}": value for option, value in options.items()}, **configs})
    except ConfigError as error:
        if own is None:
            error.message = f"the service at {_URL} names the layout {name!r:.100}: {error.message}"
            error.args = (error.message,)
        raise
    return layout


class _SegmentStore:
    """The objects of one segment, as `ObjectStore`, each read by its own URL."""

    def __init__(self, metadata: RemoteLogSegmentMetadata, http: HttpStore, cache: UrlCache, takes_http: bool) -> None:
        self._metadata = metadata
        self._http = http
        self._cache = cache
        self._takes_http = takes_http
        self._located: Located | None = None

    def locate(self, refused: Located | None = None) -> Located:
        """The URLs of the segment. Raises the errors of the source."""
        try:
            self._located = self._cache.locate(self._metadata, refused)
        except SegmentNotFound as error:
            raise error.at(object_name=f"of segment {self._metadata.segment_id.id}") from error.__cause__
        return self._located

    def get(self, name: str, start: int = 0, end: int = -1) -> Buffer:
        """As `ObjectStore.get`. Raises StorageDenied for an object that the service does not name."""
        if 0 <= end <= start:
            return b""
        return self._asked(name, lambda url: self._http.get_url(url, start, end))

    def size(self, name: str) -> int | None:
        """As `SizedStore.size`. Raises as `get`."""
        return self._asked(name, self._http.url_size)

    def _asked(self, name: str, ask: Callable[[str], T]) -> T:
        """The answer for the URL of an object, which is renewed once if it is refused."""
        located = self._located or self.locate()
        try:
            return self._answer(located, name, ask)
        except StorageDenied as denied:
            try:
                renewed = self.locate(refused=located)
            except SegmentNotFound as gone:  # for the layout that would be the absence of one object
                raise denied.at(hint="The service does not know the segment any more") from gone.__cause__
        return self._answer(renewed, name, ask)

    def _answer(self, located: Located, name: str, ask: Callable[[str], T]) -> T:
        url = self._url_of(located, name)
        try:
            return ask(url)
        except RemoteFetchError as error:
            raise hidden(error, url) from None

    def _url_of(self, located: Located, name: str) -> str:
        """The URL of an object, checked. Raises StorageDenied if there is none, CorruptSegment for a wrong one."""
        if not belongs_to(name, self._metadata):
            raise CorruptSegment("the object's name does not belong to the segment", object_name=name[:300])
        url = located.urls.get(name)
        if url is None:
            raise StorageDenied(
                "the service gives no URL for the object",
                object_name=name,
                hint=f"Its layout may have other names: check {_LAYOUT} and its options",
            )
        wrong = _fault_of(url, name, self._takes_http)
        if wrong is not None:
            raise CorruptSegment(f"the service gives a URL for the object that {wrong}", object_name=name)
        return url

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`: there is none. Raises Unlocatable."""
        raise Unlocatable("a service that signs URLs has no listings")

    def folders(self, prefix: str = "") -> Iterator[str]:
        """As `ObjectStore.folders`, of the segment's objects: it shows below which folder a layout's names begin."""
        at = f"{prefix}/" if prefix else ""
        names = [name for name in (self._located or self.locate()).urls if belongs_to(name, self._metadata)]
        if not names:
            raise Unlocatable("the service names no object of the segment")
        below = (name.removeprefix(at) for name in names if name.startswith(at))
        yield from dict.fromkeys(name.partition("/")[0] for name in below if "/" in name)


def _fault_of(url: str, name: str, takes_http: bool) -> str | None:
    """The fault of a URL for the object `name`, as the end of "a URL that ..."; None if there is none.

    The text has no part of the URL, whose query is secret.
    """
    if len(url) > _MAX_URL_CHARS or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "has characters that a URL cannot have, or too many"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018 - raises ValueError
    except ValueError:
        return "is no URL"
    if not host or "@" in parts.netloc or "#" in url:
        return "has no host, a user, or a fragment"
    if parts.scheme != "https" and not (parts.scheme == "http" and takes_http and is_loopback(host)):
        return f"is not https:// (http:// is accepted on loopback, from a service whose {_URL} is http://)"
    return _fault_of_path(parts, name)


def _fault_of_path(parts: SplitResult, name: str) -> str | None:
    path, wanted = [unquote(part) for part in parts.path.split("/")], name.split("/")
    if not {".", ".."}.isdisjoint(path):
        return "has a folder above in its path"
    return None if path[-len(wanted) :] == wanted and len(path) > len(wanted) else "leads to another object"
