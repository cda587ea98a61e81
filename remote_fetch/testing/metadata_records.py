"""Encodes the records of the remote log metadata topic, and sections of tagged fields, as brokers write them.

Rules of the file:

- Pure. The layouts stand here once more, so that an encoder and a reader cannot share a mistake.
- Version 0 has the brokers' bytes exactly. In later versions the tagged fields follow the pull request of KIP-1266.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from remote_fetch.formats.metadata_records import (
    MetadataRecord,
    PartitionDeleteRecord,
    SegmentMetadataRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
)
from remote_fetch.formats.tagged_fields import encode_compact_bytes, encode_compact_string, encode_uvarint
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["encode_metadata_record", "encode_tagged_fields"]

_FRAME_VERSION = 1
_SEGMENT_API_KEY = 0
_UPDATE_API_KEY = 1
_PARTITION_DELETE_API_KEY = 2
_SNAPSHOT_API_KEY = 3

_PARTITION = Struct(">16si")
_SEGMENT = Struct(">qqiqq")
_UPDATE = Struct(">iq")
_PARTITION_DELETE = Struct(">iqb")
_SNAPSHOT = Struct(">16sqqiqq")
_EPOCH = Struct(">iq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """The value that a broker would write for `record`."""
    match record:
        case SegmentMetadataRecord(metadata, broker_leader_epoch, version):
            flag = {0: b"\x01"} if metadata.txn_index_empty else {}
            number = _encode_numbers(version, {1: (_INT32, broker_leader_epoch)})
            fixed = _SEGMENT.pack(
                metadata.start_offset, metadata.end_offset, metadata.broker_id, metadata.max_timestamp_ms,
                metadata.event_timestamp_ms,
            )  # fmt: skip
            body = _encode_segment_id(metadata.segment_id) + fixed + _encode_segment_tail(metadata)
            return _encode_frame(_SEGMENT_API_KEY, version) + body + encode_tagged_fields(flag | number)
        case SegmentUpdateRecord():
            fixed = _UPDATE.pack(record.broker_id, record.event_timestamp_ms)
            tail = encode_compact_bytes(record.custom_metadata) + bytes([record.state])
            body = _encode_segment_id(record.segment_id) + fixed + tail
            return _encode_frame(_UPDATE_API_KEY, record.version) + body + _encode_draft_fields(record)
        case PartitionDeleteRecord():
            fixed = _PARTITION_DELETE.pack(record.broker_id, record.event_timestamp_ms, record.state)
            body = _encode_partition(record.topic_id_partition) + fixed
            return _encode_frame(_PARTITION_DELETE_API_KEY, record.version) + body + _encode_draft_fields(record)
        case _:
            flag = {0: b"\x01"} if record.txn_index_empty else {}
            fixed = _SNAPSHOT.pack(
                record.id.raw, record.start_offset, record.end_offset, record.broker_id, record.max_timestamp_ms,
                record.event_timestamp_ms,
            )  # fmt: skip
            body = fixed + _encode_segment_tail(record)
            return _encode_frame(_SNAPSHOT_API_KEY, record.version) + body + encode_tagged_fields(flag)


def encode_tagged_fields(fields: Mapping[int, bytes]) -> bytes:
    """The bytes that `read_tagged_fields` reads, in ascending order of tags."""
    encoded = bytearray(encode_uvarint(len(fields)))
    for tag in sorted(fields):
        encoded += encode_uvarint(tag) + encode_uvarint(len(fields[tag])) + fields[tag]
    return bytes(encoded)


def _encode_frame(api_key: int, version: int) -> bytes:
    return encode_uvarint(_FRAME_VERSION) + encode_uvarint(api_key) + encode_uvarint(version)


def _encode_partition(partition: TopicIdPartition) -> bytes:
    return encode_compact_string(partition.topic) + _PARTITION.pack(partition.topic_id.raw, partition.partition) + b"\0"


def _encode_segment_id(segment_id: RemoteLogSegmentId) -> bytes:
    return _encode_partition(segment_id.topic_id_partition) + segment_id.id.raw + b"\0"


def _encode_segment_tail(segment: RemoteLogSegmentMetadata | SegmentSnapshotRecord) -> bytes:
    epochs = segment.segment_leader_epochs
    return b"".join(
        (
            encode_uvarint(len(epochs) + 1),
            *(_EPOCH.pack(entry.epoch, entry.start_offset) + b"\0" for entry in epochs),
            _INT32.pack(segment.segment_size_in_bytes),
            encode_compact_bytes(segment.custom_metadata),
            bytes([segment.state]),
        )
    )


def _encode_draft_fields(record: SegmentUpdateRecord | PartitionDeleteRecord) -> bytes:
    numbers = {0: (_INT32, record.broker_leader_epoch), 1: (_INT64, record.end_offset)}
    return encode_tagged_fields(_encode_numbers(record.version, numbers))


def _encode_numbers(version: int, numbers: dict[int, tuple[Struct, int | None]]) -> dict[int, bytes]:
    """The tagged fields of versions above 0, for the numbers that are not None."""
    if version == 0:
        return {}
    return {tag: layout.pack(number) for tag, (layout, number) in numbers.items() if number is not None}
