"""A reader of segments for the tests of listings."""

from __future__ import annotations

from dataclasses import dataclass, field

from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from tests.scan.bucket import Bucket


@dataclass
class BucketReader:
    """Reads a bucket. Remembers the requests, and the segments that were read without an index."""

    bucket: Bucket
    max_batch_bytes = 1 << 20
    range_bytes: int = 1024
    asked: list[tuple[int, int]] = field(default_factory=list)
    without_index: list[str] = field(default_factory=list)

    def read_bytes(self, segment: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> memoryview:
        self.asked.append((start_position, end_position))
        return self.bucket.fetch_log_segment(segment, start_position, end_position)

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        data = self.bucket.fetch_index(segment, index_type)
        return None if data is None else memoryview(data)

    def read_without_index(self, segment: RemoteLogSegmentMetadata, reason: str) -> None:
        self.without_index.append(reason)
