"""Puts true sizes into the segments of a plan, if their metadata does not have them (KIP-1333).

Rules of the file:

- Only here the store is asked for sizes: for the segments of a plan whose size is unknown.
- The answer is written into the metadata's field, so that costs, tasks and ranges use it like any other size.
- If the answer is too small or too large, the reader notices it at the end of the segment: see `segment_ends`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.session.storage import Storage

__all__ = ["with_true_sizes"]


def with_true_sizes(storage: Storage, steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps, with the sizes of their segments if the store tells them. Raises no error of the store."""
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
