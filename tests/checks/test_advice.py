"""Advice about a tier: each rule on both sides of its limit, and nothing about a tier that has no fault."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from remote_fetch.checks.advice import TierShape, advice
from remote_fetch.checks.check import State

MIB = 1 << 20
SOUND = TierShape(
    segments=100, size_bytes=100 * 512 * MIB, batch_bytes=16_000.0, batch_records=80.0, chunk_bytes=4 * MIB
)
SETTINGS = {
    "segment.bytes": "1073741824", "segment.ms": "604800000", "index.interval.bytes": "4096",
    "local.retention.ms": "3600000", "local.retention.bytes": "-2",
}  # fmt: skip


def named(settings: Mapping[str, str], shape: TierShape) -> list[str]:
    found = list(advice(settings, shape))
    assert all(check.state is State.ADVICE and check.hint for check in found)
    return [check.name for check in found]


def test_a_sound_tier() -> None:
    assert named(SETTINGS, SOUND) == []
    assert named({}, TierShape(segments=0, size_bytes=0)) == []


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (SOUND._replace(size_bytes=100 * 32 * MIB - 1), "segments"),
        (SOUND._replace(batch_bytes=4095.9, batch_records=3.0), "batches"),
        (SOUND._replace(chunk_bytes=MIB - 1), "chunks"),
        (SOUND._replace(chunk_bytes=16 * MIB + 1), "chunks"),
    ],
)
def test_the_shape_of_the_tier(shape: TierShape, name: str) -> None:
    assert named(SETTINGS, shape) == [name]


@pytest.mark.parametrize(
    "shape",
    [
        SOUND._replace(size_bytes=100 * 32 * MIB),
        SOUND._replace(segments=9, size_bytes=9),  # too few to speak of their size
        SOUND._replace(batch_bytes=4096.0),
        SOUND._replace(batch_bytes=None, batch_records=None),
        SOUND._replace(chunk_bytes=MIB),
        SOUND._replace(chunk_bytes=16 * MIB),
        SOUND._replace(chunk_bytes=None),
    ],
)
def test_at_the_limits(shape: TierShape) -> None:
    assert named(SETTINGS, shape) == []


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"index.interval.bytes": "262145"}, ["index"]),
        ({"index.interval.bytes": "262144"}, []),
        ({"local.retention.ms": "-2"}, ["retention"]),
        ({"local.retention.ms": "-2", "local.retention.bytes": "1000"}, []),
    ],
)
def test_settings(settings: Mapping[str, str], names: list[str]) -> None:
    assert named({**SETTINGS, **settings}, SOUND) == names


def test_numbers_are_named() -> None:
    small = SOUND._replace(size_bytes=100 * MIB, batch_bytes=512.0, batch_records=2.5)
    first, second = advice(SETTINGS, small)
    assert "1.0 MiB on average (segment.bytes=1073741824, segment.ms=604800000)" in first.text
    assert "512 B and 2.5 records" in second.text
    (only,) = advice({}, SOUND._replace(size_bytes=100 * MIB))
    assert "on average: each" in only.text
