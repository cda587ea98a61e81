"""From the exceptions of stores and their SDKs to the errors of this package: one table for all of them.

Rules of the file:

- No SDK is imported. An exception is known by the store's own code, else by the HTTP status, else by its type. The
  first of its `__cause__`s that is known counts. An exception without one is a mistake in the code, and is passed on.
- No text of the store is repeated, because it may hold secrets. The number of a fault of the connection (errno) holds
  none, and this machine's own words for it follow the error's.
- A refusal is never an absence. Only 404 of an object says that the object is not there. A bucket or container that is
  not there refuses everything in it.
- A store that has codes says it by a code. Its 404 without one may be a proxy's, and is no proof of absence. To HEAD,
  S3 has no body that could hold a code: such a 404 proves nothing either, but no proxy is suspected.
- 412 and 410: there was an object, or another one has its name now. The object is gone, and its metadata has to be
  read again. That is no proof of absence.
- 416: the range starts behind the end (RFC 9110, 15.5.17). `is_past_the_end` tells.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from remote_fetch.errors import (
    RemoteFetchError,
    SegmentNotFound,
    StorageConnectTimeout,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)

__all__ = ["RedirectError", "answered_status", "failure_of", "is_past_the_end"]

_LINKS = 64
"""How many errors inside an error are looked at."""
_OF_CONNECTIONS = frozenset(
    {errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPIPE}
)
_NOT_REACHED = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})
_CHECK_ENDPOINT = "Check the host in remote.storage.url, or the endpoint in remote.storage.options.*"
_CERTIFICATE_ERRORS = frozenset({"ClientConnectorCertificateError", "CertificateError"})
_REDIRECTS = frozenset({"RedirectClientError", "TooManyRedirects"})
_INNER = ("reason", "inner_exception", "error", "os_error", "certificate_error")
_DEPTH = 8
"""How many causes are looked at: SDKs wrap an error two or three times."""


class RedirectError(Exception):
    """A redirect that a client of a store did not follow. Has the HTTP `status` alone."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status


class _Failure(NamedTuple):
    error: Callable[..., RemoteFetchError]
    text: str
    hint: str | None = None


_ABSENT = _Failure(SegmentNotFound, "no such object")
_GONE = partial(SegmentNotFound, is_absent=False)
_SENT_NOTHING = partial(StorageUnavailable, may_have_sent=False)
_WITHOUT_CODE = _Failure(
    _GONE,
    "an answer says that there is no such object, and has no code of the store",
    "A proxy before the store may have given it: check the endpoint",
)
_WITHOUT_BODY = _Failure(_GONE, "no such object")
_DENIED = _Failure(
    StorageDenied,
    "the store refused access",
    "The identity needs permission to read the objects; without permission to list (s3:ListBucket), S3 answers 403 "
    "for an object that is missing, too",
)
_UNREADABLE = _Failure(
    StorageDenied,
    "the file system refused access",
    "The user that reads needs permission to read the file, and to search every directory above it",
)
_NOBODY = _Failure(
    StorageDenied,
    "the store does not accept the credentials",
    "Check remote.storage.options.* and the credentials that the SDK finds in the environment",
)
_NONE_FOUND = _Failure(
    StorageDenied,
    "no credentials for the store were found",
    "Give them in remote.storage.options.*, or in the environment variables or files of the SDK; a public bucket needs "
    "none with anon=true (gs://: token=anon)",
)
_EXPIRED = _Failure(StorageDenied, "the credentials or the signed URL have expired", "Renew them")
_SKEWED = _Failure(
    StorageDenied, "the store says that this machine's clock is wrong", "Set the clock: signatures hold a time"
)
_NO_BUCKET = _Failure(
    StorageDenied, "there is no such bucket or container", "Check remote.storage.url, the region and the endpoint"
)
_ELSEWHERE = _Failure(
    StorageDenied,
    "the bucket is to be asked for somewhere else",
    "Set the bucket's region or endpoint in remote.storage.options.*",
)
_ARCHIVED = _Failure(StorageDenied, "the object is archived", "Restore it to a storage class that can be read at once")
_INVALID = _Failure(
    StorageDenied, "the store does not take the request", "Check remote.storage.url and remote.storage.options.*"
)
_THROTTLED = _Failure(StorageThrottled, "the store asked for fewer requests")
_CONNECT_TIMEOUT = _Failure(
    StorageConnectTimeout, "no connection to the store in time", "Raise fetch.remote.connect.timeout.ms"
)
_TIMEOUT = _Failure(StorageTimeout, "the store did not answer in time")
_CERTIFICATE = _Failure(
    StorageDenied,
    "the store's certificate is not accepted",
    "Check the host in remote.storage.url, the certificate and its authority (CA), and this machine's clock",
)
_HOST_KEY = _Failure(
    StorageDenied, "the server's host key is not the known one", "Check the host in remote.storage.url and known_hosts"
)
_BROKEN = _Failure(StorageUnavailable, "the store could not be reached, or broke off")
_DAMAGED = _Failure(
    StorageUnavailable,
    "the bytes do not match the checksum that came with them",
    "If this lasts, the server may send the checksum of the whole object with a part of it: set "
    'remote.storage.options.config_kwargs={"response_checksum_validation": "when_required"}',
)
_FAILED = _Failure(StorageUnavailable, "the store failed")

_CODES: Mapping[str, _Failure] = {
    # S3, https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
    "NoSuchBucket": _NO_BUCKET,
    "NoSuchKey": _ABSENT,
    "NoSuchVersion": _ABSENT,
    "AccessDenied": _DENIED,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _NOBODY,
    "InvalidAccessKeyId": _NOBODY,
    "SignatureDoesNotMatch": _NOBODY,
    "RequestTimeTooSkewed": _SKEWED,
    "InvalidObjectState": _ARCHIVED,
    "AuthorizationHeaderMalformed": _ELSEWHERE,
    "IllegalLocationConstraintException": _ELSEWHERE,
    "PermanentRedirect": _ELSEWHERE,
    "TemporaryRedirect": _BROKEN,
    "RequestTimeout": _BROKEN,
    "SlowDown": _THROTTLED,
    "Throttling": _THROTTLED,
    "ThrottlingException": _THROTTLED,
    "RequestLimitExceeded": _THROTTLED,
    "BandwidthLimitExceeded": _THROTTLED,
    # Azure, https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
    "ContainerNotFound": _NO_BUCKET,
    "ContainerBeingDeleted": _NO_BUCKET,
    "ResourceNotFound": _ABSENT,
    "BlobNotFound": _ABSENT,
    "AuthenticationFailed": _Failure(
        StorageDenied,
        "the store does not accept the signature",
        "Check the key or SAS, that it has not expired, and this machine's clock",
    ),
    "InvalidAuthenticationInfo": _NOBODY,
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
    "ServerBusy": _THROTTLED,
    "OperationTimedOut": _BROKEN,
    # FTP, RFC 959, 4.2
    "FTP 530": _NOBODY,
    "FTP 532": _NOBODY,
}
"""By the store's own code: what a status alone leaves open."""

_STATUS: Mapping[int, _Failure] = {
    **dict.fromkeys(range(300, 400), _FAILED),  # no store answers a read so, but a proxy before it may
    **dict.fromkeys((301, 302, 303, 307, 308), _ELSEWHERE),
    **dict.fromkeys(range(400, 500), _INVALID),
    401: _NOBODY,
    403: _DENIED,
    404: _ABSENT,
    407: _Failure(StorageDenied, "a proxy refused access", "Check the proxy's credentials"),
    408: _BROKEN,
    410: _Failure(_GONE, "the object is gone"),
    412: _Failure(_GONE, "another object stands under the name now"),
    425: _BROKEN,
    429: _THROTTLED,
    **dict.fromkeys(range(500, 1000), _FAILED),  # from 600 on there is none, and it is as 5xx (RFC 9110, 15)
    503: _THROTTLED,
}

_TYPES: Mapping[str, _Failure] = {
    "builtins.FileNotFoundError": _ABSENT,
    "builtins.NotADirectoryError": _ABSENT,
    "builtins.IsADirectoryError": _Failure(_GONE, "a folder stands where the object should be"),
    "builtins.PermissionError": _UNREADABLE,
    "builtins.TimeoutError": _TIMEOUT,
    "aiohttp.ConnectionTimeoutError": _CONNECT_TIMEOUT,
    "aiohttp.ServerTimeoutError": _TIMEOUT,
    "aiohttp.ClientError": _BROKEN,
    "botocore.ConnectTimeoutError": _CONNECT_TIMEOUT,
    "botocore.ReadTimeoutError": _TIMEOUT,
    "botocore.HTTPClientError": _BROKEN,
    "botocore.ConnectionError": _BROKEN,
    "botocore.IncompleteReadError": _BROKEN,
    "botocore.FlexibleChecksumError": _DAMAGED,
    "botocore.ResponseParserError": _BROKEN,
    "botocore.ParamValidationError": _INVALID,
    "botocore.UnknownSignatureVersionError": _INVALID,
    "botocore.NoCredentialsError": _NONE_FOUND,
    "botocore.PartialCredentialsError": _NOBODY,
    "botocore.CredentialRetrievalError": _NOBODY,
    "botocore.TokenRetrievalError": _NOBODY,
    "botocore.UnauthorizedSSOTokenError": _EXPIRED,
    "azure.ClientAuthenticationError": _NOBODY,
    "azure.ResourceNotFoundError": _ABSENT,
    "azure.ServiceRequestTimeoutError": _CONNECT_TIMEOUT,
    "azure.ServiceResponseTimeoutError": _TIMEOUT,
    "azure.ServiceRequestError": _BROKEN,
    "azure.ServiceResponseError": _BROKEN,
    "azure.AzureError": _FAILED,
    "google.DefaultCredentialsError": _NONE_FOUND,
    "google.RefreshError": _NOBODY,
    "google.TransportError": _BROKEN,
    "gcsfs.ChecksumError": _BROKEN,
    "paramiko.AuthenticationException": _NOBODY,
    "paramiko.BadHostKeyException": _HOST_KEY,
    "asyncssh.PermissionDenied": _NOBODY,
    "asyncssh.HostKeyNotVerifiable": _HOST_KEY,
    "smbprotocol.SMBAuthenticationError": _NOBODY,
    "smbprotocol.LogonFailure": _NOBODY,
    "smbprotocol.WrongPassword": _NOBODY,
    "smbprotocol.PasswordExpired": _EXPIRED,
    "smbprotocol.AccessDenied": _DENIED,
    "requests.ConnectTimeout": _CONNECT_TIMEOUT,
    "requests.Timeout": _TIMEOUT,
    "urllib3.ConnectTimeoutError": _CONNECT_TIMEOUT,
    "urllib3.NewConnectionError": _BROKEN,
    "urllib3.TimeoutError": _TIMEOUT,
    "urllib3.HTTPError": _BROKEN,
    "http.HTTPException": _BROKEN,
    "zlib.error": _BROKEN,  # azure-core, for an answer that is not in the encoding that it names
    "builtins.EOFError": _BROKEN,
    "builtins.OSError": _BROKEN,
}
"""By type: its first package and its name, of the error's own class or of one that it inherits from."""


def failure_of(error: BaseException, object_name: str, *, has_codes: bool = False) -> RemoteFetchError | None:
    """The error of ours that `error` is, about `object_name`; None where nothing says that the store is to blame.

    `has_codes`: the store gives a code for an object that is not there, so that an answer without it proves nothing.
    """
    if isinstance(error, RemoteFetchError):
        return error.at(object_name=object_name)
    if _is_certificate(error):
        return _CERTIFICATE.error(_CERTIFICATE.text, object_name=object_name, hint=_CERTIFICATE.hint)
    causes = list(_causes(error))
    for known in (_by_code, _by_status, _by_redirects, _by_type):
        for cause in causes:
            found = known(cause)
            if found is not None:
                if has_codes and found is _ABSENT and known is not _by_code:
                    found = _WITHOUT_BODY if any(map(_is_of_head, causes)) else _WITHOUT_CODE
                if found is _BROKEN:
                    found = _with_fault(error)
                if known in (_by_code, _by_status) and found.error is StorageUnavailable:
                    found = found._replace(error=_SENT_NOTHING)
                return found.error(found.text, object_name=object_name, hint=found.hint)
    return None


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


def _with_fault(error: BaseException) -> _Failure:
    """`_BROKEN` with this machine's words for what the connection failed with, if an error has its number."""
    for link in _links(error):
        if isinstance(link, socket.gaierror):
            return _Failure(_SENT_NOTHING, f"{_BROKEN.text} (the host's name has no address)", _CHECK_ENDPOINT)
        number = link.errno if isinstance(link, OSError) and link.errno else 0
        if number in _OF_CONNECTIONS or (link is error and number > 0):
            text = f"{_BROKEN.text} ({os.strerror(number)})"
            if number in _NOT_REACHED:
                return _Failure(_SENT_NOTHING, text, _CHECK_ENDPOINT)
            return _Failure(_BROKEN.error, text)
    return _BROKEN


def _links(error: BaseException) -> Iterator[BaseException]:
    """The error and those in it. SDKs keep one as a cause, a context, an argument or an attribute."""
    found, seen = [error], 0
    while found and seen < _LINKS:
        link = found.pop(0)
        seen += 1
        yield link
        inner = (link.__cause__, link.__context__, *link.args, *(getattr(link, name, None) for name in _INNER))
        found += [each for each in inner if isinstance(each, BaseException)]


def _causes(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_DEPTH):
        if link is None:
            return
        yield link
        link = link.__cause__


def _is_of_head(error: BaseException) -> bool:
    """Whether botocore says that the request was a HEAD."""
    return str(getattr(error, "operation_name", "")).startswith("Head")


def _by_code(error: BaseException) -> _Failure | None:
    for code in (_part(error, "response", "Error", "Code"), getattr(error, "error_code", None), _ftp_code(error)):
        if isinstance(code, str) and code in _CODES:
            return _CODES[code]
    return None


def _ftp_code(error: BaseException) -> str | None:
    """The code that ftplib's text begins with, by its name in the table."""
    return f"FTP {str(error)[:3]}" if type(error).__module__ == "ftplib" else None


def _by_redirects(error: BaseException) -> _Failure | None:
    """A redirect that leads nowhere. aiohttp does not follow it, or stops after some of them.

    aiobotocore follows one that names no region without end, until Python stops it.
    """
    if any(kind.__name__ in _REDIRECTS for link in _links(error) for kind in type(link).__mro__):
        return _ELSEWHERE
    if not isinstance(error, RecursionError):
        return None
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return _ELSEWHERE if any(name.partition(".")[0] == "aiobotocore" for name in modules) else None


def _by_status(error: BaseException) -> _Failure | None:
    if any(type(link).__module__ == "aiohttp.http_exceptions" for link in (error, error.__cause__)):
        return None  # a status of aiohttp's parser is its own, not the store's: 400 for what is no answer, or cut short
    status = _status_of(error)
    return None if status is None else _STATUS.get(status)


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


def _by_type(error: BaseException) -> _Failure | None:
    for kind in type(error).__mro__:
        found = _TYPES.get(f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}")
        if found is not None:
            return found
    return None
