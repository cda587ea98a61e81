"""The failures of stores and their SDKs, by code, HTTP status and type: one table for all of them.

Rules of the file:

- No SDK is imported. `store_errors` recognises an exception by the names here.
- A refusal is never an absence. Only 404 of an object says that the object is not there. A bucket or container that is
  not there refuses everything in it.
- 412 and 410: there was an object, or another one has its name now. The object is gone, and its metadata has to be
  read again. That is no proof of absence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from remote_fetch.errors import (
    RemoteFetchError,
    SegmentNotFound,
    StorageConnectTimeout,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)

__all__ = [
    "ABSENT",
    "BROKEN",
    "CERTIFICATE",
    "CODES",
    "ELSEWHERE",
    "NOT_GIVEN",
    "NO_FILE",
    "SENT_NOTHING",
    "STATUS",
    "TYPES",
    "WITHOUT_BODY",
    "WITHOUT_CODE",
    "Failure",
]


class Failure(NamedTuple):
    """The right side of a row: the error of this package, its text and its hint."""

    error: Callable[..., RemoteFetchError]
    text: str
    hint: str | None = None


ABSENT = Failure(SegmentNotFound, "no such object")
_GONE = partial(SegmentNotFound, is_absent=False)
SENT_NOTHING = partial(StorageUnavailable, may_have_sent=False)
"""The class of failures by which no byte of the object came."""
_OF_OBJECT = partial(StorageDenied, is_of_object=True)
WITHOUT_CODE = Failure(
    _GONE,
    "an answer says that there is no such object, and has no code of the store",
    "A proxy before the store may have given it: check the endpoint",
)
WITHOUT_BODY = Failure(_GONE, "no such object")
"""Instead of ABSENT, of a store that has codes: its answer has none, or it answers HEAD, which has no body."""
_DENIED = Failure(
    StorageDenied,
    "the store refused access",
    "The identity needs permission to read the objects; without permission to list (s3:ListBucket), S3 answers 403 "
    "for an object that is missing, too",
)
_UNREADABLE = Failure(
    StorageDenied,
    "the file system refused access",
    "The user that reads needs permission to read the file, and to search every directory above it",
)
_NOBODY = Failure(
    StorageDenied,
    "the store does not accept the credentials",
    "Check remote.storage.options.* and the credentials that the SDK finds in the environment",
)
_NONE_FOUND = Failure(
    StorageDenied,
    "no credentials for the store were found",
    "Give them in remote.storage.options.*, or in the environment variables or files of the SDK; a public bucket needs "
    "none with anon=true (gs://: token=anon)",
)
NOT_GIVEN = Failure(
    StorageDenied,
    "the service that gives credentials for the store refused",
    "Check the role, who may assume it, and that the token or profile which asks for it has not expired",
)
NO_FILE = Failure(
    StorageDenied,
    "a file of this machine that the store's client needs is not there",
    "Check the files of keys, tokens and certificates that remote.storage.options.*, the environment or the SDK's own "
    "configuration name",
)
_EXPIRED = Failure(StorageDenied, "the credentials or the signed URL have expired", "Renew them")
_SKEWED = Failure(
    StorageDenied, "the store says that this machine's clock is wrong", "Set the clock: signatures hold a time"
)
_NO_BUCKET = Failure(
    StorageDenied, "there is no such bucket or container", "Check remote.storage.url, the region and the endpoint"
)
ELSEWHERE = Failure(
    StorageDenied,
    "the bucket is to be asked for somewhere else",
    "Set the bucket's region or endpoint in remote.storage.options.*",
)
_BY_PATH = Failure(
    StorageDenied,
    "the store wants the name of the bucket in the host, not in the path",
    'Set remote.storage.options.config_kwargs={"s3": {"addressing_style": "virtual"}}',
)
_ARCHIVED = Failure(_OF_OBJECT, "the object is archived", "Restore it to a storage class that can be read at once")
_NO_KEY = Failure(
    _OF_OBJECT,
    "the key (KMS) with which the object is encrypted cannot be used",
    "The key has to be enabled: enable it again, or cancel its deletion",
)
_INVALID = Failure(
    StorageDenied,
    "the store does not take the request",
    "Check remote.storage.url and remote.storage.options.*, and whether the object needs an encryption key of yours",
)
_THROTTLED = Failure(StorageThrottled, "the store asked for fewer requests")
_CONNECT_TIMEOUT = Failure(
    StorageConnectTimeout, "no connection to the store in time", "Raise fetch.remote.connect.timeout.ms"
)
_TIMEOUT = Failure(
    StorageTimeout, "the store did not answer in time", "Check the endpoint, or raise fetch.remote.read.timeout.ms"
)
CERTIFICATE = Failure(
    StorageDenied,
    "the store's certificate is not accepted",
    "Check the host in remote.storage.url, the certificate and its authority (CA), and this machine's clock. The "
    "file of a private CA is named by AWS_CA_BUNDLE (s3), SSL_CERT_FILE (gs, abfs), or the option ca_certs (https)",
)
_HOST_KEY = Failure(
    StorageDenied, "the server's host key is not the known one", "Check the host in remote.storage.url and known_hosts"
)
BROKEN = Failure(StorageUnavailable, "the store could not be reached, or broke off")
_NO_TOKEN = Failure(
    SENT_NOTHING,
    "no token or signature came from the server that the credentials name",
    "Check that this machine reaches that server, and that the server has a service account for it",
)
_NO_LIBRARY = Failure(
    StorageDenied, "the store's client lacks a library that the bucket needs", 'Install it: pip install "botocore[crt]"'
)
_DAMAGED = Failure(
    StorageUnavailable,
    "the bytes do not match the checksum that came with them",
    "If this lasts, the server may send the checksum of the whole object with a part of it: set "
    'remote.storage.options.config_kwargs={"response_checksum_validation": "when_required"}',
)
_FAILED = Failure(StorageUnavailable, "the store failed")

CODES: Mapping[str, Failure] = {
    # S3, https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
    "NoSuchBucket": _NO_BUCKET,
    "NoSuchKey": ABSENT,
    "NoSuchVersion": ABSENT,
    "AccessDenied": _DENIED,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _NOBODY,
    "InvalidAccessKeyId": _NOBODY,
    "SignatureDoesNotMatch": _NOBODY,
    "RequestTimeTooSkewed": _SKEWED,
    "InvalidObjectState": _ARCHIVED,
    "KMS.DisabledException": _NO_KEY,
    "KMS.KMSInvalidStateException": _NO_KEY,
    "KMS.NotFoundException": _NO_KEY,
    "AuthorizationHeaderMalformed": ELSEWHERE,
    "IllegalLocationConstraintException": ELSEWHERE,
    "PermanentRedirect": ELSEWHERE,
    "SecondLevelDomainForbidden": _BY_PATH,  # Alibaba's OSS
    "PathStyleDomainForbidden": _BY_PATH,  # Tencent's COS
    "TemporaryRedirect": BROKEN,
    "RequestTimeout": BROKEN,
    "SlowDown": _THROTTLED,
    "Throttling": _THROTTLED,
    "ThrottlingException": _THROTTLED,
    "RequestLimitExceeded": _THROTTLED,
    "BandwidthLimitExceeded": _THROTTLED,
    # Azure, https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
    "ContainerNotFound": _NO_BUCKET,
    "ContainerBeingDeleted": _NO_BUCKET,
    "ResourceNotFound": ABSENT,
    "BlobNotFound": ABSENT,
    "AuthenticationFailed": Failure(
        StorageDenied,
        "the store does not accept the signature",
        "Check the key or SAS, that it has not expired, and this machine's clock",
    ),
    "InvalidAuthenticationInfo": _NOBODY,
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
    "ServerBusy": _THROTTLED,
    "OperationTimedOut": BROKEN,
    # FTP, RFC 959, 4.2
    "FTP 530": _NOBODY,
    "FTP 532": _NOBODY,
}
"""By the store's own code: what a status alone leaves open."""

STATUS: Mapping[int, Failure] = {
    **dict.fromkeys(range(300, 400), _FAILED),  # no store answers a read so, but a proxy before it may
    **dict.fromkeys((301, 302, 303, 307, 308), ELSEWHERE),
    **dict.fromkeys(range(400, 500), _INVALID),
    401: _NOBODY,
    403: _DENIED,
    404: ABSENT,
    407: Failure(StorageDenied, "a proxy refused access", "Check the proxy's credentials"),
    408: BROKEN,
    410: Failure(_GONE, "the object is gone"),
    412: Failure(_GONE, "another object stands under the name now"),
    425: BROKEN,
    429: _THROTTLED,
    **dict.fromkeys(range(500, 1000), _FAILED),  # from 600 on there is none, and it is as 5xx (RFC 9110, 15)
    503: _THROTTLED,
}

TYPES: Mapping[str, Failure] = {
    "builtins.FileNotFoundError": ABSENT,
    "builtins.NotADirectoryError": ABSENT,
    "builtins.IsADirectoryError": Failure(_GONE, "a folder stands where the object should be"),
    "builtins.PermissionError": _UNREADABLE,
    "builtins.TimeoutError": _TIMEOUT,
    "aiohttp.ConnectionTimeoutError": _CONNECT_TIMEOUT,
    "aiohttp.ServerTimeoutError": _TIMEOUT,
    "aiohttp.ClientError": BROKEN,
    "botocore.ConnectTimeoutError": _CONNECT_TIMEOUT,
    "botocore.ReadTimeoutError": _TIMEOUT,
    "botocore.HTTPClientError": BROKEN,
    "botocore.ConnectionError": BROKEN,
    "botocore.IncompleteReadError": BROKEN,
    "botocore.FlexibleChecksumError": _DAMAGED,
    "botocore.ResponseParserError": BROKEN,
    "botocore.ParamValidationError": _INVALID,
    "botocore.UnknownSignatureVersionError": _INVALID,
    "botocore.MissingDependencyException": _NO_LIBRARY,
    "botocore.NoCredentialsError": _NONE_FOUND,
    "botocore.PartialCredentialsError": _NOBODY,
    "botocore.CredentialRetrievalError": _NOBODY,
    "botocore.TokenRetrievalError": _NOBODY,
    "botocore.SSOError": _EXPIRED,
    "azure.ClientAuthenticationError": _NOBODY,
    "azure.ResourceNotFoundError": ABSENT,
    "azure.ServiceRequestTimeoutError": _CONNECT_TIMEOUT,
    "azure.ServiceResponseTimeoutError": _TIMEOUT,
    "azure.ServiceRequestError": BROKEN,
    "azure.ServiceResponseError": BROKEN,
    "azure.AzureError": _FAILED,
    "google.DefaultCredentialsError": _NONE_FOUND,
    "google.RefreshError": _NOBODY,
    "google.TransportError": _NO_TOKEN,
    "gcsfs.ChecksumError": BROKEN,
    "paramiko.AuthenticationException": _NOBODY,
    "paramiko.BadHostKeyException": _HOST_KEY,
    "asyncssh.PermissionDenied": _NOBODY,
    "asyncssh.SFTPPermissionDenied": _UNREADABLE,
    "asyncssh.HostKeyNotVerifiable": _HOST_KEY,
    "smbprotocol.SMBAuthenticationError": _NOBODY,
    "smbprotocol.LogonFailure": _NOBODY,
    "smbprotocol.WrongPassword": _NOBODY,
    "smbprotocol.PasswordExpired": _EXPIRED,
    "smbprotocol.AccessDenied": _DENIED,
    "requests.ConnectTimeout": _CONNECT_TIMEOUT,
    "requests.Timeout": _TIMEOUT,
    "httpx.ConnectTimeout": _CONNECT_TIMEOUT,
    "httpx.TimeoutException": _TIMEOUT,
    "httpx.TransportError": BROKEN,
    "urllib3.ConnectTimeoutError": _CONNECT_TIMEOUT,
    "urllib3.NewConnectionError": BROKEN,
    "urllib3.TimeoutError": _TIMEOUT,
    "urllib3.HTTPError": BROKEN,
    "http.HTTPException": BROKEN,
    "zlib.error": BROKEN,  # azure-core, for an answer that is not in the encoding that it names
    "builtins.EOFError": BROKEN,
    "builtins.OSError": BROKEN,
}
"""By type: its first package and its name, of the error's own class or of one that it inherits from."""
