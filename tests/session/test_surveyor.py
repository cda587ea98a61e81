"""The notice about a URL that seems to be wrong: it comes once, and only from a fetcher that can tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from remote_fetch.errors import ErrorKind, StorageDenied
from remote_fetch.model import RemoteLogSegmentMetadata, Survey, TopicIdPartition
from remote_fetch.observe import Event, Notice
from remote_fetch.session.surveyor import Surveyor, listings_of, surveyed
from remote_fetch.testing.contract_parts import contract_segments
from tests.scan.bucket import Bucket


class Misplaced(Bucket):
    """A fetcher that can tell that its URL is wrong; later it may not look any more."""

    asked = 0

    def survey(self) -> Survey:
        self.asked += 1
        if self.asked > 1:
            raise StorageDenied("no listing")
        return Survey("s3://bucket/x", "it is empty", "Set another")


def test_a_wrong_url_is_said_once() -> None:
    bucket, heard = Misplaced(), list[Event]()
    surveyor = Surveyor(bucket, heard.append, 10_000)
    surveyor.close()
    surveyor.explain(ErrorKind.AUTH)
    assert bucket.asked == 0, "then it may be the right one"
    for waits in (True, False, True):
        surveyor.explain(ErrorKind.NOT_FOUND, waits=waits)
    surveyor.close()
    text = "no segment is in the remote storage s3://bucket/x: it is empty. Set another"
    assert heard == [Notice(text, is_warning=True)]
    assert bucket.asked == 1
    assert surveyed(bucket) is None, "it may not list"
    assert surveyed(Bucket()) is None, "it cannot tell"


def test_a_survey_that_fails_ends_no_read() -> None:
    class Failing(Misplaced):
        def survey(self) -> Survey:
            raise OSError(40, "Too many levels of symbolic links")

    heard: list[Event] = []
    surveyor = Surveyor(Failing(), heard.append, 10_000)
    surveyor.explain(ErrorKind.NOT_FOUND)
    surveyor.close()
    assert heard == []


def test_a_survey_that_hangs_holds_nobody_up() -> None:
    may_go = threading.Event()

    class Hanging(Misplaced):
        def survey(self) -> Survey:
            may_go.wait(60)
            return super().survey()

    heard: list[Event] = []
    surveyor = Surveyor(Hanging(), heard.append, 20)
    surveyor.explain(ErrorKind.NOT_FOUND)
    surveyor.close()
    assert heard == []
    may_go.set()


SEGMENT = contract_segments()[0].metadata


class Expired(Bucket):
    """Lists one segment, once the credentials were looked up again."""

    refreshed = 0

    def refresh_credentials(self) -> None:
        self.refreshed += 1

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        if self.refreshed == 0:
            raise StorageDenied("expired")
        yield SEGMENT


class ExpiredByPartition(Expired):
    def list_partitions(self, topic: str | None = None) -> Iterator[TopicIdPartition] | None:
        return None if topic is None else iter({segment.topic_id_partition for segment in self.list_segments()})

    def list_partition(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        return self.list_segments()


def test_a_refused_listing_has_the_credentials_looked_up_again() -> None:
    """A consumer may make listings for hours before it reads."""
    assert list(listings_of(Expired()).segments(None)) == [SEGMENT]
    assert list(listings_of(ExpiredByPartition()).segments(None)) == [SEGMENT]
    assert list(listings_of(ExpiredByPartition()).partitions("topic") or ()) == [SEGMENT.topic_id_partition]
    assert listings_of(ExpiredByPartition()).partitions(None) is None
    of_partition = listings_of(ExpiredByPartition()).of_partition
    assert of_partition is not None
    assert list(of_partition(SEGMENT.topic_id_partition)) == [SEGMENT]


def test_a_listing_takes_segments_that_have_no_hash() -> None:
    """A fetcher of users may give bytes that can change."""
    unhashable: Any = bytearray(b"a")
    segment = replace(SEGMENT, custom_metadata=unhashable)

    class Theirs(Expired):
        def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
            yield segment
            if self.refreshed == 0:
                raise StorageDenied("expired")

    assert list(listings_of(Theirs()).segments(None)) == [segment]
