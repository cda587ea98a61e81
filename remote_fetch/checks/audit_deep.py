"""Reads segments whole, with all files beside them, and finds their faults.

Rules of the file:

- Only errors that say something about the segment are findings. An error of the storage itself is raised.
- A journal may say that a segment is sound. Then the segment is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from remote_fetch.checks.deep_journal import DeepJournal
from remote_fetch.checks.findings import Finding, FindingKind
from remote_fetch.checks.log_check import LogCheck, LogFacts, OpenTransactions
from remote_fetch.errors import CorruptSegment, DecompressionLimit, RemoteFetchError, SegmentNotFound, UnsupportedFormat
from remote_fetch.formats.checkpoints import parse_leader_epoch_checkpoint, parse_producer_snapshot
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.indexes import OffsetIndex, TimeIndex, parse_transaction_index
from remote_fetch.model import (
    AbortedTransaction,
    Buffer,
    IndexType,
    LeaderEpoch,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.prepare.segment_bytes import segment_bytes
from remote_fetch.prepare.segment_files import read_parsed
from remote_fetch.session.storage import Storage

__all__ = ["DeepAudit", "is_told"]

T = TypeVar("T")

_FAULTS = (CorruptSegment, DecompressionLimit, UnsupportedFormat)
_FILES = frozenset(("log", *(kind.value for kind in IndexType)))


def is_told(finding: Finding, lacking: frozenset[str]) -> bool:
    """Whether a file is missing because the listing lacks objects of these kinds. A kind of a layout leads to all."""
    is_missing = finding.kind is FindingKind.MISSING
    return is_missing and (bool(lacking - _FILES) or finding.text.startswith(tuple(f"its {kind}" for kind in lacking)))


class DeepAudit:
    """Reads the segments of partitions whole, one after the other.

    A transaction may begin in one segment and end in the next. If segments come in the order of their offsets, both
    are seen together.
    """

    def __init__(self, storage: Storage, codecs: Codecs, journal: DeepJournal | None = None) -> None:
        self._storage = storage
        self._codecs = codecs
        self._journal = journal
        self._next: tuple[TopicIdPartition, int] | None = None
        self._transactions: OpenTransactions | None = None

    def findings(self, segment: RemoteLogSegmentMetadata) -> Iterator[Finding]:
        """The faults in the bytes of a segment. Raises the errors of the storage, and ConfigError of the journal."""
        journal, following = self._journal, (segment.topic_id_partition, segment.end_offset + 1)
        known = None if journal is None else journal.open_producers_after(segment)
        if known is not None:
            self._next, self._transactions = following, OpenTransactions(dict.fromkeys(known, -1), following[1])
            return
        is_sound = True
        try:
            for finding in self._read(segment):
                is_sound = False
                yield finding
        except RemoteFetchError as error:  # the store fails, and so does the audit
            raise error.at(**following[0].place, object_name=segment.object_stem) from error.__cause__
        if is_sound and journal is not None:
            journal.note(segment, () if self._transactions is None else self._transactions.first_offsets)

    def _read(self, segment: RemoteLogSegmentMetadata) -> Iterator[Finding]:
        files = _Files(self._storage, segment)
        partition, start, end = segment.topic_id_partition, segment.start_offset, segment.end_offset
        settings = self._storage.settings
        check = LogCheck(
            segment,
            self._codecs,
            max_batch_bytes=settings.max_batch_bytes,
            max_decompressed_bytes=settings.max_decompressed_bytes,
            offset_index=files.read(IndexType.OFFSET, lambda data: OffsetIndex.parse(data, start, end_offset=end)),
            time_index=files.read(IndexType.TIMESTAMP, lambda data: TimeIndex.parse(data, start, end_offset=end)),
            transactions=self._transactions if self._next == (partition, start) else None,
        )
        transactions = files.read(IndexType.TRANSACTION, parse_transaction_index)
        epochs = files.read(IndexType.LEADER_EPOCH, parse_leader_epoch_checkpoint)
        producers = files.read(IndexType.PRODUCER_SNAPSHOT, parse_producer_snapshot)
        yield from files.findings
        self._next = None
        try:
            facts = check.read(segment_bytes(self._storage, segment, ahead_bytes=segment.known_size_bytes or 0))
        except SegmentNotFound as error:
            yield Finding.about(segment, FindingKind.MISSING, f"its log: {error}")
            return
        except _FAULTS as error:
            yield Finding.about(segment, FindingKind.CORRUPT, str(error))
            return
        self._next, self._transactions = (partition, end + 1), check.transactions
        for kind, text in _judged(check, facts, segment, transactions, epochs):
            yield Finding.about(segment, kind, text)
        for fault in check.snapshot_faults(producers):
            yield Finding.about(segment, FindingKind.DAMAGED_INDEX, f"{IndexType.PRODUCER_SNAPSHOT} index: {fault}")


class _Files:
    """The files beside a segment. `findings` are the faults of those that were read."""

    def __init__(self, storage: Storage, segment: RemoteLogSegmentMetadata) -> None:
        self._storage = storage
        self._segment = segment
        self.findings: list[Finding] = []

    def read(self, index_type: IndexType, parse: Callable[[Buffer], T]) -> T | None:
        """One file, None if it is missing or damaged."""
        try:
            return read_parsed(self._storage, self._segment, index_type, parse)
        except SegmentNotFound as error:
            self.findings.append(Finding.about(self._segment, FindingKind.MISSING, f"its {index_type} index: {error}"))
        except _FAULTS as error:
            self.findings.append(
                Finding.about(self._segment, FindingKind.DAMAGED_INDEX, f"{index_type} index: {error}")
            )
        return None


def _judged(
    check: LogCheck,
    facts: LogFacts,
    segment: RemoteLogSegmentMetadata,
    transactions: tuple[AbortedTransaction, ...] | None,
    epochs: tuple[LeaderEpoch, ...] | None,
) -> Iterator[tuple[FindingKind, str]]:
    """The facts of indexes and metadata that the batches contradict."""
    size_bytes = segment.known_size_bytes
    if size_bytes is not None and facts.size_bytes != size_bytes:
        kind = FindingKind.SHORT if facts.size_bytes < size_bytes else FindingKind.TOO_LONG
        yield kind, f"its log has {facts.size_bytes} bytes, and {size_bytes} by the metadata"
    for index_type, fault in ((IndexType.OFFSET, check.offset_fault()), (IndexType.TIMESTAMP, check.time_fault())):
        if fault is not None:
            yield FindingKind.DAMAGED_INDEX, f"{index_type} index: {fault}"
    for fault in check.transaction_faults(transactions):
        yield FindingKind.DAMAGED_INDEX, f"{IndexType.TRANSACTION} index: {fault}"
    for text in _wrong_metadata(segment, facts, epochs):
        yield FindingKind.WRONG_METADATA, text


def _wrong_metadata(
    segment: RemoteLogSegmentMetadata, facts: LogFacts, epochs: tuple[LeaderEpoch, ...] | None
) -> Iterator[str]:
    """The facts of the metadata that the log contradicts."""
    if not facts.batches:
        if segment.segment_size_in_bytes:  # compaction before the upload can take out all batches
            yield "its log has no batch"
        return
    if facts.first_offset < segment.start_offset or facts.last_offset > segment.end_offset:
        yield f"its batches have offsets {facts.first_offset} to {facts.last_offset}"
    if 0 <= segment.max_timestamp_ms < facts.max_timestamp_ms:
        yield f"a record has the timestamp {facts.max_timestamp_ms} ms, after MaxTimestampMs {segment.max_timestamp_ms}"
    header = facts.wrong_epoch
    if header is not None:
        yield f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch} (SegmentLeaderEpochs)"
    if epochs is not None and segment.segment_leader_epochs:
        yield from _wrong_checkpoint(segment, epochs)


def _wrong_checkpoint(segment: RemoteLogSegmentMetadata, epochs: tuple[LeaderEpoch, ...]) -> Iterator[str]:
    """The epochs that checkpoint and metadata know differently.

    Metadata begins at the start of the segment, and the checkpoint at that of the log, which may move into the segment
    between the two. Then the epochs before it are gone from the checkpoint, and the one that it lies in begins there.
    """
    known = {entry.epoch: entry.start_offset for entry in epochs}
    numbers = [entry.epoch for entry in segment.segment_leader_epochs]
    lacking = [number for number in numbers if number not in known]
    is_inside = bool(epochs) and epochs[0].epoch in numbers and epochs[0].start_offset <= segment.end_offset
    first = epochs[0].epoch if is_inside else -1
    if lacking and lacking[-1] > first:
        yield f"its leader-epoch checkpoint lacks the epochs {lacking} of the metadata"
    for at, entry in enumerate(segment.segment_leader_epochs):
        told = known.get(entry.epoch, entry.start_offset)
        if told != entry.start_offset and (entry.epoch != first if told > entry.start_offset else at > 0):
            yield (
                f"its leader-epoch checkpoint begins epoch {entry.epoch} at offset {told}, and the metadata at "
                f"{entry.start_offset}"
            )
