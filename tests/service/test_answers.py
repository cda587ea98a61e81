"""Pages of segments: bounded, complete, and without an end that a client could not pass."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.service.answers import Rank, page_of, segment_json
from tests.locate.timelines import timeline_of
from tests.searches import examples

PARTITION = TopicIdPartition(Uuid(bytes(range(16))), "orders", 0)


def segment(number: int, start: int, end: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))), start, end, 10, event_timestamp_ms=number
    )


def encode(metadata: RemoteLogSegmentMetadata, rank: Rank) -> bytes:
    return str(metadata.segment_id.id).encode()


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40), st.integers(0, 50), st.integers(5, 9))
def test_pages_together_have_every_segment(spans: list[tuple[int, int]], first: int, most: int) -> None:
    """As long as less than eight times a page lie over one offset."""
    timeline = timeline_of(PARTITION, [segment(n, s, s + length) for n, (s, length) in enumerate(spans)])
    found: set[bytes] = set()
    at: int | None = first
    asked = 0
    while at is not None:
        page = page_of(timeline.within(at, 10**6), at, encode, max_segments=most, max_bytes=10**6)
        assert not page.is_crowded
        assert page.next_offset is None or page.next_offset > at
        found.update(page.segments)
        at, asked = page.next_offset, asked + 1
        assert asked < 200
    assert found == {encode(one, Rank(0)) for one in timeline.within(first, 10**6).segments}


def test_a_page_ends_with_its_bytes() -> None:
    timeline = timeline_of(PARTITION, [segment(n, n * 10, n * 10 + 9) for n in range(10)])
    encoded: list[int] = []

    def heavy(metadata: RemoteLogSegmentMetadata, rank: Rank) -> bytes:
        encoded.append(metadata.start_offset)
        return b"x" * 100

    page = page_of(timeline, 0, heavy, max_segments=1000, max_bytes=250)
    assert (len(page.segments), page.next_offset) == (3, 30)
    assert encoded == [0, 10, 20]  # nothing else was encoded, or signed


def test_a_crowd_over_one_offset_is_no_page() -> None:
    timeline = timeline_of(PARTITION, [segment(n, 5, 9) for n in range(100)])
    page = page_of(timeline, 0, encode, max_segments=10, max_bytes=10**6)
    assert (page.segments, page.next_offset, page.is_crowded) == ((), None, True)


def test_a_segment_without_objects_differs_from_one_with_none() -> None:
    metadata = replace(segment(1, 0, 9), custom_metadata=b"")
    assert "objects" not in segment_json(metadata, Rank(4), None)
    assert segment_json(metadata, Rank(4), {})["objects"] == {}
    assert segment_json(metadata, Rank(4), None)["custom_metadata"] == ""
