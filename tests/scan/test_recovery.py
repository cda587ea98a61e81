"""The rules of `recovery`: the queue of a scan after an error of the slice at its head. The last two tests read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import CorruptSegment, SegmentNotFound, StorageTimeout
from remote_fetch.model import IndexType
from remote_fetch.observe import Event, Fallback, RangeReread, SegmentScanned
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.order import MisleadingIndex
from remote_fetch.prepare.segment_ends import Gap
from remote_fetch.scan.recovery import Recovery
from remote_fetch.scan.scan import Scan
from remote_fetch.scan.work import BrokerWork, Work, works_of
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions
from tests.scan.bucket import (
    COLUMNS,
    COMMITTED,
    DENSE,
    UNCOMMITTED,
    Bucket,
    expected_rows,
    plain_log,
    read,
    rows_of,
    snapshot_config,
)


class Queue:
    """The work of a plan for a bucket, the slice at its head, and the events of its recovery."""

    def __init__(self, session: Session, start: int, events: list[Event]) -> None:
        (plan,) = plan_job(session, "topic", start=start, end="latest", partitions=None, isolation=UNCOMMITTED)
        self.todo: deque[Work | BrokerWork] = deque(works_of(plan, ("offset",)))
        self.recovery = Recovery(session, self.todo, session.codecs)
        self.events = events
        events.clear()

    @property
    def head(self) -> Work:
        assert isinstance(self.todo[0], Work)
        return self.todo[0]

    def fails(self, error: SegmentNotFound | CorruptSegment | StorageTimeout | MisleadingIndex) -> list[type[Event]]:
        """Recover from an error of the head. Returns the kinds of the events."""
        self.events.clear()
        self.recovery.recover(self.head, error)
        return [type(event) for event in self.events]

    def slices(self) -> list[tuple[int, int, bool]]:
        """First offset, last offset, and whether it is of the first upload, of each slice."""
        works = [work for work in self.todo if isinstance(work, Work)]
        return [(each.piece.first_offset, each.piece.last_offset, self._is_first(each)) for each in works]

    def _is_first(self, work: Work) -> bool:
        return work.piece.segment.segment_id in FIRST


LOG = plain_log(segments=2)
FIRST = {segment.metadata.segment_id for segment in LOG.tiered(DENSE)}


@contextmanager
def queue(*, copies: int = 0, start: int = 0) -> Iterator[Queue]:
    """Two segments of 20 offsets, `copies` of them uploaded twice."""
    bucket = Bucket(LOG.tiered(DENSE))
    for segment in LOG.tiered(SegmentOptions(upload=1))[:copies]:
        bucket.add(segment)
    events: list[Event] = []
    with Session(Config.parse(snapshot_config(bucket.metadata)), bucket, events.append) as session:
        yield Queue(session, start, events)


def corrupt() -> CorruptSegment:
    return CorruptSegment("damaged")


def test_bytes_that_break_a_rule_are_fetched_once_more_at_each_position() -> None:
    with queue() as read:
        for position in (100, 200):
            read.head.position = position
            read.head.ended = True
            assert read.fails(corrupt()) == [RangeReread]
            assert not read.head.ended
        with pytest.raises(CorruptSegment, match="damaged"):
            read.fails(corrupt())


def test_then_another_segment_with_the_same_offsets_is_read() -> None:
    with queue(copies=1) as read:
        (_, last, is_first), _ = read.slices()
        assert last == 19
        assert read.fails(corrupt()) == [RangeReread]
        assert read.fails(corrupt()) == [Fallback]
        assert read.slices() == [(0, 19, not is_first), (20, 39, True)]
        assert read.fails(corrupt()) == [RangeReread], "its bytes are others"
        with pytest.raises(CorruptSegment, match="damaged"):
            read.fails(corrupt())


def test_an_object_that_is_missing_is_not_asked_for_again() -> None:
    with queue(copies=1) as read:
        (_, _, is_first), _ = read.slices()
        assert read.fails(SegmentNotFound("gone")) == [Fallback]
        assert read.slices() == [(0, 19, not is_first), (20, 39, True)]


def test_the_first_bytes_after_an_index_are_doubted_with_the_index() -> None:
    with queue(start=13) as read:
        assert read.head.position > 0
        assert read.fails(corrupt()) == [SegmentScanned]
        assert (read.head.position, read.slices()[0]) == (0, (13, 19, True))
    with queue(start=13) as read:
        read.head.position += 1
        assert read.fails(corrupt()) == [RangeReread], "the batches before it confirm the index"
    with queue(start=13) as read:
        assert read.fails(MisleadingIndex()) == [SegmentScanned]
        assert (read.head.position, read.slices()[0]) == (0, (13, 19, True))


def test_offsets_that_a_segment_lacks_come_from_others_and_the_rest_from_itself() -> None:
    with queue() as read:
        lent = [read.todo[1].piece] if isinstance(read.todo[1], Work) else []
        assert read.fails(Gap("it begins late", lent, last=4)) == [Fallback]
        assert read.slices() == [(20, 39, True), (5, 19, True), (20, 39, True)]
    with queue() as read:
        assert read.fails(Gap("it ends early", lent, last=19)) == [Fallback]
        assert read.slices() == [(20, 39, True), (20, 39, True)]


def test_an_error_after_the_wanted_offsets_concerns_none_of_them() -> None:
    with queue() as read:
        read.head.partition.rows.next_offset = 19
        assert read.fails(corrupt()) == [RangeReread]
        read.head.partition.rows.next_offset = 20
        assert read.fails(corrupt()) == []
        assert read.slices() == [(20, 39, True)]


def test_a_store_that_fails_is_left_to_the_scan() -> None:
    for copies, start in ((1, 0), (0, 13)):
        with queue(copies=copies, start=start) as read, pytest.raises(StorageTimeout):
            read.fails(StorageTimeout("too slow"))


def test_another_upload_brings_its_own_transaction_index() -> None:
    """The first one and its index are gone, which a plan takes for an index without entries."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(0, value=b"aborted")], producer_id=7)
    log.abort(7)
    log.append_batch([Record(0, value=b"v")])
    log.roll()
    bucket = Bucket(log.segments())
    bucket.write_index(0, IndexType.TRANSACTION, None)
    with Session(Config.parse({}), bucket) as session:
        plans = plan_job(session, "topic", start="earliest", end="latest", partitions=None, isolation=COMMITTED)
        bucket.drop(0)
        bucket.add(log.segments(SegmentOptions(upload=1))[0])
        rows = [row for batch in Scan(session, plans, COLUMNS).batches() for row in rows_of(batch)]
    assert [row.value for row in rows] == [b"v"]


def test_a_copy_that_failed_at_one_offset_is_read_again_behind_it() -> None:
    """Each of two copies has a damaged batch, which the other copy has whole."""
    log = plain_log(segments=1)
    bucket = Bucket([*log.tiered(DENSE), *log.tiered(replace(DENSE, upload=1))])
    batch_bytes = len(bucket.log(0)) // 4
    bucket.flip(0, 2 * batch_bytes - 1)
    bucket.flip(1, 4 * batch_bytes - 1)
    outcome = read(bucket, config=snapshot_config(bucket.metadata))
    assert outcome.fine() == expected_rows(log.records())
    assert outcome.report.fallbacks == {"corrupt": 2}
