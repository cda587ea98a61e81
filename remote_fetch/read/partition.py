"""One partition, made ready to read: its segments with their lineage, its ends, and what each isolation level shows.

Rules of the file: small objects are fetched here, never segment bytes but for the ends a listing leaves open; what is
missing is either harmless and said (a checkpoint), or an error before the first record (a lost transaction index).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from remote_fetch.errors import CorruptSegment, RemoteFetchError, Unlocatable
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import HEADER_BYTES
from remote_fetch.formats.checkpoints import ProducerState, parse_leader_epoch_checkpoint, parse_producer_snapshot
from remote_fetch.formats.indexes import OffsetIndex, parse_transaction_index
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    AbortedTransaction,
    IndexType,
    IsolationLevel,
    LogBounds,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.observe import SegmentScanned
from remote_fetch.plan.ranges import PlanStep, SegmentSlice, narrow
from remote_fetch.plan.visibility import AbortedIntervals, closes_before, remote_stable_offset
from remote_fetch.read.session import Session

__all__ = [
    "OpenPartition",
    "load_aborted",
    "narrow_edges",
    "narrow_slice",
    "object_of",
    "open_partition",
    "stable_before",
    "untiered",
]


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """The readable segments of a partition, with the lineage that says which of them belong to the log.

    Offsets [start_offset, stop_offset) lie in the tier; the isolation level may read them up to `stable_stop`, from
    where on the tier alone does not tell what was aborted. `log` is what a broker says of the log's ends, under the
    isolation level: unknown where only the bucket is read, but for a log start that the user has given.
    """

    timeline: Timeline
    lineage: Lineage
    isolation: IsolationLevel
    start_offset: int
    stop_offset: int
    stable_stop: int
    log: LogBounds

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

    @property
    def partition(self) -> TopicIdPartition:
        """Which partition this is."""
        return self.timeline.partition

    def covering(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """As `Coverage.covering`."""
        return self.timeline.covering(offset, self.lineage)

    def readable_end(self, segment: RemoteLogSegmentMetadata) -> int:
        """As `Coverage.readable_end`."""
        return segment.end_offset

    def next_start(self, offset: int) -> int | None:
        """As `Coverage.next_start`."""
        return self.timeline.next_start(offset, self.lineage)

    def without(self, segment_ids: Collection[RemoteLogSegmentId]) -> OpenPartition:
        """The same without segments that turned out to be unreadable."""
        known = zip(self.timeline.segments, self.timeline.finish_order, strict=True)
        kept = [(one, order) for one, order in known if one.segment_id not in segment_ids]
        segments, orders = tuple(one for one, _ in kept), tuple(order for _, order in kept)
        return self.with_timeline(replace(self.timeline, segments=segments, finish_order=orders))

    def with_timeline(self, timeline: Timeline) -> OpenPartition:
        """The same ends over other segments."""
        return replace(self, timeline=timeline)


def object_of(segment: RemoteLogSegmentMetadata) -> str:
    """How messages name a segment: the stem that its objects share in most layouts."""
    return f"{segment.start_offset:020d}-{segment.segment_id.id}"


def open_partition(
    session: Session, partition: TopicIdPartition, isolation: IsolationLevel, log: LogBounds
) -> OpenPartition:
    """Fetch what is needed to plan a read: the lineage, and for read_committed the remote stable offset.

    Raises CorruptSegment for state files that are damaged, Unlocatable when read_committed has no producer snapshot to
    go by, and the errors of a fetcher.
    """
    timeline = session.locator.timeline(partition)
    lineage = _lineage(session, timeline)
    accepted = [segment for segment in timeline.segments if lineage.accepts(segment)]
    if not accepted:
        return untiered(partition, isolation, log)
    start = accepted[0].start_offset
    last = max(accepted, key=lambda segment: segment.end_offset)
    stop = last.end_offset + 1
    stable = stop
    if isolation is IsolationLevel.READ_COMMITTED:
        stable = max(remote_stable_offset(stop, _producers(session, last)), 0)
    return OpenPartition(timeline, lineage, isolation, start, stop, stable, log)


def untiered(partition: TopicIdPartition, isolation: IsolationLevel, log: LogBounds) -> OpenPartition:
    """A partition of which nothing is readable in the tier."""
    return OpenPartition(Timeline(partition, (), ()), Lineage.unknown(), isolation, 0, 0, 0, log)


def stable_before(session: Session, segment: RemoteLogSegmentMetadata) -> int:
    """The first offset whose fate the tier does not tell if nothing after this segment can be read."""
    return remote_stable_offset(segment.end_offset + 1, _producers(session, segment))


def _lineage(session: Session, timeline: Timeline) -> Lineage:
    """The lineage of the newest segment that has one: its checkpoint holds the whole history up to its end."""
    newest = max(
        timeline.segments,
        key=lambda s: (s.segment_leader_epochs[-1].epoch if s.segment_leader_epochs else -1, s.end_offset),
        default=None,
    )
    if newest is None:
        return Lineage.unknown()
    data = session.reader.read_index(newest, IndexType.LEADER_EPOCH)
    if data is None:
        session.observe(SegmentScanned(timeline.partition, IndexType.LEADER_EPOCH, "missing"))
        return Lineage.unknown()
    with _named(newest, IndexType.LEADER_EPOCH):
        return Lineage(parse_leader_epoch_checkpoint(data), newest.end_offset + 1)


def _producers(session: Session, segment: RemoteLogSegmentMetadata) -> tuple[ProducerState, ...]:
    data = session.reader.read_index(segment, IndexType.PRODUCER_SNAPSHOT)
    if data is None:
        raise Unlocatable(
            "the segment has no producer snapshot, so the tier does not tell which transactions are decided",
            first=segment.start_offset,
            last=segment.end_offset,
            topic=segment.topic_id_partition.topic,
            partition=segment.topic_id_partition.partition,
            object_name=object_of(segment),
            hint="isolation=read_uncommitted does not need it",
        )
    with _named(segment, IndexType.PRODUCER_SNAPSHOT):
        return parse_producer_snapshot(data)


def load_aborted(session: Session, opened: OpenPartition, steps: Iterable[PlanStep]) -> AbortedIntervals:
    """The aborted transactions that touch the planned slices, from the transaction indexes of the tier.

    A transaction's entry lies in the segment of its marker: that of its last record, or a later one. Later segments
    are visited only until a producer snapshot says that nothing of the wanted offsets was still open.
    Raises CorruptSegment for an index that is damaged, or lost where metadata says that there is one.
    """
    slices = [step for step in steps if isinstance(step, SegmentSlice)]
    if not slices:
        return AbortedIntervals.of(())
    first, stop = slices[0].first_offset, slices[-1].last_offset + 1
    found: list[AbortedTransaction] = []
    indexed = [step.segment for step in slices]
    found.extend(_aborted_in(session, opened, indexed))
    beyond = slices[-1].segment
    if stop <= opened.stable_stop and beyond.end_offset + 1 >= opened.stop_offset:
        return AbortedIntervals.of(found).clip(first, stop - 1)  # the stable end was found by this very rule
    while not closes_before(stop, _producers(session, beyond)):
        following = opened.covering(beyond.end_offset + 1)
        if following is None:
            break  # the plan ends at the remote stable offset, so only a hole in the tier leads here
        found.extend(_aborted_in(session, opened, [following]))
        beyond = following
    return AbortedIntervals.of(found).clip(first, stop - 1)


def _aborted_in(
    session: Session, opened: OpenPartition, segments: Iterable[RemoteLogSegmentMetadata]
) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    # From the first segment on whose writer says "no transaction index", saying nothing means that there is one.
    told = min((s.start_offset for s in opened.timeline.segments if s.txn_index_empty), default=None)
    wanted = (segment for segment in segments if not segment.txn_index_empty)
    for segment, data in session.reader.read_indexes(wanted, IndexType.TRANSACTION):
        with _named(segment, IndexType.TRANSACTION):
            if data is not None:
                found.extend(parse_transaction_index(data))
            elif told is not None and segment.start_offset >= told:
                raise CorruptSegment("the metadata promises a transaction index, but there is none")
    return found


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
    segment = piece.segment
    partition = segment.topic_id_partition
    data = session.reader.read_index(segment, IndexType.OFFSET)
    if data is None:
        session.observe(SegmentScanned(partition, IndexType.OFFSET, "missing"))
        return piece
    try:
        index = OffsetIndex.parse(
            data, segment.start_offset, end_offset=segment.end_offset, size_bytes=segment.segment_size_in_bytes
        )
    except CorruptSegment:
        session.observe(SegmentScanned(partition, IndexType.OFFSET, "corrupt"))
        return piece
    for candidate in index.candidates():
        narrowed = narrow(piece, candidate)
        if not index.ambiguous or _starts_with_batch(session, narrowed):
            return narrowed
    session.observe(SegmentScanned(partition, IndexType.OFFSET, "ambiguous"))
    return piece


def _starts_with_batch(session: Session, piece: SegmentSlice) -> bool:
    """Whether a batch of the segment stands where the slice starts: tells 8-byte index entries from 12-byte ones."""
    start = piece.start_position
    if start == 0:
        return True
    head = session.reader.read(RangeRequest(piece.segment, start, start + HEADER_BYTES))
    if len(head) < HEADER_BYTES or head[16] > 2:
        return False
    base_offset = int.from_bytes(head[:8], "big", signed=True)
    return piece.segment.start_offset <= base_offset <= piece.start_entry_offset


class _named:
    """Adds to an error which object it is about."""

    def __init__(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> None:
        self._segment = segment
        self._index_type = index_type

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RemoteFetchError):
            partition = self._segment.topic_id_partition
            error.at(
                topic=partition.topic,
                partition=partition.partition,
                object_name=f"{object_of(self._segment)} ({self._index_type} index)",
            )
