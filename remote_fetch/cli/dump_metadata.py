"""Records of `__remote_log_metadata` as Kafka's classes print themselves.

Rules of the file:

- The text is that of Kafka 4.3. Fields of a record that Kafka's classes do not print are left out.
"""

from __future__ import annotations

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.metadata_records import (
    MetadataRecord,
    PartitionDeleteRecord,
    SegmentMetadataRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
    parse_metadata_record,
)
from remote_fetch.model import LeaderEpoch, RemoteLogSegmentId

__all__ = ["metadata_text"]


def metadata_text(value: bytes | None, offset: int) -> str:
    """The text of a record's value. For a value that is none, the reason and the record's offset."""
    try:
        if value is None:
            raise CorruptSegment("the record has no value")
        return _printed(parse_metadata_record(value))
    except (CorruptSegment, UnsupportedFormat) as error:
        return f"Error at offset {offset}, skipping. {error.message}"


def _printed(record: MetadataRecord) -> str:
    match record:
        case SegmentMetadataRecord(metadata=segment):
            return (
                f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(segment.segment_id)}, "
                f"startOffset={segment.start_offset}, endOffset={segment.end_offset}, brokerId={segment.broker_id}, "
                f"maxTimestampMs={segment.max_timestamp_ms}, eventTimestampMs={segment.event_timestamp_ms}, "
                f"segmentLeaderEpochs={_epochs(segment.segment_leader_epochs)}, "
                f"segmentSizeInBytes={segment.segment_size_in_bytes}, "
                f"customMetadata={_custom(segment.custom_metadata)}, state={segment.state.name}, "
                f"txnIdxEmpty={str(segment.txn_index_empty).lower()}}}"
            )
        case SegmentUpdateRecord():
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(record.segment_id)}, "
                f"customMetadata={_custom(record.custom_metadata)}, state={record.state.name}, "
                f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
            )
        case PartitionDeleteRecord():
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition={record.topic_id_partition}, "
                f"state={record.state.name}, eventTimestampMs={record.event_timestamp_ms}, "
                f"brokerId={record.broker_id}}}"
            )
        case SegmentSnapshotRecord():
            return (
                f"RemoteLogSegmentMetadataSnapshot{{segmentId={record.id}, startOffset={record.start_offset}, "
                f"endOffset={record.end_offset}, maxTimestampMs={record.max_timestamp_ms}, "
                f"segmentLeaderEpochs={_epochs(record.segment_leader_epochs)}, "
                f"segmentSizeInBytes={record.segment_size_in_bytes}, "
                f"customMetadata={_custom(record.custom_metadata)}, state={record.state.name}, "
                f"txnIdxEmpty={str(record.txn_index_empty).lower()}}}"
            )


def _segment_id(segment_id: RemoteLogSegmentId) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={segment_id.topic_id_partition}, id={segment_id.id}}}"


def _epochs(epochs: tuple[LeaderEpoch, ...]) -> str:
    return "{" + ", ".join(f"{entry.epoch}={entry.start_offset}" for entry in epochs) + "}"


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"
