"""Cuts plans into even shares, one for each task, without reading anything.

Rules of the file:

- Pure. Only metadata is used, so a slice is cut at a byte position without knowing its batches.
- Every byte of a slice, and every offset of a broker's range, is in exactly one share.
- A share differs from the mean by at most `_SLACK` on either side, so no share is twice as large as another.
- A wave is as many shares as tasks run at once. A last wave with few tasks would leave the other slots idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice

__all__ = ["Share", "Slots", "share_out"]

_SLICE_BYTES = 1 << 20
"""The cost of opening a segment, in bytes that could be read in that time. It limits the tiny segments of a share."""
_SLACK = 1 / 8
"""How far, in shares, a cut may be moved to the beginning or end of a slice."""
_BROKER_OFFSET_BYTES = 1024
"""The assumed bytes of an offset in a partition without tiered segments."""


@dataclass(frozen=True, slots=True)
class Share:
    """The steps of one task, each with the number of its plan, in order of plan and offset.

    `size_bytes` is an estimate. A slice counts with its part of the segment's bytes, by offsets. A broker's range
    counts with the mean bytes of an offset in the tiered part of its partition.
    """

    steps: tuple[tuple[int, PlanStep], ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Slots:
    """The number of tasks that run at once, and the bytes up to which a share may grow for the sake of fewer waves."""

    count: int
    most_bytes: int

    def shares(self, total_bytes: int, target_bytes: int) -> int:
        """How many shares these bytes make: one for each slot at most, or whole waves.

        A share then has at most 1.5 times `target_bytes`, or what it may grow to.
        """
        target_bytes = max(target_bytes, min(-(-total_bytes // self.count), self.most_bytes))
        shares = _counted(total_bytes, target_bytes)
        if shares <= self.count:
            return shares
        wave_bytes = target_bytes * self.count
        return self.count * max(1, (2 * total_bytes + wave_bytes) // (2 * wave_bytes))  # rounded to the nearest


class _Piece(NamedTuple):
    """A step of plan `number`, and the estimated bytes [start, stop) of its segment."""

    number: int
    step: SegmentSlice
    start: int
    stop: int

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start


def share_out(
    plans: Sequence[Sequence[PlanStep]],
    target_bytes: int,
    *,
    min_shares: int = 1,
    max_offsets: int | None = None,
    slots: Slots | None = None,
) -> tuple[Share, ...]:
    """Divide plans into shares of about `target_bytes`. First come the shares of the store, then those of the broker.

    If that gives fewer than `min_shares` shares in all, the shares are made smaller, but not more than there are
    offsets. `max_offsets` is the most offsets that a share may have. With it, slices are cut by offset, as if all
    records had the same size. `slots` counts only if neither `min_shares` nor `max_offsets` is given.
    """
    if target_bytes <= 0 or min_shares <= 0 or (max_offsets is not None and max_offsets <= 0):
        raise ValueError(f"{target_bytes=}, {min_shares=}, {max_offsets=}: they have to be positive")
    pieces = [_piece(at, step) for at, plan in enumerate(plans) for step in plan if isinstance(step, SegmentSlice)]
    ranges = [(at, step) for at, plan in enumerate(plans) for step in plan if isinstance(step, BrokerRange)]
    min_shares = max(1, min(min_shares, sum(step.offsets for plan in plans for step in plan)))
    densities = [_bytes_per_offset(plan) for plan in plans]
    total = sum(piece.size_bytes for piece in pieces)
    total += sum(int(step.offsets * densities[at]) for at, step in ranges)
    wanted = target_bytes if min_shares == 1 else min(target_bytes, max(1, total // min_shares))
    extra = min(_SLICE_BYTES, wanted // 64) if wanted == target_bytes else 0
    if max_offsets is None:
        remote = _by_bytes(pieces, wanted, extra, slots if min_shares == 1 else None)
    else:
        remote = _by_offsets(pieces, wanted, max_offsets)
    return (*remote, *_of_broker(ranges, densities, wanted, max_offsets))


def _piece(number: int, step: SegmentSlice) -> _Piece:
    segment = step.segment
    size, span = segment.likely_size_bytes, segment.end_offset - segment.start_offset + 1
    start = size * max(step.first_offset - segment.start_offset, 0) // span
    stop = size * (min(step.last_offset, segment.end_offset) + 1 - segment.start_offset) // span
    return _Piece(number, step, start, max(stop, start))


def _bytes_per_offset(plan: Sequence[PlanStep]) -> float:
    pieces = [_piece(0, step) for step in plan if isinstance(step, SegmentSlice)]
    size_bytes = sum(piece.size_bytes for piece in pieces)
    return size_bytes / sum(piece.step.offsets for piece in pieces) if size_bytes else _BROKER_OFFSET_BYTES


def _counted(total_bytes: int, target_bytes: int) -> int:
    return max(1, -(-total_bytes // target_bytes))


def _by_bytes(pieces: Sequence[_Piece], target_bytes: int, slice_bytes: int, slots: Slots | None) -> list[Share]:
    """Cut all slices, laid end to end, at even distances. A cut near the edge of a slice is moved to the edge."""
    ends = list(accumulate(piece.size_bytes + slice_bytes for piece in pieces))
    total = ends[-1] if ends else 0
    count = _counted(total, target_bytes) if slots is None else slots.shares(total, target_bytes)
    slack = int(total / count * _SLACK)
    edges: set[int] = set()  # the numbers of pieces that begin a share
    inner: list[list[int]] = [[] for _ in pieces]
    number = 0
    for at in (total * cut // count for cut in range(1, count)):
        while ends[number] <= at:
            number += 1
        piece = pieces[number]
        position = piece.stop - (ends[number] - at)
        if position - piece.start <= slack:
            edges.add(number)
        elif piece.stop - position <= slack:
            edges.add(number + 1)
        else:
            inner[number].append(position)
    shares: list[Share] = []
    steps: list[tuple[int, PlanStep]] = []
    size_bytes = 0
    for number, piece in enumerate(pieces):
        for at, (part_bytes, part) in enumerate(_parts(piece, inner[number])):
            if steps and (at or number in edges):
                shares.append(Share(tuple(steps), size_bytes))
                steps, size_bytes = [], 0
            steps.append((piece.number, part))
            size_bytes += part_bytes
    return [*shares, Share(tuple(steps), size_bytes)] if steps else shares


def _parts(piece: _Piece, inner: Sequence[int]) -> Iterator[tuple[int, SegmentSlice]]:
    """The parts of a piece between its cuts: the bytes of each, and its slice.

    The outer ends stay open, because the positions of the wanted offsets are estimates.
    """
    if not inner:
        yield piece.size_bytes, piece.step
        return
    for start, stop in pairwise([piece.start, *inner, piece.stop]):
        low, high = 0 if start == piece.start else start, -1 if stop == piece.stop else stop
        yield stop - start, replace(piece.step, start_position=low, end_position=high, is_cut=True)


def _by_offsets(pieces: Sequence[_Piece], target_bytes: int, max_offsets: int) -> list[Share]:
    """Cut slices into parts of at most `max_offsets`, and put as many parts into a share as fit."""
    shares: list[Share] = []
    steps: list[tuple[int, PlanStep]] = []
    size_bytes = offsets = 0
    for piece in pieces:
        count = max(-(-piece.step.offsets // max_offsets), -(-piece.size_bytes // target_bytes), 1)
        for first, last in _even(piece.step.first_offset, piece.step.last_offset, count):
            part_bytes = piece.size_bytes * (last - first + 1) // piece.step.offsets
            if steps and (offsets + last - first + 1 > max_offsets or size_bytes + part_bytes > target_bytes):
                shares.append(Share(tuple(steps), size_bytes))
                steps, size_bytes, offsets = [], 0, 0
            steps.append((piece.number, replace(piece.step, first_offset=first, last_offset=last)))
            size_bytes, offsets = size_bytes + part_bytes, offsets + last - first + 1
    return [*shares, Share(tuple(steps), size_bytes)] if steps else shares


def _of_broker(
    ranges: Sequence[tuple[int, BrokerRange]], densities: Sequence[float], target_bytes: int, max_offsets: int | None
) -> Iterator[Share]:
    """A share for each range, or several for a long one."""
    for number, step in ranges:
        offsets = step.offsets
        count = _counted(int(offsets * densities[number]), target_bytes)
        if max_offsets is not None:
            count = max(count, -(-offsets // max_offsets))
        for first, last in _even(step.first_offset, step.last_offset, count):
            part = replace(step, first_offset=first, last_offset=last)
            yield Share(((number, part),), int(part.offsets * densities[number]))


def _even(first: int, last: int, count: int) -> Iterator[tuple[int, int]]:
    """Offsets `first` to `last` in `count` parts, or in fewer if there are fewer offsets."""
    offsets = last - first + 1
    count = min(count, offsets)
    for at in range(count):
        yield first + offsets * at // count, first + offsets * (at + 1) // count - 1
