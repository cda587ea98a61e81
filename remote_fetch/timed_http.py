"""Connections of urllib3 that read an answer until a deadline.

Rules of the file:

- A deadline bounds an answer as a whole. urllib3 and `http.client` wait for each piece, also for each byte of a header,
  as long as for the whole answer.
- Interim answers (1xx, RFC 9110, 15.2) are passed over. `http.client` passes over 100 alone, and takes 103 for the
  answer: the next request of the connection would read the real one.
- A head that breaks off is an error. `http.client` would take it for a whole answer.
- A length that is no number is an error (RFC 9112, 6.3), and so is a head without a length that `http.client` cannot
  read to its end. It would read the body until the server closes the connection.
- A chunk has no negative size. `http.client` would hand it to `read`, which raises ValueError.
- urllib3 is loaded by the caller.
"""

from __future__ import annotations

import io
import threading
from http.client import HTTPException, HTTPMessage, HTTPResponse, IncompleteRead, parse_headers
from typing import TYPE_CHECKING, Any

from remote_fetch.deadline import Deadline

if TYPE_CHECKING:
    import socket

__all__ = ["SMALLEST_S", "CurrentDeadline", "timed"]

SMALLEST_S = 0.001
"""A timeout of 0 means "do not wait" to a socket."""
_MOST_INTERIM = 16
"""Most interim answers before an answer. Without a limit a server could keep a thread beyond its deadline."""


class CurrentDeadline(threading.local):
    """The deadline of the request that this thread makes."""

    deadline = Deadline.after(0)


def timed(pool_class: type[Any], current: CurrentDeadline) -> type[Any]:
    """As `pool_class`, a connection pool of urllib3, with answers that are read until the deadline in `current`."""

    class Response(HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
            super().__init__(sock, *arguments, **named)
            self._reader = _TimedReader(sock, self.fp, current)
            self.fp = io.BufferedReader(self._reader)

        def begin(self) -> None:
            super().begin()
            if self._reader.is_at_end:
                raise IncompleteRead(b"")
            if not self.chunked:
                _check_length(self.msg, self.length)

        def _read_status(self) -> tuple[str, int, str]:
            for _ in range(_MOST_INTERIM + 1):
                found: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
                if found[1] >= 200:
                    return found
                parse_headers(self.fp)
            raise HTTPException(f"more than {_MOST_INTERIM} interim answers")

        def _read_next_chunk_size(self) -> int:
            size: int = super()._read_next_chunk_size()  # type: ignore[misc]
            if size < 0:
                raise ValueError("a chunk has a negative size")  # `http.client` makes it an IncompleteRead
            return size

    connection = type("Connection", (pool_class.ConnectionCls,), {"response_class": Response})
    return type(pool_class.__name__, (pool_class,), {"ConnectionCls": connection})


def _check_length(head: HTTPMessage, length: int | None) -> None:
    """Raise HTTPException if a head does not tell where a body without chunks ends.

    `length` is what `http.client` read in it. It cannot read a repeated length (`2, 2`), nor thousands of digits.
    """
    lengths = {text.strip() for value in head.get_all("content-length", ()) for text in value.split(",")}
    if len(lengths) > 1 or not all(text.isdecimal() for text in lengths) or (lengths and length is None):
        raise HTTPException("the length of the answer is no number")
    if head.defects and not lengths:
        raise HTTPException("the head of the answer has a line that is no header")


class _TimedReader(io.RawIOBase):
    """Reads a socket. Each wait gets what is left of the deadline."""

    def __init__(self, sock: socket.socket, file: Any, current: CurrentDeadline) -> None:
        self._socket, self._file = sock, file.detach()
        self._current = current
        self.is_at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(max(self._current.deadline.left_s, SMALLEST_S))
        read: int | None = self._file.readinto(buffer)
        self.is_at_end = read == 0
        return read

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
