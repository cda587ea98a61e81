"""Parts that the tests of reading share: a bucket in memory that can be damaged, and one way to read its rows.

Rules of the file:

- The reader under test is the real one from the session on. Only the store is a fake.
- The rows of a read are compared as plain tuples.
- Nothing here is cleverer than the code that it tests.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from remote_fetch.config import Config
from remote_fetch.errors import RemoteFetchError, SegmentNotFound
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines
from remote_fetch.model import IndexType, IsolationLevel, RemoteLogSegmentMetadata, TimestampType, Uuid
from remote_fetch.observe import Report
from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import FaultyFetcher, Schedule
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.oracle import LogRecord
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment, SegmentOptions
from tests.locate.timelines import timeline_of

COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch")
DENSE = SegmentOptions(index_interval_bytes=0)
"""An offset index with an entry for every batch but the first."""


class Row(NamedTuple):
    """One record as it was read, or as it should be."""

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a record batch with COLUMNS."""
    columns = [batch.column(name) for name in COLUMNS]
    micros = columns[1].cast(pa.int64()).to_pylist()
    others = [column.to_pylist() for column in (columns[0], *columns[2:])]
    return [
        Row(
            offset,
            divmod(us, 1000)[0],
            TimestampType(kind),
            key,
            value,
            tuple((header["key"], header["value"]) for header in headers),
            epoch,
        )
        for us, offset, kind, key, value, headers, epoch in zip(micros, *others, strict=True)
    ]


def expected_rows(records: Iterable[LogRecord]) -> list[Row]:
    """The oracle's records as rows."""
    return [Row(r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers, r.leader_epoch) for r in records]


class Bucket:
    """A fetcher and lister over built segments, whose files tests change as they like."""

    def __init__(self, segments: Iterable[BuiltSegment] = ()) -> None:
        self.metadata: list[RemoteLogSegmentMetadata] = []
        self.logs: dict[Uuid, bytes] = {}
        self.indexes: dict[tuple[Uuid, IndexType], bytes] = {}
        self.closed = False
        for segment in segments:
            self.add(segment)

    def add(self, segment: BuiltSegment) -> None:
        """Store one more segment."""
        self.metadata.append(segment.metadata)
        key = segment.metadata.segment_id.id
        self.logs[key] = segment.log
        for index_type in IndexType:
            data = segment.index(index_type)
            if data is not None:
                self.indexes[key, index_type] = data

    def at(self, number: int) -> RemoteLogSegmentMetadata:
        """The metadata of segment `number`, as exact as a broker's."""
        return self.metadata[number]

    def log(self, number: int) -> bytes:
        """The bytes of segment `number`."""
        return self.logs[self.at(number).segment_id.id]

    def write(self, number: int, data: bytes) -> None:
        """Give segment `number` other bytes."""
        self.logs[self.at(number).segment_id.id] = data

    def flip(self, number: int, position: int, bits: int = 0xFF) -> None:
        """Flip `bits` of one byte of segment `number`."""
        data = bytearray(self.log(number))
        data[position] ^= bits
        self.write(number, bytes(data))

    def drop(self, number: int) -> None:
        """Take segment `number` away, with its indexes; a reader that has kept its metadata still knows it."""
        key = self.metadata.pop(number).segment_id.id
        del self.logs[key]
        self.indexes = {at: data for at, data in self.indexes.items() if at[0] != key}

    def write_index(self, number: int, index_type: IndexType, data: bytes | None) -> None:
        """Give segment `number` another index, or none."""
        key = self.at(number).segment_id.id, index_type
        if data is None:
            del self.indexes[key]
        else:
            self.indexes[key] = data

    def configure(self, configs: Mapping[str, str]) -> None:
        """Ignore the configuration."""

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """The metadata that the names and sizes of objects give."""
        for metadata in self.metadata:
            if topic in (None, metadata.topic_id_partition.topic):
                yield RemoteLogSegmentMetadata(
                    metadata.segment_id,
                    metadata.start_offset,
                    -1,
                    len(self.logs[metadata.segment_id.id]),
                    txn_index_empty=(metadata.segment_id.id, IndexType.TRANSACTION) not in self.indexes,
                )

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        """The bytes [start_position, end_position)."""
        data = self.logs.get(metadata.segment_id.id)
        if data is None:
            raise SegmentNotFound("no such object")
        return memoryview(data)[start_position : len(data) if end_position < 0 else end_position]

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """One index."""
        return self.indexes.get((metadata.segment_id.id, index_type))

    def close(self) -> None:
        """Only remembered."""
        self.closed = True


class DamagingBucket(Bucket):
    """Damages one byte of its only log on the way, in the first `times` answers that hold it; `left` are to come."""

    def __init__(self, segment: BuiltSegment, position: int, damage: Callable[[int], int], times: int = 1) -> None:
        super().__init__([segment])
        self._position, self._damage = position, damage
        self.left = times

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        """As `Bucket.fetch_log_segment`, with the damage."""
        data = super().fetch_log_segment(metadata, start_position, end_position)
        at = self._position - start_position
        if not self.left or not 0 <= at < len(data):
            return data
        self.left -= 1
        damaged = bytearray(data)
        damaged[at] = self._damage(damaged[at])
        return memoryview(bytes(damaged))


class MeetingBucket(Bucket):
    """Gives files of one type only if `count` of them are asked for at once. Raises BrokenBarrierError after 20 s."""

    def __init__(self, segments: Iterable[BuiltSegment], index_type: IndexType, count: int) -> None:
        super().__init__(segments)
        self._meeting, self._met_at = threading.Barrier(count, timeout=60), index_type

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """One index."""
        if index_type is self._met_at:
            self._meeting.wait()
        return super().fetch_index(metadata, index_type)


class WatchedBucket(FaultyFetcher):
    """A bucket that counts its calls, and fails where `schedule` says so."""

    def __init__(self, bucket: Bucket, schedule: Schedule = lambda call: None) -> None:
        super().__init__(bucket, schedule)
        self._bucket = bucket

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """As the bucket's own."""
        return self._bucket.list_segments(topic)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows that a read gave, its end, and its cost."""

    rows: list[Row]
    report: Report
    error: RemoteFetchError | None

    @property
    def offsets(self) -> list[int]:
        """The offsets read."""
        return [row.offset for row in self.rows]

    def fine(self) -> list[Row]:
        """The rows, if nothing went wrong."""
        if self.error is not None:
            raise self.error
        return self.rows


CutPlan = Callable[[Session, PartitionPlan], Sequence[Sequence[PlanStep]]]


def read(
    fetcher: Any,
    *,
    topic: str = "topic",
    start: Any = "earliest",
    end: Any = "latest",
    isolation: IsolationLevel = UNCOMMITTED,
    config: Mapping[str, Any] | None = None,
    log_start: int | Mapping[int, int] | None = None,
    partitions: Iterable[int] | None = None,
    cut: CutPlan | None = None,
) -> Outcome:
    """Read as `read_arrow` does. `cut` may divide each partition's plan into several, which are read one by one."""
    settled = {"fetch.remote.retry.backoff.ms": 1, **(config or {})}
    rows: list[Row] = []
    error: RemoteFetchError | None = None
    with Session(Config.parse(settled), fetcher) as session:
        try:
            plans = plan_job(
                session, topic, start=start, end=end, partitions=partitions, isolation=isolation, log_start=log_start
            )
            if cut is not None:
                plans = tuple(replace(plan, steps=tuple(steps)) for plan in plans for steps in cut(session, plan))
            for group in [plans] if cut is None else [[plan] for plan in plans]:
                for batch in Scan(session, group, COLUMNS).batches():
                    rows += rows_of(batch)
        except RemoteFetchError as raised:
            error = raised
        return Outcome(rows, session.counters.report(), error)


def planned(fetcher: Any, *, config: Mapping[str, Any] | None = None, **bounds: Any) -> list[SegmentSlice]:
    """The slices that a read of topic `topic` would take."""
    asked = {"start": "earliest", "end": "latest", "partitions": None, "isolation": UNCOMMITTED, **bounds}
    with Session(Config.parse(config or {}), fetcher) as session:
        plans = plan_job(session, "topic", **asked)
        return [step for plan in plans for step in plan.steps if isinstance(step, SegmentSlice)]


def snapshot_config(
    segments: Iterable[RemoteLogSegmentMetadata], directory: Path | str | None = None
) -> dict[str, str]:
    """The configuration for exact metadata: a saved timeline of these segments, in a file."""
    known = list(segments)
    partitions = sorted({segment.topic_id_partition for segment in known})
    timelines = [timeline_of(one, [s for s in known if s.topic_id_partition == one]) for one in partitions]
    data = dump_timelines(timelines, origin=SnapshotOrigin("cluster", Uuid(bytes(16)), 1, ()))
    handle, name = tempfile.mkstemp(dir=directory)
    with open(handle, "wb") as file:
        file.write(data)
    return {"remote.locator": "snapshot", "remote.locator.snapshot.file": name}


def plain_log(segments: int = 3, batches: int = 4, records: int = 5, *, value_bytes: int = 20) -> LogBuilder:
    """A log without gaps or transactions: `segments` closed segments of `batches` batches of `records` records."""
    log = LogBuilder()
    for _ in range(segments):
        for _ in range(batches):
            log.append_batch([Record(n, n, b"k%d" % n, bytes([n]) * value_bytes) for n in range(records)])
        log.roll()
    return log
