"""Finds the aborted transactions for a read_committed read, and the offset up to which the tier tells them.

Rules of the file:

- A slice is planned only if the tier tells, for all its records, whether their transactions were committed.
- A marker may lie in a later segment than its records. If a hole or the end of the tier comes before the marker, only
  the broker can read the records.
- A listing only guesses where segments end. So the end of a segment is measured if a transaction is open there.
- A checkpoint of leader epochs may be wrong. So a transaction is left out only if a batch confirms the checkpoint.
- The bounds of a segment may be wrong. So the transaction indexes of all segments that share offsets with it are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest

from remote_fetch.errors import Unlocatable
from remote_fetch.formats.checkpoints import parse_leader_epoch_checkpoint
from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.locate.lineage import Lineage, epoch_at
from remote_fetch.locate.locator import Locator
from remote_fetch.model import AbortedTransaction, IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import (
    BrokerRange,
    PlanStep,
    Reason,
    SegmentSlice,
    plan_offsets,
    replace_tail,
    settle_holes,
    slices_of,
)
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.prepare.batch_walk import batches_of
from remote_fetch.prepare.positions import narrow_slice
from remote_fetch.prepare.segment_files import ProducerSnapshots, damaged_file, parsed
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.session.storage import Storage

__all__ = ["is_decided", "load_aborted", "measured_behind", "settle", "settle_listed", "settle_steps"]


def settle(
    storage: Storage, ends: Locator, opened: OpenPartition, first: int, stop: int
) -> tuple[OpenPartition, tuple[PlanStep, ...], AbortedIntervals]:
    """The steps of a read_committed read of offsets [first, stop), and the aborted transactions in them.

    The broker gets the offsets at the end whose transactions the tier does not tell.
    Raises CorruptSegment for damaged state files, Unlocatable for a missing producer snapshot, and the errors of a
    fetcher.
    """
    snapshots = ProducerSnapshots(storage)
    opened, steps = settle_steps(snapshots, ends, opened, first, stop)
    return opened, steps, load_aborted(storage, opened, steps, snapshots)


def settle_steps(
    snapshots: ProducerSnapshots, ends: Locator, opened: OpenPartition, first: int, stop: int
) -> tuple[OpenPartition, tuple[PlanStep, ...]]:
    """As `settle`, but without the aborted transactions: no transaction index is read."""
    for measure in (_measured, measured_behind):
        opened = measure(ends, opened, _planned(opened, first, stop), snapshots)
    steps = settle_holes(_planned(opened, first, stop), snapshots.stable_before)
    return opened, _cut_undecided(opened, steps, snapshots)


def _planned(opened: OpenPartition, first: int, stop: int) -> tuple[PlanStep, ...]:
    return plan_offsets(opened, first, stop, stable_stop=opened.stable_stop)


def settle_listed(opened: OpenPartition, steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps of a read_committed read if brokers list the aborted transactions, in place of the tier's indexes.

    A slice is read from the store only if a broker was asked for the list from the slice's first offset on. Any other
    list may have transactions whose markers lie before the slice. It would hide records after them.
    """
    lists = opened.timeline.listed_aborts or {}
    return tuple(
        BrokerRange(opened.partition, step.first_offset, step.last_offset, Reason.UNSTABLE)
        if isinstance(step, SegmentSlice) and (step.segment.segment_id, step.first_offset) not in lists
        else step
        for step in steps
    )


def is_decided(opened: OpenPartition, steps: Sequence[PlanStep], snapshots: ProducerSnapshots) -> bool:
    """Whether the segments of `opened` hold the markers of every transaction that touches the planned slices."""
    return all(_followers(opened, last, snapshots)[1] for last in _last_slices(steps))


def _last_slices(steps: Sequence[PlanStep]) -> list[SegmentSlice]:
    """The slices that no other slice follows directly.

    Behind such a slice a broker has to serve offsets, or a filter has dropped segments. The markers of its transactions
    may be there.
    """
    return [
        step
        for step, following in zip_longest(steps, steps[1:])
        if isinstance(step, SegmentSlice)
        and not (isinstance(following, SegmentSlice) and following.first_offset <= step.stop_offset)
    ]


def _measured(
    ends: Locator, opened: OpenPartition, steps: Sequence[PlanStep], snapshots: ProducerSnapshots
) -> OpenPartition:
    """`opened` with measured segment ends.

    A segment is measured if its end is a guess, and if a transaction is open there or its producer snapshot is missing.
    """
    guessed = [step for step in steps if isinstance(step, SegmentSlice) and ends.end_is_inferred(step.segment)]
    snapshots.load(step.segment for step in guessed)
    undecided: list[RemoteLogSegmentMetadata] = []
    for step in guessed:
        try:
            is_decided = snapshots.closes_before(step.segment, step.stop_offset)
        except Unlocatable:
            is_decided = False  # without a snapshot the real end is needed
        if not is_decided:
            undecided.append(step.segment)
    return opened.with_timeline(ends.measure(opened.partition, undecided)) if undecided else opened


def _followers(
    opened: OpenPartition, last: SegmentSlice, snapshots: ProducerSnapshots
) -> tuple[list[RemoteLogSegmentMetadata], bool]:
    """The segments after the last slice that may hold markers of its transactions. Do they hold all of them?"""
    stop, beyond = last.stop_offset, last.segment
    found: list[RemoteLogSegmentMetadata] = []
    if stop <= opened.stable_stop and beyond.end_offset + 1 >= opened.stop_offset:
        return found, True  # `stable_stop` comes from the same rule
    while not snapshots.closes_before(beyond, stop):
        following = opened.tiered(beyond.end_offset + 1)
        if following is None:
            return found, False
        found.append(following)
        beyond = following
    return found, True


def measured_behind(
    ends: Locator, opened: OpenPartition, steps: Sequence[PlanStep], snapshots: ProducerSnapshots
) -> OpenPartition:
    """`opened` with measured ends of the segments that are only visited for markers. A lost segment may follow them."""
    measured: set[RemoteLogSegmentId] = set()
    for last in _last_slices(steps):
        while True:
            found, is_decided = _followers(opened, last, snapshots)
            passed = (
                segment for segment in (found[:-1] if is_decided else found) if segment.segment_id not in measured
            )
            guessed = next(filter(ends.end_is_inferred, passed), None)
            if guessed is None:
                break
            measured.add(guessed.segment_id)
            opened = opened.with_timeline(ends.measure(opened.partition, [guessed]))
    return opened


def _cut_undecided(
    opened: OpenPartition, steps: tuple[PlanStep, ...], snapshots: ProducerSnapshots
) -> tuple[PlanStep, ...]:
    """The steps, with broker ranges for the offsets whose markers no readable segment holds."""
    for last in _last_slices(steps):
        followers, is_decided = _followers(opened, last, snapshots)
        if not is_decided:
            first = snapshots.stable_before(followers[-1] if followers else last.segment)
            at = steps.index(last) + 1
            undecided = BrokerRange(opened.partition, first, last.last_offset, Reason.UNSTABLE)
            steps = (*replace_tail(steps[:at], undecided), *steps[at:])
    return steps


def load_aborted(
    storage: Storage, opened: OpenPartition, steps: Sequence[PlanStep], snapshots: ProducerSnapshots | None = None
) -> AbortedIntervals:
    """The aborted transactions that touch the planned slices, from the transaction indexes of the tier.

    The entry of a transaction is in the index of the segment with its marker: the segment of its last record, or a
    later one. Later segments are visited until, by a producer snapshot, no transaction of the wanted offsets is open.
    Every segment that shares offsets with one of these is visited too. If bounds are wrong, it has the markers.

    Raises CorruptSegment if an index is damaged, or missing or empty although the metadata says that it has entries.
    """
    snapshots = snapshots or ProducerSnapshots(storage)
    slices = slices_of(steps)
    if not slices:
        return AbortedIntervals.of(())
    followers = [found for last in _last_slices(steps) for found in _followers(opened, last, snapshots)[0]]
    chosen = [*(step.segment for step in slices), *followers]
    segments = {one.segment_id: one for one in [*chosen, *_overlapping(opened, chosen, slices[0].first_offset)]}
    found = _aborted_in(storage, opened, segments.values())
    return AbortedIntervals.of(found).clip(slices[0].first_offset, slices[-1].last_offset)


def _overlapping(
    opened: OpenPartition, chosen: Iterable[RemoteLogSegmentMetadata], first: int
) -> Iterator[RemoteLogSegmentMetadata]:
    """The segments of the log that share offsets from `first` on with a chosen segment, and the chosen ones.

    An end offset that is too high, or a start offset that is too low, hides the segments that have the offsets.
    """
    for segment in chosen:
        for other, _, _ in opened.timeline.found(max(segment.start_offset, first), segment.end_offset):
            if opened.lineage.accepts(other):
                yield other


def _aborted_in(
    storage: Storage, opened: OpenPartition, segments: Iterable[RemoteLogSegmentMetadata]
) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    doubtful: dict[RemoteLogSegmentId, tuple[RemoteLogSegmentMetadata, Sequence[AbortedTransaction]]] = {}
    # From this offset on, a segment without `txn_index_empty` must have an index.
    complete_from = opened.tells_txn_index_from
    wanted = (segment for segment in segments if not segment.txn_index_empty)
    for segment, data in _indexes_of(storage, wanted):
        parse = partial(parse_transaction_index, start_offset=segment.start_offset)
        entries = parsed(storage, segment, IndexType.TRANSACTION, parse, data)
        if not entries:  # a broker that tells of an index copies none without entries
            if complete_from is not None and segment.start_offset >= complete_from:
                state = "missing" if data is None else "empty"
                text = f"the metadata promises a transaction index with entries, but it is {state}"
                raise damaged_file(segment, IndexType.TRANSACTION, text)
        elif segment.segment_leader_epochs or opened.lineage.has_no_branch:
            found.extend(entries)
        else:
            doubtful[segment.segment_id] = segment, entries
    return [*found, *_of_the_log(storage, opened.lineage, doubtful)]


def _indexes_of(
    storage: Storage, segments: Iterable[RemoteLogSegmentMetadata]
) -> Iterator[tuple[RemoteLogSegmentMetadata, memoryview | None]]:
    """The transaction index of each segment, in any order. The empty ones are fetched a second time, after the others.

    Brokers hardly ever copy an empty index. The answer may have lost its bytes on the way.
    """
    empty: list[RemoteLogSegmentMetadata] = []
    for segment, data in storage.reader.read_indexes(segments, IndexType.TRANSACTION):
        if data is None or data.nbytes:
            yield segment, data
        else:
            empty.append(segment)
    yield from storage.reader.read_indexes(empty, IndexType.TRANSACTION)


def _of_the_log(
    storage: Storage,
    lineage: Lineage,
    doubtful: Mapping[RemoteLogSegmentId, tuple[RemoteLogSegmentMetadata, Sequence[AbortedTransaction]]],
) -> Iterator[AbortedTransaction]:
    """The transactions of listed segments whose markers are in the log.

    A listing does not tell which segments an unclean election has cut off. Their transactions would hide committed
    records of the log. The checkpoint of the segment has the leader epoch of each marker. Raises CorruptSegment if the
    batch of a marker contradicts a checkpoint by which the marker is not in the log.
    """
    segments = [segment for segment, _ in doubtful.values()]
    for segment, data in storage.reader.read_indexes(segments, IndexType.LEADER_EPOCH):
        epochs = parsed(storage, segment, IndexType.LEADER_EPOCH, parse_leader_epoch_checkpoint, data) or ()
        is_checked = False
        for entry in doubtful[segment.segment_id][1]:
            epoch = epoch_at(epochs, entry.last_offset)
            if epoch is None or lineage.agrees(entry.last_offset, epoch):
                yield entry
            elif not is_checked:  # no later marker of this segment is in the log either
                _check_epoch(storage, segment, entry.last_offset, epoch)
                is_checked = True


def _check_epoch(storage: Storage, segment: RemoteLogSegmentMetadata, offset: int, epoch: int) -> None:
    """Raise CorruptSegment if the batch with `offset` has another leader epoch than the segment's checkpoint."""
    piece = narrow_slice(storage, SegmentSlice(segment, offset, offset))
    headers = (batch.header for batch in batches_of(storage, piece, piece.end_position))
    header = next((header for header in headers if header.last_offset >= offset), None)
    if header is not None and header.leader_epoch not in (-1, epoch):
        raise damaged_file(
            segment,
            IndexType.LEADER_EPOCH,
            f"by the checkpoint, offset {offset} has leader epoch {epoch}; its batch has {header.leader_epoch}",
        )
