"""Snapshots of timelines: lossless, small, and safe to load whatever the bytes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines, load_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    MAX_OFFSET,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.strategies import partitions
from tests.searches import examples

ORIGIN = SnapshotOrigin("cluster", Uuid(bytes(range(16))), 50, ((3, 1200), (7, 0)), taken_at_ms=1_700_000_000_000)
ORDERS = TopicIdPartition(Uuid(b"orders----------"), "orders", 4)
HEADER_BYTES = 18

uuids = st.binary(min_size=16, max_size=16).map(Uuid)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
offsets = st.integers(0, MAX_OFFSET)


@st.composite
def segments(draw: st.DrawFn, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    first, last = sorted((draw(offsets), draw(offsets)))
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, draw(uuids)), first, last, draw(int32s), draw(int64s), draw(int64s), draw(int32s),
        tuple(draw(st.lists(st.builds(LeaderEpoch, st.integers(0, 2**31 - 1), int64s), max_size=3))),
        draw(st.none() | st.binary(max_size=30)), draw(st.sampled_from(RemoteLogSegmentState)), draw(st.booleans()),
    )  # fmt: skip


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    partition = draw(partitions())
    drawn = draw(st.lists(segments(partition), max_size=4))
    found = [replace(segment, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED) for segment in drawn]
    found.sort(key=lambda segment: (segment.start_offset, segment.end_offset))
    return Timeline(
        partition, tuple(found), tuple(draw(int64s) for _ in found), draw(int64s), draw(int64s), draw(int64s),
        draw(st.booleans()), tuple(draw(st.lists(segments(partition), max_size=2))),
        tuple(draw(int32s) for _ in found) if draw(st.booleans()) else (),
    )  # fmt: skip


origins = st.builds(
    SnapshotOrigin,
    st.text(max_size=20),
    uuids,
    int32s,
    st.lists(st.tuples(int32s, int64s), max_size=3).map(tuple),
    int64s,
)


@examples(100)
@given(found=st.lists(timelines(), max_size=3), origin=origins)
def test_load_returns_the_dumped_timelines(found: list[Timeline], origin: SnapshotOrigin) -> None:
    data = dump_timelines(found, origin=origin)
    assert load_timelines(data) == (origin, tuple(found))
    assert load_timelines(memoryview(data)) == (origin, tuple(found))


def test_loaded_timelines_answer_like_the_dumped_ones() -> None:
    timeline = long_timeline(50)
    _, (loaded,) = load_timelines(dump_timelines([timeline], origin=ORIGIN))
    assert (loaded.start_offset, loaded.end_offset) == (timeline.start_offset, timeline.end_offset)


def long_timeline(count: int, custom_metadata: bytes | None = None) -> Timeline:
    """An ordinary partition: segments of about a gigabyte, a leader epoch every hundred, ids and times at random."""
    noise = random.Random(count)
    found, start = [], 0
    for number in range(count):
        end = start + 900_000 + noise.randrange(100_000)
        timestamp_ms = 1_700_000_000_000 + number * 600_000 + noise.randrange(60_000)
        found.append(
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(ORDERS, Uuid(noise.randbytes(16))), start, end, 2**30 - noise.randrange(16_384),
                timestamp_ms, timestamp_ms + noise.randrange(30_000), noise.randrange(6),
                (LeaderEpoch(number // 100, start),), custom_metadata, txn_index_empty=True,
            )
        )  # fmt: skip
        start = end + 1
    return Timeline(ORDERS, tuple(found), tuple(range(1, 2 * count, 2)), next_metadata_offset=2 * count)


def test_bytes_per_segment() -> None:
    plain = len(dump_timelines([long_timeline(2000)], origin=ORIGIN)) / 2000
    named = len(dump_timelines([long_timeline(2000, b"some/prefix/orders-id/4/" * 4)], origin=ORIGIN)) / 2000
    assert 16 < plain < 34  # 16 of them are the segment id, which is random
    assert named < plain + 4


def test_a_segment_of_another_partition_is_refused() -> None:
    stranger = replace(long_timeline(1), partition=replace(ORDERS, partition=5))
    with pytest.raises(ValueError, match=r"in the timeline of .*:orders-5"):
        dump_timelines([stranger], origin=ORIGIN)


DATA = dump_timelines([long_timeline(3, b"custom"), long_timeline(1)], origin=ORIGIN)
BODY = zlib.decompress(DATA[HEADER_BYTES:])


def wrapped(
    body: bytes,
    *,
    announced: int | None = None,
    after: bytes = b"",
    cut_bytes: int = 0,
    level: int = -1,
    version: int = 2,
) -> bytes:
    """A snapshot with this body whose checksum is right."""
    compressed = zlib.compress(body, level)
    covered = pack(">Q", len(body) if announced is None else announced)
    covered += compressed[: len(compressed) - cut_bytes] + after
    return pack(">4sHI", b"RFTL", version, zlib.crc32(covered)) + covered


def test_the_test_wraps_a_body_as_dump_does() -> None:
    assert wrapped(BODY) == DATA


@pytest.mark.parametrize("data", [b"", b"RFTL", DATA[: HEADER_BYTES - 1], b"x" + DATA[1:]])
def test_no_snapshot(data: bytes) -> None:
    with pytest.raises(UnsupportedFormat, match="not a snapshot of timelines"):
        load_timelines(data)


def test_another_version() -> None:
    with pytest.raises(UnsupportedFormat, match="version 3; version 1 or 2 is known"):
        load_timelines(DATA[:4] + b"\0\3" + DATA[6:])


def test_a_snapshot_of_version_1_has_no_upload_epochs() -> None:
    timeline = replace(long_timeline(1), upload_epochs=(7,))
    assert load_timelines(dump_timelines([timeline], origin=ORIGIN))[1] == (timeline,)
    body = zlib.decompress(dump_timelines([replace(timeline, upload_epochs=())], origin=ORIGIN)[HEADER_BYTES:])
    count_at = body.index(pack(">6q", 0, 0, 0, 1, 0, 0)) + 40
    old = wrapped(body[:count_at] + body[count_at + 8 :], version=1)
    assert load_timelines(old)[1] == (replace(timeline, upload_epochs=()),)


def test_upload_epochs_of_other_segments_are_refused() -> None:
    body = one_segment_body(long_timeline(1).segments[0])
    count_at = body.index(pack(">6q", 0, 0, 0, 1, 0, 0)) + 40
    with pytest.raises(CorruptSegment, match="2 leader epochs of uploaders for 1 segments"):
        load_timelines(wrapped(body[:count_at] + pack(">q", 2) + body[count_at + 8 :] + bytes(16)))


def test_any_damaged_byte_is_noticed() -> None:
    for at in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[at] ^= 0x10
        with pytest.raises((CorruptSegment, UnsupportedFormat)):
            load_timelines(damaged)
    with pytest.raises(CorruptSegment, match="checksum mismatch"):
        load_timelines(DATA[:-1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wrapped(BODY, announced=len(BODY) - 1), "body is not the"),
        (lambda: wrapped(BODY, announced=len(BODY) + 1), "body is not the"),
        (lambda: wrapped(BODY, after=b"more"), "body is not the"),
        (lambda: wrapped(BODY, cut_bytes=2), "body is not the"),
        (lambda: wrapped(BODY + b"\0"), "1 bytes are left over"),
        (lambda: wrapped(b"", announced=0), "end inside a varint"),
        (lambda: pack(">4sHI", b"RFTL", 2, zlib.crc32(bytes(20))) + bytes(20), "Error -3"),
    ],
)
def test_wrong_bodies(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(CorruptSegment, match=message):
        load_timelines(make())


def test_body_is_bounded_before_it_is_inflated() -> None:
    assert load_timelines(DATA, max_body_bytes=len(BODY))
    with pytest.raises(CorruptSegment, match=f"body of {len(BODY)} bytes, the bound is {len(BODY) - 1}"):
        load_timelines(DATA, max_body_bytes=len(BODY) - 1)
    bomb = wrapped(bytes(1 << 22), announced=100)
    assert len(bomb) < 5000
    with pytest.raises(CorruptSegment, match="body is not the 100 bytes"):
        load_timelines(bomb)


def test_every_cut_body_is_corrupt() -> None:
    for length in range(len(BODY)):
        with pytest.raises(CorruptSegment):
            load_timelines(wrapped(BODY[:length], level=0))


@examples(300)
@given(changes=st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_hostile_bodies_raise_only_our_errors(changes: list[tuple[int, int]]) -> None:
    body = bytearray(BODY)
    for at, byte in changes:
        body[at] = byte
    try:
        load_timelines(wrapped(bytes(body), level=0))
    except CorruptSegment:
        return


def one_segment_body(segment: RemoteLogSegmentMetadata) -> bytes:
    timeline = Timeline(ORDERS, (segment,), (0,))
    return zlib.decompress(dump_timelines([timeline], origin=ORIGIN)[HEADER_BYTES:])


def test_impossible_numbers() -> None:
    plain = long_timeline(1).segments[0]
    known = one_segment_body(plain)
    # The column of a single number is the number: states, epoch counts and sizes of custom metadata stand in a row.
    at = known.index(pack(">qqqq", 1, 1, 1, -1))
    for where, number, message in ((0, 7, "in state 7"), (16, -1, "negative counts"), (24, -2, "negative sizes")):
        changed = known[: at + where] + pack(">q", number) + known[at + where + 8 :]
        with pytest.raises(CorruptSegment, match=message):
            load_timelines(wrapped(changed))


def test_a_small_file_of_very_many_timelines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remote_fetch.locate.snapshot.MAX_TIMELINES", 9)
    found = [Timeline(TopicIdPartition(Uuid(bytes(16)), "t", number), (), ()) for number in range(10)]
    origin = SnapshotOrigin("cluster", Uuid(bytes(16)), 1, ())
    assert len(load_timelines(dump_timelines(found[:9], origin=origin))[1]) == 9
    with pytest.raises(CorruptSegment, match="10 partitions, the bound is 9"):
        load_timelines(dump_timelines(found, origin=origin))
