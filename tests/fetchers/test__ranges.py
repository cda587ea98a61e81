"""The headers of a range: what is asked for, and what an answer says that it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers._ranges import ContentRange, range_of, size_of_range
from remote_fetch.errors import CorruptSegment, StorageUnavailable
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
        ("bytes 9-4/5", 9, 20, None),  # less than no byte
    ],
)
def test_bytes_that_were_asked_for(header: str, start: int, end: int | None, size_bytes: int | None) -> None:
    found = ContentRange.parse(header)
    assert found is not None
    assert found.size_of(start, end) == size_bytes


def test_the_whole_object_that_names_a_range_of_it() -> None:
    with pytest.raises(StorageUnavailable, match="bytes 5 to 9 of 100"):
        size_of_range(0, 20, "bytes 5-9/100", 5)


@given(st.integers(0, 100), st.none() | st.integers(1, 200), st.integers(1, 100), st.booleans())
def test_the_range_that_was_asked_for(start: int, end: int | None, total: int, tells_total: bool) -> None:
    """Every true answer of a server is understood. An answer that is one byte off is refused.

    So is one without the object's size, unless it ends where it was asked to end.
    """
    if start >= total or (end is not None and end <= start):
        return
    stop = total if end is None else min(end, total)
    known = total if tells_total else "*"
    if range_of(start, end) is None:
        assert size_of_range(start, end, None, total) == total
        return
    wrong = [(start + 1, stop - 1), (start + 1, stop), (start, stop), (start, stop - 2)]
    if tells_total or stop == end:
        assert size_of_range(start, end, f"bytes {start}-{stop - 1}/{known}", None) == stop - start
    else:
        wrong.append((start, stop - 1))
    for first, last in wrong:
        if not tells_total and last + 1 == end and first == start:
            continue  # the object may be longer
        with pytest.raises(StorageUnavailable):
            size_of_range(start, end, f"bytes {first}-{last}/{known}", None)


@each_of("header", [None, "", "bytes */100", "bytes 5-9", "items 5-9/100", "bytes 5-9/100 "])
def test_an_answer_that_does_not_say_which_range_it_is(header: str | None) -> None:
    with pytest.raises(StorageUnavailable, match="without saying which"):
        size_of_range(5, 10, header, 5)


def test_the_whole_object_is_a_range_that_goes_on_behind_it() -> None:
    """Alibaba's OSS answers so, with the status 200. Of another status the length is not given."""
    assert [size_of_range(0, end, None, 5) for end in (5, 6)] == [5, 5]
    for start, end, size_bytes in ((0, 4, 5), (1, 9, 5), (5, 9, 5), (0, 5, None)):
        with pytest.raises(StorageUnavailable, match="without saying which"):
            size_of_range(start, end, None, size_bytes)


def test_an_empty_answer_at_the_end() -> None:
    assert size_of_range(100, 110, "bytes 100-99/100", None) == 0
    with pytest.raises(StorageUnavailable):
        size_of_range(90, 110, "bytes 90-89/100", None)


@each_of(
    ("start", "content_range", "content_length"),
    [(0, None, 2**31 + 1), (0, f"bytes 0-{2**31}/{2**31 + 1}", 1), (5, f"bytes 5-{2**62}/{2**62 + 1}", 1)],
)
def test_an_object_is_longer_than_any_segment(start: int, content_range: str | None, content_length: int) -> None:
    """Memory is taken for an object that is read to its end as its headers say."""
    with pytest.raises(CorruptSegment, match="was to be read whole"):
        size_of_range(start, None, content_range, content_length)
    assert size_of_range(0, None, None, 2**31) == 2**31


def test_a_whole_object_of_unknown_size() -> None:
    with pytest.raises(StorageUnavailable, match="how long"):
        size_of_range(0, None, None, None)


@each_of("header", ["bytes 0-9/100", "bytes 5-99/100", "bytes 0-99/*", "x"])
def test_a_part_is_no_whole_object(header: str) -> None:
    """No range was asked for, and what stands before the store made one."""
    assert size_of_range(0, None, "bytes 0-99/100", 100) == 100
    with pytest.raises(StorageUnavailable, match=r"not asked for|without saying which"):
        size_of_range(0, None, header, 10)
