"""One partition, made ready to read: its segments with their lineage, its ends, and what each isolation level shows.

Rules of the file: small objects are fetched here, never segment bytes but for the ends a listing leaves open; what is
missing is either harmless and said (a checkpoint), or an error before the first record (a lost transaction index).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from remote_fetch.errors import CorruptSegment, EpochMismatch, UnsupportedFormat
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, FramedBatch, check_crc, read_header
from remote_fetch.formats.checkpoints import parse_leader_epoch_checkpoint
from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    IndexType,
    IsolationLevel,
    LeaderEpoch,
    LogBounds,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.observe import ReadEnds, SegmentScanned
from remote_fetch.plan.ranges import PlanStep, Reason, SegmentSlice, narrow
from remote_fetch.read.session import Session
from remote_fetch.read.state_files import ProducerSnapshots, object_of, read_parsed

__all__ = [
    "OpenPartition",
    "narrow_by",
    "narrow_edges",
    "narrow_slice",
    "open_partition",
    "read_offset_index",
    "untiered",
]

_ASKED_CHECKPOINTS = 8
"""How many of a listing's last segments are asked for their leader epochs: few overlap, and only after an election."""


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
        """What "earliest" means: the log start where a broker tells it, else the start of the tier."""
        told = self.log.log_start_offset or 0
        return told if self.log.end_offset is not None else max(self.start_offset, told)

    @property
    def end_offset(self) -> int:
        """What "latest" means: the log's end where a broker tells it, else the stable end of the tier. Exclusive."""
        return max(self.stable_stop, self.first_offset) if self.log.end_offset is None else self.log.end_offset

    @property
    def last_start(self) -> int:
        """The largest offset that a read may start at: the end of what can be read at all."""
        return max(self.stop_offset, self.first_offset) if self.log.end_offset is None else self.log.end_offset

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
        known = zip(self.timeline.segments, self.timeline.finish_order, strict=True)
        kept = [(one, order) for one, order in known if one.segment_id not in segment_ids]
        segments, orders = tuple(one for one, _ in kept), tuple(order for _, order in kept)
        return self.with_timeline(replace(self.timeline, segments=segments, finish_order=orders))

    def with_timeline(self, timeline: Timeline) -> OpenPartition:
        """The same ends over other segments."""
        return replace(self, timeline=timeline)


def open_partition(
    session: Session, partition: TopicIdPartition, isolation: IsolationLevel, log: LogBounds
) -> OpenPartition:
    """Fetch what is needed to plan a read: the lineage, and for read_committed the remote stable offset.

    Raises EpochMismatch where the broker's log has lost what the tier ends with, until its leader has uploaded anew;
    CorruptSegment for state files that are damaged, Unlocatable when read_committed has no producer snapshot to
    go by, and the errors of a fetcher.
    """
    timeline = session.locator.timeline(partition)
    session.note_unusable(timeline)
    lineage = _lineage(session, timeline)
    _confirm(session, partition, lineage)
    accepted = [segment for segment in timeline.segments if lineage.accepts(segment)]
    if not accepted:
        return untiered(partition, isolation, log)
    start = accepted[0].start_offset
    last = max(accepted, key=lambda segment: segment.end_offset)
    stop = last.end_offset + 1
    stable = stop
    if isolation is IsolationLevel.READ_COMMITTED:
        snapshots = ProducerSnapshots(session)
        # The stable offset never falls: an end offset that is too high must not make an early snapshot the last word.
        stable = max(snapshots.stable_before(one) for one in dict.fromkeys((last, accepted[-1])))
    return OpenPartition(timeline, lineage, isolation, start, stop, stable, log)


def untiered(partition: TopicIdPartition, isolation: IsolationLevel, log: LogBounds) -> OpenPartition:
    """A partition of which nothing is readable in the tier."""
    return OpenPartition(Timeline(partition, (), ()), Lineage.unknown(), isolation, 0, 0, 0, log)


def _lineage(session: Session, timeline: Timeline) -> Lineage:
    """The lineage of the newest segment that has one: its checkpoint holds the whole history up to its end.

    Newest by leader epoch, where metadata tells it. A listing does not, and after an unclean election the branch that
    lost may reach further than the log; so there the last few segments are asked, and the highest epoch is believed.
    """
    by_epoch = [segment for segment in timeline.segments if segment.segment_leader_epochs]
    if by_epoch:
        asked = [max(by_epoch, key=lambda one: (one.segment_leader_epochs[-1].epoch, one.end_offset))]
    else:
        asked = list(timeline.segments[-_ASKED_CHECKPOINTS:])
    best: tuple[LeaderEpoch, int] | None = None
    source, lineage = None, Lineage.unknown()
    for segment in asked:
        entries = read_parsed(session, segment, IndexType.LEADER_EPOCH, parse_leader_epoch_checkpoint)
        if entries is None:
            session.observe(SegmentScanned(timeline.partition, IndexType.LEADER_EPOCH, "missing"))
        elif entries and (best is None or (entries[-1], segment.end_offset) > best):
            best = (entries[-1], segment.end_offset)
            source, lineage = segment, Lineage(entries, segment.end_offset + 1)
    if source is not None and not lineage.accepts(source):
        raise _contradiction(source)
    return lineage


def _contradiction(segment: RemoteLogSegmentMetadata) -> CorruptSegment:
    """Metadata and checkpoint are of one leader: where they differ, either may be wrong, and with it what counts."""
    partition = segment.topic_id_partition
    told = ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in segment.segment_leader_epochs)
    return CorruptSegment(
        f"the leader-epoch checkpoint of a segment does not have the leader epochs of its metadata ({told:.200})",
        topic=partition.topic,
        partition=partition.partition,
        offset=segment.start_offset,
        object_name=f"{object_of(segment)} ({IndexType.LEADER_EPOCH} index)",
    )


def _confirm(session: Session, partition: TopicIdPartition, lineage: Lineage) -> None:
    """Ask the broker, where there is one, whether the tier's lineage still is the log's (KIP-320)."""
    if session.cluster is None or lineage.end_offset is None:
        return
    epoch = lineage.epoch_for(lineage.end_offset - 1)
    if epoch is not None and not session.cluster.still_holds(partition, epoch, lineage.end_offset):
        raise EpochMismatch(
            f"the log is no longer the one whose leader epoch {epoch} ended at {lineage.end_offset} in the tier",
            topic=partition.topic,
            partition=partition.partition,
            offset=lineage.end_offset - 1,
        )


def narrow_edges(session: Session, steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps with byte positions for the slices that want only a part of their segment, from its offset index.

    An index that is missing, damaged, or readable in two ways of which the bytes confirm neither, is no error: the
    segment is then read from its first byte, and that is counted.
    """
    return tuple(
        narrow_slice(session, step) if isinstance(step, SegmentSlice) and not step.is_whole else step for step in steps
    )


def narrow_slice(session: Session, piece: SegmentSlice) -> SegmentSlice:
    """One slice with the byte positions of its segment's offset index: see `narrow_edges`."""
    index = read_offset_index(session, piece.segment)
    return piece if index is None else narrow_by(session, piece, index)


def read_offset_index(session: Session, segment: RemoteLogSegmentMetadata) -> OffsetIndex | None:
    """The offset index of a segment; None where it is missing or damaged, which is counted."""
    partition = segment.topic_id_partition
    data = session.reader.read_index(segment, IndexType.OFFSET)
    if data is None:
        session.observe(SegmentScanned(partition, IndexType.OFFSET, "missing"))
        return None
    try:
        return OffsetIndex.parse(
            data, segment.start_offset, end_offset=segment.end_offset, size_bytes=segment.known_size_bytes
        )
    except CorruptSegment:
        session.observe(SegmentScanned(partition, IndexType.OFFSET, "corrupt"))
        return None


def narrow_by(session: Session, piece: SegmentSlice, index: OffsetIndex) -> SegmentSlice:
    """One slice with the byte positions that an index gives; as it was, which is counted, where the bytes confirm none.

    (An index may be readable with either entry size.)
    """
    for candidate in index.candidates():
        narrowed = narrow(piece, candidate)
        if not index.ambiguous or _starts_with_batch(session, narrowed):
            return narrowed
    session.observe(SegmentScanned(piece.segment.topic_id_partition, IndexType.OFFSET, "ambiguous"))
    return piece


def _starts_with_batch(session: Session, piece: SegmentSlice) -> bool:
    """Whether a batch of the segment stands where the slice starts: tells 8-byte index entries from 12-byte ones."""
    if piece.start_position == 0:
        return True
    try:
        header = _header_at(session, piece.segment, piece.start_position)
    except (CorruptSegment, UnsupportedFormat):
        return False
    return header is not None and piece.segment.start_offset <= header.base_offset <= piece.start_entry_offset


def _header_at(session: Session, segment: RemoteLogSegmentMetadata, position: int) -> BatchHeader | None:
    """The header of the batch at `position`, None where the segment ends before it does.

    The whole batch is fetched, for only its checksum tells it from bytes that look like one. Raises CorruptSegment and
    UnsupportedFormat where none begins there.
    """
    reader, bound = session.reader, session.config.number("fetch.remote.max.batch.bytes")
    data, wanted_bytes = b"", HEADER_BYTES
    while True:
        stop = min(position + wanted_bytes, position + len(data) + reader.range_bytes)
        more = reader.read(RangeRequest(segment, position + len(data), stop))
        data += more
        found = read_header(memoryview(data), 0, position=position, max_batch_bytes=bound)
        if not isinstance(found, int):
            check_crc(FramedBatch(found, position, memoryview(data)[: found.size_bytes]))
            return found
        if not len(more):
            return None
        wanted_bytes = max(found, HEADER_BYTES)
