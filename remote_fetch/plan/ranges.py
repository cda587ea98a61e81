"""The plan: which bytes of which segments hold the wanted offsets, in order, and what only a broker can answer for.

Rules of the file: pure; a plan is a value that prints, saves, pickles and compares; every wanted offset lies in exactly
one step; what no readable segment covers becomes a BrokerRange and is never left out. Falling back is replacing the
rest of a stretch by a BrokerRange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, TypeAlias

from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition

__all__ = [
    "BrokerRange",
    "Coverage",
    "PlanStep",
    "Reason",
    "SegmentSlice",
    "narrow",
    "plan_offsets",
    "replace_tail",
    "settle_holes",
]


class Reason(StrEnum):
    """Why a stretch of offsets is the broker's. Append-only; error kinds stand beside these in metrics."""

    HOLE = "hole"
    """No readable segment covers it, though later ones exist."""
    NOT_TIERED = "not-tiered"
    """It lies past the end of the tier."""
    LOCAL = "local"
    """It is tiered, but the broker still has it on its own disk and is to be asked (fetch.remote.when=not-local)."""
    UNSTABLE = "unstable"
    """It is tiered, but a transaction that touches it may be decided only past the end of the tier, or in a hole."""


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """Offsets [first_offset, last_offset], both inclusive, from the batches of one segment.

    The batches wanted start in bytes [start_position, end_position) of the segment as Kafka wrote it; -1 is its end.
    Both positions are starts of batches, unless `is_cut`; a batch there may begin before `first_offset` or end after
    `last_offset`: records are clipped by offset.

    Where an offset index gave the positions, the offsets of its entries are kept so that the bytes can be held against
    them: of the entry at `start_position`, and of the last one before `end_position` (-1: no entry). Each is the last
    offset of a batch.

    `is_cut` marks a share of a slice that was cut without looking into it: the positions are no starts of batches, and
    its batches are those that begin in between. Which offsets these are is found out where it is read (`read.cuts`);
    until then `first_offset` and `last_offset` are those of all shares together.
    """

    segment: RemoteLogSegmentMetadata
    first_offset: int
    last_offset: int
    start_position: int = 0
    end_position: int = -1
    start_entry_offset: int = -1
    end_entry_offset: int = -1
    is_cut: bool = False

    @property
    def size_bytes(self) -> int | None:
        """How many bytes will be read, None when the segment's size is not known."""
        if self.end_position >= 0:
            return self.end_position - self.start_position
        left = self.segment.segment_size_in_bytes - self.start_position
        return left if self.segment.size_known and left > 0 else None

    @property
    def is_whole(self) -> bool:
        """Whether the slice takes every offset of its segment."""
        return self.first_offset <= self.segment.start_offset and self.last_offset >= self.segment.end_offset

    def __str__(self) -> str:
        end = "end" if self.end_position < 0 else str(self.end_position)
        segment = f"{self.segment.start_offset:020d}-{self.segment.segment_id.id}"
        return f"offsets {self.first_offset}..{self.last_offset} from {segment} bytes {self.start_position}..{end}"


@dataclass(frozen=True, slots=True)
class BrokerRange:
    """Offsets [first_offset, last_offset], both inclusive, that a broker has to answer for, and why.

    `reason` is a Reason or the kind of the error that ended the remote way.
    """

    partition: TopicIdPartition
    first_offset: int
    last_offset: int
    reason: str

    def __str__(self) -> str:
        return f"offsets {self.first_offset}..{self.last_offset} from the broker ({self.reason})"


PlanStep: TypeAlias = SegmentSlice | BrokerRange


class Coverage(Protocol):
    """What planning asks of a partition's timeline, with its lineage already applied."""

    def covering(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """The best readable segment that holds `offset`."""

    def readable_end(self, segment: RemoteLogSegmentMetadata) -> int:
        """The last offset (inclusive) of the segment that belongs to the log."""

    def next_start(self, offset: int) -> int | None:
        """The smallest start offset above `offset` of a readable segment."""

    def local_end(self, offset: int) -> int | None:
        """The last offset (inclusive) of the segment in the tier that holds `offset`, if that is left to the broker."""


def plan_offsets(
    partition: TopicIdPartition,
    coverage: Coverage,
    start_offset: int,
    stop_offset: int,
    *,
    stable_stop: int | None = None,
) -> tuple[PlanStep, ...]:
    """The steps that give offsets [start_offset, stop_offset), in order and without overlap.

    At each offset the best segment that covers it is read to its end, so overlapping uploads cost nothing twice.
    Offsets from `stable_stop` on (None: all are stable) are not decided by the tier alone and become the broker's.
    """
    steps: list[PlanStep] = []
    remote_stop = stop_offset if stable_stop is None else min(stop_offset, max(stable_stop, start_offset))
    offset = start_offset
    while offset < remote_stop:
        segment, local_end = coverage.covering(offset), coverage.local_end(offset)
        if segment is None and local_end is not None:
            last = min(local_end, remote_stop - 1)
            _extend(steps, BrokerRange(partition, offset, last, Reason.LOCAL))
        elif segment is None:
            upcoming = coverage.next_start(offset)
            last = remote_stop - 1 if upcoming is None else min(upcoming, remote_stop) - 1
            reason = Reason.NOT_TIERED if upcoming is None else Reason.HOLE
            steps.append(BrokerRange(partition, offset, last, reason))
        else:
            last = min(coverage.readable_end(segment), remote_stop - 1)
            steps.append(SegmentSlice(segment, offset, last))
        offset = last + 1
    if offset < stop_offset:
        kept = Reason.NOT_TIERED if coverage.local_end(offset) is None else Reason.LOCAL
        reason = kept if coverage.covering(offset) is None else Reason.UNSTABLE
        _extend(steps, BrokerRange(partition, offset, stop_offset - 1, reason))
    return tuple(steps)


def _extend(steps: list[PlanStep], more: BrokerRange) -> None:
    """Add a stretch, as one with the stretch before it where that is the broker's for the same reason."""
    before = steps[-1] if steps else None
    if isinstance(before, BrokerRange) and before.reason == more.reason:
        steps[-1] = replace(before, last_offset=more.last_offset)
    else:
        steps.append(more)


def settle_holes(
    steps: Sequence[PlanStep], stable_before: Callable[[RemoteLogSegmentMetadata], int]
) -> tuple[PlanStep, ...]:
    """The steps of a read_committed read, with nothing left to the tier that a hole keeps undecided.

    The marker of a transaction that is open where a hole begins may lie in the hole, and with it the word that it was
    aborted. So what lies from the first offset on that the last segment before the hole leaves open, which
    `stable_before` tells, is the broker's too, as unstable.
    """
    settled: list[PlanStep] = []
    for step in steps:
        before = settled[-1] if settled else None
        if isinstance(step, BrokerRange) and step.reason == Reason.HOLE and isinstance(before, SegmentSlice):
            first = stable_before(before.segment)
            if first < step.first_offset:
                open_part = BrokerRange(step.partition, first, step.first_offset - 1, Reason.UNSTABLE)
                settled = [*replace_tail(settled, open_part)]
        settled.append(step)
    return tuple(settled)


def replace_tail(steps: Sequence[PlanStep], tail: BrokerRange) -> tuple[PlanStep, ...]:
    """The steps with everything from the tail's first offset on replaced by it; it begins no earlier than they do."""
    kept = [step for step in steps if step.first_offset < tail.first_offset]
    if kept and kept[-1].last_offset >= tail.first_offset:
        kept[-1] = replace(kept[-1], last_offset=tail.first_offset - 1)
    earliest = steps[0].first_offset if steps else tail.first_offset
    return (*kept, replace(tail, first_offset=max(tail.first_offset, earliest)))


def narrow(piece: SegmentSlice, index: OffsetIndex) -> SegmentSlice:
    """The slice with the byte positions that the segment's offset index gives for its offsets.

    Never loses a batch: the start is that of a batch at or before `first_offset`, the end is past every batch that
    begins at or before `last_offset`.
    """
    segment = piece.segment
    start = index.start_entry(piece.first_offset) if piece.first_offset > segment.start_offset else None
    end = index.end_entry(piece.last_offset) if piece.last_offset < segment.end_offset else None
    reached = index.start_entry(end.offset - 1) if end else None
    return replace(
        piece,
        start_position=start.position if start else 0,
        start_entry_offset=start.offset if start else -1,
        end_position=end.position if end else -1,
        end_entry_offset=reached.offset if reached else -1,
    )
