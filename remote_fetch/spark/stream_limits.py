"""How much one micro-batch takes: the trigger options of Spark's Kafka source, and offsets as it writes them.

Rules of the file:

- Pure.
- A limit is divided among partitions in proportion to their available records, as Spark's source does.
- A batch ends at the end of a segment, if that leaves it at least half of its share.
- Every batch makes progress.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from remote_fetch.errors import ConfigError
from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.spark.options import number_of

__all__ = [
    "Positions",
    "TriggerLimits",
    "from_json",
    "parse_trigger_limits",
    "share_limit",
    "size_of",
    "stop_after_bytes",
    "stop_after_offsets",
    "to_json",
]

Positions: TypeAlias = "dict[tuple[str, int], int]"
"""The next offset to read, by topic and partition."""

_DELAY = re.compile(r"\s*(-?\d{1,19})\s*(us|ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_MILLIS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_OFFSET_BYTES = 1024
"""The bytes that an offset counts for, if its partition has nothing in the tier."""


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The most that a micro-batch takes, and the least that it waits for; None: no such limit.

    `max_bytes` are bytes of segments. An offset read through the broker counts as the average offset of its partition
    in the tier. With fewer than `min_offsets` a batch waits, until `max_delay_ms` after the batch before it.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000


def parse_trigger_limits(options: Mapping[str, str]) -> TriggerLimits:
    """`maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`. Raises ConfigError."""
    given = {name.lower(): str(value) for name, value in options.items()}
    min_offsets = number_of(given, "minOffsetsPerTrigger", least=-(2**63)) or 0
    limits = TriggerLimits(
        number_of(given, "maxOffsetsPerTrigger"),
        number_of(given, "maxBytesPerTrigger"),
        min_offsets if min_offsets > 0 else None,
        _delay_ms(given.get("maxtriggerdelay", "15m")),
    )
    if limits.max_offsets is not None and min_offsets > limits.max_offsets:
        raise ConfigError(
            f"The value of minOffsetPerTrigger({min_offsets}) is higher than the maxOffsetsPerTrigger"
            f"({limits.max_offsets}).",
            key="minOffsetsPerTrigger",
        )
    return limits


def _delay_ms(text: str) -> int:
    found = _DELAY.fullmatch(text)
    if found is None:
        raise ConfigError(f"maxTriggerDelay must be a time as 30s or 15m, not '{text}'", key="maxTriggerDelay")
    return int(int(found[1]) * _MILLIS[(found[2] or "ms").lower()])


def to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Positions as Spark's Kafka source writes them, in the one order that it has: Spark compares them as text."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(saved: Any) -> Positions:
    """Parse the result of `to_json`, or of a checkpoint. Raises ConfigError for anything else."""
    try:
        found = {(topic, int(at)): offset for topic, by in saved.items() for at, offset in by.items()}
        if all(isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0 for offset in found.values()):
            return found
    except (AttributeError, TypeError, ValueError):
        pass
    raise ConfigError(
        f'the checkpoint has no offsets of Kafka, as {{"topic": {{"0": 23}}}}, but {str(saved)[:200]}', key="checkpoint"
    )


def share_limit(wanted: Mapping[tuple[str, int], int], limit: int) -> dict[tuple[str, int], int]:
    """Divide `limit` in proportion to the `wanted` sizes, at least 1 to each; if they fit the limit, return them.

    Spark's Kafka source does the same, so that a partition with few records is not left behind.
    """
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    return {at: min(size, max(1, limit * size // total)) for at, size in wanted.items() if size > 0}


def size_of(steps: Sequence[PlanStep]) -> int:
    """About how many bytes the steps of one partition are."""
    return sum(_sizes(steps))


def stop_after_bytes(steps: Sequence[PlanStep], limit_bytes: int) -> int:
    """Where to stop (exclusive) so that steps in order come to about `limit_bytes`; past the first offset."""
    left = limit_bytes
    for step, size in zip(steps, _sizes(steps), strict=True):
        if size > left:
            return _at_edge(steps, step, step.first_offset + step.offsets * left // size)
        left -= size
    return steps[-1].stop_offset


def stop_after_offsets(steps: Sequence[PlanStep], offsets: int) -> int:
    """Where to stop (exclusive) after at most so many offsets of steps in order; past the first offset."""
    stop = steps[0].first_offset + offsets
    for step in steps:
        if stop <= step.last_offset:
            return _at_edge(steps, step, stop)
    return steps[-1].stop_offset


def _at_edge(steps: Sequence[PlanStep], step: PlanStep, stop: int) -> int:
    """`stop`, which lies in `step`, or where the step begins, if what is before it is at least half as much."""
    first = steps[0].first_offset
    edge = step.first_offset
    return edge if edge > first and 2 * (edge - first) >= stop - first else max(stop, first + 1)


def _sizes(steps: Sequence[PlanStep]) -> list[int]:
    density = _density(steps)
    return [_slice_bytes(step) if isinstance(step, SegmentSlice) else int(step.offsets * density) for step in steps]


def _density(steps: Sequence[PlanStep]) -> float:
    slices = [step for step in steps if isinstance(step, SegmentSlice) and step.segment.size_known]
    size_bytes = sum(map(_slice_bytes, slices))
    return size_bytes / sum(piece.offsets for piece in slices) if size_bytes else _OFFSET_BYTES


def _slice_bytes(step: SegmentSlice) -> int:
    segment = step.segment
    return segment.likely_size_bytes * step.offsets // (segment.end_offset - segment.start_offset + 1)
