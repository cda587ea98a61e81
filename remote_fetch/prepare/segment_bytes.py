"""The bytes of one segment or of one object from front to end, for code that shows them.

Rules of the file:

- One range is fetched at a time, and the next one only if the caller has taken the last. For a caller that takes all,
  several are under way.
- The end of the object is where the store says, not the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.model import (
    NO_ID,
    UNKNOWN_SIZE,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.session.storage import Storage

__all__ = ["object_segment", "segment_bytes"]


def segment_bytes(storage: Storage, segment: RemoteLogSegmentMetadata, *, ahead_bytes: int = 0) -> Iterator[memoryview]:
    """Yield the `.log` of a segment as Kafka wrote it, in ranges of `fetch.remote.range.bytes`. Raises as the fetcher.

    The last range may be empty. The ranges within the first `ahead_bytes` are read ahead: give the size that the
    metadata says if all bytes are taken. It may be wrong.
    """
    at, range_bytes = 0, storage.reader.range_bytes
    whole = (RangeRequest(segment, start, start + range_bytes) for start in range(0, ahead_bytes, range_bytes))
    with closing(storage.reader.read_ahead(whole)) as ahead:
        for _, wait in ahead:
            try:
                data = wait()
            finally:
                wait.cancel()  # if its time was over before its GET began
            yield data
            at += len(data)
            if len(data) < range_bytes:
                return
    while True:
        data = storage.reader.read(RangeRequest(segment, at, at + range_bytes))
        yield data
        at += len(data)
        if len(data) < range_bytes:
            return


def object_segment(location: str) -> RemoteLogSegmentMetadata:
    """A segment that stands for one object in a session with `remote.storage.layout=url`.

    `location` is the object's name below `remote.storage.url`, or its whole URL. Nothing else of the segment is known.
    """
    partition = TopicIdPartition(NO_ID, "object", 0)
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, NO_ID), 0, -1, UNKNOWN_SIZE,
        custom_metadata=json.dumps({"log": location}).encode(),
    )  # fmt: skip
