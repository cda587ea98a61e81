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
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
)
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice
from remote_fetch.plan.saved import dump_plan, load_plan
from remote_fetch.testing.strategies import partitions
from tests.plan.test_ranges import PARTITION, segment
from tests.read.bucket import examples

UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
NUMBERS = st.integers(-1, 2**63 - 1)
PARTITIONS = partitions()
SEGMENTS = st.builds(
    RemoteLogSegmentMetadata,
    st.builds(RemoteLogSegmentId, PARTITIONS, UUIDS),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(st.builds(LeaderEpoch, NUMBERS, NUMBERS), max_size=3).map(tuple),
    st.none() | st.binary(),
    st.sampled_from(RemoteLogSegmentState),
    st.booleans(),
)
STEPS = st.one_of(
    st.builds(BrokerRange, PARTITIONS, NUMBERS, NUMBERS, st.text() | st.sampled_from(Reason)),
    st.builds(SegmentSlice, SEGMENTS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans()),
)


@examples(100)
@given(st.lists(STEPS, max_size=4))
def test_what_is_loaded_equals_what_was_dumped(steps: list[PlanStep]) -> None:
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
