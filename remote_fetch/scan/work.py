"""The queue of a scan: slices and broker ranges, with the state that the steps of one partition share.

Rules of the file: no I/O. Only the scan changes work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from remote_fetch.errors import Unlocatable
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.model import UNKNOWN_SIZE, IsolationLevel, RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.plan.gets import Ramp
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.scan.rows import PartitionRows

__all__ = ["BrokerWork", "SharedPartition", "Work", "requests", "work_for"]


@dataclass(slots=True)
class SharedPartition:
    """The state that the steps of one partition share. `failed` are the segments that did not give `failed_offset`."""

    opened: OpenPartition
    rows: PartitionRows
    failed_offset: int = -1
    failed: set[RemoteLogSegmentId] = field(default_factory=set)

    def fails(self, segment: RemoteLogSegmentMetadata, offset: int) -> OpenPartition:
        """The partition without the segments that failed to give `offset`: fewer each time, so that trying ends."""
        if offset != self.failed_offset:
            self.failed_offset, self.failed = offset, set()
        self.failed.add(segment.segment_id)
        return self.opened.without(self.failed)


@dataclass(slots=True)
class Work:
    """One slice still to be read, from `position` on.

    - `rereads` are the positions already fetched a second time.
    - `relocated_at` is the position at which a newer location was last asked for.
    - `aborts` decides what read_committed shows of this slice, if a broker listed its aborted transactions. It lives as
      long as the slice, for it remembers which markers have passed.
    """

    piece: SegmentSlice
    partition: SharedPartition
    position: int
    rereads: set[int] = field(default_factory=set)
    ended: bool = False
    relocated_at: int = -1
    aborts: AbortedIntervals | SequentialAborts | None = None

    @property
    def first_offset(self) -> int:
        """The first offset that is still wanted."""
        return max(self.piece.first_offset, self.partition.rows.next_offset)

    def forget_size(self) -> None:
        """Read on behind the size that metadata gave the segment, to wherever the object ends."""
        segment = replace(self.piece.segment, segment_size_in_bytes=UNKNOWN_SIZE)
        self.piece = replace(self.piece, segment=segment)
        self.ended = False


@dataclass(slots=True)
class BrokerWork:
    """One stretch that the broker answers for."""

    step: BrokerRange
    partition: SharedPartition


def work_for(step: PlanStep, partition: SharedPartition) -> Work | BrokerWork:
    """The work that a step of a plan is. Raises Unlocatable for a slice of which no broker listed what was aborted."""
    if isinstance(step, BrokerRange):
        return BrokerWork(step, partition)
    return Work(step, partition, step.start_position, aborts=_listed_aborts(step, partition))


def _listed_aborts(piece: SegmentSlice, partition: SharedPartition) -> AbortedIntervals | SequentialAborts | None:
    """The broker's list for the first offset of a slice. None: brokers list nothing of the whole partition."""
    opened = partition.opened
    if opened.isolation is IsolationLevel.READ_UNCOMMITTED or opened.timeline.listed_aborts is None:
        return None
    listed = opened.timeline.listed_aborts.get((piece.segment.segment_id, piece.first_offset))
    if listed is None:
        raise Unlocatable(
            f"no broker has listed the aborted transactions of the segment from offset {piece.first_offset} on",
            first=piece.first_offset,
            last=piece.last_offset,
        )
    return SequentialAborts(listed) if listed else AbortedIntervals.of(())


def requests(works: Sequence[Work], range_bytes: int) -> Iterator[RangeRequest]:
    """The ranges of all slices, in order; drawn lazily, and no further for a slice that has ended."""
    ramp = Ramp(range_bytes)
    for tag, work in enumerate(works):
        segment, stop = work.piece.segment, work.piece.end_position
        if stop < 0:
            stop = segment.segment_size_in_bytes if segment.size_known else 2**63 - 1
        start = work.position
        while start < stop and not work.ended:
            end = ramp.end_of(start, stop)
            yield RangeRequest(segment, start, end, tag)
            start = end
