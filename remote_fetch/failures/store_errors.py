"""From the exceptions of stores and their SDKs to the errors of this package, by the table in `store_failures`.

Rules of the file:

- No SDK is imported. An exception is known by the store's own code, else by the HTTP status, else by its type. The
  first of its `__cause__`s that is known counts. An exception without one is a mistake in the code, and is passed on.
- No text of the store is repeated, because it may hold secrets. The number of a fault of the connection (errno) holds
  none, and this machine's own words for it follow the error's.
- A store that has codes says it by a code. Its 404 without one may be a proxy's, and is no proof of absence. To HEAD,
  S3 has no body that could hold a code: such a 404 proves nothing either, but no proxy is suspected.
- 416: the range starts behind the end (RFC 9110, 15.5.17). `is_past_the_end` tells.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from remote_fetch.errors import RemoteFetchError, SegmentNotFound, StorageDenied, StorageUnavailable
from remote_fetch.failures.store_failures import (
    ABSENT,
    BROKEN,
    CERTIFICATE,
    CODES,
    ELSEWHERE,
    NO_FILE,
    NOT_GIVEN,
    SENT_NOTHING,
    STATUS,
    TYPES,
    WITHOUT_BODY,
    WITHOUT_CODE,
    Failure,
)

__all__ = ["RefusedError", "answered_status", "failure_of", "is_past_the_end"]

_LINKS = 64
"""How many errors inside an error are looked at."""
_OF_CONNECTIONS = frozenset(
    {errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPIPE}
)
_NOT_REACHED = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})
_NO_TLS = frozenset({"HTTP_REQUEST", "UNKNOWN_PROTOCOL", "WRONG_VERSION_NUMBER"})
"""OpenSSL's reasons if the server answers without TLS."""
_WITHOUT_TLS = "Begin the URL of the store or its endpoint with http://, or name the port at which it speaks TLS"
_CHECK_ENDPOINT = "Check the host in remote.storage.url, or the endpoint in remote.storage.options.*"
_OF_FILES = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_CERTIFICATE_ERRORS = frozenset({"ClientConnectorCertificateError", "CertificateError"})
_REDIRECTS = frozenset({"RedirectClientError", "TooManyRedirects"})
_OF_CREDENTIALS = frozenset(
    {"AssumeRole", "AssumeRoleWithSAML", "AssumeRoleWithWebIdentity", "CreateToken", "GetRoleCredentials"}
)
_INNER = ("reason", "inner_exception", "error", "os_error", "certificate_error")
_REASONS = frozenset({"google.TransportError", "asyncssh.PermissionDenied"})
"""No token came, and a login by SSH was refused: sshfs makes that a PermissionError, as of a file."""
_DEPTH = 8
"""How many causes are looked at: SDKs wrap an error two or three times."""


class RefusedError(Exception):
    """An answer that is no data: a refusal, or a redirect that is not followed. Has neither URL nor headers.

    `status` is that of HTTP. `error_code` is the store's own code, if there is one.
    """

    def __init__(self, status: int, code: str | None = None) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.error_code = code


def failure_of(error: BaseException, object_name: str, *, has_codes: bool = False) -> RemoteFetchError | None:
    """The error of this package for `error`, about `object_name`. None: nothing tells that the store is to blame.

    `has_codes`: the store gives a code for an object that is not there. So an answer without a code proves nothing, and
    a file that is not there is a file of this machine.
    """
    if isinstance(error, RemoteFetchError):
        return error.at(object_name=object_name)
    if _is_certificate(error):
        return CERTIFICATE.error(CERTIFICATE.text, object_name=object_name, hint=CERTIFICATE.hint)
    causes = _causes(error)
    for known in (_by_code, _by_status, _by_redirects, _by_type):
        for cause in causes:
            found = known(cause)
            if found is None:
                continue
            if found.error in (SegmentNotFound, StorageDenied) and any(map(_is_of_credentials, causes)):
                found = NOT_GIVEN  # a 404 is about a role
            elif has_codes:
                found = _with_codes(found, known, cause, causes)
            if found is BROKEN:
                found = _with_fault(error)
            if known in (_by_code, _by_status) and found.error is StorageUnavailable:
                found = found._replace(error=SENT_NOTHING)
            return found.error(found.text, object_name=object_name, hint=found.hint)
    return None


def _with_codes(found: Failure, known: object, cause: BaseException, causes: list[BaseException]) -> Failure:
    """The failure of a store that gives codes, which `known` has found for `cause`."""
    if isinstance(cause, _OF_FILES) and known is _by_type:
        return NO_FILE
    if found is ABSENT and known is not _by_code:
        return WITHOUT_BODY if any(map(_is_of_head, causes)) else WITHOUT_CODE
    return found


def answered_status(error: BaseException) -> int | None:
    """The HTTP status with which the store answered; None if the error tells none."""
    return next((status for cause in _causes(error) if (status := _status_of(cause)) is not None), None)


def is_past_the_end(error: BaseException) -> bool:
    """Whether the store says that a range begins at or past the end of the object (416)."""
    return any(_status_of(cause) == 416 for cause in _causes(error))


def _is_certificate(error: BaseException) -> bool:
    """Whether a certificate was refused."""
    return any(
        isinstance(link, ssl.SSLCertVerificationError) or type(link).__name__ in _CERTIFICATE_ERRORS
        for link in _links(error)
    )


def _with_fault(error: BaseException) -> Failure:
    """`BROKEN` with this machine's words for what the connection failed with, if an error has its number."""
    of_tls = [link for link in _links(error) if isinstance(link, ssl.SSLError)]  # their number is OpenSSL's
    if any(getattr(link, "reason", None) in _NO_TLS for link in of_tls):
        return Failure(SENT_NOTHING, f"{BROKEN.text} (it does not speak TLS)", _WITHOUT_TLS)
    for link in _links(error):
        if isinstance(link, socket.gaierror):
            return Failure(SENT_NOTHING, f"{BROKEN.text} (the host's name has no address)", _CHECK_ENDPOINT)
        number = link.errno if isinstance(link, OSError) and link.errno else 0
        if number in _OF_CONNECTIONS or (link is error and number > 0 and not of_tls):
            text = f"{BROKEN.text} ({os.strerror(number)})"
            if number in _NOT_REACHED:
                return Failure(SENT_NOTHING, text, _CHECK_ENDPOINT)
            return Failure(BROKEN.error, text)
    return BROKEN


def _links(error: BaseException) -> Iterator[BaseException]:
    """The error and those in it. SDKs keep one as a cause, a context, an argument or an attribute."""
    found, seen = [error], 0
    while found and seen < _LINKS:
        link = found.pop(0)
        seen += 1
        yield link
        inner = (link.__cause__, link.__context__, *link.args, *(getattr(link, name, None) for name in _INNER))
        found += [each for each in inner if isinstance(each, BaseException)]


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its causes. From one of `_REASONS` on, if one is there: those around it tell of another refusal."""
    causes = [error]
    while len(causes) < _DEPTH and causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    names = [f"{type(cause).__module__.partition('.')[0]}.{type(cause).__name__}" for cause in causes]
    return causes[next((at for at, name in enumerate(names) if name in _REASONS), 0) :]


def _is_of_head(error: BaseException) -> bool:
    """Whether botocore says that the request was a HEAD."""
    return str(getattr(error, "operation_name", "")).startswith("Head")


def _is_of_credentials(error: BaseException) -> bool:
    """Whether botocore says that the request was for credentials (STS, IAM Identity Center)."""
    return str(getattr(error, "operation_name", "")) in _OF_CREDENTIALS


def _by_code(error: BaseException) -> Failure | None:
    for code in (_part(error, "response", "Error", "Code"), getattr(error, "error_code", None), _ftp_code(error)):
        if isinstance(code, str) and code in CODES:
            return CODES[code]
    return None


def _ftp_code(error: BaseException) -> str | None:
    """The code that ftplib's text begins with, by its name in the table."""
    return f"FTP {str(error)[:3]}" if type(error).__module__ == "ftplib" else None


def _by_redirects(error: BaseException) -> Failure | None:
    """A redirect that leads nowhere. aiohttp does not follow it, or stops after some of them.

    aiobotocore follows one that names no region without end, until Python stops it.
    """
    if any(kind.__name__ in _REDIRECTS for link in _links(error) for kind in type(link).__mro__):
        return ELSEWHERE
    if not isinstance(error, RecursionError):
        return None
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return ELSEWHERE if any(name.partition(".")[0] == "aiobotocore" for name in modules) else None


def _by_status(error: BaseException) -> Failure | None:
    if any(type(link).__module__ == "aiohttp.http_exceptions" for link in (error, error.__cause__)):
        return None  # a status of aiohttp's parser is its own, not the store's: 400 for what is no answer, or cut short
    status = _status_of(error)
    return None if status is None else STATUS.get(status)


def _status_of(error: BaseException) -> int | None:
    """The HTTP status as botocore, aiohttp, azure, gcsfs and requests say it."""
    for says in _STATUS_OF:
        found = says(error)
        status = int(found) if isinstance(found, str) and found.isdecimal() else found
        if isinstance(status, int) and 300 <= status < 1000:
            return int(status)
    return None


def _part(error: BaseException, attribute: str, *keys: str) -> Any:
    found = getattr(error, attribute, None)
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


_STATUS_OF: tuple[Callable[[BaseException], Any], ...] = (
    lambda error: _part(error, "response", "ResponseMetadata", "HTTPStatusCode"),
    lambda error: getattr(error, "status", None),
    lambda error: getattr(error, "status_code", None),
    lambda error: getattr(getattr(error, "response", None), "status_code", None),
    lambda error: None if hasattr(error, "status") else getattr(error, "code", None),  # aiohttp has both, and one warns
)


def _by_type(error: BaseException) -> Failure | None:
    for kind in type(error).__mro__:
        found = TYPES.get(f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}")
        if found is not None:
            return found
    return None
