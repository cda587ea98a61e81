"""The plan of a read: an ordered list of segment slices and of offset ranges that only a broker can serve.

Rules of the file:

- Pure. A plan is a value: it can be printed, saved, pickled and compared.
- Every wanted offset lies in exactly one step.
- Offsets that no readable segment covers become a BrokerRange. They are never left out.
- To fall back is to replace the rest of a stretch by a BrokerRange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    "leading_slices",
    "narrow",
    "plan_offsets",
    "replace_tail",
    "settle_holes",
    "slices_of",
]


class Reason(StrEnum):
    """Why a broker has to serve a stretch of offsets. Append-only. Metrics use these values and the error kinds."""

    HOLE = "hole"
    """No readable segment covers it, but later segments exist."""
    NOT_TIERED = "not-tiered"
    """It lies past the end of the tier."""
    LOCAL = "local"
    """It is tiered, but the broker still has it on its disk and serves it (fetch.remote.when=not-local)."""
    UNSTABLE = "unstable"
    """It is tiered, but the marker of a transaction in it may lie past the end of the tier or in a hole."""


class _Step:
    __slots__ = ()
    first_offset: int
    last_offset: int

    @property
    def offsets(self) -> int:
        """How many offsets the step has, those without records included."""
        return self.last_offset - self.first_offset + 1

    @property
    def stop_offset(self) -> int:
        """The offset after the step."""
        return self.last_offset + 1


@dataclass(frozen=True, slots=True)
class SegmentSlice(_Step):
    """Offsets [first_offset, last_offset], both inclusive, from the batches of one segment.

    - The wanted batches start in bytes [start_position, end_position) of the segment as Kafka wrote it. -1 is its end.
    - Batches start at both positions, unless `is_cut`. The first batch may begin before `first_offset`, and the last
      may end after `last_offset`: the reader clips records by offset.
    - `start_entry_offset` and `end_entry_offset` are offsets of the offset index, for checks of the bytes: of the entry
      at `start_position`, and of the last entry before `end_position`. Each is the last offset of a batch, or -1 if
      there is no entry.
    - `is_cut`: the slice is a share that was cut without a look at the bytes. The positions are not starts of batches,
      and the batches that begin between them belong to the share. Until `prepare.cuts` finds their offsets,
      `first_offset` and `last_offset` are those of the uncut slice.
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
    def partition(self) -> TopicIdPartition:
        """The partition of the segment."""
        return self.segment.topic_id_partition

    @property
    def size_bytes(self) -> int | None:
        """How many bytes will be read, None if the segment's size is unknown."""
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
        offsets = f"offsets {self.first_offset}..{self.last_offset}"
        return f"{offsets} from {self.segment.object_stem} bytes {self.start_position}..{end}"


@dataclass(frozen=True, slots=True)
class BrokerRange(_Step):
    """Offsets [first_offset, last_offset], both inclusive, that a broker has to serve.

    `reason` is a Reason, or the kind of the error that ended the read from the store. `detail` is the text of that
    error. A saved plan does not have it.
    """

    partition: TopicIdPartition
    first_offset: int
    last_offset: int
    reason: str
    detail: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"offsets {self.first_offset}..{self.last_offset} from the broker ({self.reason})"


PlanStep: TypeAlias = SegmentSlice | BrokerRange


def slices_of(steps: Iterable[PlanStep]) -> list[SegmentSlice]:
    """The steps that the store serves."""
    return [step for step in steps if isinstance(step, SegmentSlice)]


def leading_slices(steps: Iterable[PlanStep]) -> Iterator[SegmentSlice]:
    """The slices before the first range of the broker."""
    for step in steps:
        if isinstance(step, BrokerRange):
            return
        yield step


class Coverage(Protocol):
    """The questions of planning to a partition's timeline, with the lineage already applied."""

    @property
    def partition(self) -> TopicIdPartition:
        """The partition's name and id."""

    def covering(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """The best readable segment that holds `offset`."""

    def readable_end(self, segment: RemoteLogSegmentMetadata) -> int:
        """The last offset (inclusive) of the segment that belongs to the log."""

    def next_start(self, offset: int) -> int | None:
        """The smallest start offset above `offset` of a readable segment."""

    def local_end(self, offset: int) -> int | None:
        """If the broker serves the segment that holds `offset`, its last offset (inclusive). Else None."""


def plan_offsets(
    coverage: Coverage, start_offset: int, stop_offset: int, *, stable_stop: int | None = None
) -> tuple[PlanStep, ...]:
    """The steps that give offsets [start_offset, stop_offset), in order and without overlap.

    At each offset the best segment that covers it is read to its end, so overlapping uploads are read only once.
    Offsets from `stable_stop` on (None: all are stable) go to the broker, because the tier does not tell whether their
    transactions were committed or aborted.
    """
    steps: list[PlanStep] = []
    partition = coverage.partition
    remote_stop = stop_offset if stable_stop is None else min(stop_offset, stable_stop)
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
    """Append a stretch of the broker. If the step before it is one for the same reason, extend that step."""
    before = steps[-1] if steps else None
    if isinstance(before, BrokerRange) and before.reason == more.reason:
        steps[-1] = replace(before, last_offset=more.last_offset)
    else:
        steps.append(more)


def settle_holes(
    steps: Sequence[PlanStep], stable_before: Callable[[RemoteLogSegmentMetadata], int]
) -> tuple[PlanStep, ...]:
    """Move offsets that a hole leaves undecided under read_committed from the tier to the broker.

    If a transaction is open at the beginning of a hole, its marker may lie in the hole. Only the marker tells whether
    it was aborted. `stable_before` gives the first offset that is open after a segment. From that offset to the hole
    the broker serves the records, with the reason UNSTABLE.
    """
    settled: list[PlanStep] = []
    for step in steps:
        before = settled[-1] if settled else None
        if isinstance(step, BrokerRange) and step.reason == Reason.HOLE and isinstance(before, SegmentSlice):
            first = stable_before(before.segment)
            if first < step.first_offset:
                open_part = BrokerRange(step.partition, first, step.first_offset - 1, Reason.UNSTABLE)
                settled = list(replace_tail(settled, open_part))
        settled.append(step)
    return tuple(settled)


def replace_tail(steps: Sequence[PlanStep], tail: BrokerRange) -> tuple[PlanStep, ...]:
    """Replace all offsets from `tail.first_offset` on by `tail`. The result begins no earlier than `steps`."""
    kept = [step for step in steps if step.first_offset < tail.first_offset]
    if kept and kept[-1].last_offset >= tail.first_offset:
        kept[-1] = replace(kept[-1], last_offset=tail.first_offset - 1)
    earliest = steps[0].first_offset if steps else tail.first_offset
    return (*kept, replace(tail, first_offset=max(tail.first_offset, earliest)))


def narrow(piece: SegmentSlice, index: OffsetIndex) -> SegmentSlice:
    """The slice with the byte positions that the segment's offset index gives for its offsets.

    No batch is lost: the start is a batch at or before `first_offset`, and the end is past every batch that begins at
    or before `last_offset`.
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
