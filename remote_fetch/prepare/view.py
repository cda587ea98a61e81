"""One partition as a plan sees it: its segments with their lineage, its ends, and what an isolation level may read.

Rules of the file: pure. Values only; `opening` makes them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    IsolationLevel,
    LogBounds,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.observe import ReadEnds
from remote_fetch.plan.ranges import PlanStep, Reason
from remote_fetch.plan.visibility import AbortedIntervals

__all__ = ["OpenPartition", "PartitionPlan", "untiered"]


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """The readable segments of a partition, with the lineage that says which of them belong to the log.

    Offsets [start_offset, stop_offset) lie in the tier; the isolation level may read them up to `stable_stop`, from
    where on the tier alone does not tell what was aborted. `log` is what a broker says of the log's ends, under the
    isolation level: unknown where only the bucket is read, but for a log start that the user has given. From
    `local_start` on the broker has the log on its own disk and is to be asked; None: whatever is in the tier is read
    there.
    """

    timeline: Timeline
    lineage: Lineage
    isolation: IsolationLevel
    start_offset: int
    stop_offset: int
    stable_stop: int
    log: LogBounds
    local_start: int | None = None
    known_txn_index_from: int | None = None

    @property
    def tells_txn_index_from(self) -> int | None:
        """From which start offset on a segment that does not say `txn_index_empty` has an index (Kafka 4.0, KIP-1058).

        It is that of the first segment that says so; None: no writer of this partition does.
        """
        found = (segment.start_offset for segment in self.timeline.segments if segment.txn_index_empty)
        return min(found, default=None) if self.known_txn_index_from is None else self.known_txn_index_from

    @property
    def first_offset(self) -> int:
        """The offset of "earliest": the log start if a broker tells it, else the start of the tier."""
        told = self.log.log_start_offset or 0
        return told if self.log.end_offset is not None else max(self.start_offset, told)

    @property
    def end_offset(self) -> int:
        """The offset of "latest": the log's end if a broker tells it, else the stable end of the tier. Exclusive."""
        return max(self.stable_stop, self.first_offset) if self.log.end_offset is None else self.log.end_offset

    @property
    def last_start(self) -> int:
        """The largest offset that a read may start at: the end of what can be read at all."""
        return max(self.stop_offset, self.first_offset) if self.log.end_offset is None else self.log.end_offset

    def clip(self, stop: int) -> int:
        """`stop`, or the end of the log if that comes before it. Exclusive."""
        return stop if self.log.end_offset is None else min(stop, self.log.end_offset)

    def ends_at(self, stop: int) -> ReadEnds | None:
        """Why a read up to `stop` (exclusive) goes no further; None where a broker tells the end, or it ends sooner."""
        if self.log.end_offset is not None or stop < self.end_offset:
            return None
        reason = Reason.UNSTABLE if self.end_offset < self.stop_offset else Reason.NOT_TIERED
        return ReadEnds(self.partition, self.end_offset, self.stop_offset, reason)

    @property
    def partition(self) -> TopicIdPartition:
        """Which partition this is."""
        return self.timeline.partition

    def covering(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """As `Coverage.covering`."""
        return self.tiered(offset) if self.local_start is None or offset < self.local_start else None

    def tiered(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """The best segment in the tier that holds `offset`, whether the broker has it as well or not."""
        return self.timeline.covering(offset, self.lineage)

    def readable_end(self, segment: RemoteLogSegmentMetadata) -> int:
        """As `Coverage.readable_end`."""
        return segment.end_offset if self.local_start is None else min(segment.end_offset, self.local_start - 1)

    def next_start(self, offset: int) -> int | None:
        """As `Coverage.next_start`."""
        start = self.timeline.next_start(offset, self.lineage)
        is_local = start is not None and self.local_start is not None and start >= self.local_start
        return None if is_local else start

    def local_end(self, offset: int) -> int | None:
        """As `Coverage.local_end`."""
        if self.local_start is None or offset < self.local_start:
            return None
        held = self.tiered(offset)
        return None if held is None else held.end_offset

    def without(self, segment_ids: Collection[RemoteLogSegmentId]) -> OpenPartition:
        """The same without segments that turned out to be unreadable."""
        return self.with_timeline(self.timeline.without(segment_ids))

    def within(self, first: int, last: int) -> OpenPartition:
        """The same ends, with the segments and leader epochs that offsets [first, last] need."""
        return replace(self, timeline=self.timeline.within(first, last), lineage=self.lineage.within(first, last + 1))

    def without_segments(self) -> OpenPartition:
        """The same ends without any segment: for a read that only a broker can serve."""
        return replace(self, timeline=Timeline(self.partition, (), ()), lineage=Lineage.unknown())

    def with_timeline(self, timeline: Timeline) -> OpenPartition:
        """The same ends over other segments."""
        return replace(self, timeline=timeline)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The steps of a read of one partition. `aborted` None: read_uncommitted."""

    opened: OpenPartition
    steps: tuple[PlanStep, ...]
    aborted: AbortedIntervals | None


def untiered(partition: TopicIdPartition, isolation: IsolationLevel, log: LogBounds) -> OpenPartition:
    """A partition of which nothing is readable in the tier."""
    return OpenPartition(Timeline(partition, (), ()), Lineage.unknown(), isolation, 0, 0, 0, log)
