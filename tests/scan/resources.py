"""A tier of any size that takes no room, and what a process says of its own memory, threads and open files.

Rules of the file:

- A segment is one batch, repeated with the right base offsets. Its bytes are made on request.
- The process measures its own memory. No test measures time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.testing.producers import ProducerStates
from remote_fetch.testing.segments import encode_checkpoint, encode_offset_index, encode_time_index

FIRST_TIMESTAMP_MS = 1_700_000_000_000
DEADLINE_S = 120


@dataclass(frozen=True, slots=True)
class Repeated:
    """A segment that is `copies` of one v2 batch, of which each covers `offsets` offsets and comes a second later.

    `batch` may be several batches, which begin at the positions and offsets of `begins`.

    The copies differ only in their base offset. So this is true only of a batch with LogAppendTime, or if no test asks
    for the time.
    """

    batch: bytes
    offsets: int
    copies: int
    index_entry_bytes: Literal[8, 12] = 8
    begins: tuple[tuple[int, int], ...] = ((0, 0),)

    @property
    def size_bytes(self) -> int:
        """The size of the segment."""
        return len(self.batch) * self.copies

    def read(self, start: int, end: int) -> memoryview:
        """Bytes [start, end) of it."""
        stop = min(end if end >= 0 else self.size_bytes, self.size_bytes)
        out = bytearray(max(stop - start, 0))
        size_bytes = len(self.batch)
        for copy in range(start // size_bytes, -(-stop // size_bytes)):
            at = copy * size_bytes
            first, last = max(at, start), min(at + size_bytes, stop)
            out[first - start : last - start] = memoryview(self.batch)[first - at : last - at]
            for position, offset in self.begins:
                head = (copy * self.offsets + offset).to_bytes(8, "big")
                from_, to = max(first, at + position), min(last, at + position + 8)
                if from_ < to:
                    out[from_ - start : to - start] = head[from_ - at - position : to - at - position]
        return memoryview(out)

    def index(self, index_type: IndexType) -> bytes | None:
        """The files that a broker uploads beside it. The offset index has an entry for every batch but the first."""
        _, after_first = self.begins[1] if len(self.begins) > 1 else (0, self.offsets)
        lasts = [copy * self.offsets + after_first - 1 for copy in range(1, self.copies)]
        if index_type is IndexType.OFFSET:
            positions = range(len(self.batch), self.size_bytes, len(self.batch))
            return encode_offset_index(zip(lasts, positions, strict=True), self.index_entry_bytes)
        if index_type is IndexType.TIMESTAMP:
            return encode_time_index([(FIRST_TIMESTAMP_MS, self.offsets - 1)])
        if index_type is IndexType.LEADER_EPOCH:
            return encode_checkpoint([])
        return ProducerStates().snapshot() if index_type is IndexType.PRODUCER_SNAPSHOT else None


class RepeatingTier:
    """A fetcher and lister over one repeated segment in each of `partitions`, which keeps count of what it is asked.

    `hold` makes a GET of log bytes wait; it is called with the number of GETs before it.
    """

    def __init__(self, segment: Repeated, partitions: int = 1, *, hold: Callable[[int], object] = id) -> None:
        self.segment = segment
        self.closed = False
        self.gets = self.in_flight = self.most_in_flight = self.most_threads = self.returned_bytes = 0
        self._hold = hold
        self._lock = threading.Lock()
        self.metadata = [
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(TopicIdPartition(Uuid(b"repeating a tier"), "topic", number), Uuid(bytes(16))),
                0,
                -1,
                segment.size_bytes,
                txn_index_empty=True,
            )
            for number in range(partitions)
        ]

    def configure(self, configs: Mapping[str, str]) -> None:
        """Ignore the configuration."""

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `SegmentLister.list_segments`."""
        return iter(self.metadata)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        """As `RemoteStorageFetcher.fetch_log_segment`."""
        with self._lock:
            before = self.gets
            self.gets += 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.most_threads = max(self.most_threads, threading.active_count())
        try:
            self._hold(before)
            data = self.segment.read(start_position, end_position)
        finally:
            with self._lock:
                self.in_flight -= 1
        with self._lock:
            self.returned_bytes += len(data)
        return data

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """As `RemoteStorageFetcher.fetch_index`."""
        return self.segment.index(index_type)

    def close(self) -> None:
        """Only remembered."""
        self.closed = True


class Meter:
    """How far this process's memory has grown since the meter was made, at most. Linux only."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._before_bytes = _status_bytes("VmRSS")

    def grown_bytes(self) -> int:
        """The most resident memory so far, less what there was at first."""
        return _status_bytes("VmHWM") - self._before_bytes


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"no {name} in /proc/self/status")


def open_files() -> int:
    """How many file descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))
