"""Segments in Google Cloud Storage's JSON API, with the credentials and the endpoint that gcsfs finds.

Rules of the file:

- gcsfs finds the credentials (options, application default credentials, workload identity, none).
- The thread that reads renews them, five minutes before they expire. The loop serves all threads and must not wait.
  Until they expire, one thread alone tries, and a failure does no harm.
- The filesystem is gcsfs's plain one. Its default first asks by gRPC what kind of bucket it has.
- The connections are an aiohttp session of our own: gcsfs has no public method that makes its session. A listing that
  goes on after credentials were looked up again twice, which closes the session, makes another one.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from fetchers._cloud import BODY_BYTES, CloudFetcher, CloudStore, Page, receive
from fetchers._google_signing import MAX_IAM_EXPIRY_S, is_by_iam, signer_of
from fetchers._options import OPTIONS, Timeouts, check_endpoint, check_objects, with_defaults
from fetchers._ranges import EndTold, range_of, size_of_range, told_end
from remote_fetch.config.files import read_file
from remote_fetch.deadline import Deadline
from remote_fetch.errors import ConfigError, StorageUnavailable
from remote_fetch.failures.store_errors import RefusedError
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import Buffer

__all__ = ["GcsFetcher", "page_of"]

_RENEWAL_PAUSE_S = 10.0
"""The pause after a renewal that failed while the credentials were good."""
_SIGN_S = 10
"""The deadline of a signature by IAM if the filesystem's own timeouts have none."""
_MAX_TOKEN_BYTES = 64 << 10
_ERROR_BYTES = 4096
"""The part of a refusal's text that is examined."""
_ABSENT = (b"No such object", b'"notFound"', b"NoSuchKey")
"""The store's words for an object that is not there: for a read, in JSON, in XML."""
_TOO_MANY = (b'"rateLimitExceeded"', b'"userRateLimitExceeded"')
"""The reasons in JSON by which a 403 asks for fewer requests, as 429 does."""


def page_of(found: Any) -> Page:
    """The page in the JSON of an answer to `objects.list`. Raises StorageUnavailable if that is no listing.

    In protobuf's JSON a field that is missing, null or empty is the same.
    """
    if not isinstance(found, dict) or found.keys().isdisjoint(("items", "kind", "prefixes")):
        raise StorageUnavailable("the answer of the store is no listing")
    return Page(
        tuple(found.get("prefixes") or ()),
        tuple(ObjectInfo(item["name"], int(item["size"])) for item in found.get("items") or ()),
        found.get("nextPageToken") or None,
    )


class _GcsStore(CloudStore):
    _session: Any = None
    _signer: Any = None
    _bucket: Any = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._renewing = threading.Lock()
        self._next_renewal_s = 0.0

    def before_request(self) -> None:
        credentials = self._filesystem.credentials
        if not _is_good(credentials.credentials):
            credentials.maybe_refresh()
        elif time.monotonic() >= self._next_renewal_s and self._renewing.acquire(blocking=False):
            try:
                credentials.maybe_refresh()
            except Exception:  # raised once they have expired
                self._next_renewal_s = time.monotonic() + _RENEWAL_PAUSE_S
            finally:
                self._renewing.release()

    async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
        byte_range = range_of(start, end)
        headers = {} if byte_range is None else {"Range": byte_range}
        async with self._ask(self._filesystem.url(f"{bucket}/{key}"), headers, {}) as answer:
            if answer.status == 416 and told_end(start, answer.headers.get("Content-Range")):
                raise EndTold
            await self._refused(answer)
            identity = answer.headers.get("X-Goog-Generation") or answer.headers.get("ETag")
            self.identities.check(f"{bucket}/{key}", identity)
            whole_bytes = answer.content_length if identity and answer.status == 200 else None
            size_bytes = size_of_range(start, end, answer.headers.get("Content-Range"), whole_bytes)
            return await receive(answer.content.iter_chunked(BODY_BYTES), size_bytes)

    async def get_size(self, bucket: str, key: str) -> int | None:
        url = f"{self._filesystem.base}b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"
        async with self._ask(url, {}, {"fields": "size"}) as answer:
            await self._refused(answer)
            found = await answer.json(content_type=None)
        return int(found["size"]) if "size" in found else None

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        url = f"{self._filesystem.base}b/{quote(bucket, safe='')}/o"
        params = {"prefix": prefix, "delimiter": "/", **({} if page is None else {"pageToken": page})}
        async with self._ask(url, {}, params) as answer:
            await self._refused(answer)
            return page_of(await answer.json(content_type=None))

    def signed_urls(self, bucket: str, keys: Sequence[str], expires_s: int) -> Sequence[str]:
        filesystem = self._filesystem
        endpoint = filesystem.base.partition("/storage/v1/")[0].replace("://storage.mtls.", "://storage.")
        if self._is_emulator():
            return [f"{endpoint}/{bucket}/{quote(key, safe='/~')}" for key in keys]
        signer = self._signer
        if signer is None:  # two threads may make one each: both sign
            limits = filesystem.requests_timeout
            timeouts = Timeouts(limits.sock_connect or _SIGN_S, limits.total or _SIGN_S)
            signer = self._signer = signer_of(filesystem.credentials.credentials, timeouts)
        arguments = {
            "version": "v4",
            "method": "GET",
            "expiration": timedelta(seconds=min(expires_s, MAX_IAM_EXPIRY_S) if is_by_iam(signer) else expires_s),
            "api_access_endpoint": endpoint,
            "credentials": signer,
            "query_parameters": self._project(),
        }
        if self._bucket is None:
            self._bucket = _bucket(bucket)
        return [self._bucket.blob(key).generate_signed_url(**arguments) for key in keys]

    async def disconnect(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _project(self) -> Mapping[str, str]:
        """The parameter with the project that pays for a request. Empty if the owner of the bucket pays."""
        pays = self._filesystem.requester_pays
        return {"userProject": pays if isinstance(pays, str) else self._filesystem.project} if pays else {}

    def _is_emulator(self) -> bool:
        """Whether the server checks nothing: plain HTTP without credentials."""
        return self._filesystem.credentials.credentials is None and not self._filesystem.base.startswith("https://")

    async def _refused(self, answer: Any) -> None:
        """Raise RefusedError unless the answer has data."""
        if answer.status >= 300:
            try:
                text = await answer.content.readexactly(_ERROR_BYTES)
            except asyncio.IncompleteReadError as error:  # the text is shorter
                text = error.partial
            raise RefusedError(answer.status, _code_of(answer.status, text, self._is_emulator()))

    def _ask(self, url: str, headers: Mapping[str, str], params: Mapping[str, str]) -> Any:
        """A GET with the filesystem's credentials, project and timeouts. Runs in the loop."""
        import aiohttp  # noqa: PLC0415 - the extra brings it
        import gcsfs  # noqa: PLC0415 - as above

        filesystem = self._filesystem
        if self._session is None or self._session.closed:  # a session belongs to the loop in which it is made
            own: dict[str, Any] = {}
            if filesystem.certificate is not None:
                own["connector"] = aiohttp.TCPConnector(ssl=filesystem.certificate)
            self._session = aiohttp.ClientSession(**own, **filesystem.session_kwargs)
            self.closed_with_store(self._session)
        signed = {"User-Agent": f"python-gcsfs/{gcsfs.__version__}", **headers}
        if filesystem.credentials.credentials is not None:
            filesystem.credentials.credentials.apply(signed)  # gcsfs's own method renews them
        return self._session.get(
            url,
            params={**params, **self._project()},
            headers=signed,
            timeout=filesystem.requests_timeout,
            allow_redirects=False,
        )


def _is_good(credentials: Any) -> bool:
    """Whether credentials of google-auth have not expired yet."""
    expiry = getattr(credentials, "expiry", None)  # in UTC
    return expiry is not None and expiry.replace(tzinfo=UTC) > datetime.now(UTC)


def _bound_renewal(credentials: Any, timeouts: Timeouts) -> None:
    """Let credentials of google-auth wait for a token as long as for a range. Its own limit is 120 s for each attempt.

    Threads renew one after the other, so that each would wait for all before it. A listing has no other deadline. The
    request stays a `Request` with its session: some credentials take no other, and some add a certificate to it.
    """
    from google.auth.exceptions import RefreshError, TransportError  # noqa: PLC0415 - the extra brings it
    from google.auth.transport.requests import Request  # noqa: PLC0415 - as above

    limits = (timeouts.connect_s, timeouts.read_s)
    refused: Any = RefreshError  # google-auth has no types
    lasted: Any = TransportError

    def renew(request: Any) -> None:
        until = Deadline.after(timeouts.read_s)

        class Bounded(Request):
            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                if until.is_over:  # after a TransportError google-auth would try again, up to five times
                    raise refused("no token in time") from lasted("no token in time")
                ask: Any = super().__call__
                return ask(*args, **{"timeout": limits, **kwargs})

        of_type: Any = type(credentials).refresh  # not the one set below: gcsfs may share its credentials
        kind: Any = Bounded
        of_type(credentials, kind(request.session) if isinstance(request, Request) else request)

    if credentials is not None:
        credentials.refresh = renew


def _bucket(name: str) -> Any:
    """The SDK's description of a bucket, whose objects sign. Its client has no credentials and asks for nothing."""
    from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415 - the extra brings it
    from google.cloud import storage  # noqa: PLC0415 - as above

    anonymous: Any = AnonymousCredentials
    return storage.Client(project="none", credentials=anonymous()).bucket(name)


def _code_of(status: int, text: bytes, is_emulator: bool) -> str | None:
    """S3's code for what a refusal says in JSON, XML or a sentence. None: nothing, or it is not the store's text."""
    if status == 403 and any(reason in text for reason in _TOO_MANY):
        return "SlowDown"
    if status != 404:
        return None
    if b"bucket does not exist" in text:
        return "NoSuchBucket"
    is_of_emulator = is_emulator and text.strip() == b"Not Found"  # all that fake-gcs-server says
    return "NoSuchKey" if is_of_emulator or any(words in text for words in _ABSENT) else None


def _is_file_name(token: str) -> bool:
    return token.startswith(("/", ".", "~")) or token.endswith(".json")


def _credentials_of(token: Any) -> Any:
    """The token, or credentials for `cloud`, and for JSON or a file of JSON with an access token alone.

    Aiven's plug-in takes such a file, which is written again before the access token expires. gcsfs does not. For
    `cloud` gcsfs waits for the server of tokens up to half a minute as it is made, and wants Google's own endpoint.
    """
    from google.auth import compute_engine  # noqa: PLC0415 - the extra brings it
    from google.oauth2.credentials import Credentials  # noqa: PLC0415 - the extra brings it

    if token == "cloud":
        of_machine: Any = compute_engine.Credentials
        return of_machine()
    found = token
    if isinstance(token, str) and os.path.isfile(token):
        with suppress(ValueError):  # no JSON
            found = json.loads(read_file(token, key=OPTIONS + "token", max_bytes=_MAX_TOKEN_BYTES))
    of_text: Any = Credentials
    if not isinstance(found, dict) or not found.keys().isdisjoint(("refresh_token", "type")):
        return token
    access_token = found.get("access_token")
    return of_text(access_token) if isinstance(access_token, str) else token


class GcsFetcher(CloudFetcher):
    """The fetcher `gcs`: `remote.storage.url` is `gs://bucket/prefix`.

    Options are those of `gcsfs.GCSFileSystem`: `token` (a service account's file or JSON, `google_default`, `cloud`,
    `anon`), `project`, `endpoint_url`, `requester_pays`, and the JSON object `session_kwargs` (aiohttp's: `trust_env`
    for proxies of the environment).
    """

    protocol = "gs"
    extra = "gcs"
    store_type = _GcsStore

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """As `ComposedFetcher.options`."""
        import aiohttp  # noqa: PLC0415 - the extra brings it

        from remote_fetch.sdks.gcs import without_slash  # noqa: PLC0415 - as above

        token = given.get("token")
        if isinstance(token, str) and _is_file_name(token) and not os.path.exists(token):
            # gcsfs would take the name for a token, and send it to Google.
            raise ConfigError("the token is the name of a file that is not there", key=OPTIONS + "token")
        given = {**given, "token": _credentials_of(token)} if token is not None else given
        check_objects(given, ("session_kwargs",))
        check_endpoint(given)
        limits = aiohttp.ClientTimeout(total=timeouts.read_s, sock_connect=timeouts.connect_s)
        defaults = {"access": "read_only", "requests_timeout": limits, "session_kwargs": {}}
        return with_defaults(without_slash(given), defaults)

    def prepare(self, filesystem: Any, timeouts: Timeouts) -> None:
        """As `CloudFetcher.prepare`: bounds renewals, and takes the client certificate of the machine (mutual TLS)."""
        _bound_renewal(filesystem.credentials.credentials, timeouts)
        from google.auth.transport import mtls  # noqa: PLC0415 - the extra brings it

        filesystem.certificate = None
        default_certificate = getattr(mtls, "get_default_ssl_context", None)  # older releases of google-auth have none
        if default_certificate is None or "connector" in filesystem.session_kwargs:
            return
        if filesystem.base.startswith("https://") and (certificate := default_certificate()) is not None:
            certificate.set_alpn_protocols(["http/1.1"])
            filesystem.certificate = certificate

    def _filesystem_class(self) -> Any:
        super()._filesystem_class()  # raises MissingExtra
        return importlib.import_module("gcsfs.core").GCSFileSystem
