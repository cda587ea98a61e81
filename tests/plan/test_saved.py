"""Saved plans come back as they were; foreign text is refused with errors of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, RemoteFetchError, UnsupportedFormat
from remote_fetch.model import (
    MAX_OFFSET,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice
from remote_fetch.plan.saved import dump_plan, load_plan
from remote_fetch.testing.strategies import partitions
from tests.plan.test_ranges import PARTITION, segment
from tests.searches import examples

UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
NUMBERS = st.integers(-1, 2**63 - 1)
PARTITIONS = partitions()
OFFSETS = st.integers(0, MAX_OFFSET)


@st.composite
def broker_ranges(draw: st.DrawFn) -> BrokerRange:
    first, last = sorted(draw(st.tuples(OFFSETS, OFFSETS)))
    return BrokerRange(draw(PARTITIONS), first, last, draw(st.text() | st.sampled_from(Reason)))


@st.composite
def slices(draw: st.DrawFn) -> SegmentSlice:
    start, first, last, end = sorted(draw(st.tuples(OFFSETS, OFFSETS, OFFSETS, OFFSETS)))
    found = RemoteLogSegmentMetadata(
        draw(st.builds(RemoteLogSegmentId, PARTITIONS, UUIDS)), start, end, draw(NUMBERS), draw(NUMBERS), draw(NUMBERS),
        draw(NUMBERS), draw(st.lists(st.builds(LeaderEpoch, OFFSETS, NUMBERS), max_size=3).map(tuple)),
        draw(st.none() | st.binary()), draw(st.sampled_from(RemoteLogSegmentState)), draw(st.booleans()),
    )  # fmt: skip
    is_cut = draw(st.booleans())
    entry = draw(st.integers(0, first)) if draw(st.booleans()) else -1
    position = draw(st.integers(0, 2**62)) if entry >= 0 or is_cut else 0
    stop = draw(st.just(-1) | st.integers(position + 1, 2**63 - 1))
    return SegmentSlice(found, first, last, position, stop, entry, draw(NUMBERS), is_cut)


STEPS = broker_ranges() | slices()


def partition_of(step: PlanStep) -> TopicIdPartition:
    return step.partition if isinstance(step, BrokerRange) else step.segment.topic_id_partition


@examples(100)
@given(st.lists(STEPS, max_size=4, unique_by=partition_of))
def test_loaded_steps_equal_dumped_steps(steps: list[PlanStep]) -> None:
    text = dump_plan(steps)
    assert load_plan(text) == tuple(steps)
    assert text.count("\n") == (len(steps) + 2 if steps else 1)


@examples(200)
@given(st.text())
def test_any_text_gives_errors_of_ours(text: str) -> None:
    with pytest.raises(RemoteFetchError):
        load_plan(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@examples(300)
@given(st.data(), JSON)
def test_any_change_gives_a_plan_or_an_error_of_ours(data: st.DataObject, value: Any) -> None:
    saved = json.loads(dump_plan([SegmentSlice(segment(1, 0, 9), 0, 5), BrokerRange(PARTITION, 6, 9, Reason.HOLE)]))
    place: Any = saved
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    with suppress(CorruptSegment, UnsupportedFormat):
        load_plan(json.dumps(saved))


@pytest.mark.parametrize("version", [0, 1, "2", None])
def test_another_version(version: object) -> None:
    with pytest.raises(UnsupportedFormat, match="version 2 is known"):
        load_plan(json.dumps({"version": version, "steps": []}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "3",
        '{"version": 2}',
        '{"version": 2, "steps": [3]}',
        "[" * 100_000,
        '{"version": 2' + "1" * 9999,
    ],
)
def test_no_plan(text: str) -> None:
    with pytest.raises(CorruptSegment, match="not a saved plan"):
        load_plan(text)


def saved_with(**fields: object) -> str:
    """A plan of one slice of offsets 0 to 9, changed as one that lies."""
    saved = json.loads(dump_plan([SegmentSlice(segment(1, 0, 9), 0, 9)]))
    saved["steps"][0] |= fields
    return json.dumps(saved)


@pytest.mark.parametrize(
    "fields",
    [
        {"first_offset": -1},
        {"first_offset": 5, "last_offset": 4},
        {"last_offset": 10},
        {"last_offset": 10**300},
        {"positions": [-1, -1]},
        {"positions": [0, 0]},
        {"positions": [200, 100], "entries": [0, -1]},
        {"positions": [200, -1]},
        {"positions": [200, -1], "entries": [4, -1]},
    ],
    ids=str,
)
def test_a_slice_that_planning_does_not_make(fields: dict[str, object]) -> None:
    """Without the offset of an index entry, a wrong start position would lose records unnoticed."""
    with pytest.raises(CorruptSegment, match="not a saved plan"):
        load_plan(saved_with(**fields))


def test_steps_that_have_offsets_twice() -> None:
    once = SegmentSlice(segment(1, 0, 9), 0, 9)
    with pytest.raises(CorruptSegment, match="follows"):
        load_plan(dump_plan([once, BrokerRange(PARTITION, 9, 12, Reason.HOLE)]))
    assert len(load_plan(dump_plan([once, BrokerRange(PARTITION, 10, 12, Reason.HOLE)]))) == 2


def test_bytes_in_the_store_are_for_readers_of_the_text() -> None:
    one, two = segment(1, 0, 9), segment(2, 10, 19)
    steps = (SegmentSlice(one, 0, 9), SegmentSlice(two, 10, 19))
    text = dump_plan(steps, lambda asked: 77 if asked == one else None)
    assert [step["segment"].get("stored_bytes") for step in json.loads(text)["steps"]] == [77, None]
    assert load_plan(text) == steps
