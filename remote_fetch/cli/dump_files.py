"""The lines of the files beside a segment: indexes, producer snapshot, leader-epoch checkpoint.

Rules of the file:

- Of a damaged index the entries before the fault are printed. A snapshot and a checkpoint are whole or damaged.
- Zeros after the entries of an index are the room that a broker keeps in the index of its active segment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from remote_fetch.cli.dump_lines import Lines, OptionalLong
from remote_fetch.cli.dump_log import say
from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.batches import sequence_at
from remote_fetch.formats.checkpoints import ProducerState, parse_leader_epoch_checkpoint, parse_producer_snapshot
from remote_fetch.formats.indexes import (
    LEGACY_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TRANSACTION_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
    parse_transaction_index,
)
from remote_fetch.model import IndexType

__all__ = ["dump_file"]

T = TypeVar("T")


def dump_file(lines: Lines, file: str, kind: IndexType, base_offset: int, data: memoryview) -> bool:
    """Print a file beside a segment. Returns whether it is as Kafka writes it. Faults are reported on stderr.

    `base_offset` is that of the segment. Only the offset index and the time index need it.
    """
    try:
        found, fault = _READERS[kind](data, base_offset)
    except (CorruptSegment, UnsupportedFormat) as error:
        say(file, error)
        return False
    if kind is IndexType.OFFSET and not len(data):
        lines.heading(f"{file} is empty.")
    for fields in found:
        lines.fields(kind.value, fields)
    if fault is not None:
        say(file, fault)
    return fault is None


_Fields = Iterable[Mapping[str, Any]]
_Found = tuple[_Fields, CorruptSegment | UnsupportedFormat | None]


def _offsets(data: memoryview, base_offset: int) -> _Found:
    index, fault = _longest(lambda part: OffsetIndex.parse(part, base_offset), data, LEGACY_ENTRY_BYTES)
    return ({"offset": entry.offset, "position": entry.position} for entry in index.entries()), fault


def _times(data: memoryview, base_offset: int) -> _Found:
    index, fault = _longest(lambda part: TimeIndex.parse(part, base_offset), data, TIME_ENTRY_BYTES)
    return ({"timestamp": entry.timestamp_ms, "offset": entry.offset} for entry in index.entries()), fault


def _transactions(data: memoryview, _: int) -> _Found:
    aborted, fault = _longest(parse_transaction_index, data, TRANSACTION_ENTRY_BYTES)
    found = (
        {
            "version": 0,
            "producerId": transaction.producer_id,
            "firstOffset": transaction.first_offset,
            "lastOffset": transaction.last_offset,
            "lastStableOffset": transaction.last_stable_offset,
        }
        for transaction in aborted
    )
    return found, fault


def _longest(
    parse: Callable[[memoryview], T], data: memoryview, entry_bytes: int
) -> tuple[T, CorruptSegment | UnsupportedFormat | None]:
    """The longest sound beginning of an index, and the fault behind it. Zeros behind the entries are no fault."""
    try:
        return parse(data), None
    except (CorruptSegment, UnsupportedFormat) as error:
        fault = error

    def is_damaged(count: int) -> bool:
        try:
            parse(data[: count * entry_bytes])
        except (CorruptSegment, UnsupportedFormat):
            return True
        return False

    # Entries are checked from the front, so that no longer beginning of a damaged one is sound.
    count = bisect_left(range(1, len(data) // entry_bytes + 1), True, key=is_damaged)
    rest = data[count * entry_bytes :]
    is_room = count > 0 and len(rest) % entry_bytes == 0 and not any(rest)
    return parse(data[: count * entry_bytes]), None if is_room else fault


def _producers(data: memoryview, _: int) -> _Found:
    return (_producer(state) for state in parse_producer_snapshot(data)), None


def _producer(state: ProducerState) -> Mapping[str, Any]:
    first = state.current_txn_first_offset
    fields: dict[str, Any] = {
        "producerId": state.producer_id,
        "producerEpoch": state.producer_epoch,
        "coordinatorEpoch": state.coordinator_epoch,
        "currentTxnFirstOffset": OptionalLong(first if first >= 0 else None),
        "lastTimestamp": state.timestamp_ms,
    }
    if state.last_offset < 0:
        return fields
    return fields | {
        "firstSequence": sequence_at(state.last_sequence, -state.offset_delta),
        "lastSequence": state.last_sequence,
        "lastOffset": state.last_offset,
        "offsetDelta": state.offset_delta,
        "timestamp": state.timestamp_ms,
    }


def _epochs(data: memoryview, _: int) -> _Found:
    entries = parse_leader_epoch_checkpoint(data)
    return ({"epoch": entry.epoch, "startOffset": entry.start_offset} for entry in entries), None


_READERS: Mapping[IndexType, Callable[[memoryview, int], _Found]] = {
    IndexType.OFFSET: _offsets,
    IndexType.TIMESTAMP: _times,
    IndexType.TRANSACTION: _transactions,
    IndexType.PRODUCER_SNAPSHOT: _producers,
    IndexType.LEADER_EPOCH: _epochs,
}
