"""Segments behind an HTTP server that answers range requests: nginx, a CDN, a gateway, a bucket by way of its URLs.

Rules of the file:

- One deadline bounds the answer, its headers too. `_http_answer.py` reads it.
- A redirect may not change the scheme. The configured headers, and the user and password of the URL, go only to the
  configured host.
- The query of a URL may be a signature, and is in no message.
- HTTP cannot list objects.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit, urlunsplit

from fetchers._composed import ComposedFetcher
from fetchers._http_answer import WantedRange, body_of, done_with, identity_of, size_of
from fetchers._identity import Identities
from fetchers._options import OPTIONS, Timeouts, options_of, timeouts_of
from fetchers._ranges import check_end
from fetchers._store import below_root
from remote_fetch.deadline import Deadline
from remote_fetch.errors import (
    ConfigError,
    MissingExtra,
    RemoteFetchError,
    StorageDenied,
    StorageUnavailable,
    Unlocatable,
)
from remote_fetch.failures.store_errors import RefusedError, failure_of
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.hosts import is_http_url
from remote_fetch.model import Buffer
from remote_fetch.timed_http import SMALLEST_S, CurrentDeadline, timed

if TYPE_CHECKING:
    import urllib3

__all__ = ["HttpFetcher", "HttpStore", "open_urls"]

T = TypeVar("T")

_MAX_CONNECTIONS = 64
_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""Names and values of headers (RFC 9110, 5.1 and 5.5)."""


class HttpFetcher(ComposedFetcher):
    """The fetcher `http`: `remote.storage.url` is an `http://` or `https://` URL; its query goes with every object.

    A user and a password in it, or in the proxy's URL, are sent (Basic, RFC 7617).

    Options: `headers` (a JSON object), `proxy` (a URL), `ca_certs` (a file), `verify` (false: any certificate is
    taken), `redirect_hosts` (the hosts, with commas, to which a redirect may lead; by default only the URL's own).
    """

    protocol = "http"
    extra = "http"

    def open_store(self, configs: Mapping[str, str]) -> HttpStore:
        """The store below the configured URL. Raises ConfigError, MissingExtra."""
        url = configs["remote.storage.url"]
        if not is_http_url(url):
            text = "the fetcher http takes http:// and https:// URLs with a host; a port is a number"
            raise ConfigError(text, key="remote.storage.url")
        given = options_of(configs)
        headers = _headers(given)
        if "authorization" not in {name.lower() for name in headers}:
            headers |= _credentials(url, "Authorization")
        hosts = _redirect_hosts(given)
        return HttpStore(url, _connections(given, url), headers, timeouts_of(configs), hosts, self._identities)

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
        if isinstance(self._store, HttpStore):
            self._store.close()
        super().close()


def open_urls(options: Mapping[str, Any], timeouts: Timeouts) -> HttpStore:
    """A store without a root, for `get_url` of URLs that stores with codes sign, such as S3.

    `options` are those of HttpFetcher without headers. Raises ConfigError, MissingExtra.
    """
    given = dict(options)
    hosts = _redirect_hosts(given)
    return HttpStore("", _connections(given), {}, timeouts, hosts, has_codes=True)


def _headers(options: dict[str, Any]) -> dict[str, str]:
    """Take the headers out of the options. Raises ConfigError for those that no request can have. None is shown."""
    headers = options.pop("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        hint = 'Write names and texts in double quotes, as in {"name": "text"}'
        raise ConfigError(f"{OPTIONS}headers is no JSON object of texts", key=OPTIONS + "headers", hint=hint)
    if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers.items()):
        raise ConfigError("a header has a character that HTTP's headers cannot have", key=OPTIONS + "headers")
    return headers


def _credentials(url: str, header: str) -> dict[str, str]:
    """The header with the user and the password of a URL. Empty without a user. urllib3 sends neither."""
    user, at, _ = urlsplit(url).netloc.rpartition("@")
    encoded = b64encode(unquote_to_bytes(user if ":" in user else f"{user}:")).decode()
    return {header: f"Basic {encoded}"} if at else {}


def _redirect_hosts(options: dict[str, Any]) -> frozenset[str]:
    """Take the hosts to which a redirect may lead out of the options."""
    return frozenset({host.strip().lower() for host in str(options.pop("redirect_hosts", "")).split(",")} - {""})


class _Connections(NamedTuple):
    """Connections to all servers, and the deadline of the request that a thread makes with them."""

    manager: urllib3.PoolManager
    current: CurrentDeadline


def _connections(options: dict[str, Any], url: str = "") -> _Connections:
    """Connections with these options, to the server of `url` if it is given. Raises ConfigError, MissingExtra."""
    try:
        import urllib3  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("reading over HTTP needs urllib3", extra="http") from error
    for name in sorted(options.keys() - {"proxy", "ca_certs", "verify"}):
        hint = "There are ca_certs, proxy, redirect_hosts and verify, and headers if the URL is one of http"
        raise ConfigError(f"the fetcher http has no option {name!r}", key=OPTIONS + name, hint=hint)
    proxy, ca_certs = options.get("proxy"), options.get("ca_certs")
    if proxy and not is_http_url(str(proxy)):
        raise ConfigError("the proxy is no http:// or https:// URL", key=OPTIONS + "proxy")
    is_plain = url.lower().startswith("http://") and not proxy
    if ca_certs and not is_plain and not os.path.isfile(str(ca_certs)):
        raise ConfigError("the file of certificates is not there", key=OPTIONS + "ca_certs")
    settings: dict[str, Any] = {"maxsize": _MAX_CONNECTIONS, "retries": False, "ca_certs": ca_certs}
    if options.get("verify") is False:
        settings |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
    if proxy:
        sent = _credentials(str(proxy), "Proxy-Authorization")
        manager: urllib3.PoolManager = urllib3.ProxyManager(str(proxy), proxy_headers=sent, **settings)
    else:
        manager = urllib3.PoolManager(**settings)
    current = CurrentDeadline()
    pools = {scheme: timed(pool, current) for scheme, pool in manager.pool_classes_by_scheme.items()}
    manager.pool_classes_by_scheme = pools
    return _Connections(manager, current)


class HttpStore:
    """As `ObjectStore`. One request for one range, and one for each redirect. `has_codes` is that of `failure_of`."""

    def __init__(
        self,
        url: str,
        connections: _Connections,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        redirect_hosts: frozenset[str] = frozenset(),
        identities: Identities | None = None,
        *,
        has_codes: bool = False,
    ) -> None:
        parts = urlsplit(url)
        # A proxy is given the whole URL, and may log it. The user and the password are in a header.
        self._base = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        self._connections = connections
        self._headers = dict(headers)
        self._timeouts = timeouts
        self._redirect_hosts = redirect_hosts
        self._identities = Identities() if identities is None else identities
        self._has_codes = has_codes

    def get(self, name: str, start: int = 0, end: int = -1) -> Buffer:
        """As `ObjectStore.get`."""
        return self._get(self._url_of(name), name, start, end)

    def get_url(self, url: str, start: int = 0, end: int = -1) -> Buffer:
        """As `UrlStore.get_url`."""
        return self._get(url, url.partition("?")[0], start, end)

    def size(self, name: str) -> int | None:
        """As `SizedStore.size`: by a GET of one byte, because servers answer HEAD as they like."""
        return self._asked(self._url_of(name), name, 0, 1, size_of)

    def url_size(self, url: str) -> int | None:
        """As `SizedUrlStore.url_size`: a signature is for one method, and this one is for GET."""
        return self._asked(url, url.partition("?")[0], 0, 1, size_of)

    def _url_of(self, name: str) -> str:
        path = f"{self._base.path.rstrip('/')}/{quote(below_root(name))}"
        return urlunsplit(self._base._replace(path=path, fragment=""))

    def _get(self, url: str, name: str, start: int, end: int) -> Buffer:
        if 0 <= end <= start:
            return b""
        data = self._asked(url, name, start, end, body_of)
        if data is None:  # a server that refuses a range because of its end has the byte at its start
            self._asked(url, name, start, start + 1, _check_no_byte)
        return b"" if data is None else data

    def _asked(
        self, url: str, name: str, start: int, end: int, take: Callable[[urllib3.BaseHTTPResponse, WantedRange], T]
    ) -> T:
        """The result of `take` for the answer to a GET of one range. Raises the errors of a fetcher."""
        wanted = WantedRange(start, end, Deadline.after(self._timeouts.read_s))
        self._connections.current.deadline = wanted.deadline
        try:
            response = self._answer(url, wanted)
            try:
                if response.status in (200, 206):
                    self._identities.check(name, identity_of(response))
                return take(response, wanted)
            finally:
                done_with(response)
        except RemoteFetchError as error:
            error.at(object_name=name)
            raise
        except Exception as error:
            failure = failure_of(error, name, has_codes=self._has_codes)
            if failure is None and isinstance(error, RefusedError):
                text = f"the server answered with status {error.status}"
                failure = StorageUnavailable(text, object_name=name, may_have_sent=False)
            if failure is None:
                raise
            raise failure from _without_url(error)

    def _answer(self, url: str, wanted: WantedRange) -> urllib3.BaseHTTPResponse:
        if not is_http_url(url):  # one of the metadata, or of a service
            raise StorageDenied("the address of the object is no http:// or https:// URL")
        range_header = f"bytes={wanted.start}-{'' if wanted.end < 0 else wanted.end - 1}"
        for _ in range(_MAX_REDIRECTS + 1):
            own = self._headers if _origin(url) == _origin(urlunsplit(self._base)) else {}
            response = self._connections.manager.request(
                "GET",
                url,
                headers={**own, "Range": range_header, "Accept-Encoding": "identity"},
                timeout=self._timeout(wanted.deadline),
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                return response
            done_with(response)
            url = self._redirected(url, location)
        raise StorageDenied(f"the server redirects more than {_MAX_REDIRECTS} times")

    def _redirected(self, before: str, location: str) -> str:
        """The URL to ask next. Raises StorageDenied unless a host that may answer for this one is configured."""
        try:
            url = urljoin(before, location)
            scheme, host, _ = _origin(url)
        except ValueError:
            raise StorageDenied("the server redirects to an address that is no URL") from None
        if scheme != urlsplit(before).scheme:
            raise StorageDenied("the server redirects to another scheme, which is not followed")
        if _origin(url) != _origin(before) and host not in self._redirect_hosts:
            raise StorageDenied(
                f"the server redirects to another host, {host!r}, which is not followed",
                hint=f"If that host is yours, set {OPTIONS}redirect_hosts={host}",
            )
        return url

    def _timeout(self, deadline: Deadline) -> urllib3.Timeout:
        import urllib3  # noqa: PLC0415 - an extra, which is there by now

        left_s = max(deadline.left_s, SMALLEST_S)
        return urllib3.Timeout(connect=min(self._timeouts.connect_s, left_s), read=left_s)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`: there is none. Raises Unlocatable."""
        raise _no_listing()

    def folders(self, prefix: str = "") -> Iterator[str]:
        """As `ObjectStore.folders`: as `list`."""
        raise _no_listing()

    def close(self) -> None:
        """Give the connections back."""
        self._connections.manager.clear()


def _check_no_byte(response: urllib3.BaseHTTPResponse, wanted: WantedRange) -> None:
    """Raise StorageUnavailable if the object has the byte that was asked for alone, after it was refused in a range."""
    check_end(wanted.start, wanted.start + len(body_of(response, wanted) or b""))


def _origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL, in lower case. Raises ValueError for a port that is no number."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", _PORTS.get(parts.scheme) if parts.port is None else parts.port


def _no_listing() -> Unlocatable:
    return Unlocatable(
        "HTTP cannot list objects",
        hint="Let the segments be located by bootstrap.servers or by remote.locator=snapshot; for the layout "
        "kafka_local, remote.storage.url may end with /kafka-tiered-storage. audit needs the URL of the store itself",
    )


def _without_url(error: Exception) -> Exception:
    """An error as a cause: urllib3 puts the whole URL in its messages."""
    return error if isinstance(error, RefusedError) else ConnectionError(type(error).__name__)
