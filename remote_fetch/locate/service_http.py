"""GET requests to one service over HTTP: connections that are kept, answers of bounded size, one deadline for each.

Rules of the file:

- A deadline bounds a request as a whole: each wait for bytes of the answer gets what is left of it.
- An answer is bounded before it is held. A redirect is an answer, and is not followed.
- The environment (`HTTPS_PROXY`, `.netrc`) has no say. The query of a request is in no message.
- urllib3 is loaded when a channel is made (extra `http`).
"""

from __future__ import annotations

import http.client
import ssl
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult

from remote_fetch.deadline import Deadline
from remote_fetch.errors import (
    Cancelled,
    CorruptSegment,
    MissingExtra,
    StorageConnectTimeout,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.timed_http import SMALLEST_S, CurrentDeadline, timed

if TYPE_CHECKING:
    import urllib3

__all__ = ["MAX_ANSWER_BYTES", "Answer", "HttpChannel"]

MAX_ANSWER_BYTES = 16 << 20
"""The largest answer that is held, after it is inflated."""
_PIECE_BYTES = 64 << 10
_CONNECTIONS = 16
"""How many connections are kept, as many as a consumer has workers. More may be open at once."""


class Answer(NamedTuple):
    """The status of an answer, its headers in lower case, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpChannel:
    """Connections to one server. Thread-safe. `tls` is None for `http`."""

    def __init__(self, base: SplitResult, tls: ssl.SSLContext | None, *, connect_timeout_s: float) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._path = base.path.rstrip("/")
        self._current = CurrentDeadline()
        self._pool = _pool_of(base, tls, self._current)
        self._is_closed = False
        self.answered_s = 0.0

    def get(self, path: str, headers: Mapping[str, str], deadline: Deadline) -> Answer:
        """The answer to a GET of a path below the server's URL.

        Raises StorageConnectTimeout, StorageTimeout, StorageUnavailable, CorruptSegment if the answer is too large or
        cannot be inflated, and Cancelled after `close`.
        """
        import urllib3  # noqa: PLC0415 - an extra, which is there by now

        if self._is_closed:
            raise Cancelled("the connection to the service was closed")
        self._current.deadline = deadline
        left_s = max(deadline.left_s, SMALLEST_S)
        try:
            response = self._pool.urlopen(
                "GET",
                self._path + path,
                headers={**headers, "Accept": "application/json", "Accept-Encoding": "gzip"},
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=urllib3.Timeout(connect=min(self._connect_timeout_s, left_s), read=left_s),
                preload_content=False,
                decode_content=False,
            )
            return self._read(response, deadline)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _failure_of(error) from None

    def _read(self, response: urllib3.BaseHTTPResponse, deadline: Deadline) -> Answer:
        try:
            headers = {name.lower(): value for name, value in response.headers.items()}
            body = _Body(headers.get("content-encoding", "identity").lower())
            while not deadline.is_over:
                piece = response.read(_PIECE_BYTES)
                if not piece:
                    self.answered_s = time.monotonic()
                    return Answer(response.status, headers, body.finish())
                body.take(piece)
            raise StorageTimeout("the service did not answer in time")
        except BaseException:
            response.close()  # the rest of the answer may be on its way
            raise
        finally:
            response.release_conn()

    def close(self) -> None:
        """Close the connections that are not in use. Later requests raise Cancelled."""
        self._is_closed = True
        self._pool.close()


class _Body:
    """A body as it arrives, inflated. Raises CorruptSegment for more than MAX_ANSWER_BYTES, or bytes that are wrong."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("identity", "gzip"):
            raise CorruptSegment("the service encoded its answer in a way that was not asked for")
        self._inflater = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        self._data = bytearray()

    def take(self, piece: bytes) -> None:
        """Take the next bytes."""
        room = MAX_ANSWER_BYTES - len(self._data) + 1
        if self._inflater is not None:
            try:
                piece = self._inflater.decompress(piece, room)
            except zlib.error as error:
                raise CorruptSegment(f"the answer of the service cannot be inflated: {error}") from None
        self._data += piece[:room]
        if len(self._data) > MAX_ANSWER_BYTES:
            raise CorruptSegment(f"the answer of the service has more than {MAX_ANSWER_BYTES} bytes")

    def finish(self) -> bytes:
        """The whole body."""
        if self._inflater is not None and not self._inflater.eof and self._data:
            raise StorageUnavailable("the answer of the service broke off")
        return bytes(self._data)


def _pool_of(base: SplitResult, tls: ssl.SSLContext | None, current: CurrentDeadline) -> urllib3.HTTPConnectionPool:
    """The connections to a server. Their answers are read until the deadline of the request in `current`."""
    try:
        import urllib3  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("remote.locator=service needs urllib3", extra="http") from error

    kind = timed(urllib3.HTTPConnectionPool if tls is None else urllib3.HTTPSConnectionPool, current)
    encrypted = {} if tls is None else {"ssl_context": tls}
    pool: urllib3.HTTPConnectionPool = kind(
        base.hostname or "", base.port, maxsize=_CONNECTIONS, block=False, retries=False, **encrypted
    )
    return pool


def _failure_of(error: Exception) -> Exception:
    """An error of urllib3 or of the socket as one of this package. Its own text may have the whole URL in it."""
    import urllib3  # noqa: PLC0415 - an extra, which is there by now

    causes = (error, error.__cause__, error.__context__, *error.args)
    refused = next((one for one in causes if isinstance(one, ssl.SSLError)), None)
    if isinstance(refused, ssl.SSLCertVerificationError):
        return StorageUnavailable(
            f"the certificate of the service is not accepted: {refused.verify_message}",
            hint="Name the authority that signed it in ssl.ca.location, or in remote.locator.ssl.ca.location",
        )
    if refused is not None:
        return StorageUnavailable(f"TLS with the service failed: {refused.reason or type(refused).__name__}")
    if isinstance(error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.NameResolutionError):
        fault = next((one.strerror for one in causes if isinstance(one, OSError) and one.strerror), None)
        return StorageUnavailable(f"the service cannot be reached: {fault or 'no connection'}", may_have_sent=False)
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return StorageConnectTimeout("the service could not be connected in time")
    if isinstance(error, urllib3.exceptions.TimeoutError) or any(isinstance(one, TimeoutError) for one in causes):
        return StorageTimeout("the service did not answer in time")
    broken_off = http.client.RemoteDisconnected | http.client.IncompleteRead
    not_http = http.client.HTTPException | urllib3.exceptions.InvalidHeader
    if any(isinstance(one, not_http) and not isinstance(one, broken_off) for one in causes):
        return StorageUnavailable(
            "the answer of the service is not HTTP",
            hint="Check host, port and scheme of remote.locator.url: http:// is for a service without TLS",
        )
    return StorageUnavailable("the service broke off in the middle of its answer")
