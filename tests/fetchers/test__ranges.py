"""The headers of a range: what is asked for, and what an answer says that it holds."""

from __future__ import annotations

from fetchers._ranges import ContentRange, range_of
from tests.cases import each_of


@each_of(
    ("start", "end", "header"),
    [(0, None, None), (5, None, "bytes=5-"), (0, 10, "bytes=0-9"), (5, 6, "bytes=5-5")],
)
def test_the_header_that_asks(start: int, end: int | None, header: str | None) -> None:
    assert range_of(start, end) == header


@each_of(
    ("header", "found"),
    [
        ("bytes 0-9/100", (0, 9, 100)),
        ("bytes 0-9/*", (0, 9, None)),
        ("bytes 100-99/100", (100, 99, 100)),
        ("bytes */100", None),
        ("bytes 0-9", None),
        ("items 0-9/100", None),
        ("bytes 0-9/100, bytes 20-29/100", None),
        ("", None),
        (None, None),
    ],
)
def test_the_header_that_answers(header: str | None, found: tuple[int, int, int | None] | None) -> None:
    assert ContentRange.parse(header) == found


def test_an_answer_at_the_end_of_the_object() -> None:
    assert ContentRange(100, 99, 100).is_end(100)
    assert not ContentRange(100, 99, None).is_end(100)
    assert not ContentRange(100, 99, 101).is_end(100)
    assert not ContentRange(100, 99, 100).is_end(99)
    assert not ContentRange(100, 100, 100).is_end(100)


@each_of(
    "header, start, end, size_bytes",
    [
        ("bytes 0-9/100", 0, 10, 10),
        ("bytes 0-9/*", 0, 10, 10),
        ("bytes 90-99/100", 90, 200, 10),  # the end of the object
        ("bytes 90-99/100", 90, None, 10),
        ("bytes 100-99/100", 100, 200, 0),
        ("bytes 0-8/100", 0, 10, None),  # cut off
        ("bytes 0-8/*", 0, 10, None),  # perhaps cut off
        ("bytes 0-8/*", 0, None, None),
        ("bytes 0-10/100", 0, 10, None),
        ("bytes 1-9/100", 0, 10, None),
        ("bytes 0-9/5", 0, 10, None),  # more than there is
        ("bytes 9-8/9", 0, 9, None),
    ],
)
def test_bytes_that_were_asked_for(header: str, start: int, end: int | None, size_bytes: int | None) -> None:
    found = ContentRange.parse(header)
    assert found is not None
    assert found.size_of(start, end) == size_bytes
