"""The stores below further roots, of which a segment's metadata chooses one (KIP-917, `remote.storage.roots`).

Rules of the file:

- The key is an allow-list. Metadata chooses among its roots, and never adds one.
- Each root has a fetcher of its own, with the timeouts of the configuration. They are closed together.
- Options may be secrets: they go to the roots of the same kind of store as `remote.storage.url`, and to no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from fetchers._options import OPTIONS
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.plugins import FETCHERS_GROUP, fetcher_of, kind_of, own_entry_point, scheme_of
from remote_fetch.fetch.spi import ObjectStore
from remote_fetch.hosts import shown_url

__all__ = ["ROOTS", "Roots"]

ROOTS = "remote.storage.roots"
_URL = "remote.storage.url"


@runtime_checkable
class _Opener(Protocol):
    """A fetcher of this package: it has an object store below its URL."""

    def configure(self, configs: Mapping[str, str]) -> None: ...

    def opened_store(self) -> ObjectStore: ...

    def refresh_credentials(self) -> None: ...

    def close(self) -> None: ...


class Roots:
    """The further roots of a configuration, opened."""

    def __init__(self, configs: Mapping[str, str], of_same_kind: Callable[[], Any]) -> None:
        """Open the roots. `of_same_kind` makes a fetcher for the kind of `remote.storage.url`.

        Raises ConfigError for a root that is no URL of a folder, and what the fetchers raise when they are configured.
        """
        self._fetchers: dict[str, _Opener] = {}
        try:
            for url in _urls(configs[ROOTS]):
                self._fetchers[url] = _opened(url, configs, of_same_kind)
        except BaseException:
            self.close()
            raise

    @property
    def stores(self) -> Mapping[str, ObjectStore]:
        """The store below each root, by the URL of the root."""
        return {url: fetcher.opened_store() for url, fetcher in self._fetchers.items()}

    def refresh_credentials(self) -> None:
        """As `CredentialRefresher.refresh_credentials`, of all roots."""
        for fetcher in self._fetchers.values():
            fetcher.refresh_credentials()

    def close(self) -> None:
        """Close the fetchers of all roots."""
        for fetcher in self._fetchers.values():
            fetcher.close()


def _urls(text: str) -> Iterator[str]:
    for url in dict.fromkeys(part.strip() for part in text.split(",")):
        if not url:
            continue
        scheme = scheme_of(url)
        try:
            place = urlsplit(url).netloc.rpartition("@")[2] + urlsplit(url).path
        except ValueError:
            place = ""
        is_folder = place.strip("/") if scheme else url.startswith("/") and url.strip("/")
        if not is_folder:
            raise ConfigError(
                f"the root {shown_url(url)!r} names no folder",
                key=ROOTS,
                hint=f"Give {ROOTS} the URLs of buckets or folders, with commas: s3://bucket-b/tier,file:///mnt/tier",
            )
        yield f"{scheme}://{url.partition('://')[2]}" if scheme else url


def _opened(url: str, configs: Mapping[str, str], of_same_kind: Callable[[], Any]) -> _Opener:
    is_same = kind_of(url) == kind_of(configs[_URL])
    fetcher = of_same_kind() if is_same else _load(url)
    own = {name: value for name, value in configs.items() if is_same or not name.startswith(OPTIONS)}
    try:
        fetcher.configure({**own, _URL: url, ROOTS: ""})
    except ConfigError as error:
        if error.key == _URL:
            error.key = ROOTS
        raise
    return fetcher


def _load(url: str) -> _Opener:
    """A fetcher for a root of another kind. Raises ConfigError if no fetcher of this package reads it."""
    name = fetcher_of(scheme_of(url))
    entry = own_entry_point(FETCHERS_GROUP, name)
    if entry is not None:
        fetcher = entry.load()()
        if isinstance(fetcher, _Opener):
            return fetcher
    raise ConfigError(f"no fetcher of remote-fetch reads a root whose URL begins with {name}://", key=ROOTS)
