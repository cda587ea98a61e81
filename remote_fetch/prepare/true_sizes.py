"""The true sizes of a plan's segments, where metadata does not have them (KIP-1333).

Rules of the file:

- This is the only place that decides whose size is asked for: segments of a plan whose size is unknown.
- A learned size stands where metadata would have had it, so that costs, tasks and ranges use it like any other.
- The bytes decide. A size that is too small or too large is noticed at the end of the segment: see `segment_ends`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.session.storage import Storage

__all__ = ["with_true_sizes"]


def with_true_sizes(storage: Storage, steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps with the sizes of their segments, as far as the store tells them. Raises nothing that a store does."""
    planned = tuple(steps)
    unknown = [step.segment for step in planned if isinstance(step, SegmentSlice) and not step.segment.size_known]
    if not unknown:
        return planned
    sizes = storage.sizes.of(unknown)
    return tuple(
        replace(step, segment=replace(step.segment, segment_size_in_bytes=sizes[step.segment.segment_id]))
        if isinstance(step, SegmentSlice) and not step.segment.size_known and step.segment.segment_id in sizes
        else step
        for step in planned
    )
