"""One partition as plans use it: its segments with their lineage, its ends, and the part that may be read.

Rules of the file:

- Pure. It has values only, and `opening` makes them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, LogBounds, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.observe import ReadEnds
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals

__all__ = ["OpenPartition", "PartitionPlan", "untiered"]


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """The readable segments of a partition, with the lineage that tells which of them belong to the log.

    - Offsets [start_offset, stop_offset) lie in the tier.
    - The isolation level allows offsets up to `stable_stop` (exclusive). From there on, the tier does not tell whether
      transactions were committed or aborted.
    - `log` has the ends of the log, from a broker under the isolation level. Without a broker they are unknown, except
      for a log start that the user has given.
    - From `local_start` on, the broker has the log on its own disk, and the reader asks the broker. None: all tiered
      offsets are read from the tier.
    - `is_divided`: this is a part of the partition for one of several tasks, and tasks read the store.
    - `unread` are the offsets that the broker reads because the partition could not be opened, with the error. None: it
      was opened.
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
    unread: BrokerRange | None = None
    is_divided: bool = False

    @property
    def tells_txn_index_from(self) -> int | None:
        """The start offset of the first segment with `txn_index_empty`, None if no segment has it.

        From that offset on, a segment without the flag has a transaction index (Kafka 4.0, KIP-1058).
        """
        found = (segment.start_offset for segment in self.timeline.segments if segment.txn_index_empty)
        return min(found, default=None) if self.known_txn_index_from is None else self.known_txn_index_from

    def leader_epoch_before(self, offset: int) -> int | None:
        """The leader epoch of the record before `offset`, None if the lineage does not tell it."""
        return self.lineage.epoch_for(offset - 1)

    def is_known_to(self, leader_epoch: int, offset: int) -> bool:
        """Whether a reader that names `leader_epoch` for the record before `offset` knows this log up to there.

        The log needs that epoch, not ended before `offset`: with an epoch in common two logs are equal up to its start
        (KIP-101). So the epoch may also be that of the record at `offset`. True if the lineage does not tell.
        """
        before = self.leader_epoch_before(offset)
        return before is None or (before <= leader_epoch in {entry.epoch for entry in self.lineage.entries})

    @property
    def first_offset(self) -> int:
        """The offset of "earliest": the log start if a broker tells it, else the start of the tier."""
        log_start = self.log.log_start_offset or 0
        return log_start if self.log.end_offset is not None else max(self.start_offset, log_start)

    @property
    def end_offset(self) -> int:
        """The offset that "latest" means (exclusive): the end of the log if a broker tells it, else `stable_stop`.

        Without a broker it is at least `first_offset`.
        """
        return max(self.stable_stop, self.first_offset) if self.log.end_offset is None else self.log.end_offset

    @property
    def last_start(self) -> int:
        """The largest offset at which a read may start: the end of the readable offsets."""
        return max(self.stop_offset, self.first_offset) if self.log.end_offset is None else self.log.end_offset

    @property
    def end_text(self) -> str:
        """`last_start` in words. Behind the last stable offset the log may have more records."""
        if self.log.end_offset is not None and self.isolation is IsolationLevel.READ_COMMITTED:
            return f"the last stable offset is {self.last_start}"
        return f"the log ends at offset {self.last_start}"

    def clip(self, stop: int) -> int:
        """`stop`, or the end of the log if that comes before it. Exclusive."""
        return stop if self.log.end_offset is None else min(stop, self.log.end_offset)

    def ends_at(self, stop: int) -> ReadEnds | None:
        """Why a read up to `stop` (exclusive) ends there. None if a broker tells the end, or if more can be read."""
        if self.log.end_offset is not None or stop < self.end_offset:
            return None
        reason = Reason.UNSTABLE if self.end_offset < self.stop_offset else Reason.NOT_TIERED
        return ReadEnds(self.partition, self.end_offset, self.stop_offset, reason)

    @property
    def partition(self) -> TopicIdPartition:
        """The partition's name and id."""
        return self.timeline.partition

    def covering(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """As `Coverage.covering`."""
        return self.tiered(offset) if self.local_start is None or offset < self.local_start else None

    def tiered(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """The best segment in the tier that holds `offset`, also if the broker has the offset on its disk."""
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
        """The partition without these segments, which could not be read."""
        return self.with_timeline(self.timeline.without(segment_ids))

    def within(self, first: int, last: int) -> OpenPartition:
        """The same ends, with the segments that offsets [first, last] need, and their leader epochs.

        The leader epoch of the record before `first` is one of them.
        """
        lineage = self.lineage.within(max(first - 1, 0), last + 1)
        return replace(self, timeline=self.timeline.within(first, last), lineage=lineage)

    def without_segments(self) -> OpenPartition:
        """The same ends and leader epochs without any segment: for a read that only a broker can serve."""
        return replace(self, timeline=Timeline(self.partition, (), ()))

    def with_timeline(self, timeline: Timeline) -> OpenPartition:
        """The same ends over other segments."""
        return replace(self, timeline=timeline)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The steps that read one partition. `aborted` has the aborted transactions that the reader has to leave out.

    `aborted` is None if it is not needed (read_uncommitted) or not known yet. The latter holds for a plan of
    `Planner.outline`, which reads no index. A plan that falls back to the broker has empty `aborted`.
    """

    opened: OpenPartition
    steps: tuple[PlanStep, ...]
    aborted: AbortedIntervals | None

    @property
    def takes_store(self) -> bool:
        """Whether any of the steps is read from the store."""
        return any(isinstance(step, SegmentSlice) for step in self.steps)


def untiered(partition: TopicIdPartition, isolation: IsolationLevel, log: LogBounds) -> OpenPartition:
    """A partition without readable segments in the tier."""
    return OpenPartition(Timeline(partition, (), ()), Lineage.unknown(), isolation, 0, 0, 0, log)
