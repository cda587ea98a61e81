"""Where the log of a partition lies: the bounds of the whole log, of the tier, and of the brokers' own disks.

Rules of the file:

- A fact that neither a broker nor the tier tells is None. It is never guessed.
- Offsets called `stop` or `end` are exclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remote_fetch.errors import FallsBackError
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.observe import Notice
from remote_fetch.prepare.opening import open_partition
from remote_fetch.session.local_logs import LocalLog
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.session import Session

__all__ = ["LogLayout", "log_layouts"]


@dataclass(frozen=True, slots=True)
class LogLayout:
    """The bounds of one partition. None: unknown, or for the tier that it has nothing.

    - `log_start`, `high_watermark` and `last_stable_offset` are the brokers'.
    - `tier_start` and `tier_end` are those of the finished segments, by the brokers' metadata or a listing.
    - `remote_stable_offset`: the tier tells of all offsets before it whether they were committed or aborted.
    - `local_start` is the first offset on the leader's disk (EARLIEST_LOCAL).
    - `remote_bytes` are those of the logs as Kafka wrote them. `stored_bytes` are those of all objects, None if the
      plug-in does not tell. `local_bytes` are those of the largest replica.
    """

    partition: TopicIdPartition
    log_start: int | None
    tier_start: int | None
    tier_end: int | None
    remote_stable_offset: int | None
    local_start: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    segments: int
    remote_bytes: int | None
    stored_bytes: int | None
    local_bytes: int | None

    @property
    def copy_lag(self) -> int | None:
        """How many offsets up to the high watermark are on the brokers' disks alone. The active segment counts."""
        if self.high_watermark is None or self.log_start is None:
            return None
        return max(self.high_watermark - max(self.tier_end or 0, self.log_start), 0)


def log_layouts(session: Session, partitions: Sequence[TopicIdPartition]) -> tuple[LogLayout, ...]:
    """The bounds of each partition, in order.

    Raises the errors of the locator and of brokers, and those of `ConfiguredLocator.check`.
    """
    local = session.local_logs.ask(partitions, "the columns of the local log are empty", sizes=True)
    layouts = all_at_once(lambda partition: _layout(session, partition, local.get(partition)), partitions)
    session.configured_locator.check()
    return layouts


def _layout(session: Session, partition: TopicIdPartition, local: LocalLog | None) -> LogLayout:
    committed = uncommitted = LogBounds()
    if session.brokers is not None:
        cluster = session.brokers.cluster
        committed = cluster.log_bounds(partition, IsolationLevel.READ_COMMITTED)
        uncommitted = cluster.log_bounds(partition, IsolationLevel.READ_UNCOMMITTED)
    timeline = session.locator.timeline(partition)
    sizes = [segment.known_size_bytes for segment in timeline.segments]
    stored = [session.stored_size(segment) for segment in timeline.segments]
    return LogLayout(
        partition,
        uncommitted.log_start_offset,
        timeline.start_offset,
        timeline.end_offset,
        _stable_offset(session, timeline),
        None if local is None else local.start_offset,
        uncommitted.end_offset,
        committed.end_offset,
        len(timeline.segments),
        _sum(sizes),
        _sum(stored) if timeline.segments else None,
        None if local is None else local.size_bytes,
    )


def _stable_offset(session: Session, timeline: Timeline) -> int | None:
    """The remote stable offset, None if the tier has nothing, or lacks a readable producer snapshot."""
    if not timeline.segments:
        return None
    try:
        opened = open_partition(session.storage, None, timeline, IsolationLevel.READ_COMMITTED, LogBounds())
    except FallsBackError as error:
        session.observe(Notice(f"remote stable offset unknown: {error}", is_warning=True))
        return None
    return opened.stable_stop


def _sum(sizes: Sequence[int | None]) -> int | None:
    """The sum, None if one of the numbers is unknown."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
