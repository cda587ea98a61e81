"""Shares: every byte and offset in exactly one of them, and about as much in each."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.model import UNKNOWN_SIZE, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.plan.shares import Share, Slots, share_out
from tests.searches import examples

MIB = 1 << 20


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(Uuid(bytes(15) + b"\1"), "topic", number)


def segment(number: int, start: int, size_bytes: int, *, offsets: int = 1000) -> RemoteLogSegmentMetadata:
    segment_id = RemoteLogSegmentId(partition(number), Uuid(start.to_bytes(16, "big")))
    return RemoteLogSegmentMetadata(segment_id, start, start + offsets - 1, size_bytes)


def whole(number: int, start: int, size_bytes: int) -> SegmentSlice:
    one = segment(number, start, size_bytes)
    return SegmentSlice(one, one.start_offset, one.end_offset)


def plan(number: int, sizes: list[int]) -> list[PlanStep]:
    return [whole(number, 1000 * at, size) for at, size in enumerate(sizes)]


def pieces_of(shares: tuple[Share, ...]) -> dict[tuple[int, int], list[SegmentSlice]]:
    """The slices of the shares by plan and segment."""
    found: dict[tuple[int, int], list[SegmentSlice]] = {}
    for share in shares:
        for number, step in share.steps:
            assert isinstance(step, SegmentSlice)
            found.setdefault((number, step.segment.start_offset), []).append(step)
    return found


SIZES = st.lists(st.lists(st.integers(0, 5000), max_size=6), max_size=4)


@examples(200)
@given(SIZES, st.integers(1, 9000), st.integers(1, 12))
def test_every_byte_is_in_one_share(sizes: list[list[int]], target_bytes: int, min_shares: int) -> None:
    plans = [plan(number, one) for number, one in enumerate(sizes)]
    shares = share_out(plans, target_bytes, min_shares=min_shares)
    found = pieces_of(shares)
    assert list(found) == sorted((at, step.first_offset) for at, one in enumerate(plans) for step in one)
    for (number, start), pieces in found.items():
        original = plans[number][start // 1000]
        if len(pieces) == 1:
            assert pieces == [original]
            continue
        assert [replace(one, start_position=0, end_position=-1, is_cut=False) for one in pieces] == len(pieces) * [
            original
        ]
        assert all(one.is_cut for one in pieces)
        assert (pieces[0].start_position, pieces[-1].end_position) == (0, -1)
        assert all(0 < left.end_position == right.start_position for left, right in pairwise(pieces))
    assert sum(share.size_bytes for share in shares) == sum(sum(one) for one in sizes)


def test_one_large_partition_beside_small_ones() -> None:
    """One partition has 4 GiB, and 15 others have 3 MiB. No task gets twice as much as another."""
    plans = [plan(0, 4 * [1 << 30]), *(plan(number, [3 * MIB]) for number in range(1, 16))]
    shares = share_out(plans, 64 * MIB)
    sizes = [share.size_bytes for share in shares]
    assert 60 <= len(sizes) <= 70
    assert max(sizes) <= 2 * min(sizes)
    assert max(sizes) <= 1.3 * 64 * MIB


@examples(100)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40), st.integers(8, 64))
def test_shares_are_even(megabytes: list[int], target: int) -> None:
    shares = share_out([plan(0, [size * MIB for size in megabytes])], target * MIB)
    if len(shares) > 1:
        sizes = [share.size_bytes + 1.05 * target * MIB / 64 * len(share.steps) for share in shares]
        assert max(sizes) <= 2 * min(sizes)


def test_tiny_segments_do_not_pile_up() -> None:
    """A task that opens thousands of objects takes longer than its bytes say."""
    shares = share_out([plan(0, 5000 * [100])], 64 * MIB)
    assert max(len(share.steps) for share in shares) <= 80


@pytest.mark.parametrize(
    ("megabytes", "slots", "most", "shares"),
    [
        (60, 8, 0, 1),  # a small topic is not cut for the sake of idle slots
        (300, 8, 0, 5),  # fewer than slots
        (150, 2, 0, 2),  # not three, the last of which would run alone
        (280, 2, 0, 4),  # not five
        (330, 2, 0, 6),
        (6400, 8, 0, 104),
        (700, 8, 0, 8),  # 11 of 64 MiB are nearer to one wave than to two
        (280, 2, 256, 2),  # one wave of larger shares
        (60, 2, 256, 1),
        (2000, 8, 256, 8),
        (6400, 8, 256, 24),  # more waves, because shares grow no further
    ],
)
def test_shares_fill_the_slots(megabytes: int, slots: int, most: int, shares: int) -> None:
    plans = [plan(0, [megabytes * MIB // 2] * 2)]
    assert len(share_out(plans, 64 * MIB, slots=Slots(slots, most * MIB))) == shares


@examples(100)
@given(st.integers(1, 10**13), st.integers(1, 10**9), st.integers(1, 1000), st.integers(0, 10**9))
def test_shares_of_slots_are_neither_large_nor_tiny(total: int, target: int, slots: int, most: int) -> None:
    shares = Slots(slots, most).shares(total, target)
    assert shares < slots or shares % slots == 0
    assert total / shares <= 1.5 * max(target, most)
    if shares > slots:
        assert total / shares >= 0.6 * target


def test_what_the_user_asks_for_counts_more_than_slots() -> None:
    plans = [plan(0, [300 * MIB])]
    for min_shares, max_offsets in [(7, None), (1, 90)]:
        alone = share_out(plans, 64 * MIB, min_shares=min_shares, max_offsets=max_offsets)
        slots = Slots(5, 0)
        assert share_out(plans, 64 * MIB, min_shares=min_shares, max_offsets=max_offsets, slots=slots) == alone
        assert len(alone) % 5


def test_a_part_of_a_segment_is_cut_where_its_offsets_are_likely() -> None:
    (piece,) = plan(0, [1000 * MIB])
    half = replace(piece, first_offset=500)
    shares = share_out([[half]], 100 * MIB)
    positions = [step.start_position for share in shares for _, step in share.steps if isinstance(step, SegmentSlice)]
    assert positions[0] == 0
    assert all(500 * MIB < at < 1000 * MIB for at in positions[1:])
    assert 5 <= len(shares) <= 6


def test_an_unknown_size_counts_as_the_largest_one() -> None:
    shares = share_out([plan(0, [UNKNOWN_SIZE])], 256 * MIB)
    assert len(shares) in (8, 9)
    last = shares[-1].steps[-1][1]
    assert isinstance(last, SegmentSlice)
    assert last.end_position == -1


@pytest.mark.parametrize("min_shares", [1, 7, 40])
def test_at_least_as_many_as_wanted(min_shares: int) -> None:
    shares = share_out([plan(0, [64_000]), plan(1, [64_000])], 64 * MIB, min_shares=min_shares)
    assert min_shares <= len(shares) <= min_shares + 1


@examples(100)
@given(SIZES, st.integers(1, 700), st.integers(1, 9000))
def test_no_share_has_more_offsets_than_allowed(sizes: list[list[int]], max_offsets: int, target_bytes: int) -> None:
    plans = [plan(number, one) for number, one in enumerate(sizes)]
    shares = share_out(plans, target_bytes, max_offsets=max_offsets)
    for share in shares:
        assert sum(step.last_offset - step.first_offset + 1 for _, step in share.steps) <= max_offsets
    found = pieces_of(shares)
    assert list(found) == [(at, step.first_offset) for at, one in enumerate(plans) for step in one]
    for pieces in found.values():
        one = pieces[0].segment
        assert (pieces[0].first_offset, pieces[-1].last_offset) == (one.start_offset, one.end_offset)
        assert all(left.last_offset + 1 == right.first_offset for left, right in pairwise(pieces))
        assert not any(piece.is_cut for piece in pieces)


@examples(100)
@given(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 10**7), st.none() | st.integers(1, 10**5))
def test_broker_ranges_have_shares_of_their_own(
    first: int, offsets: int, target_bytes: int, max_offsets: int | None
) -> None:
    of_broker = BrokerRange(partition(0), first, first + offsets - 1, "not-tiered")
    shares = share_out([[whole(0, 0, 5000), of_broker]], target_bytes, max_offsets=max_offsets)
    ranges = [step for share in shares for _, step in share.steps if isinstance(step, BrokerRange)]
    assert (ranges[0].first_offset, ranges[-1].last_offset) == (first, first + offsets - 1)
    assert all(left.last_offset + 1 == right.first_offset for left, right in pairwise(ranges))
    for share in shares:
        assert len({type(step) for _, step in share.steps}) == 1
    if max_offsets is not None:
        assert all(one.last_offset - one.first_offset < max_offsets for one in ranges)


def test_nothing_gives_no_share() -> None:
    assert share_out([], 1) == share_out([[], []], 100) == ()


def test_not_more_than_there_are_offsets() -> None:
    """A share of fewer bytes than a record has is a task that reads nothing."""
    segments: list[PlanStep] = [SegmentSlice(segment(0, 0, 64_000, offsets=10), 0, 9)]
    assert len(share_out([segments], 64 * MIB, min_shares=5_000)) == 10


@pytest.mark.parametrize("wrong", [{"target_bytes": 0}, {"min_shares": 0}, {"max_offsets": -1}])
def test_numbers_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="have to be positive"):
        share_out([], **{"target_bytes": 1, **wrong})  # type: ignore[arg-type]
