"""The table of failures, with the exceptions that the SDKs really raise.

Rules of the file:

- Every error is made by the SDK's own class, wrapped as its filesystem wraps it.
- The only assertion about the text is that it repeats no text of the store.
"""

from __future__ import annotations

import errno
import ftplib
import http.client
import re
import socket
import ssl
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import azure.core.exceptions as azure
import botocore.exceptions as boto
import botocore.parsers
import google.auth.exceptions as google
import pytest
import requests
import urllib3.exceptions as urllib
from botocore.exceptions import FlexibleChecksumError
from fsspec.exceptions import FSTimeoutError
from gcsfs.retry import ChecksumError, HttpError
from s3fs.errors import translate_boto_error
from yarl import URL

from remote_fetch.errors import (
    CorruptSegment,
    RemoteFetchError,
    SegmentNotFound,
    StorageConnectTimeout,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.failures.store_errors import failure_of, is_past_the_end
from remote_fetch.failures.store_failures import TYPES
from tests.cases import each_of

SECRET = "s3cret"


def of_s3(code: str, status: int, operation: str = "GetObject") -> Exception:
    """As s3fs hands it on: translated, the original as the cause."""
    response: Any = {
        "Error": {"Code": code, "Message": SECRET},
        "ResponseMetadata": {"HTTPStatusCode": status, "RequestId": SECRET},
    }
    found: Exception = translate_boto_error(boto.ClientError(response, operation))
    return found


def of_azure(code: str | None, status: int, kind: type[azure.HttpResponseError] = azure.HttpResponseError) -> Exception:
    error = kind(message=SECRET)
    error.status_code = status
    error.error_code = code  # type: ignore[attr-defined]
    return error


def of_a_short_body() -> Exception:
    """Its cause has a `code` of 400, which no store said."""
    inner: Exception = aiohttp.http_exceptions.ContentLengthError("Not enough data")
    return caused(aiohttp.ClientPayloadError("Response payload is not completed"), inner)


def of_no_answer() -> Exception:
    """As aiohttp says that it cannot parse the head of an answer: with two lengths, or bytes of the body before."""
    inner: Exception = aiohttp.http_exceptions.BadHttpMessage(SECRET)
    return caused(of_aiohttp(400), inner)


def of_aiohttp(status: int) -> Exception:
    info = aiohttp.RequestInfo(URL(f"https://h/x?sig={SECRET}"), "GET", {}, URL("https://h/x"))  # type: ignore[arg-type]
    return aiohttp.ClientResponseError(info, (), status=status, message=SECRET)


def of_a_redirect(kind: str) -> Exception:
    """The error of aiobotocore if aiohttp does not follow a redirect any further."""
    if kind == "TooManyRedirects":
        info = aiohttp.RequestInfo(URL(f"https://h/x?sig={SECRET}"), "GET", {}, URL("https://h/x"))  # type: ignore[arg-type]
        return caused(boto.HTTPClientError(error=SECRET), aiohttp.TooManyRedirects(info, ()))
    inner: Exception = getattr(aiohttp, kind)(f"file:///{SECRET}")
    return caused(boto.HTTPClientError(error=SECRET), inner)


def of_gcs(code: int) -> Exception:
    error: Exception = HttpError({"code": code, "message": SECRET})
    return error


def of_no_token() -> Exception:
    """As google-auth says that the machine's own server of tokens is away."""
    return caused(google.RefreshError(SECRET), google.TransportError(SECRET))  # type: ignore[no-untyped-call]


def of_requests(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(SECRET, response=response)


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def without_tls() -> ssl.SSLError:
    """The error of a handshake with a server that does not speak TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ssl.SSLError) as raised:
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="h").do_handshake()
    return raised.value


def connection_key() -> Any:
    return aiohttp.client_reqrep.ConnectionKey("h", 443, True, True, None, None, None)


def of_library(module: str, *names: str) -> Exception:
    """An exception of a class of the first name, which inherits from those of the others."""
    kind: type[Exception] = Exception
    for name in reversed(names):
        kind = type(name, (kind,), {"__module__": f"{module}.exceptions"})
    return kind(SECRET)


ERRORS: list[tuple[Exception, type[RemoteFetchError]]] = [
    (of_s3("NoSuchKey", 404), SegmentNotFound),
    (of_s3("404", 404), SegmentNotFound),
    (of_s3("NoSuchBucket", 404), StorageDenied),  # or every index of it would be "absent"
    (of_s3("AccessDenied", 403), StorageDenied),
    (of_s3("403", 403), StorageDenied),
    (of_s3("ExpiredToken", 400), StorageDenied),
    (of_s3("RequestTimeTooSkewed", 403), StorageDenied),
    (of_s3("SignatureDoesNotMatch", 403), StorageDenied),
    (of_s3("InvalidAccessKeyId", 403), StorageDenied),
    (of_s3("InvalidObjectState", 403), StorageDenied),
    (of_s3("PermanentRedirect", 301), StorageDenied),
    (of_a_redirect("TooManyRedirects"), StorageDenied),
    (of_a_redirect("InvalidUrlRedirectClientError"), StorageDenied),
    (of_a_redirect("NonHttpUrlRedirectClientError"), StorageDenied),
    (of_s3("AuthorizationHeaderMalformed", 400), StorageDenied),
    (of_s3("InvalidArgument", 400), StorageDenied),
    (of_s3("PreconditionFailed", 412), SegmentNotFound),
    (of_s3("SlowDown", 503), StorageThrottled),
    (of_s3("ServiceUnavailable", 503), StorageThrottled),
    (of_s3("RequestLimitExceeded", 400), StorageThrottled),
    (of_s3("RequestTimeout", 400), StorageUnavailable),
    (of_s3("InternalError", 500), StorageUnavailable),
    (boto.ConnectTimeoutError(endpoint_url=SECRET), StorageConnectTimeout),
    (boto.ReadTimeoutError(endpoint_url=SECRET), StorageTimeout),
    (boto.EndpointConnectionError(endpoint_url=SECRET), StorageUnavailable),
    (boto.ConnectionClosedError(endpoint_url=SECRET), StorageUnavailable),
    (boto.ResponseStreamingError(error=SECRET), StorageUnavailable),
    (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), StorageUnavailable),
    (botocore.parsers.ResponseParserError(SECRET), StorageUnavailable),
    (FlexibleChecksumError(error_msg=SECRET), StorageUnavailable),
    (boto.NoCredentialsError(), StorageDenied),
    (boto.MissingDependencyException(msg="crt"), StorageDenied),
    (boto.CredentialRetrievalError(provider="sso", error_msg=SECRET), StorageDenied),
    (boto.UnauthorizedSSOTokenError(), StorageDenied),
    (boto.SSOTokenLoadError(error_msg=SECRET), StorageDenied),
    (of_s3("NoSuchEntity", 404, "AssumeRole"), StorageDenied),
    (of_s3("Throttling", 400, "AssumeRole"), StorageThrottled),
    (of_azure("BlobNotFound", 404, azure.ResourceNotFoundError), SegmentNotFound),
    (of_azure("ContainerNotFound", 404, azure.ResourceNotFoundError), StorageDenied),
    (of_azure("AuthenticationFailed", 403, azure.ClientAuthenticationError), StorageDenied),
    (of_azure("ServerBusy", 503), StorageThrottled),
    (of_azure("OperationTimedOut", 500), StorageUnavailable),
    (of_azure("BlobArchived", 409), StorageDenied),
    (of_azure(None, 412), SegmentNotFound),
    (azure.ClientAuthenticationError(message=SECRET), StorageDenied),  # without an answer: no credentials were found
    (azure.ServiceRequestError(SECRET), StorageUnavailable),
    (azure.ServiceResponseError(SECRET), StorageUnavailable),
    (azure.ServiceRequestTimeoutError(SECRET), StorageConnectTimeout),
    (azure.ServiceResponseTimeoutError(SECRET), StorageTimeout),
    (azure.IncompleteReadError(SECRET), StorageUnavailable),
    (of_gcs(403), StorageDenied),
    (of_gcs(429), StorageThrottled),
    (of_gcs(503), StorageThrottled),
    (of_gcs(502), StorageUnavailable),
    (HttpError({"code": "404", "message": SECRET}), SegmentNotFound),
    (ChecksumError(SECRET), StorageUnavailable),
    (google.DefaultCredentialsError(SECRET), StorageDenied),  # type: ignore[no-untyped-call]
    (google.RefreshError(SECRET), StorageDenied),  # type: ignore[no-untyped-call]
    (google.TransportError(SECRET), StorageUnavailable),  # type: ignore[no-untyped-call]
    (of_no_token(), StorageUnavailable),
    (caused(of_gcs(401), of_no_token()), StorageUnavailable),  # gcsfs makes it of any RefreshError
    (of_no_answer(), StorageUnavailable),
    (caused(azure.ServiceResponseError(SECRET), of_no_answer()), StorageUnavailable),
    (of_a_short_body(), StorageUnavailable),
    (of_aiohttp(401), StorageDenied),
    (of_aiohttp(404), SegmentNotFound),
    (of_aiohttp(410), SegmentNotFound),
    (of_aiohttp(429), StorageThrottled),
    (of_aiohttp(500), StorageUnavailable),
    (aiohttp.ServerDisconnectedError(), StorageUnavailable),
    (aiohttp.ClientPayloadError(SECRET), StorageUnavailable),
    (aiohttp.ClientConnectorError(connection_key(), OSError(errno.ECONNREFUSED, "no")), StorageUnavailable),
    (aiohttp.ConnectionTimeoutError(SECRET), StorageConnectTimeout),
    (aiohttp.SocketTimeoutError(SECRET), StorageTimeout),
    (of_requests(403), StorageDenied),
    (of_requests(503), StorageThrottled),
    (requests.ConnectTimeout(SECRET), StorageConnectTimeout),
    (requests.ReadTimeout(SECRET), StorageTimeout),
    (requests.ConnectionError(SECRET), StorageUnavailable),
    (urllib.ConnectTimeoutError(None, SECRET), StorageConnectTimeout),
    (urllib.ReadTimeoutError(None, SECRET, SECRET), StorageTimeout),  # type: ignore[arg-type]
    (urllib.ProtocolError(SECRET), StorageUnavailable),
    (urllib.NewConnectionError(None, SECRET), StorageUnavailable),  # type: ignore[arg-type]
    (http.client.IncompleteRead(b"", 5), StorageUnavailable),
    (zlib.error(SECRET), StorageUnavailable),
    (ftplib.error_perm(f"530 Login incorrect: {SECRET}"), StorageDenied),
    (of_library("paramiko", "BadAuthenticationType", "AuthenticationException"), StorageDenied),
    (of_library("paramiko", "BadHostKeyException"), StorageDenied),
    (of_library("asyncssh", "PermissionDenied"), StorageDenied),
    (of_library("smbprotocol", "LogonFailure"), StorageDenied),
    (of_library("httpx", "ConnectError", "TransportError"), StorageUnavailable),
    (of_library("httpx", "ConnectTimeout", "TimeoutException"), StorageConnectTimeout),
    (of_library("httpx", "ReadTimeout", "TimeoutException"), StorageTimeout),
    (FSTimeoutError(), StorageTimeout),
    (TimeoutError(), StorageTimeout),
    (caused(OSError("wrapped"), of_aiohttp(404)), SegmentNotFound),
    (caused(PermissionError("wrapped"), of_s3("SlowDown", 503)), StorageThrottled),
    (caused(caused(RuntimeError("twice"), OSError("wrapped")), of_gcs(429)), StorageThrottled),
]


@each_of(("theirs", "ours"), ERRORS, ids=[f"{at:02d}-{type(error).__name__}" for at, (error, _) in enumerate(ERRORS)])
def test_the_table(theirs: Exception, ours: type[RemoteFetchError]) -> None:
    failure = failure_of(theirs, "a/b.log")
    assert type(failure) is ours
    assert failure.object_name == "a/b.log"
    assert SECRET not in str(failure)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (aiohttp.ClientConnectorError(connection_key(), OSError(errno.ECONNREFUSED, SECRET)), " (Connection refused)"),
        (
            caused(requests.ConnectionError(SECRET), ConnectionResetError(errno.ECONNRESET, SECRET)),
            " (Connection reset",
        ),
        (aiohttp.ClientConnectorDNSError(connection_key(), socket.gaierror(-2, SECRET)), " (the host's name has no"),
        (aiohttp.ClientConnectorSSLError(connection_key(), without_tls()), " (it does not speak TLS)"),
        (boto.SSLError(endpoint_url="", error=without_tls()), "broke off"),
        (caused(boto.SSLError(endpoint_url="", error=""), without_tls()), " (it does not speak TLS)"),
        (aiohttp.ClientConnectorSSLError(connection_key(), ssl.SSLError(1, SECRET)), "broke off"),
        (OSError(errno.EIO, SECRET), " (Input/output error)"),
        (OSError(SECRET), "broke off"),
        (caused(requests.ConnectionError(SECRET), FileNotFoundError(errno.ENOENT, SECRET)), "or broke off"),
    ],
)
def test_the_systems_fault_is_named_in_this_machines_words(error: Exception, said: str) -> None:
    failure = failure_of(error, "x")
    assert failure is not None
    assert said in failure.message
    assert "No such file" not in failure.message
    assert "not permitted" not in failure.message  # the number of an error of TLS is OpenSSL's
    assert SECRET not in str(failure)


@pytest.mark.parametrize(
    ("error", "may_have_sent"),
    [
        (of_s3("InternalError", 500), False),
        (of_s3("RequestTimeout", 400), False),
        (of_azure("OperationTimedOut", 500), False),
        (of_gcs(502), False),
        (of_requests(500), False),
        (aiohttp.ClientConnectorError(connection_key(), OSError(errno.ECONNREFUSED, SECRET)), False),
        (aiohttp.ClientConnectorDNSError(connection_key(), socket.gaierror(-2, SECRET)), False),
        (ConnectionResetError(errno.ECONNRESET, SECRET), True),
        (of_a_short_body(), True),
        (FlexibleChecksumError(error_msg=SECRET), True),
    ],
)
def test_a_failure_that_sent_nothing_is_known(error: Exception, may_have_sent: bool) -> None:
    failure = failure_of(error, "x")
    assert isinstance(failure, StorageUnavailable)
    assert failure.may_have_sent == may_have_sent


def hints() -> Iterator[tuple[Exception, str]]:
    yield of_s3("AccessDenied", 403), "ListBucket"
    yield of_s3("ExpiredToken", 400), "Renew"
    yield of_s3("RequestTimeTooSkewed", 403), "clock"
    yield of_s3("AccessDenied", 403, "AssumeRoleWithWebIdentity"), "Check the role"
    yield of_s3("ResourceNotFoundException", 404, "GetRoleCredentials"), "Check the role"
    yield of_azure("AuthenticationFailed", 403), "SAS"
    yield of_s3("PermanentRedirect", 301), "region"
    yield of_a_redirect("NonHttpUrlRedirectClientError"), "region or endpoint"
    yield of_s3("NoSuchBucket", 404), "remote.storage.url"
    yield of_gcs(401), "credentials"
    yield of_s3("InvalidObjectState", 403), "Restore"
    yield of_s3("InvalidRequest", 400), "an encryption key of yours"  # SSE-C
    yield of_s3("SecondLevelDomainForbidden", 403), '"addressing_style": "virtual"'
    yield of_s3("PathStyleDomainForbidden", 403), '"virtual"'
    yield of_s3("KMS.DisabledException", 400), "enable it again"
    yield of_s3("KMS.KMSInvalidStateException", 400), "cancel its deletion"
    yield boto.NoCredentialsError(), "anon=true"
    yield aiohttp.ClientConnectorError(connection_key(), OSError(errno.ECONNREFUSED, SECRET)), "the endpoint"
    yield aiohttp.ClientConnectorDNSError(connection_key(), socket.gaierror(-2, SECRET)), "the host in"
    yield FlexibleChecksumError(error_msg=SECRET), "response_checksum_validation"


@pytest.mark.parametrize(("error", "word"), list(hints()), ids=[word for _, word in hints()])
def test_what_can_be_done_about_a_refusal_is_said(error: Exception, word: str) -> None:
    failure = failure_of(error, "x")
    assert failure is not None
    assert word in (failure.hint or "")


@pytest.mark.parametrize(
    ("code", "is_of_object"),
    [
        ("AccessDenied", False),
        ("InvalidObjectState", True),
        ("KMS.DisabledException", True),
        ("KMS.NotFoundException", True),
    ],
)
def test_an_object_that_is_archived_or_has_no_key_says_nothing_of_others(code: str, is_of_object: bool) -> None:
    failure = failure_of(of_s3(code, 403), "x")
    assert isinstance(failure, StorageDenied)
    assert failure.is_of_object == is_of_object


def is_absent(error: Exception) -> bool:
    failure = failure_of(error, "x")
    return isinstance(failure, SegmentNotFound) and failure.is_absent


def test_a_folder_is_no_proof_of_absence() -> None:
    assert is_absent(FileNotFoundError())
    assert not is_absent(IsADirectoryError())


@pytest.mark.parametrize(
    "error",
    [
        of_s3("404", 404),
        of_s3("", 404),  # botocore, for a page of HTML
        of_azure(None, 404, azure.ResourceNotFoundError),
        of_aiohttp(404),
        caused(OSError("wrapped"), of_aiohttp(404)),
        azure.ResourceNotFoundError(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_404_without_a_code_is_no_proof_of_absence_in_a_store_that_has_codes(error: Exception) -> None:
    """It may be a proxy's. A transaction index that counts as absent shows aborted records."""
    failure = failure_of(error, "x", has_codes=True)
    assert isinstance(failure, SegmentNotFound)
    assert not failure.is_absent
    assert is_absent(error)


@pytest.mark.parametrize("error", [FileNotFoundError(), NotADirectoryError(), IsADirectoryError()])
def test_a_file_that_is_not_there_is_no_object_of_a_store_that_has_codes(error: Exception) -> None:
    """botocore raises so for the file of a web identity, and for the program of a profile."""
    failure = failure_of(error, "x", has_codes=True)
    assert isinstance(failure, StorageDenied)
    assert "a file of this machine" in failure.message


def test_a_404_for_head_accuses_no_proxy() -> None:
    """S3 has no body, and so no code, in any answer to HEAD."""
    answers = of_s3("404", 404), of_s3("404", 404, "HeadObject")
    by_get, by_head = (failure_of(error, "x", has_codes=True) for error in answers)
    assert isinstance(by_get, SegmentNotFound)
    assert isinstance(by_head, SegmentNotFound)
    assert "proxy" in (by_get.hint or "")
    assert (by_head.hint, by_head.is_absent) == (None, False)


@pytest.mark.parametrize(
    "error",
    [of_s3("NoSuchKey", 404), of_s3("NoSuchVersion", 404), of_azure("BlobNotFound", 404, azure.ResourceNotFoundError)],
)
def test_the_stores_own_code_proves_absence(error: Exception) -> None:
    failure = failure_of(error, "x", has_codes=True)
    assert isinstance(failure, SegmentNotFound)
    assert failure.is_absent


def test_what_a_status_alone_says() -> None:
    found: dict[type[RemoteFetchError], list[int]] = {}
    for status in range(300, 1000):
        failure = failure_of(of_aiohttp(status), "x")
        assert failure is not None
        found.setdefault(type(failure), []).append(status)
    assert found.pop(SegmentNotFound) == [404, 410, 412]
    assert [status for status in (404, 410, 412) if is_absent(of_aiohttp(status))] == [404]
    assert found.pop(StorageThrottled) == [429, 503]
    redirects, failed = (301, 302, 303, 307, 308), [*range(300, 400), 408, 425, *range(500, 503), *range(504, 1000)]
    assert found.pop(StorageUnavailable) == [status for status in failed if status not in redirects]
    assert found.keys() == {StorageDenied}
    assert {*redirects, 401, 403} <= set(found[StorageDenied])


def test_a_status_that_http_does_not_have() -> None:
    for status in (600, 999):
        error = Exception("by its status alone")
        error.status = status  # type: ignore[attr-defined]
        assert isinstance(failure_of(error, "x"), StorageUnavailable)


@pytest.mark.parametrize(
    "error", [of_s3("InvalidRange", 416), of_gcs(416), of_aiohttp(416), of_azure("InvalidRange", 416)]
)
def test_a_range_past_the_end(error: Exception) -> None:
    assert is_past_the_end(error)
    assert not is_past_the_end(OSError(errno.EINVAL, "no status at all"))


def test_an_error_of_ours_stays_what_it_is() -> None:
    error = CorruptSegment("bad")
    assert failure_of(error, "x") is error
    assert error.object_name == "x"


@pytest.mark.parametrize(
    "error", [KeyError("x"), ZeroDivisionError(), RuntimeError("a mistake"), ftplib.error_perm("550 none")]
)
def test_a_mistake_is_no_failure_of_the_store(error: Exception) -> None:
    assert failure_of(error, "x") is None


def test_a_login_by_ssh_is_no_file_that_may_not_be_read() -> None:
    """sshfs raises PermissionError for both."""
    refused = of_library("asyncssh", "PermissionDenied")
    assert "the credentials" in str(failure_of(caused(PermissionError("user me"), refused), "x"))
    for of_file in (PermissionError(13, "denied"), of_library("asyncssh", "SFTPPermissionDenied")):
        assert "the file system refused" in str(failure_of(of_file, "x"))


def test_a_chain_that_bites_its_tail_ends() -> None:
    error = RuntimeError("a")
    error.__cause__ = error
    assert failure_of(error, "x") is None


NOT_INSTALLED = {
    "paramiko.AuthenticationException", "paramiko.BadHostKeyException",
    "asyncssh.PermissionDenied", "asyncssh.SFTPPermissionDenied", "asyncssh.HostKeyNotVerifiable",
    "httpx.ConnectTimeout", "httpx.TimeoutException", "httpx.TransportError",
    "smbprotocol.SMBAuthenticationError", "smbprotocol.LogonFailure", "smbprotocol.WrongPassword",
    "smbprotocol.PasswordExpired", "smbprotocol.AccessDenied",
}  # fmt: skip
"""Names of libraries that the tests do not have, as their sources spell them."""


def test_names_of_types_are_names_of_types() -> None:
    """A misspelled row would never be found out otherwise."""
    modules = {
        "builtins": [__import__("builtins")], "aiohttp": [aiohttp], "botocore": [boto, botocore.parsers],
        "azure": [azure], "google": [google], "gcsfs": [__import__("gcsfs.retry", fromlist=["x"])],
        "requests": [requests], "urllib3": [urllib], "http": [http.client], "zlib": [zlib],
    }  # fmt: skip
    assert TYPES.keys() >= NOT_INSTALLED
    for name in TYPES.keys() - NOT_INSTALLED:
        assert re.fullmatch(r"\w+\.\w+", name)
        module, _, kind = name.partition(".")
        assert any(isinstance(getattr(found, kind, None), type) for found in modules[module]), name


def refused_certificate() -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")


def as_context(error: Exception, inner: Exception) -> Exception:
    """An error raised while `inner` was handled, as SDKs do that name no cause."""
    try:
        try:
            raise inner
        except Exception:
            raise error  # noqa: B904
    except Exception as raised:
        return raised


def of_urllib3() -> Exception:
    inner = urllib.SSLError(refused_certificate())
    return urllib.MaxRetryError(None, "/x", inner)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        refused_certificate(),
        of_urllib3(),
        as_context(boto.SSLError(endpoint_url="https://x", error="x"), refused_certificate()),
        as_context(boto.ReadTimeoutError(endpoint_url="https://x"), refused_certificate()),
        azure.ServiceRequestError("x", error=refused_certificate()),
        requests.exceptions.SSLError(urllib.MaxRetryError(None, "/x", refused_certificate())),  # type: ignore[arg-type]
        aiohttp.ClientConnectorCertificateError(SimpleNamespace(host="x", port=1), refused_certificate()),  # type: ignore[arg-type]
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_a_refused_certificate_is_called_so(error: Exception) -> None:
    found = failure_of(error, "x")
    assert type(found) is StorageDenied
    assert "certificate is not accepted" in str(found)
    assert "SSL_CERT_FILE (gs, abfs)" in str(found)
    assert not found.retriable
