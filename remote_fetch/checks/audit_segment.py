"""The life of one segment by its records in the metadata topic, and whether its metadata can be true.

Rules of the file:

- Pure.
- The state of a segment is that of `remote_fetch.locate.uploads`, as readers take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from remote_fetch.formats.metadata_records import SegmentMetadataRecord, SegmentUpdateRecord, parse_metadata_record
from remote_fetch.locate.uploads import DELETED, Upload, said_by
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition

__all__ = ["SegmentLife", "faults_of", "key_of", "life_of"]


def key_of(segment_id: RemoteLogSegmentId) -> bytes:
    """The identity of its partition and the segment id: that of a segment in 36 bytes, sorted by partition."""
    return segment_id.topic_id_partition.identity + segment_id.id.raw


@dataclass(frozen=True, slots=True)
class SegmentLife:
    """One segment by all its events in the metadata topic.

    - `metadata` is None if its first record is missing: then nothing but its state is known.
    - `event_ms` is the time of its last event. `is_deleted_last`: that event says that it was deleted.
    """

    segment_id: RemoteLogSegmentId
    state: RemoteLogSegmentState
    metadata: RemoteLogSegmentMetadata | None
    event_ms: int
    is_deleted_last: bool

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last offset, -1 without metadata."""
        return (-1, -1) if self.metadata is None else (self.metadata.start_offset, self.metadata.end_offset)

    @property
    def is_gone(self) -> bool:
        """Whether the segment was deleted."""
        return self.state is DELETED


def life_of(values: Iterable[bytes]) -> SegmentLife:
    """The life of a segment from the values of all its records, in the order of their offsets.

    Each of them was parsed before: this raises nothing.
    """
    upload, event_ms = Upload(), -1
    segment_id: RemoteLogSegmentId | None = None
    state = upload.state
    for value in values:
        record = parse_metadata_record(value)
        assert isinstance(record, (SegmentMetadataRecord, SegmentUpdateRecord)), "others name no segment"
        segment_id, state, said = said_by(record)
        upload.take(said, state, 0)
        metadata = record.metadata if isinstance(record, SegmentMetadataRecord) else record
        event_ms = max(event_ms, metadata.event_timestamp_ms)
    assert segment_id is not None, "a segment has a record"
    described = upload.metadata(segment_id.topic_id_partition)
    return SegmentLife(segment_id, upload.state, described, event_ms, state is DELETED)


def faults_of(
    metadata: RemoteLogSegmentMetadata, log_start: Callable[[TopicIdPartition], int | None] = lambda _: None
) -> str | None:
    """The reason why no segment of a broker has this metadata, None if one can have it.

    The first leader epoch may begin within the segment. Kafka cuts the epochs at the log start, and DeleteRecords may
    move the log start into a segment before its upload. `log_start` tells it, None if it is not known. It never falls.
    """
    epochs = metadata.segment_leader_epochs
    if not epochs:
        return "it has no leader epochs (SegmentLeaderEpochs)"
    first = epochs[0].start_offset
    if first > metadata.start_offset:
        known = log_start(metadata.topic_id_partition)
        if first > metadata.end_offset or (known is not None and first > known):
            return f"its first leader epoch begins at offset {first}, after the segment's start (SegmentLeaderEpochs)"
    starts = [entry.start_offset for entry in epochs]
    if starts != sorted(starts) or starts[-1] > metadata.end_offset + 1:
        return f"its leader epochs begin at the offsets {starts} (SegmentLeaderEpochs)"
    return None
