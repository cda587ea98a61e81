"""The queue of a scan: slices and broker ranges, with the state that the steps of one partition share.

Rules of the file: no I/O. Only the scan changes work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.model import UNKNOWN_SIZE, RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.plan.gets import Ramp
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
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
    """One slice still to be read, from `position` on. `rereads` are the positions already fetched a second time,
    `relocated_at` is the one at which a newer location was last asked for.
    """

    piece: SegmentSlice
    partition: SharedPartition
    position: int
    rereads: set[int] = field(default_factory=set)
    ended: bool = False
    relocated_at: int = -1

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
    """The work that a step of a plan is."""
    if isinstance(step, BrokerRange):
        return BrokerWork(step, partition)
    return Work(step, partition, step.start_position)


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
