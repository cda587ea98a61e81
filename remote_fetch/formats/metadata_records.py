"""The records of the remote log metadata topic, in which brokers describe remote segments.

Rules of the file:

- Pure.
- A record of any version is read, as long as it begins as version 0 does.
- A tagged field is used if its number and size are known. Other tagged fields are skipped.
- Fields that are known are checked strictly.

Layout: a frame of three varints, then Kafka's `RemoteLogSegmentMetadataRecord.json` and its siblings (KIP-405, KIP-917,
KIP-1058). The tagged fields of newer versions are those of the drafts of KIP-1266.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, TypeAlias, TypeVar

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.segment_checks import check_leader_epochs, check_segment_offsets, leader_epochs
from remote_fetch.formats.tagged_fields import (
    read_compact_bytes,
    read_compact_string,
    read_tagged_fields,
    read_uvarint,
    skip_tagged_fields,
)
from remote_fetch.model import (
    Buffer,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)

__all__ = [
    "MetadataRecord",
    "PartitionDeleteRecord",
    "RemotePartitionDeleteState",
    "SegmentMetadataRecord",
    "SegmentSnapshotRecord",
    "SegmentUpdateRecord",
    "parse_metadata_record",
    "topic_id_of",
]

_FRAME_VERSION = 1
_PARTITION_DELETE_API_KEY = 2

_USUAL_FRAMES = (b"\x01\x00\x00", b"\x01\x01\x00", b"\x01\x02\x00")
"""Frame version 1, each api key with a topic id, version 0."""

_PARTITION = Struct(">16si")
_SEGMENT = Struct(">qqiqq")
_UPDATE = Struct(">iq")
_PARTITION_DELETE = Struct(">iqb")
_SNAPSHOT = Struct(">16sqqiqq")
_EPOCH = Struct(">iq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

_State = TypeVar("_State", bound=IntEnum)


class RemotePartitionDeleteState(IntEnum):
    """How far the deletion of a partition has come (KIP-405)."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class SegmentMetadataRecord:
    """Api key 0: the full description of a segment when its copy starts. Custom metadata follows with the update.

    `broker_leader_epoch` is the epoch of the leader that wrote the record (KIP-1266 draft), None if it is missing.
    """

    metadata: RemoteLogSegmentMetadata
    broker_leader_epoch: int | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class SegmentUpdateRecord:
    """Api key 1: a segment's new state. Its custom metadata replaces the earlier custom metadata, even with None.

    `end_offset` (inclusive) and `broker_leader_epoch` come from KIP-1266's draft. They are None if they are missing.
    """

    segment_id: RemoteLogSegmentId
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    broker_leader_epoch: int | None = None
    end_offset: int | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class PartitionDeleteRecord:
    """Api key 2: a whole partition is being deleted. No released broker writes it."""

    topic_id_partition: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState
    broker_leader_epoch: int | None = None
    end_offset: int | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class SegmentSnapshotRecord:
    """Api key 3: a segment in a broker's local snapshot file, without its partition. Never written to the topic."""

    id: Uuid
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: tuple[LeaderEpoch, ...]
    segment_size_in_bytes: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_index_empty: bool = False
    version: int = 0


MetadataRecord: TypeAlias = SegmentMetadataRecord | SegmentUpdateRecord | PartitionDeleteRecord | SegmentSnapshotRecord


def topic_id_of(value: Buffer) -> bytes | None:
    """The raw topic id of a record's value, without decoding the rest. None if the value has none.

    A cheap filter in front of `parse_metadata_record`, which reports malformed records.
    """
    if value[:3] in _USUAL_FRAMES and len(value) > 3:
        length = value[3]
        if 0 < length < 128:
            topic_id = bytes(value[3 + length : 19 + length])
            return topic_id if len(topic_id) == 16 else None
    try:
        api_key, _, at = _read_frame(value)
        if api_key > _PARTITION_DELETE_API_KEY:
            return None
        _, at = read_compact_string(value, at)
        found: bytes = _unpack(_PARTITION, value, at)[0]
    except (CorruptSegment, UnsupportedFormat):
        return None
    return found


def parse_metadata_record(value: Buffer) -> MetadataRecord:
    """The record in `value`, of any version that begins as version 0 does.

    Raises UnsupportedFormat for an unknown frame version or api key. Raises CorruptSegment for a value that is cut
    short or holds impossible numbers, and in version 0 for bytes after its end.
    """
    api_key, version, at = _read_frame(value)
    if api_key >= len(_PARSERS):
        raise UnsupportedFormat(f"metadata record with api key {api_key}; 0 to 3 are known")
    return _PARSERS[api_key](value, at, version)


def _read_frame(value: Buffer) -> tuple[int, int, int]:
    """The api key, the version, and the position of the record in its frame."""
    frame_version, at = read_uvarint(value, 0)
    if frame_version != _FRAME_VERSION:
        raise UnsupportedFormat(f"metadata record in a frame of version {frame_version}; version 1 is known")
    api_key, at = read_uvarint(value, at)
    version, at = read_uvarint(value, at)
    return api_key, version, at


def _parse_segment(value: Buffer, at: int, version: int) -> SegmentMetadataRecord:
    segment_id, at = _read_segment_id(value, at)
    start, end, broker_id, max_timestamp_ms, event_timestamp_ms = _unpack(_SEGMENT, value, at)
    epochs, size, custom_metadata, state, at = _read_segment_tail(value, at + _SEGMENT.size)
    check_segment_offsets(start, end)
    fields = _read_last_fields(value, at, version)
    epoch_of_text, epoch = _number(fields, 0, _INT32), _number(fields, 1, _INT32)
    metadata = RemoteLogSegmentMetadata(
        segment_id, start, end, size, max_timestamp_ms, event_timestamp_ms, broker_id, epochs, custom_metadata,
        state, _flag(fields),
    )  # fmt: skip
    return SegmentMetadataRecord(metadata, epoch_of_text if epoch is None else epoch, version)


def _parse_update(value: Buffer, at: int, version: int) -> SegmentUpdateRecord:
    segment_id, at = _read_segment_id(value, at)
    broker_id, event_timestamp_ms = _unpack(_UPDATE, value, at)
    custom_metadata, at = read_compact_bytes(value, at + _UPDATE.size)
    state = _state(RemoteLogSegmentState, value, at)
    fields = _read_last_fields(value, at + 1, version)
    epoch, end_offset = _number(fields, 0, _INT32), _number(fields, 1, _INT64)
    return SegmentUpdateRecord(
        segment_id, broker_id, event_timestamp_ms, custom_metadata, state, epoch, end_offset, version
    )


def _parse_partition_delete(value: Buffer, at: int, version: int) -> PartitionDeleteRecord:
    partition, at = _read_partition(value, at)
    broker_id, event_timestamp_ms, _ = _unpack(_PARTITION_DELETE, value, at)
    at += _PARTITION_DELETE.size
    state = _state(RemotePartitionDeleteState, value, at - 1)
    fields = _read_last_fields(value, at, version)
    epoch, end_offset = _number(fields, 0, _INT32), _number(fields, 1, _INT64)
    return PartitionDeleteRecord(partition, broker_id, event_timestamp_ms, state, epoch, end_offset, version)


def _parse_snapshot(value: Buffer, at: int, version: int) -> SegmentSnapshotRecord:
    raw_id, start, end, broker_id, max_timestamp_ms, event_timestamp_ms = _unpack(_SNAPSHOT, value, at)
    epochs, size, custom_metadata, state, at = _read_segment_tail(value, at + _SNAPSHOT.size)
    check_segment_offsets(start, end)
    fields = _read_last_fields(value, at, version)
    return SegmentSnapshotRecord(
        Uuid(raw_id), start, end, broker_id, max_timestamp_ms, event_timestamp_ms, epochs, size, custom_metadata,
        state, _flag(fields), version,
    )  # fmt: skip


_PARSERS: tuple[Callable[[Buffer, int, int], MetadataRecord], ...] = (
    _parse_segment,
    _parse_update,
    _parse_partition_delete,
    _parse_snapshot,
)
"""By api key."""


def _unpack(layout: Struct, value: Buffer, at: int) -> tuple[Any, ...]:
    if len(value) - at < layout.size:
        raise CorruptSegment(f"metadata record of {len(value)} bytes ends inside the fields at byte {at}")
    return layout.unpack_from(value, at)


def _read_partition(value: Buffer, at: int) -> tuple[TopicIdPartition, int]:
    topic, at = read_compact_string(value, at)
    topic_id, partition = _unpack(_PARTITION, value, at)
    try:
        found = TopicIdPartition.parsed(Uuid(topic_id), topic, partition)
    except ValueError as error:
        raise CorruptSegment(f"metadata record: {error}") from None
    return found, skip_tagged_fields(value, at + _PARTITION.size)


def _read_segment_id(value: Buffer, at: int) -> tuple[RemoteLogSegmentId, int]:
    partition, at = _read_partition(value, at)
    raw_id = bytes(value[at : at + 16])
    if len(raw_id) < 16:
        raise CorruptSegment(f"metadata record of {len(value)} bytes ends inside the segment id at byte {at}")
    return RemoteLogSegmentId(partition, Uuid(raw_id)), skip_tagged_fields(value, at + 16)


def _read_segment_tail(
    value: Buffer, at: int
) -> tuple[tuple[LeaderEpoch, ...], int, bytes | None, RemoteLogSegmentState, int]:
    """The fields that api keys 0 and 3 share: leader epochs, size, custom metadata and state."""
    epochs, at = _read_epochs(value, at)
    (size_bytes,) = _unpack(_INT32, value, at)
    custom_metadata, at = read_compact_bytes(value, at + _INT32.size)
    return epochs, size_bytes, custom_metadata, _state(RemoteLogSegmentState, value, at), at + 1


def _read_epochs(value: Buffer, at: int) -> tuple[tuple[LeaderEpoch, ...], int]:
    """As `leader_epochs`. A null array counts as empty."""
    length, start = read_uvarint(value, at)
    if length - 1 > (len(value) - start) // (_EPOCH.size + 1):
        raise CorruptSegment(f"{length - 1} leader epochs announced at byte {at} of a record of {len(value)} bytes")
    at = start
    entries: list[Any] = []
    for _ in range(length - 1):
        entries.append(_unpack(_EPOCH, value, at))
        at = skip_tagged_fields(value, at + _EPOCH.size)
    epochs = leader_epochs(entries)
    check_leader_epochs(epochs)
    return epochs, at


def _state(states: type[_State], value: Buffer, at: int) -> _State:
    try:
        return states(value[at])
    except IndexError:
        raise CorruptSegment(f"metadata record of {len(value)} bytes ends before its state") from None
    except ValueError:
        raise CorruptSegment(f"metadata record with state {value[at]} at byte {at}") from None


def _read_last_fields(value: Buffer, at: int, version: int) -> dict[int, bytes]:
    """The tagged fields at the end of the record. A newer version may have more bytes after them."""
    fields, end = read_tagged_fields(value, at)
    if version == 0 and end != len(value):
        raise CorruptSegment(f"metadata record of {len(value)} bytes should end at byte {end}")
    return fields


def _flag(fields: dict[int, bytes]) -> bool:
    """TxnIndexEmpty: tag 0 of one byte. (KIP-1266's text gives tag 0 to a number of four bytes.)"""
    field = fields.get(0, b"")
    return len(field) == 1 and field != b"\0"


def _number(fields: dict[int, bytes], tag: int, layout: Struct) -> int | None:
    """The number under `tag` if it has the size of `layout`. The drafts' default -1 becomes None."""
    field = fields.get(tag, b"")
    if len(field) != layout.size:
        return None
    number: int = layout.unpack(field)[0]
    return None if number == -1 else number
