"""Cutting slices into even parts, on batch boundaries, so that several workers can share one segment.

Rules of the file: pure; the parts of a slice are disjoint byte ranges that start and end where batches start, so every
batch, and with it every record, belongs to exactly one part; all parts keep the slice's offset bounds.
"""

from __future__ import annotations

from dataclasses import replace

from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.plan.ranges import SegmentSlice

__all__ = ["split"]


def split(piece: SegmentSlice, index: OffsetIndex, target_bytes: int) -> tuple[SegmentSlice, ...]:
    """The slice in parts of about `target_bytes`, cut where the offset index knows the start of a batch.

    A part is never smaller than `target_bytes` but for the last, and larger by at most one index interval. A slice
    that is small enough, or whose index knows no place to cut, stays whole.
    """
    if target_bytes <= 0:
        raise ValueError(f"target_bytes must be positive, not {target_bytes}")
    end = piece.end_position if piece.end_position >= 0 else None
    parts: list[SegmentSlice] = []
    rest = piece
    reached = -1
    for offset, position in index.entries():
        if end is not None and position >= end:
            break
        if position - rest.start_position >= target_bytes:
            parts.append(replace(rest, end_position=position, end_entry_offset=reached, is_part=True))
            rest = replace(rest, start_position=position, start_entry_offset=offset, is_part=True)
        reached = offset
    return (*parts, rest)
