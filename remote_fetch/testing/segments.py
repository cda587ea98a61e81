"""Cuts a log into segments, with the files that a broker uploads beside each of them.

Rules of the file:

- Pure.
- The files are those that a broker writes. Tests compare them with segments of real brokers.
- No code is shared with the package's readers.

Formats: Kafka's offset, time and transaction index, leader-epoch checkpoint and producer snapshot. The metadata is that
of KIP-405.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from struct import Struct
from typing import Literal

from remote_fetch.model import (
    AbortedTransaction,
    IndexType,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.producers import ProducerStates, WrittenBatch

__all__ = [
    "BuiltSegment",
    "SegmentOptions",
    "build_segments",
    "encode_checkpoint",
    "encode_offset_index",
    "encode_time_index",
    "encode_transaction_index",
]

_OFFSET_ENTRY = {8: Struct(">ii"), 12: Struct(">iq")}
_TIME_ENTRY = Struct(">qi")
_TXN_ENTRY = Struct(">hqqqq")
_TXN_VERSION = 0
_CHECKPOINT_VERSION = 0
_EVENT_TIMESTAMP_MS = 1_800_000_000_000
"""The time of the first upload. Each segment is copied one second after the segment before it."""


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """How the broker that writes and uploads the segments behaves.

    - `index_interval_bytes`: `index.interval.bytes`. A large value leaves the offset index empty, which is common.
    - `index_entry_bytes`: 8, or 12 as in KIP-1333.
    - `index_per_append`: at most one index entry for each append call (before Kafka 4.0), not for each batch.
    - `flags_empty_txn_index`: whether the metadata marks a missing transaction index, as from Kafka 4.0 on.
    - `upload`: makes the segment ids of a repeated upload differ.
    """

    index_interval_bytes: int = 4096
    index_entry_bytes: Literal[8, 12] = 8
    index_per_append: bool = False
    flags_empty_txn_index: bool = True
    broker_id: int = 1
    upload: int = 0


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """One closed segment: its metadata and all its files. `transaction_index` None: the file does not exist."""

    metadata: RemoteLogSegmentMetadata
    log: bytes
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    leader_epoch_checkpoint: bytes
    producer_snapshot: bytes

    def index(self, index_type: IndexType) -> bytes | None:
        """The index of that type, None if a broker writes none."""
        return {
            IndexType.OFFSET: self.offset_index,
            IndexType.TIMESTAMP: self.time_index,
            IndexType.TRANSACTION: self.transaction_index,
            IndexType.LEADER_EPOCH: self.leader_epoch_checkpoint,
            IndexType.PRODUCER_SNAPSHOT: self.producer_snapshot,
        }[index_type]


def encode_offset_index(entries: Iterable[tuple[int, int]], entry_bytes: Literal[8, 12] = 8) -> bytes:
    """An `.index` file of (relative offset, byte position) entries; 12-byte entries are those of KIP-1333."""
    return b"".join(_OFFSET_ENTRY[entry_bytes].pack(*entry) for entry in entries)


def encode_time_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """A `.timeindex` file of (timestamp in ms, relative offset) entries."""
    return b"".join(_TIME_ENTRY.pack(*entry) for entry in entries)


def encode_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """A `.txnindex` file."""
    return b"".join(
        _TXN_ENTRY.pack(_TXN_VERSION, e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset)
        for e in entries
    )


def encode_checkpoint(lineage: Sequence[LeaderEpoch]) -> bytes:
    """A leader-epoch checkpoint: version, count, then `epoch start-offset`, a line each."""
    lines = [str(_CHECKPOINT_VERSION), str(len(lineage)), *(f"{e.epoch} {e.start_offset}" for e in lineage)]
    return "".join(f"{line}\n" for line in lines).encode()


def build_segments(
    partition: TopicIdPartition,
    batches: Sequence[WrittenBatch],
    cuts: Sequence[int],
    lineage: Sequence[LeaderEpoch],
    options: SegmentOptions | None = None,
) -> list[BuiltSegment]:
    """The segments of a log between neighbouring `cuts`, which are base offsets in ascending order.

    `batches` is the whole log from its start. Batches before the first cut only set the producers' state. Raises
    ValueError for a cut inside a batch or between batches of one append call.
    """
    options = options or SegmentOptions()
    producers = ProducerStates()
    for batch in batches:
        if cuts and batch.base_offset < cuts[0]:
            producers.apply(batch)
    for cut in cuts:
        _check_cut(batches, cut)
    built = []
    for number, (start, stop) in enumerate(pairwise(cuts)):
        inside = [batch for batch in batches if start <= batch.base_offset < stop]
        aborted = [entry for batch in inside if (entry := producers.apply(batch)) is not None]
        files = _Files([batch for batch in inside if batch.data], start, options)
        event_timestamp_ms = _EVENT_TIMESTAMP_MS + 1000 * number
        metadata = RemoteLogSegmentMetadata(
            segment_id=_segment_id(partition, start, stop, options),
            start_offset=start,
            end_offset=stop - 1,
            segment_size_in_bytes=len(files.log),
            # A broker falls back to the file's own time if no record has one.
            max_timestamp_ms=files.max_timestamp_ms if files.max_timestamp_ms >= 0 else event_timestamp_ms,
            event_timestamp_ms=event_timestamp_ms,
            broker_id=options.broker_id,
            segment_leader_epochs=tuple(_epochs_within(lineage, start, stop)),
            txn_index_empty=options.flags_empty_txn_index and not aborted,
        )
        built.append(
            BuiltSegment(
                metadata=metadata,
                log=files.log,
                offset_index=encode_offset_index(files.offset_entries, options.index_entry_bytes),
                time_index=encode_time_index(files.time_entries),
                transaction_index=encode_transaction_index(aborted) if aborted else None,
                leader_epoch_checkpoint=encode_checkpoint([e for e in lineage if e.start_offset < stop]),
                producer_snapshot=producers.snapshot(),
            )
        )
    return built


def _check_cut(batches: Sequence[WrittenBatch], cut: int) -> None:
    for before, after in pairwise(batches):
        if before.last_offset < cut <= after.base_offset and before.append == after.append:
            raise ValueError(f"a cut at {cut} divides one append call")
    if any(batch.base_offset < cut <= batch.last_offset for batch in batches):
        raise ValueError(f"a cut at {cut} divides a batch")


def _segment_id(partition: TopicIdPartition, start: int, stop: int, options: SegmentOptions) -> RemoteLogSegmentId:
    name = f"{partition}/{start}/{stop}/{options.broker_id}/{options.upload}"
    return RemoteLogSegmentId(partition, Uuid(hashlib.sha256(name.encode()).digest()[:16]))


def _epochs_within(lineage: Sequence[LeaderEpoch], start: int, stop: int) -> Iterator[LeaderEpoch]:
    ends = [entry.start_offset for entry in lineage[1:]] + [stop]
    for entry, end in zip(lineage, ends, strict=True):
        if entry.start_offset < stop and end > start:
            yield LeaderEpoch(entry.epoch, max(entry.start_offset, start))


class _Files:
    """The log and its two sparse indexes, written append by append as Kafka's LogSegment does."""

    def __init__(self, batches: Sequence[WrittenBatch], base_offset: int, options: SegmentOptions) -> None:
        self.log = b"".join(batch.data for batch in batches)
        self.offset_entries: list[tuple[int, int]] = []
        self.time_entries: list[tuple[int, int]] = []
        self.max_timestamp_ms = -1
        self._offset_of_max = base_offset
        self._base_offset = base_offset
        position = 0
        unindexed_bytes = 0
        for group in _groups(batches, options.index_per_append):
            self._see_timestamps(group)
            if unindexed_bytes > options.index_interval_bytes:
                self.offset_entries.append((group[-1].last_offset - base_offset, position))
                self._index_time()
                unindexed_bytes = 0
            size_bytes = sum(len(batch.data) for batch in group)
            position += size_bytes
            unindexed_bytes += size_bytes
        self._index_time()  # the roll always adds the last one

    def _see_timestamps(self, group: Sequence[WrittenBatch]) -> None:
        for batch in group:
            if batch.max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = batch.max_timestamp_ms
                self._offset_of_max = batch.last_offset

    def _index_time(self) -> None:
        last_ms = self.time_entries[-1][0] if self.time_entries else -1
        if self.max_timestamp_ms > last_ms:
            self.time_entries.append((self.max_timestamp_ms, self._offset_of_max - self._base_offset))


def _groups(batches: Sequence[WrittenBatch], per_append: bool) -> Iterator[list[WrittenBatch]]:
    if not per_append:
        return ([batch] for batch in batches)
    return (list(group) for _, group in groupby(batches, key=lambda batch: batch.append))
