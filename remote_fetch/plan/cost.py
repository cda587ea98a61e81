"""The GETs and bytes of a plan, estimated before anything is read.

Rules of the file:

- Pure.
- An estimate assumes that nothing fails.
- Slices of unknown size are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.plan.gets import Ramp
from remote_fetch.plan.ranges import PlanStep, SegmentSlice

__all__ = ["PlanCost", "StoredSize", "estimate", "untold"]

StoredSize: TypeAlias = Callable[[RemoteLogSegmentMetadata], "int | None"]
"""The bytes of a segment's objects in the store, None if its metadata does not tell."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """GETs and bytes of segment data, and offsets that a broker has to serve.

    - `unknown_slices` counts the slices of unknown size; no other number includes them.
    - `stored_bytes` estimates how many bytes of the stored objects the plan reads (KIP-917: REMOTE_SIZE). For a slice
      of a segment without a known stored size, it adds the bytes as Kafka wrote them. It is None if no segment has one.
    """

    gets: int
    size_bytes: int
    segments: int
    broker_offsets: int
    unknown_slices: int
    stored_bytes: int | None = None

    @property
    def mean_bytes_per_get(self) -> float:
        """Mean size of a GET, 0 without any."""
        return self.size_bytes / self.gets if self.gets else 0.0


def untold(segment: RemoteLogSegmentMetadata) -> int | None:
    """A StoredSize that knows no segment."""
    return None


def estimate(reads: Iterable[Iterable[PlanStep]], range_bytes: int, stored_size: StoredSize = untold) -> PlanCost:
    """The total cost of several reads, each given by its steps, if no GET asks for more than `range_bytes`.

    `stored_size` gives the bytes of a segment's objects in the store, None if its metadata does not tell.
    """
    gets = size_bytes = broker_offsets = unknown = stored_bytes = 0
    is_told = False
    segments = set()
    for steps in reads:
        ramp = Ramp(range_bytes)
        for step in steps:
            if not isinstance(step, SegmentSlice):
                broker_offsets += step.offsets
                ramp = Ramp(range_bytes)
                continue
            segments.add(step.segment.segment_id)
            if step.size_bytes is None:
                unknown += 1
            else:
                size_bytes += step.size_bytes
                stored = stored_size(step.segment)
                is_told |= stored is not None
                whole = step.segment.segment_size_in_bytes
                stored_bytes += step.size_bytes if stored is None else stored * step.size_bytes // max(whole, 1)
                gets += ramp.count(step.start_position, step.start_position + step.size_bytes)
    return PlanCost(gets, size_bytes, len(segments), broker_offsets, unknown, stored_bytes if is_told else None)
