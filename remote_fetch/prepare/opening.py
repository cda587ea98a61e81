"""Makes one partition ready to plan: reads its lineage, confirms it with the broker, and finds the stable offset.

Rules of the file:

- Small objects are fetched here. Segment bytes are fetched only if a listing does not tell where a segment ends.
- A missing checkpoint is counted, and is no error. A lost transaction index raises before the first record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from remote_fetch.errors import CorruptSegment, EpochMismatch
from remote_fetch.formats.checkpoints import parse_leader_epoch_checkpoint
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    IndexType,
    IsolationLevel,
    LeaderEpoch,
    LogBounds,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.observe import SegmentScanned
from remote_fetch.prepare.segment_files import ProducerSnapshots, damaged_file, parsed
from remote_fetch.prepare.view import OpenPartition, untiered
from remote_fetch.session.storage import Storage

__all__ = ["StillHolds", "open_partition"]

StillHolds: TypeAlias = Callable[[TopicIdPartition, int, int], bool]
"""`Cluster.still_holds`, or a question that asks it."""

_ASKED_CHECKPOINTS = 8
"""How many of a listing's last checkpoints are read. Segments overlap only after an election, and only a few do."""


def open_partition(
    storage: Storage, holds: StillHolds | None, timeline: Timeline, isolation: IsolationLevel, log: LogBounds
) -> OpenPartition:
    """Fetch the lineage of a timeline's partition and, for read_committed, the offset up to which the tier is stable.

    `holds` asks the brokers, as `Cluster.still_holds`. None: there are none.

    Raises EpochMismatch if the broker's log has lost the end of the tier and its leader has not uploaded it again.
    Raises CorruptSegment for damaged state files, Unlocatable if read_committed finds no producer snapshot, and the
    errors of a fetcher.
    """
    partition = timeline.partition
    lineage = _lineage(storage, timeline)
    if holds is not None:
        _confirm(holds, partition, lineage)
    accepted = [segment for segment in timeline.segments if lineage.accepts(segment)]
    if not accepted:
        return untiered(partition, isolation, log)
    start = _start_of(timeline, accepted[0].start_offset, lineage)
    last = max(accepted, key=lambda segment: segment.end_offset)
    stop = last.end_offset + 1
    stable = stop
    if isolation is IsolationLevel.READ_COMMITTED and timeline.listed_aborts is None:
        snapshots = ProducerSnapshots(storage)
        # The stable offset never falls. If a segment's end offset is too high, an older snapshot must not lower it.
        stable = max(snapshots.stable_before(segment) for segment in dict.fromkeys((last, accepted[-1])))
    return OpenPartition(timeline, lineage, isolation, start, stop, stable, log)


def _start_of(timeline: Timeline, first_accepted: int, lineage: Lineage) -> int:
    """The first offset of the log in the tier. It may lie in a hole before the first accepted segment.

    If an earlier segment does not belong to this lineage, the log still has its offsets, and the tier lacks them.
    """
    known_start = lineage.entries[0].start_offset if lineage.entries else first_accepted
    return min(first_accepted, max(timeline.segments[0].start_offset, known_start))


def _lineage(storage: Storage, timeline: Timeline) -> Lineage:
    """The lineage from the checkpoint of the newest segment, which holds the whole history up to the segment's end.

    - If metadata has leader epochs, the newest segment is the one with the highest epoch.
    - A listing has no epochs. After an unclean election the lost branch may reach further than the log. So the
      checkpoints of the last few segments are read, and the one with the highest epoch is used.
    - A leader's answer names only segments of its own log, so its last segment is used.
    """
    by_epoch = [segment for segment in timeline.segments if segment.segment_leader_epochs]
    if by_epoch:
        asked = [max(by_epoch, key=lambda segment: (segment.segment_leader_epochs[-1].epoch, segment.end_offset))]
    else:
        asked = list(timeline.segments[-1 if timeline.is_leaders else -_ASKED_CHECKPOINTS :])
    best: tuple[LeaderEpoch, int] | None = None
    source, lineage = None, Lineage.unknown()
    for segment, data in storage.reader.read_indexes(asked, IndexType.LEADER_EPOCH):
        entries = parsed(storage, segment, IndexType.LEADER_EPOCH, parse_leader_epoch_checkpoint, data)
        if entries is None:
            storage.observe(SegmentScanned(timeline.partition, IndexType.LEADER_EPOCH, "missing"))
        elif entries and (best is None or (entries[-1], segment.end_offset) > best):
            best = (entries[-1], segment.end_offset)
            source, lineage = segment, Lineage(entries, segment.end_offset + 1)
    if source is not None and not lineage.accepts(source):
        raise _contradiction(source)
    return lineage


def _contradiction(segment: RemoteLogSegmentMetadata) -> CorruptSegment:
    """The error if the leader epochs of the metadata differ from those of the checkpoint.

    One leader wrote both. So either may be wrong, and the lineage cannot be trusted.
    """
    epochs = ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in segment.segment_leader_epochs)
    text = f"the leader-epoch checkpoint of a segment does not have the leader epochs of its metadata ({epochs:.200})"
    return damaged_file(segment, IndexType.LEADER_EPOCH, text).at(offset=segment.start_offset)


def _confirm(holds: StillHolds, partition: TopicIdPartition, lineage: Lineage) -> None:
    """Ask the broker whether the tier's lineage is still the lineage of the log (KIP-320)."""
    if lineage.end_offset is None:
        return
    epoch = lineage.epoch_for(lineage.end_offset - 1)
    if epoch is not None and not holds(partition, epoch, lineage.end_offset):
        raise EpochMismatch(
            f"the log is no longer the one whose leader epoch {epoch} ended at {lineage.end_offset} in the tier",
            offset=lineage.end_offset - 1,
            **partition.place,
        )
