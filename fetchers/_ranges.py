"""Ranges of bytes in HTTP (RFC 9110, 14): the header that asks for one, and the header that names it.

Rules of the file:

- Pure.
- An answer is believed if it names the bytes that were asked for. Any other answer is StorageUnavailable.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remote_fetch.errors import CorruptSegment, StorageUnavailable

__all__ = [
    "ContentRange",
    "EndTold",
    "check_end",
    "check_whole",
    "is_all",
    "range_of",
    "size_of_range",
    "told_end",
    "total_of",
    "wrong_range",
]

_MAX_WHOLE_BYTES = 1 << 31
"""Most bytes of an object that is read to its end: no segment of a broker has more. Readers always give an end."""

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_UNSATISFIED = re.compile(r"bytes \*/([0-9]{1,19})")


class EndTold(Exception):
    """An answer 416 that tells by its size that the object ends at or before the start of the range."""

    status = 416


class ContentRange(NamedTuple):
    """The bytes that an answer holds, `last` inclusive, and the size of the object; None if the answer does not say."""

    first: int
    last: int
    total_bytes: int | None

    @classmethod
    def parse(cls, header: str | None) -> ContentRange | None:
        """The value of a Content-Range header; None for anything else than one range of bytes."""
        match = _CONTENT_RANGE.fullmatch(header or "")
        if match is None:
            return None
        return cls(int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3]))

    def is_end(self, start: int) -> bool:
        """Whether the answer has no byte because the object ends at `start`. Azurite says so, other stores say 416."""
        return self.first == start == self.total_bytes and self.last == start - 1

    def size_of(self, start: int, end: int | None) -> int | None:
        """The number of bytes, if they are those that were asked for: [start, end), or all before the object's end.

        None for other bytes. If the answer lacks the object's size, a range that ends before `end` is another one: it
        may have been cut off.
        """
        if self.is_end(start):
            return 0
        stop = min((each for each in (end, self.total_bytes) if each is not None), default=None)
        is_it = self.first == start and self.last + 1 == stop and self.first <= self.last
        return self.last + 1 - self.first if is_it else None


def total_of(header: str | None) -> int | None:
    """The size of an object by a Content-Range header, None if it lacks the size.

    An answer 416 has `bytes */SIZE` (RFC 9110, 14.4).
    """
    match = _UNSATISFIED.fullmatch(header or "")
    if match is not None:
        return int(match[1])
    answered = ContentRange.parse(header)
    return None if answered is None else answered.total_bytes


def size_of_range(start: int, end: int | None, content_range: str | None, content_length: int | None) -> int:
    """The size of an answer's body in bytes, after a check that the answer is the range [start, end).

    `content_range` and `content_length` are the answer's headers, the length only if it is the whole object: status
    200, and a header that identifies the object, which a proxy's own answer lacks. Raises StorageUnavailable for
    another range, and for an answer without one, unless `is_all`.
    Raises CorruptSegment as `check_whole`.
    """
    if content_range is None and content_length is not None and is_all(start, end, content_length):
        return content_length
    if range_of(start, end) is None and content_range is None:
        if content_length is None:
            raise StorageUnavailable("the store does not say how long the object is")
        check_whole(content_length)
        return content_length
    answered = ContentRange.parse(content_range)
    if answered is None:
        raise wrong_range("the store answered a range without saying which")
    size_bytes = answered.size_of(start, end)
    if size_bytes is None:
        first, last, total = answered
        size = "an unknown number" if total is None else total
        raise wrong_range(f"the store answered with bytes {first} to {last} of {size}, which were not asked for")
    if end is None:
        check_whole(size_bytes)
    return size_bytes


def is_all(start: int, end: int | None, size_bytes: int) -> bool:
    """Whether the range [start, end) is the whole of an object of that size, or goes on behind it.

    A server may ignore a Range header and answer with the whole object (RFC 9110, 14.2). Alibaba's OSS does so if the
    range ends behind the object.
    """
    return start == 0 and end is not None and size_bytes <= end


def check_whole(size_bytes: int) -> None:
    """Raise CorruptSegment if an object that is read to its end has more bytes than any segment."""
    if size_bytes > _MAX_WHOLE_BYTES:
        raise CorruptSegment(f"an object of more than {_MAX_WHOLE_BYTES} bytes was to be read whole")


def told_end(start: int, content_range: str | None) -> bool:
    """Whether the Content-Range of an answer 416 tells the object's size. Raises as `check_end`.

    A server need not tell it. Then the size has to be asked for: some servers answer 416 to every range whose end lies
    behind the object.
    """
    size_bytes = total_of(content_range)
    check_end(start, size_bytes)
    return size_bytes is not None


def check_end(start: int, size_bytes: int | None) -> None:
    """Raise StorageUnavailable if an object of that size, None if it is not known, has a byte at `start`.

    An answer 416 is no end then: an index that has bytes would be taken for an empty one.
    """
    if size_bytes is not None and size_bytes > start:
        raise wrong_range(f"the store refuses the range from {start}, where the object has a byte")


def wrong_range(text: str) -> StorageUnavailable:
    """The error about an answer that is not the range that was asked for."""
    hint = "The server, or what stands before it, has to support range requests, and to send ETag or Last-Modified"
    return StorageUnavailable(text, hint=hint)


def range_of(start: int, end: int | None) -> str | None:
    """The Range header for bytes [start, end), None for a whole object."""
    if end is None:
        return None if start == 0 else f"bytes={start}-"
    return f"bytes={start}-{end - 1}"
