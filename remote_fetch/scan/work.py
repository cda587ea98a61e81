"""The queue of a scan: slices and broker ranges, with the state that the steps of one partition share.

Rules of the file:

- No I/O.
- Only the scan and its `recovery` change a `Work`.
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
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from remote_fetch.scan.rows import PartitionRows

__all__ = ["BrokerWork", "SharedPartition", "Work", "requests", "work_for", "works_of"]


@dataclass(slots=True)
class SharedPartition:
    """The state that the steps of one partition share.

    `gave_rows`: the scan has given rows of the partition that came from the store.
    `failed_offset` is the last offset at which a read failed, -1 if none has. `failed` are the segments from which a
    read of that offset failed.
    """

    opened: OpenPartition
    rows: PartitionRows
    gave_rows: bool = False
    failed_offset: int = -1
    failed: set[RemoteLogSegmentId] = field(default_factory=set)

    def fails(self, segment: RemoteLogSegmentMetadata, offset: int) -> OpenPartition:
        """Note that `segment` failed to give `offset`. Return the partition without all segments that failed to.

        Each call leaves fewer segments, so that the attempts end.
        """
        if offset != self.failed_offset:
            self.failed_offset, self.failed = offset, set()
        self.failed.add(segment.segment_id)
        return self.opened.without(self.failed)


@dataclass(slots=True)
class Work:
    """A slice that is still to be read.

    - `position` is the byte position from which to read on.
    - `rereads` are the positions that were already fetched a second time.
    - `relocated_at` is the position at which the locator was last asked for a newer location.
    - `aborts` decides which batches of this slice read_committed shows, if a broker listed its aborted transactions. It
      lives as long as the slice, because it remembers the markers that were read.
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
        return self.partition.rows.first_wanted(self.piece)

    def forget_size(self) -> None:
        """Ignore the size in the segment's metadata, and read to the end of the object."""
        segment = replace(self.piece.segment, segment_size_in_bytes=UNKNOWN_SIZE)
        self.piece = replace(self.piece, segment=segment)


@dataclass(slots=True)
class BrokerWork:
    """A range of offsets that the broker reads."""

    step: BrokerRange
    partition: SharedPartition

    def follows(self, step: BrokerRange, partition: SharedPartition) -> bool:
        """Whether this range goes on where `step` of `partition` ends."""
        return self.partition is partition and self.step.first_offset == step.stop_offset


def works_of(plan: PartitionPlan, columns: Sequence[str]) -> Iterator[Work | BrokerWork]:
    """The work of a plan, with one shared state. Raises the errors of `work_for`."""
    if plan.steps:
        partition, first = plan.opened.partition, plan.steps[0].first_offset
        rows = PartitionRows(partition.topic, partition.partition, columns, plan.opened.lineage, plan.aborted, first)
        shared = SharedPartition(plan.opened, rows)
        yield from (work_for(step, shared) for step in plan.steps)


def work_for(step: PlanStep, partition: SharedPartition) -> Work | BrokerWork:
    """The work for a step of a plan. Raises Unlocatable if no broker listed the aborted transactions of a slice."""
    if isinstance(step, BrokerRange):
        return BrokerWork(step, partition)
    return Work(step, partition, step.start_position, aborts=_listed_aborts(step, partition))


def _listed_aborts(piece: SegmentSlice, partition: SharedPartition) -> AbortedIntervals | SequentialAborts | None:
    """The aborted transactions that a broker listed for the first offset of a slice.

    None: no list for the partition.
    """
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


def requests(works: Sequence[Work], range_bytes: int, first_bytes: int | None = None) -> Iterator[RangeRequest]:
    """Yield the ranges of all slices, in order. Once a slice has ended, its remaining ranges are left out.

    `first_bytes` as for `Ramp`.
    """
    ramp = Ramp(range_bytes, first_bytes)
    for tag, work in enumerate(works):
        segment, stop = work.piece.segment, work.piece.end_position
        if stop < 0:
            stop = segment.segment_size_in_bytes if segment.size_known else 2**63 - 1
        start = work.position
        while start < stop and not work.ended:
            end = ramp.end_of(start, stop)
            yield RangeRequest(segment, start, end, tag)
            start = end
