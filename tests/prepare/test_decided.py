"""Which transactions the tier decides in a range, beside the oracle's own answer."""

from __future__ import annotations

import pytest

from remote_fetch.errors import Unlocatable
from remote_fetch.model import IndexType
from remote_fetch.prepare.decided import DecidedRanges, decided
from remote_fetch.testing.records import Record
from tests.prepare.test_opening import session_of
from tests.scan.bucket import Bucket
from tests.service.fakes import log_with_aborts


def test_ranges_have_the_transactions_that_touch_them() -> None:
    log = log_with_aborts(3)
    with session_of(Bucket(log.tiered())) as session:
        (partition,) = session.locator.partitions(None)
        timeline = session.locator.timeline(partition)
        whole = decided(session, timeline, 0, log.next_offset)
        assert whole.stable_offset == log.next_offset
        assert [(one.first_offset, one.last_offset) for one in whole.aborted] == [(1, 2), (6, 7), (11, 12)]
        for first in range(log.next_offset):
            for stop in range(first + 1, log.next_offset + 1):
                part = decided(session, timeline, first, stop)
                touching = tuple(o for o in whole.aborted if o.last_offset >= first and o.first_offset < stop)
                assert (part.stable_offset, part.aborted) == (whole.stable_offset, touching), (first, stop)


def test_a_range_beyond_the_tier_or_empty() -> None:
    log = log_with_aborts(1)
    with session_of(Bucket(log.tiered())) as session:
        (partition,) = session.locator.partitions(None)
        timeline = session.locator.timeline(partition)
        for first, stop in ((0, 0), (100, 200), (3, 3)):
            assert decided(session, timeline, first, stop).aborted == ()


def test_an_open_transaction_bounds_the_stable_offset() -> None:
    log = log_with_aborts(1)
    log.begin(9)
    log.append_batch([Record(0, 0, b"k", b"v", ())], producer_id=9)
    log.roll()
    with session_of(Bucket(log.tiered())) as session:
        (partition,) = session.locator.partitions(None)
        found = decided(session, session.locator.timeline(partition), 0, log.next_offset)
        assert found.stable_offset == log.last_stable_offset == log.next_offset - 1


def test_a_missing_snapshot_is_an_error() -> None:
    bucket = Bucket(log_with_aborts(2).tiered())
    bucket.write_index(1, IndexType.PRODUCER_SNAPSHOT, None)
    with session_of(bucket) as session:
        (partition,) = session.locator.partitions(None)
        with pytest.raises(Unlocatable):
            decided(session, session.locator.timeline(partition), 0, 5)


def test_ranges_are_kept_while_the_timeline_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remote_fetch.prepare.decided._MOST_RANGES", 2)
    bucket = Bucket(log_with_aborts(3).tiered())
    with session_of(bucket) as session:
        (partition,) = session.locator.partitions(None)
        timeline = session.locator.timeline(partition)
        ranges = DecidedRanges(session)
        found = [ranges.of(timeline, 0, stop) for stop in (5, 10)]
        bucket.indexes.clear()
        assert [ranges.of(timeline, 0, stop) for stop in (5, 10)] == found
        other = timeline.within(0, 4)
        with pytest.raises(Unlocatable):
            ranges.of(other, 0, 5)
    with session_of(Bucket(log_with_aborts(3).tiered())) as session:
        ranges = DecidedRanges(session)
        for stop in range(1, 9):
            ranges.of(timeline, 0, stop)
        assert len(ranges._kept) == 2
