"""An answer of an HTTP server to a request for one range: its bytes, the size of the object, or a refusal.

Rules of the file:

- Bytes are used only if the answer names the requested range (206 with its Content-Range).
- The whole object (200) is its range from 0 to its end or further. Go's servers answer so if it is empty. A proxy may
  answer so instead of the server: an answer without ETag and Last-Modified is no object. Some servers compress an
  answer 200 although no request permits it: such bytes are not the object's.
- A body that breaks off is not used.
- A store behind the server may say by a code what it refuses: S3 and Google in XML, Azure in a header. Of an object
  that was deleted in a bucket with versions, S3 says so in a header only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from fetchers._ranges import check_whole, is_all, size_of_range, told_end, total_of, wrong_range
from remote_fetch.deadline import Deadline
from remote_fetch.errors import StorageTimeout, StorageUnavailable
from remote_fetch.failures.store_errors import RefusedError
from remote_fetch.model import Buffer

if TYPE_CHECKING:
    import urllib3

__all__ = ["WantedRange", "body_of", "done_with", "identity_of", "is_deleted", "size_of"]

_PIECE_BYTES = 256 << 10
"""How much of a body is read before its size is checked."""
_ERROR_BYTES = 4096
"""The part of a refusal's body that is examined."""
_COMPRESSED = re.compile(r"\b(gzip|deflate|compress|br|zstd)\b", re.IGNORECASE)
"""In a Content-Encoding. Some stores keep another word there, aws-chunked, with bytes that are the object's."""
_CODE = re.compile(rb"<Code>([A-Za-z.]{1,64})</Code>")


class WantedRange(NamedTuple):
    """The bytes [start, end) that are asked for, -1 for the end of the object, and the deadline of the answer."""

    start: int
    end: int
    deadline: Deadline


def body_of(response: urllib3.BaseHTTPResponse, wanted: WantedRange) -> Buffer | None:
    """The bytes of the wanted range that the answer has, none past the end of the object.

    None for an answer 416 that does not tell the size of the object.

    Raises StorageUnavailable, StorageTimeout, CorruptSegment, RefusedError, and the exceptions of urllib3.
    """
    if response.status == 206:
        return _part_of(response, wanted)
    if response.status == 416:
        return b"" if told_end(wanted.start, response.headers.get("Content-Range")) else None
    if response.status != 200:
        raise _refusal(response)
    if _is_compressed(response):
        raise wrong_range("the server compressed the object")
    size_bytes = None if identity_of(response) is None else response.length_remaining
    is_range = wanted.start > 0 or wanted.end >= 0
    if is_range and (size_bytes is None or not is_all(*wanted[:2], size_bytes)):
        raise wrong_range("the server sent the whole object for a range")
    return _read(response, size_bytes if is_range else None, wanted.deadline)


def size_of(response: urllib3.BaseHTTPResponse, wanted: WantedRange) -> int | None:
    """The size of the object that the answer has a byte of; None if the server does not tell. Raises RefusedError."""
    if response.status not in (200, 206, 416):
        raise _refusal(response)
    if response.status == 200:
        if _is_compressed(response):
            return None
        length = response.headers.get("Content-Length", "")
        return int(length) if re.fullmatch(r"[0-9]{1,19}", length) else None
    return total_of(response.headers.get("Content-Range"))


def identity_of(response: urllib3.BaseHTTPResponse) -> tuple[str | None, str | None] | None:
    """The ETag of the object, weak ones too, and the time of its last change; None if the server tells neither."""
    told = response.headers.get("ETag"), response.headers.get("Last-Modified")
    return None if told == (None, None) else told


def is_deleted(headers: Mapping[str, str]) -> bool:
    """Whether a 404 says that the last version is a marker of a deletion. The object existed, so it is not absent.

    Amazon's header is `x-amz-delete-marker`. Stores of others that speak S3 have their own names for `amz`.
    """
    return any(name.lower().endswith("-delete-marker") and value == "true" for name, value in headers.items())


def done_with(response: urllib3.BaseHTTPResponse) -> None:
    """Give the connection back if nothing is on its way any more, else close it."""
    if response.length_remaining == 0:
        response.drain_conn()
    else:
        response.close()
    response.release_conn()


def _is_compressed(response: urllib3.BaseHTTPResponse) -> bool:
    return _COMPRESSED.search(response.headers.get("Content-Encoding", "")) is not None


def _part_of(response: urllib3.BaseHTTPResponse, wanted: WantedRange) -> Buffer:
    """The body of an answer 206, which has to name the wanted range."""
    end = None if wanted.end < 0 else wanted.end
    size_bytes = size_of_range(wanted.start, end, response.headers.get("Content-Range"), None)
    if size_bytes == 0:
        return b""
    return _read(response, size_bytes, wanted.deadline)


def _read(response: urllib3.BaseHTTPResponse, size_bytes: int | None, deadline: Deadline) -> Buffer:
    """The whole body, of `size_bytes` if that is known. Memory is taken for what has arrived."""
    body = bytearray()
    while True:
        if deadline.is_over:
            raise StorageTimeout("the body did not arrive in time")
        piece = response.read(_PIECE_BYTES)
        body += piece
        if size_bytes is None:
            check_whole(len(body))
        elif len(body) > size_bytes:
            raise wrong_range(f"the server sent more than the {size_bytes} bytes that it announced")
        if not piece:
            break
    if size_bytes is not None and len(body) < size_bytes:
        raise StorageUnavailable(f"the body broke off after {len(body)} of {size_bytes} bytes")
    return body


def _refusal(response: urllib3.BaseHTTPResponse) -> RefusedError:
    return RefusedError(410) if is_deleted(response.headers) else RefusedError(response.status, _code_of(response))


def _code_of(response: urllib3.BaseHTTPResponse) -> str | None:
    code = response.headers.get("x-ms-error-code")
    if code is not None:
        return code
    text = b""
    with suppress(Exception):  # a body that does not come says nothing
        text = response.read(_ERROR_BYTES)
    found = _CODE.search(text)
    return None if found is None else found[1].decode()
