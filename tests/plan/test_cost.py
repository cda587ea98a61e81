"""The cost of a plan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.model import UNKNOWN_SIZE
from remote_fetch.plan.cost import PlanCost, estimate
from remote_fetch.plan.gets import Ramp, bytes_of_records
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice
from tests.plan.test_ranges import PARTITION, segment


def test_gets_and_bytes() -> None:
    one, two = segment(1, 0, 9, size_bytes=1000), segment(2, 10, 19, size_bytes=999)
    steps: list[PlanStep] = [
        SegmentSlice(one, 0, 4, 0, 501),
        SegmentSlice(one, 5, 9, 501),
        SegmentSlice(two, 10, 19),
        BrokerRange(PARTITION, 20, 29, Reason.HOLE),
        SegmentSlice(replace(two, segment_size_in_bytes=UNKNOWN_SIZE), 30, 39),
    ]
    cost = estimate([steps], 500)
    assert cost == PlanCost(gets=2 + 1 + 2, size_bytes=1999, segments=2, broker_offsets=10, unknown_slices=1)
    assert cost.mean_bytes_per_get == 1999 / 5


def test_several_gets_end_at_multiples_of_their_size() -> None:
    """A slice that begins in the middle of a range has a short one first."""
    one = segment(1, 0, 9, size_bytes=1000)
    bounds = ((0, 600), (299, 601), (299, 599), (7, 7), (1, 301), (1, 302))
    gets = [estimate([[SegmentSlice(one, 0, 4, start, end)]], 300).gets for start, end in bounds]
    assert gets == [2, 3, 1, 0, 1, 2]


def test_the_first_ranges_are_small() -> None:
    """The first GETs are small again in each read, and after a range of the broker."""
    one = segment(1, 0, 9, size_bytes=64 << 20)
    piece = SegmentSlice(one, 0, 9)
    assert estimate([[piece]], 8 << 20).gets == 4 + 7, "up to 1, 2, 4 and 8 MiB, and then 8 each"
    assert estimate([[piece, piece]], 8 << 20).gets == 11 + 8
    assert estimate([[piece], [piece]], 8 << 20).gets == 22
    assert estimate([[piece, BrokerRange(PARTITION, 20, 29, Reason.HOLE), piece]], 8 << 20).gets == 22


@given(st.integers(1, 40), st.integers(0, 500), st.integers(0, 500), st.integers(0, 3))
def test_gets_are_counted_as_they_are_made(range_mib: int, start: int, more: int, before: int) -> None:
    ramp, counting, sizes = Ramp(range_mib << 20), Ramp(range_mib << 20), []
    for one in (ramp, counting):
        for _ in range(before):
            one.end_of(0, 1)
    position, stop = start << 18, (start + more) << 18
    while position < stop:
        end = ramp.end_of(position, stop)
        sizes.append(end - position)
        position = end
    assert counting.count(start << 18, stop) == len(sizes)
    assert position == max(start << 18, stop)
    assert all(0 < size <= range_mib << 20 for size in sizes)


def test_nothing() -> None:
    assert estimate([], 500) == PlanCost(0, 0, 0, 0, 0)
    assert estimate([], 500).mean_bytes_per_get == 0


def test_bytes_in_the_store() -> None:
    """A slice has its part of them, and a segment that does not tell counts with its size."""
    one, two = segment(1, 0, 9, size_bytes=1000), segment(2, 10, 19, size_bytes=600)
    unknown = replace(one, segment_size_in_bytes=UNKNOWN_SIZE)
    steps = [SegmentSlice(one, 0, 4, 0, 500), SegmentSlice(two, 10, 19), SegmentSlice(unknown, 0, 9)]
    told = {one.segment_id: 100}
    assert estimate([steps], 500, lambda asked: told.get(asked.segment_id)).stored_bytes == 50 + 600
    assert estimate([steps], 500).stored_bytes is None
    assert estimate([steps[1:]], 500, lambda asked: told.get(asked.segment_id)).stored_bytes is None


def test_a_read_of_a_few_records_begins_with_a_small_get() -> None:
    ramp, position, ends = Ramp(8 << 20, 64 << 10), 1000, []
    while position < 20 << 20:
        position = ramp.end_of(position, 20 << 20)
        ends.append(position)
    kib = 1 << 10
    assert ends == [
        1000 + 64 * kib, 1000 + 320 * kib, 1000 + 1344 * kib, 1000 + 5440 * kib, 8192 * kib, 16384 * kib, 20480 * kib
    ]  # fmt: skip
    assert Ramp(8 << 20, 64 << 10).end_of(0, 1000) == 1000


def test_the_first_get_is_as_large_as_the_records_are_likely_to_be() -> None:
    mean_1000 = segment(1, 0, 9_999, size_bytes=10_000_000)
    assert bytes_of_records(3, mean_1000) == 64 << 10
    assert bytes_of_records(200, mean_1000) == 250_000
    assert bytes_of_records(1000, mean_1000) is None, "ordinary GETs"
    assert bytes_of_records(1000, replace(mean_1000, segment_size_in_bytes=UNKNOWN_SIZE)) == 64 << 10
