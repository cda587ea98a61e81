"""Stores built segments for fetchers: in memory, or in the tree of Kafka's LocalTieredStorage.

Rules of the file:

- The stored bytes are exactly those that were built.
- Nothing misbehaves here. `faults` does that.

Layout of the tree: one file for the log and one for each index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from remote_fetch.errors import SegmentNotFound
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.testing.segments import BuiltSegment

__all__ = ["SegmentStore", "kafka_local_files", "write_kafka_local"]

_DIRECTORY = "kafka-tiered-storage"
_SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}


def kafka_local_files(segment: BuiltSegment) -> Iterator[tuple[str, bytes]]:
    """The files of a segment as Kafka's LocalTieredStorage names them, below the broker's `rsm.config.dir`.

    A transaction index that does not exist has no file.
    """
    place = segment.metadata.topic_id_partition
    folder = f"{_DIRECTORY}/{place.topic}-{place.partition}-{place.topic_id}"
    stem = f"{folder}/{segment.metadata.object_stem}"
    yield f"{stem}.log", segment.log
    for index_type, suffix in _SUFFIXES.items():
        data = segment.index(index_type)
        if data is not None:
            yield f"{stem}{suffix}", data


def write_kafka_local(directory: Path | str, segments: Iterable[BuiltSegment]) -> Path:
    """Write the segments as a broker with `rsm.config.dir=directory` leaves them, and return the root of the tree."""
    for segment in segments:
        for name, data in kafka_local_files(segment):
            path = Path(directory) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return Path(directory) / _DIRECTORY


class SegmentStore:
    """A RemoteStorageFetcher over segments in memory, the simplest one. It needs no configuration, and is never closed.

    Segments may be added and removed between calls. A removed segment raises SegmentNotFound.
    """

    def __init__(self, segments: Iterable[BuiltSegment] = ()) -> None:
        self._segments = {segment.metadata.segment_id: segment for segment in segments}

    def add(self, segment: BuiltSegment) -> None:
        """Store one more segment."""
        self._segments[segment.metadata.segment_id] = segment

    def remove(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete a segment with its indexes, as retention does. Raises KeyError if it is missing."""
        del self._segments[metadata.segment_id]

    def configure(self, configs: Mapping[str, str]) -> None:
        """Nothing to configure."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        """The bytes [start_position, end_position) of the segment. -1 is its end. Raises SegmentNotFound."""
        log = memoryview(self._segment(metadata).log)
        return log[start_position:] if end_position < 0 else log[start_position:end_position]

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """One whole index, None if the segment has none of that type. Raises SegmentNotFound."""
        return self._segment(metadata).index(index_type)

    def close(self) -> None:
        """Nothing to release."""

    def _segment(self, metadata: RemoteLogSegmentMetadata) -> BuiltSegment:
        segment = self._segments.get(metadata.segment_id)
        if segment is None:
            place = metadata.topic_id_partition
            raise SegmentNotFound(
                "no such segment in the store",
                topic=place.topic,
                partition=place.partition,
                offset=metadata.start_offset,
                object_name=str(metadata.segment_id.id),
            )
        return segment
