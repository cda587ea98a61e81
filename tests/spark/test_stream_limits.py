"""How a limit is shared out and where a batch ends, pure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import ConfigError
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.spark.stream_limits import (
    TriggerLimits,
    from_json,
    parse_trigger_limits,
    share_limit,
    size_of,
    stop_after_bytes,
    stop_after_offsets,
    to_json,
)
from tests.scan.bucket import plain_log


def steps(*, more: int = 0) -> list[PlanStep]:
    """All segments of a log as slices, and so many offsets that are the broker's."""
    built = [one.metadata for one in plain_log().segments()]
    slices: list[PlanStep] = [SegmentSlice(one, one.start_offset, one.end_offset) for one in built]
    stop = built[-1].end_offset + 1
    return [*slices, *([BrokerRange(built[0].topic_id_partition, stop, stop + more - 1, "not-tiered")] if more else [])]


def test_options() -> None:
    assert parse_trigger_limits({}) == TriggerLimits(None, None, None, 900_000)
    given = {"MAXoffsetsPerTrigger": "9", "maxBytesPerTrigger": " 10 ", "minOffsetsPerTrigger": "3"}
    assert parse_trigger_limits({**given, "maxTriggerDelay": "30s"}) == TriggerLimits(9, 10, 3, 30_000)
    for none in ("0", "-1"):
        assert parse_trigger_limits({"minOffsetsPerTrigger": none, "maxOffsetsPerTrigger": "+5"}) == TriggerLimits(5)
    delays = {"5": 5, "7ms": 7, "2m": 120_000, "1min": 60_000, "3H": 10_800_000, "1d": 86_400_000}
    delays |= {str(2**63 - 1): 2**63 - 1, "-1s": -1000}  # which never passes, and which always has
    for text, expected in delays.items():
        assert parse_trigger_limits({"maxTriggerDelay": text}).max_delay_ms == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "maxOffsetsPerTrigger must be a number, not '9{200}'$"),
        ({"maxOffsetsPerTrigger": str(2**63)}, "maxOffsetsPerTrigger must be at most 9223372036854775807"),
        ({"minOffsetsPerTrigger": str(-(2**63) - 1)}, "minOffsetsPerTrigger must be at least -9223372036854775808"),
        ({"maxBytesPerTrigger": "1k"}, "maxBytesPerTrigger must be a number, not '1k'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, r"minOffsetPerTrigger\(9\) is higher than"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time"),
        ({"maxTriggerDelay": "9" * 5000}, "maxTriggerDelay must be a time"),
    ],
)
def test_options_that_are_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_trigger_limits(options)


def test_offsets_have_one_order() -> None:
    positions = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3}
    text = json.dumps(to_json(positions))
    assert text == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert from_json(json.loads(text)) == positions


@pytest.mark.parametrize(
    "saved", [None, [], {"a": 3}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": 1.5}}, {"a": {"0": True}}]
)
def test_checkpoints_of_something_else(saved: Any) -> None:
    with pytest.raises(ConfigError, match="the checkpoint has no offsets of Kafka"):
        from_json(saved)


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 10_000), max_size=6), st.integers(1, 20_000))
def test_a_limit_is_kept_and_every_partition_gets_on(sizes: dict[int, int], limit: int) -> None:
    wanted = {("topic", number): size for number, size in sizes.items()}
    shares = share_limit(wanted, limit)
    if sum(wanted.values()) <= limit:
        assert shares == wanted
        return
    assert sum(shares.values()) <= limit + len(shares)
    assert all(1 <= share <= wanted[at] for at, share in shares.items())
    assert shares.keys() == {at for at, size in wanted.items() if size}


@given(st.integers(1, 5_000), st.integers(0, 200))
def test_a_batch_of_so_many_offsets(offsets: int, more: int) -> None:
    found = steps(more=more)
    first, end = found[0].first_offset, found[-1].last_offset + 1
    stop = stop_after_offsets(found, offsets)
    assert first < stop <= min(first + offsets, end)
    assert 2 * (stop - first) >= min(offsets, end - first)


@given(st.integers(0, 2**22), st.integers(0, 200))
def test_a_batch_of_so_many_bytes(limit_bytes: int, more: int) -> None:
    found = steps(more=more)
    first, end = found[0].first_offset, found[-1].last_offset + 1
    stop = stop_after_bytes(found, limit_bytes)
    assert first < stop <= end
    if limit_bytes >= size_of(found):
        assert stop == end
    later = stop_after_bytes(found, limit_bytes * 2 + 1)
    assert later >= stop


def test_a_batch_ends_where_a_segment_does() -> None:
    found = steps()
    edge = found[1].first_offset
    assert isinstance(found[0], SegmentSlice)
    assert stop_after_offsets(found, edge - found[0].first_offset + 3) == edge
    assert stop_after_bytes(found, found[0].segment.segment_size_in_bytes + 5) == edge
    assert stop_after_offsets(found, 3) == found[0].first_offset + 3


def test_what_is_the_brokers_counts_as_what_is_tiered() -> None:
    whole, more = steps(), steps(more=10)
    offsets = whole[-1].last_offset + 1 - whole[0].first_offset
    assert size_of(more) == size_of(whole) + 10 * size_of(whole) // offsets
    assert size_of([more[-1]]) == 10 * 1024
