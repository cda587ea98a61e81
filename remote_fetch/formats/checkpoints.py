"""The two state files uploaded with a segment: the leader-epoch checkpoint and the producer snapshot.

Rules of the file:

- Pure. Text and numbers are read as strictly as brokers write them.
- A count is compared with the bytes at hand before anything is built.

Formats: Kafka's CheckpointFile with leader-epoch lines, and its ProducerSnapshot, version 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.model import Buffer, LeaderEpoch

__all__ = ["ProducerState", "parse_leader_epoch_checkpoint", "parse_producer_snapshot"]

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_MAX_DIGITS = 19
_CHECKPOINT_VERSION = 0

_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_CRC_FROM = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


def parse_leader_epoch_checkpoint(data: Buffer) -> tuple[LeaderEpoch, ...]:
    """The leader epochs of the log up to the end of the segment, ascending; empty for an empty file.

    The text is a version line, a line with the number of entries, and a line `epoch startOffset` for each.
    Raises UnsupportedFormat for a version other than 0; CorruptSegment for anything but numbers, a wrong count, or
    epochs that do not ascend together with their offsets.
    """
    lines = _ascii_text(data).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        return ()
    version = _number(lines[0], 1, _MAX_INT32)
    if version != _CHECKPOINT_VERSION:
        raise UnsupportedFormat(f"leader-epoch checkpoint of version {version}; version 0 is known")
    if len(lines) == 1:
        raise CorruptSegment("leader-epoch checkpoint without a number of entries")
    count = _number(lines[1], 2, _MAX_INT32)
    if count != len(lines) - 2:
        raise CorruptSegment(f"leader-epoch checkpoint announces {count} entries and has {len(lines) - 2}")
    entries: list[LeaderEpoch] = []
    for line_number, line in enumerate(lines[2:], 3):
        fields = line.split()
        if len(fields) != 2:
            raise CorruptSegment(f"leader-epoch checkpoint, line {line_number}: two numbers expected")
        entry = LeaderEpoch(_number(fields[0], line_number, _MAX_INT32), _number(fields[1], line_number, _MAX_INT64))
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            raise CorruptSegment(f"leader-epoch checkpoint, line {line_number}: {entry} follows {entries[-1]}")
        entries.append(entry)
    return tuple(entries)


def _ascii_text(data: Buffer) -> str:
    try:
        return bytes(data).decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptSegment(f"leader-epoch checkpoint: byte {error.start} is not text") from None


def _number(text: str, line_number: int, maximum: int) -> int:
    """A plain decimal number. `int()` alone would also accept signs, underscores and any length."""
    text = text.strip()
    if not text.isdigit() or len(text) > _MAX_DIGITS or int(text) > maximum:
        raise CorruptSegment(
            f"leader-epoch checkpoint, line {line_number}: {text[: _MAX_DIGITS + 1]!r} is not a number up to {maximum}"
        )
    return int(text)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of one producer at the snapshot's offset (one entry of Kafka's ProducerSnapshot).

    - `last_sequence` and `last_offset` belong to its last batch. They are -1 if the log has no batch of it any more.
    - The last batch began `offset_delta` offsets before `last_offset`.
    - `coordinator_epoch` is -1 before the first transaction marker.
    - `current_txn_first_offset` is the first offset of its open transaction, -1 if it has none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def parse_producer_snapshot(data: Buffer) -> tuple[ProducerState, ...]:
    """The producers in the order of the file. The snapshot uploaded with a segment is the state *after* that segment.

    The header is version int16, CRC-32C uint32 of all bytes after itself, number of entries int32.
    Raises UnsupportedFormat for a version other than 1; CorruptSegment for a length that does not fit the number of
    entries, and for a checksum mismatch.
    """
    view = memoryview(data)
    if len(view) < _SNAPSHOT_HEADER.size:
        raise CorruptSegment(f"producer snapshot of {len(view)} bytes is shorter than its header")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(view)
    if version != _SNAPSHOT_VERSION:
        raise UnsupportedFormat(f"producer snapshot of version {version}; version 1 is known")
    actual = crc32c(view[_SNAPSHOT_CRC_FROM:])
    if actual != crc:
        raise CorruptSegment(f"producer snapshot: it says checksum {crc:#010x}, its bytes give {actual:#010x}")
    entries = view[_SNAPSHOT_HEADER.size :]
    if len(entries) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptSegment(f"producer snapshot announces {count} entries in {len(entries)} bytes")
    return tuple(ProducerState(*entry) for entry in _SNAPSHOT_ENTRY.iter_unpack(entries))
