"""Producer state as a partition leader keeps it: open transactions with their first offsets, and what a marker ends.

Rules of the file:

- Pure.
- The state changes only through `apply`, batch by batch, in log order.
- The numbers are those of Kafka's ProducerStateManager, as producer snapshots and transaction indexes show them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct

from crc32c import crc32c

from remote_fetch.model import AbortedTransaction

__all__ = ["SEQUENCE_COUNT", "EndMarker", "ProducerState", "ProducerStates", "WrittenBatch"]

SEQUENCE_COUNT = 2**31
"""Sequence numbers start over at 0 after 2^31 - 1."""
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hI")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")


@dataclass(frozen=True, slots=True)
class EndMarker:
    """The contents of the control record of a transaction marker."""

    commit: bool
    coordinator_epoch: int = 0


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """One batch of the log: its bytes, and the fields that they encode.

    `base_offset` of a legacy wrapper is the offset of its first message, though the header has the last one. `data` is
    empty if a cleaner has removed the batch. The producer state still counts such a batch. One append call wrote all
    batches with the same `append`, as a follower writes a whole fetch at once. `last_offset` is inclusive.
    """

    data: bytes
    base_offset: int
    last_offset: int
    max_timestamp_ms: int = -1
    append: int = 0
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    marker: EndMarker | None = None


@dataclass(frozen=True, slots=True)
class ProducerState:
    """One entry of a producer snapshot. -1 means none. `offset_delta` is last - first offset of the last batch."""

    producer_id: int
    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1

    def encode(self) -> bytes:
        """The 46 bytes of the entry in a `.snapshot` file."""
        return _SNAPSHOT_ENTRY.pack(
            self.producer_id, self.epoch, self.last_sequence, self.last_offset,
            self.offset_delta, self.timestamp_ms, self.coordinator_epoch, self.current_txn_first_offset,
        )  # fmt: skip


class ProducerStates:
    """The state of every producer after the batches applied so far."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def __iter__(self) -> Iterator[ProducerState]:
        return (self._states[producer_id] for producer_id in sorted(self._states))

    def get(self, producer_id: int) -> ProducerState:
        """The state of one producer, blank (epoch 0) if it is new."""
        return self._states.get(producer_id, ProducerState(producer_id, 0))

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the earliest open transaction, None if none is open."""
        return self._first_open_but(-1)

    def apply(self, batch: WrittenBatch) -> AbortedTransaction | None:
        """Take the next batch of the log. Return the transaction index entry if it is a marker that aborts records."""
        if batch.producer_id < 0:
            return None
        if batch.marker is None:
            self._states[batch.producer_id] = self._after_data(batch)
            return None
        first_offset = self.get(batch.producer_id).current_txn_first_offset
        self._states[batch.producer_id] = self._after_marker(batch, batch.marker)
        if batch.marker.commit or first_offset < 0:
            return None
        first_open_offset = self._first_open_but(batch.producer_id)
        last_stable_offset = batch.last_offset + 1 if first_open_offset is None else first_open_offset
        return AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, last_stable_offset)

    def _after_data(self, batch: WrittenBatch) -> ProducerState:
        before = self.get(batch.producer_id)
        delta = batch.last_offset - batch.base_offset
        first_offset = before.current_txn_first_offset
        if batch.transactional and first_offset < 0:
            first_offset = batch.base_offset
        return ProducerState(
            producer_id=batch.producer_id,
            epoch=batch.producer_epoch,
            last_sequence=-1 if batch.base_sequence < 0 else (batch.base_sequence + delta) % SEQUENCE_COUNT,
            last_offset=batch.last_offset,
            offset_delta=delta,
            timestamp_ms=batch.max_timestamp_ms,
            coordinator_epoch=before.coordinator_epoch,
            current_txn_first_offset=first_offset,
        )

    def _after_marker(self, batch: WrittenBatch, marker: EndMarker) -> ProducerState:
        before = self.get(batch.producer_id)
        # A marker that raises the epoch (KIP-890) forgets the sequences of the old one.
        kept = (
            before if before.epoch == batch.producer_epoch else ProducerState(batch.producer_id, batch.producer_epoch)
        )
        return replace(
            kept,
            timestamp_ms=batch.max_timestamp_ms,
            coordinator_epoch=marker.coordinator_epoch,
            current_txn_first_offset=-1,
        )

    def _first_open_but(self, producer_id: int) -> int | None:
        open_offsets = (
            state.current_txn_first_offset
            for state in self._states.values()
            if state.producer_id != producer_id and state.current_txn_first_offset >= 0
        )
        return min(open_offsets, default=None)

    def snapshot(self) -> bytes:
        """The `.snapshot` file: version, CRC-32C of what follows it, count, entries by producer id."""
        entries = [state.encode() for state in self]
        covered = len(entries).to_bytes(4, "big") + b"".join(entries)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(covered)) + covered
