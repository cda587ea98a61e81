"""The last offset of a segment: with a good index, with none, with a wrong one, and of damaged objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote_fetch.errors import CorruptSegment, SegmentNotFound
from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.locate.last_offset import last_offset_of
from remote_fetch.model import UNKNOWN_SIZE, IndexType
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions, encode_offset_index
from tests.cases import each_of
from tests.locate.bucket_reader import BucketReader
from tests.scan.bucket import DENSE, Bucket, plain_log


@each_of("range_bytes", [1, 10, 103, 206, 824, 10**6])
@each_of("options", [SegmentOptions(), DENSE])
@each_of("known", [True, False])
def test_whatever_the_ranges(range_bytes: int, options: SegmentOptions, known: bool) -> None:
    bucket = Bucket(plain_log().segments(options))
    segment = bucket.at(1) if known else replace(bucket.at(1), segment_size_in_bytes=UNKNOWN_SIZE)
    assert last_offset_of(segment, BucketReader(bucket, range_bytes)) == 39


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        (None, ["missing"]),
        (b"1234567", ["corrupt"]),
        (b"", []),
        (encode_offset_index([(4, 100)]), ["misleading"]),
    ],
)
def test_without_a_usable_index(data: bytes | None, reasons: list[str]) -> None:
    bucket = Bucket(plain_log().segments())
    bucket.write_index(0, IndexType.OFFSET, data)
    reader = BucketReader(bucket)
    assert last_offset_of(bucket.at(0), reader) == 19
    assert reader.without_index == reasons
    assert reader.asked[-1][0] == 0


def test_an_index_with_two_readings_that_leads_astray() -> None:
    bucket = Bucket(plain_log(segments=1, batches=4, value_bytes=10).segments())
    # As 8-byte entries (1, 0) (2, 2) (3, 3); as 12-byte ones (1, 2) (2, 3 * 2**32 + 3).
    bucket.write_index(0, IndexType.OFFSET, b"".join(n.to_bytes(4, "big") for n in (1, 0, 2, 2, 3, 3)))
    reader = BucketReader(bucket)
    assert last_offset_of(replace(bucket.at(0), segment_size_in_bytes=UNKNOWN_SIZE), reader) == 19
    assert reader.without_index == ["misleading"]


def test_the_size_of_the_object_tells_two_readings_apart() -> None:
    log = plain_log(segments=1, batches=4)
    bucket = Bucket(log.segments())
    batch = len(log.batches[0].data)
    entries = ((9, batch), (14, 2 * batch), (19, 3 * batch))  # as 12-byte ones far beyond the object
    bucket.write_index(0, IndexType.OFFSET, b"".join(n.to_bytes(4, "big") for entry in entries for n in entry))
    reader = BucketReader(bucket)
    assert last_offset_of(bucket.at(0), reader) == 19
    assert reader.asked == [(3 * batch, 4 * batch + 1)]


@pytest.mark.parametrize("size_bytes", [-1, 0, 1, 300, 824, 10**6])
def test_a_size_that_was_listed_wrong(size_bytes: int) -> None:
    bucket = Bucket(plain_log().segments())
    listed = replace(bucket.at(2), segment_size_in_bytes=size_bytes)
    assert len(bucket.log(2)) == 824
    if size_bytes > 824:
        with pytest.raises(CorruptSegment, match="ends at byte 824, but was listed with 1000000 bytes"):
            last_offset_of(listed, BucketReader(bucket))
    else:
        assert last_offset_of(listed, BucketReader(bucket)) == 59


@each_of("size_bytes", [0, UNKNOWN_SIZE])
@each_of("end", [0, 412, 618])
def test_an_object_of_unknown_size_that_ends_before_its_index_does(size_bytes: int, end: int) -> None:
    bucket = Bucket(plain_log().segments(DENSE))
    cut = replace(bucket.at(1), segment_size_in_bytes=size_bytes)
    bucket.write(1, bucket.log(1)[:end])
    with pytest.raises(CorruptSegment, match=f"ends at byte {end}, but its offset index knows a batch at 618"):
        last_offset_of(cut, BucketReader(bucket))


@each_of("is_known", [True, False])
def test_an_object_that_ends_before_its_index_with_two_readings_does(is_known: bool) -> None:
    log = LogBuilder()
    for _ in range(4):
        log.append_batch([Record(0, value=bytes(10_000))], last_offset_delta=5999)
    log.roll()
    bucket = Bucket(log.segments(DENSE))
    bucket.write(0, bucket.log(0)[: len(bucket.log(0)) // 2])
    cut = replace(bucket.at(0), segment_size_in_bytes=len(bucket.log(0)) if is_known else UNKNOWN_SIZE)
    index = bucket.fetch_index(cut, IndexType.OFFSET)
    assert index is not None
    assert OffsetIndex.parse(index, 0).ambiguous
    with pytest.raises(CorruptSegment, match="its offset index knows a batch at"):
        last_offset_of(cut, BucketReader(bucket))


def test_a_segment_that_is_cut() -> None:
    bucket = Bucket(plain_log().segments())
    bucket.write(1, bucket.log(1)[:-1])
    (cut,) = [s for s in bucket.list_segments() if s.start_offset == 20]
    with pytest.raises(CorruptSegment, match=r"end inside a batch.*topic-0, object 00000000000000000020-"):
        last_offset_of(cut, BucketReader(bucket))


def test_a_segment_that_ends_before_its_index_does() -> None:
    bucket = Bucket(plain_log().segments(DENSE))
    bucket.write(1, bucket.log(1)[:412])
    (cut,) = [s for s in bucket.list_segments() if s.start_offset == 20]
    with pytest.raises(CorruptSegment, match=r"has 412 bytes, but its offset index knows a batch at 618"):
        last_offset_of(cut, BucketReader(bucket))


@pytest.mark.parametrize("offset", [20, 34, 20 + 2**31, 0xFF << 32, -1])
def test_a_last_batch_with_an_impossible_offset(offset: int) -> None:
    """No checksum covers it: it has to rise, and not by more than an index can count."""
    bucket = Bucket(plain_log().segments())
    data = bucket.log(1)
    last_batch = len(data) - len(data) // 4
    bucket.write(1, data[:last_batch] + offset.to_bytes(8, "big", signed=True) + data[last_batch + 8 :])
    with pytest.raises(CorruptSegment):
        last_offset_of(bucket.at(1), BucketReader(bucket))


def test_a_segment_that_is_gone() -> None:
    bucket = Bucket(plain_log().segments())
    gone = bucket.at(2)
    bucket.drop(2)
    with pytest.raises(SegmentNotFound, match="topic-0"):
        last_offset_of(gone, BucketReader(bucket))
