"""Cuts: both neighbours find the same place, whatever has become of the index."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.config import Config
from remote_fetch.errors import CorruptSegment, SegmentNotFound
from remote_fetch.model import UNKNOWN_SIZE, IndexType, RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.prepare.cuts import settle_cut
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions, encode_offset_index
from remote_fetch.testing.strategies import logs, segment_options
from tests.scan.bucket import DENSE, Bucket, DamagingBucket, plain_log
from tests.searches import examples


def parts(session: Session, piece: SegmentSlice, cuts: list[int]) -> list[SegmentSlice | None]:
    """A slice that is cut at bytes. The offsets of each part are found without the other parts."""
    edges = [0, *cuts, -1]
    return [
        settle_cut(session.storage, replace(piece, start_position=low, end_position=high, is_cut=True))
        for low, high in pairwise(edges)
    ]


def bounds(found: list[SegmentSlice | None]) -> list[tuple[int, int] | None]:
    return [None if one is None else (one.first_offset, one.last_offset) for one in found]


@examples(150)
@given(logs(), segment_options(), st.data())
def test_a_batch_belongs_where_it_begins(log: LogBuilder, options: SegmentOptions, data: st.DataObject) -> None:
    for built in log.tiered(options):
        bucket = Bucket([built])
        end = len(built.log) + 10
        cuts = sorted(data.draw(st.sets(st.integers(1, end), max_size=4), label="cuts"))
        piece = SegmentSlice(built.metadata, built.metadata.start_offset, built.metadata.end_offset)
        with Session(Config.parse({"fetch.remote.range.bytes": 1024}), bucket) as session:
            found = parts(session, piece, cuts)
            bucket.write_index(0, IndexType.OFFSET, None)
            assert bounds(parts(session, piece, cuts)) == bounds(found)
        taken = [one for one in found if one is not None]
        assert taken[0].first_offset == piece.first_offset
        assert taken[-1].last_offset <= piece.last_offset
        position, owners = 0, []
        inside = [b for b in log.batches if b.data and piece.first_offset <= b.base_offset <= piece.last_offset]
        for batch in inside:
            owners.append(sum(cut <= position for cut in cuts))
            position += len(batch.data)
        for batch, owner in zip(inside, owners, strict=True):
            mine = found[owner]
            assert mine is not None
            assert mine.first_offset <= batch.base_offset
            assert batch.last_offset <= mine.last_offset


@pytest.mark.parametrize("damage", ["none", "other entries", "no index", "odd bytes"])
def test_a_damaged_index_changes_nothing(damage: str) -> None:
    (segment,) = plain_log(segments=1, batches=12).segments(DENSE)
    bucket = Bucket([segment])
    batch_bytes = len(segment.log) // 12
    wrong = {
        "none": segment.offset_index,
        "other entries": encode_offset_index([(7, batch_bytes - 9), (22, 3 * batch_bytes + 1)]),
        "no index": None,
        "odd bytes": b"\1\2\3",
    }[damage]
    bucket.write_index(0, IndexType.OFFSET, wrong)
    with Session(Config.parse({}), bucket) as session:
        found = parts(session, SegmentSlice(segment.metadata, 0, 59), [batch_bytes, 4 * batch_bytes + 1])
        scans = session.counters.report().scans
    assert bounds(found) == [(0, 4), (5, 24), (25, 59)]
    assert bool(scans) == (damage != "none")


def test_a_part_in_which_no_batch_begins() -> None:
    (segment,) = plain_log(segments=1, batches=1).segments()
    with Session(Config.parse({}), Bucket([segment])) as session:
        found = parts(session, SegmentSlice(segment.metadata, 0, 4), [10, 20])
    assert bounds(found) == [(0, 4), None, None]


def test_a_part_of_one_offset_is_read_from_its_own_bytes_on() -> None:
    (segment,) = plain_log(segments=1, batches=3, records=1).segments(DENSE)
    batch_bytes = len(segment.log) // 3
    with Session(Config.parse({}), Bucket([segment])) as session:
        found = parts(session, SegmentSlice(segment.metadata, 0, 2), [batch_bytes, 2 * batch_bytes])
    assert bounds(found) == [(0, 0), (1, 1), (2, 2)]
    assert [one.start_position for one in found if one is not None] == [0, batch_bytes, 2 * batch_bytes]


def test_an_index_that_can_be_read_in_two_ways_moves_no_cut() -> None:
    """Its 8-byte entries are also valid ones with 12 bytes. The bytes decide, and each part counts that once."""
    log = LogBuilder()
    for _ in range(4):
        log.append_batch([Record(n * 3000, value=bytes(5000)) for n in range(2)], last_offset_delta=5999)
    log.roll()
    (segment,) = log.segments(DENSE)
    piece = SegmentSlice(replace(segment.metadata, segment_size_in_bytes=UNKNOWN_SIZE), 0, 23_999)
    with Session(Config.parse({}), Bucket([segment])) as session:
        assert bounds(parts(session, piece, [len(segment.log) // 2])) == [(0, 11_999), (12_000, 23_999)]
        assert session.counters.report().ties == {"8-byte": 1}


def test_offsets_that_are_not_wanted_stay_out() -> None:
    (segment,) = plain_log(segments=1, batches=4).segments(DENSE)
    half = len(segment.log) // 2
    with Session(Config.parse({}), Bucket([segment])) as session:
        assert bounds(parts(session, SegmentSlice(segment.metadata, 7, 11), [half])) == [(7, 9), (10, 11)]
        assert bounds(parts(session, SegmentSlice(segment.metadata, 2, 6), [half])) == [(2, 6), None]


def test_damage_before_the_cut_is_an_error() -> None:
    (segment,) = plain_log(segments=1, batches=4).segments()
    bucket = Bucket([segment])
    bucket.flip(0, 70)
    with Session(Config.parse({}), bucket) as session, pytest.raises(CorruptSegment) as caught:
        parts(session, SegmentSlice(segment.metadata, 0, 19), [200])
    assert (caught.value.topic, caught.value.partition) == ("topic", 0)
    assert caught.value.object_name is not None


@pytest.mark.parametrize("damages", [1, 2])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("at", "words"), [(2, "in a segment of offsets 0 to 19"), (7, "follows one that ends with")])
def test_an_offset_that_was_damaged_on_the_way_moves_no_cut(at: int, words: str, dense: bool, damages: int) -> None:
    """No checksum covers it. A batch far behind the segment is no end of the segment before the cut.

    One that begins a little too late has its end among the offsets of the next batch, right behind the cut.
    """
    log = plain_log(segments=1, batches=4)
    (segment,) = log.segments(DENSE) if dense else log.segments()
    batch_bytes = len(segment.log) // 4
    cut, wanted = (2 * batch_bytes, [(0, 9), (10, 19)]) if dense else (batch_bytes, [(0, 4), (5, 19)])

    class Damaging(Bucket):
        left = damages

        def fetch_log_segment(
            self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
        ) -> memoryview:
            data = super().fetch_log_segment(metadata, start_position, end_position)
            if not self.left:
                return data
            self.left -= 1
            return memoryview(bytes(data[:at]) + bytes([data[at] + 2]) + bytes(data[at + 1 :]))

    with Session(Config.parse({}), Damaging([segment])) as session:
        piece = SegmentSlice(segment.metadata, 0, 19)
        if damages == 1:
            assert bounds(parts(session, piece, [cut])) == wanted
        else:
            with pytest.raises(CorruptSegment, match=words):
                parts(session, piece, [cut])
        report = session.counters.report()
    assert bool(report.scans) == dense
    assert sum(report.rereads.values()) == (not dense)


def test_the_batch_right_behind_a_cut_shows_a_damaged_offset_before_it() -> None:
    """The range ends a header behind the cut, and no second one is fetched for it."""
    (segment,) = plain_log(segments=1, batches=4).segments()
    batch_bytes = len(segment.log) // 4

    class Recording(DamagingBucket):
        asked: ClassVar[list[tuple[int, int]]] = []

        def fetch_log_segment(
            self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
        ) -> memoryview:
            data = super().fetch_log_segment(metadata, start_position, end_position)
            self.asked.append((start_position, len(data)))
            return data

    bucket = Recording(segment, 2 * batch_bytes + 7, lambda byte: byte + 1)
    bucket.write_index(0, IndexType.OFFSET, encode_offset_index([(9, batch_bytes), (19, 3 * batch_bytes)]))
    piece = SegmentSlice(segment.metadata, 0, 19, end_position=3 * batch_bytes, is_cut=True)
    with Session(Config.parse({}), bucket) as session:
        for _ in range(2):
            assert bounds([settle_cut(session.storage, piece)]) == [(0, 14)]
    near = (batch_bytes, 2 * batch_bytes + 61)
    assert bucket.asked == [near, (0, len(segment.log)), near]


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("bit", range(4))
@pytest.mark.parametrize("number", range(4))
def test_an_offset_that_stays_in_the_segment_moves_no_cut(number: int, bit: int, dense: bool) -> None:
    """The header after the batch tells, or the index entry that led to it."""
    log = plain_log(segments=1, batches=4)
    (segment,) = log.segments(DENSE) if dense else log.segments()
    batch_bytes = len(segment.log) // 4
    for before in range(1, 4):
        piece = SegmentSlice(segment.metadata, 0, 19, start_position=before * batch_bytes, is_cut=True)
        bucket = DamagingBucket(segment, number * batch_bytes + 7, lambda byte: byte ^ 1 << bit)
        with Session(Config.parse({}), bucket) as session:
            assert bounds([settle_cut(session.storage, piece)]) == [(5 * before, 19)]


@pytest.mark.parametrize("damages", [0, 1, 2])
@pytest.mark.parametrize("gap", [(15, 19), (15, 24)])
def test_a_gap_at_an_inferred_end_moves_no_cut(gap: tuple[int, int], damages: int) -> None:
    """Another leader's segment begins at 20. The last part has the gap, and the broker gives it where it is read."""
    log = plain_log(segments=1, batches=3)
    log.take_out(gap[1] - gap[0] + 1)
    for _ in range(3):
        log.append_batch([Record(n, value=b"v") for n in range(5)])
    log.roll()
    built = log.segments(cuts=[0, log.next_offset])[0]
    piece = SegmentSlice(replace(built.metadata, end_offset=19), 0, 19)
    batch_bytes = len(plain_log(segments=1, batches=1).segments()[0].log)
    bucket = DamagingBucket(built, batch_bytes + 2, lambda byte: byte + 2, damages)
    with Session(Config.parse({}), bucket) as session:
        edges = [0, 2 * batch_bytes, len(built.log) - 10, -1]
        pieces = [replace(piece, start_position=a, end_position=b, is_cut=True) for a, b in pairwise(edges)]
        if damages == 2:
            with pytest.raises(CorruptSegment, match="follows one that ends with"):
                settle_cut(session.storage, pieces[0], end_is_inferred=True)
        found = [settle_cut(session.storage, one, end_is_inferred=True) for one in pieces]
        assert bounds(found) == [(0, 9), (10, 14), (15, 19)]
        with pytest.raises(CorruptSegment, match="in a segment of offsets 0 to 19"):
            settle_cut(session.storage, pieces[1])


def test_an_index_that_goes_on_behind_an_inferred_end() -> None:
    """The object goes on too. A cut there lies behind the last batch before the end, which the index shows."""
    (segment,) = plain_log(segments=1, batches=40, value_bytes=400).segments(DENSE)
    size, metadata = len(segment.log), replace(segment.metadata, end_offset=99)
    with Session(Config.parse({"fetch.remote.range.bytes": 4096}), Bucket([segment])) as session:
        edges = [size // 4, size * 3 // 4, -1]
        pieces = [
            SegmentSlice(metadata, 0, 99, start_position=a, end_position=b, is_cut=True) for a, b in pairwise(edges)
        ]
        assert bounds([settle_cut(session.storage, one, end_is_inferred=True) for one in pieces]) == [(50, 99), None]
        assert session.counters.report().scans == {}


def test_an_object_that_is_gone_is_an_error() -> None:
    (segment,) = plain_log(segments=1).segments()
    bucket = Bucket([segment])
    bucket.drop(0)
    with Session(Config.parse({}), bucket) as session, pytest.raises(SegmentNotFound):
        parts(session, SegmentSlice(segment.metadata, 0, 19), [200])


class MeetingBucket(Bucket):
    """A bucket that answers only where two ask at the same time."""

    _two = threading.Barrier(2, timeout=60)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        self._two.wait()
        return super().fetch_log_segment(metadata, start_position, end_position)


def test_both_cuts_of_a_part_are_looked_for_at_the_same_time() -> None:
    (segment,) = plain_log(segments=1, batches=12).segments(DENSE)
    batch_bytes = len(segment.log) // 12
    piece = SegmentSlice(segment.metadata, 0, 59, start_position=batch_bytes, end_position=4 * batch_bytes, is_cut=True)
    with Session(Config.parse({}), MeetingBucket([segment])) as session:
        assert bounds([settle_cut(session.storage, piece)]) == [(5, 19)]
