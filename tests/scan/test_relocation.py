"""Locations that expire (KIP-917, KIP-1254): asked for once more, in the middle of a read, and no more often than that.

Rules of the file:

- The location of a segment is its custom metadata.
- The bucket refuses all locations except the newest. A refresh gives the locator a newer location, as from a metadata
  topic.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import RemoteFetchError, SegmentNotFound, StorageDenied
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from tests.scan.bucket import COLUMNS, UNCOMMITTED, Bucket, Row, expected_rows, plain_log, rows_of, snapshot_config


class SignedBucket(Bucket):
    """Reads a segment only by its newest location; every `uses` calls there is a newer one."""

    newest = 1
    uses = 10**9
    refusal: type[RemoteFetchError] = StorageDenied

    def __init__(self, log: LogBuilder) -> None:
        super().__init__(log.segments())
        self.calls = 0

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        self.calls += 1
        if self.calls % self.uses == 0:
            self.newest += 1
        if metadata.custom_metadata != b"location %d" % self.newest:
            raise self.refusal("expired")
        return super().fetch_log_segment(metadata, start_position, end_position)


class Refreshing(KnownTimelines):
    """Timelines whose segments get the bucket's newest location when they are refreshed."""

    def __init__(self, bucket: SignedBucket) -> None:
        self._bucket = bucket
        partition = bucket.at(0).topic_id_partition
        super().__init__([Timeline(partition, tuple(bucket.metadata), tuple(range(len(bucket.metadata))))])
        self._locate(partition, 0)
        self.refreshes = 0
        self.hears = True

    def _locate(self, partition: TopicIdPartition, number: int) -> None:
        segments = (replace(one, custom_metadata=b"location %d" % number) for one in self._bucket.metadata)
        self._timelines[partition] = replace(self._timelines[partition], segments=tuple(segments))

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        self.refreshes += 1
        if self.hears:
            self._locate(partition, self._bucket.newest)
        return self.timeline(partition)


def read(bucket: SignedBucket, *, hears: bool = True) -> tuple[list[Row], RemoteFetchError | None, Refreshing]:
    """The rows of a read, its end, and the locator."""
    rows: list[Row] = []
    config = Config.parse(
        {**snapshot_config(bucket.metadata), "fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 1024}
    )
    with Session(config, bucket) as session:
        session.locator = locator = Refreshing(bucket)
        locator.hears = hears
        plans = plan_job(
            session, "topic", start="earliest", end="latest", partitions=None, isolation=UNCOMMITTED, log_start=0
        )
        try:
            for batch in Scan(session, plans, COLUMNS).batches():
                rows += rows_of(batch)
        except RemoteFetchError as error:
            return rows, error, locator
        assert session.counters.report().fallbacks == {}
    return rows, None, locator


@pytest.mark.parametrize("refusal", [StorageDenied, SegmentNotFound])
def test_a_location_that_is_too_old_is_asked_for_again(refusal: type[RemoteFetchError]) -> None:
    """Once for all segments of the partition that wait."""
    log = plain_log(value_bytes=300)
    bucket = SignedBucket(log)
    bucket.refusal = refusal
    rows, error, locator = read(bucket)
    assert error is None
    assert rows == expected_rows(log.records())
    assert locator.refreshes == 1


def test_locations_that_expire_in_the_middle() -> None:
    """The locations expire after every seventh call. The read goes on at its position, several times in a segment."""
    log = plain_log(value_bytes=300)
    bucket = SignedBucket(log)
    bucket.uses = 7
    rows, error, locator = read(bucket)
    assert error is None
    assert rows == expected_rows(log.records())
    assert locator.refreshes >= len(bucket.metadata)


def test_a_newer_one_that_is_refused_too_ends_the_read() -> None:
    bucket = SignedBucket(plain_log())
    bucket.uses = 1  # every call makes the location before it too old
    rows, error, locator = read(bucket)
    assert isinstance(error, StorageDenied)
    assert (rows, locator.refreshes) == ([], 1)


def test_a_refusal_without_a_newer_location_stands() -> None:
    bucket = SignedBucket(plain_log())
    rows, error, locator = read(bucket, hears=False)
    assert isinstance(error, StorageDenied)
    assert "topic-0" in str(error)
    assert (rows, locator.refreshes) == ([], 1)
