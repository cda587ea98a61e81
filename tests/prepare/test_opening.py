"""A partition made ready: its ends, its lineage, what was aborted, and slices with positions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import given

from remote_fetch.config import Config
from remote_fetch.errors import EpochMismatch, UnknownTopic, Unlocatable
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    IndexType,
    IsolationLevel,
    LeaderEpoch,
    LogBounds,
    RemoteLogSegmentId,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.ranges import SegmentSlice, plan_offsets
from remote_fetch.prepare.opening import StillHolds, open_partition
from remote_fetch.prepare.positions import narrow_edges, narrow_slice
from remote_fetch.prepare.transactions import load_aborted
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.strategies import logs
from tests.locate.timelines import timeline_of
from tests.scan.bucket import COMMITTED, DENSE, UNCOMMITTED, Bucket, MeetingBucket, WatchedBucket, plain_log
from tests.searches import examples


@contextmanager
def session_of(fetcher: Bucket | WatchedBucket) -> Iterator[Session]:
    with Session(Config.parse({}), fetcher) as session:
        with suppress(UnknownTopic):
            session.locator.partitions(None)
        yield session


def opened_in(
    session: Session, isolation: IsolationLevel, log: LogBounds, holds: StillHolds | None = None
) -> OpenPartition:
    """The one partition of the session, opened."""
    (partition,) = session.locator.partitions(None)
    return open_partition(session.storage, holds, session.locator.timeline(partition), isolation, log)


class TestOpen:
    def test_ends(self) -> None:
        log = plain_log()
        with session_of(Bucket(log.segments()[1:])) as session:
            opened = opened_in(session, COMMITTED, LogBounds(25))
        assert (opened.start_offset, opened.stop_offset, opened.stable_stop) == (20, 60, 60)
        assert (opened.first_offset, opened.end_offset, opened.last_start) == (25, 60, 60)
        assert opened.partition == log.topic_id_partition

    def test_ends_that_a_broker_tells(self) -> None:
        log = plain_log()
        with session_of(Bucket(log.segments()[1:])) as session:
            opened = opened_in(session, COMMITTED, LogBounds(5, 70))
        assert (opened.start_offset, opened.stop_offset, opened.stable_stop) == (20, 60, 60)
        assert (opened.first_offset, opened.end_offset, opened.last_start) == (5, 70, 70)

    def test_checkpoints_of_a_listing_are_read_at_once(self) -> None:
        bucket = MeetingBucket(plain_log().segments(), IndexType.LEADER_EPOCH, 3)
        with session_of(bucket) as session:
            assert opened_in(session, UNCOMMITTED, LogBounds()).stop_offset == 60

    def test_nothing(self) -> None:
        partition = LogBuilder().topic_id_partition
        with session_of(Bucket()) as session:
            session.locator = KnownTimelines([Timeline(partition, (), ())])
            opened = opened_in(session, IsolationLevel.READ_COMMITTED, LogBounds())
        assert (opened.start_offset, opened.stop_offset, opened.stable_stop) == (0, 0, 0)

    @examples(80)
    @given(logs())
    def test_the_stable_end(self, log: LogBuilder) -> None:
        segments = log.tiered()
        if not segments:
            return
        with session_of(Bucket(segments)) as session:
            opened = opened_in(session, COMMITTED, LogBounds())
        assert opened.stable_stop == min(opened.stop_offset, log.stable_offset_at(segments[-1].metadata.end_offset + 1))

    def test_the_lineage_is_that_of_the_newest_segment(self) -> None:
        log = LogBuilder(leader_epoch=2)
        for _ in range(3):
            log.append_batch([Record(0)])
            log.new_leader_epoch()
            log.roll()
        with session_of(Bucket(log.segments())) as session:
            opened = opened_in(session, UNCOMMITTED, LogBounds())
        assert opened.lineage.entries == (LeaderEpoch(2, 0), LeaderEpoch(3, 1), LeaderEpoch(4, 2))
        assert opened.lineage.end_offset == 3

    def test_the_lineage_is_that_of_the_highest_epoch_although_a_lost_branch_reaches_further(self) -> None:
        """A listing has no leader epochs. After an unclean election it has the segments of both branches."""
        lost = LogBuilder()
        lost.append_batch([Record(0)])
        lost.roll()
        log = lost.fork(1)
        log.new_leader_epoch()
        log.append_batch([Record(0), Record(1)])
        log.roll()
        for _ in range(2):
            lost.append_batch([Record(0)])
            lost.roll()
        with session_of(Bucket([*lost.segments(), log.segments()[1]])) as session:
            opened = opened_in(session, UNCOMMITTED, LogBounds())
        assert opened.lineage.entries == (LeaderEpoch(0, 0), LeaderEpoch(1, 1))

    def test_an_empty_checkpoint_tells_nothing(self) -> None:
        bucket = Bucket(plain_log().segments())
        for number in (0, 2):
            bucket.write_index(number, IndexType.LEADER_EPOCH, b"")
        with session_of(bucket) as session:
            opened = opened_in(session, UNCOMMITTED, LogBounds())
        assert (opened.lineage.end_offset, opened.stop_offset) == (40, 60)

    @pytest.mark.parametrize(("lost_start", "start"), [(90, 100), (105, 105), (112, 110)])
    def test_offsets_of_a_lost_branch_are_the_logs_from_its_known_start_on(self, lost_start: int, start: int) -> None:
        """The tier lacks them, so they are a hole. Of offsets before the first leader epoch nothing is known."""
        log = LogBuilder(start_offset=100, leader_epoch=3)
        for _ in range(2):
            log.append_batch([Record(at) for at in range(10)])
            log.roll()
        bucket = Bucket(log.segments()[1:])
        (kept,) = bucket.metadata
        lost = replace(
            kept,
            segment_id=RemoteLogSegmentId(kept.topic_id_partition, Uuid(bytes(16))),
            start_offset=lost_start,
            end_offset=115,
            segment_leader_epochs=(LeaderEpoch(2, lost_start),),
        )
        with session_of(bucket) as session:
            session.locator = KnownTimelines([timeline_of(kept.topic_id_partition, [lost, kept])])
            opened = opened_in(session, UNCOMMITTED, LogBounds())
        assert (opened.start_offset, opened.stop_offset) == (start, 120)

    def test_without_segments_that_failed(self) -> None:
        log = plain_log()
        with session_of(Bucket(log.segments())) as session:
            opened = opened_in(session, UNCOMMITTED, LogBounds())
        first, second, third = opened.timeline.segments
        stranger = RemoteLogSegmentId(opened.partition, Uuid(bytes(16)))
        left = opened.without({first.segment_id, third.segment_id, stranger})
        assert left.timeline.segments == (second,)
        assert left.covering(0) is None
        assert (left.next_start(0), left.next_start(20)) == (20, None)
        assert opened.covering(0) == first
        assert opened.readable_end(first) == 19

    def test_names_in_messages(self) -> None:
        metadata = plain_log().segments()[1].metadata
        assert metadata.object_stem == f"00000000000000000020-{metadata.segment_id.id}"


class TestAborted:
    @staticmethod
    def log() -> LogBuilder:
        """A transaction from 0 whose abort comes six segments later."""
        log = LogBuilder()
        log.begin(1)
        log.append_batch([Record(0)], producer_id=1)
        log.roll()
        for _ in range(5):
            log.append_batch([Record(0)])
            log.roll()
        log.abort(1)
        for _ in range(3):
            log.roll()
            log.append_batch([Record(0)])
        log.roll()
        return log

    def test_later_segments_are_visited_until_nothing_is_open(self) -> None:
        log = self.log()
        fetcher = WatchedBucket(Bucket(log.tiered()))
        with session_of(fetcher) as session:
            opened = opened_in(session, COMMITTED, LogBounds())
            steps = plan_offsets(opened, 0, 2)
            aborted = load_aborted(session.storage, opened, steps)
            assert [e.last_offset for e in aborted.by_producer[1]] == [6]
            snapshots = [c for c in fetcher.calls if c.index_type is IndexType.PRODUCER_SNAPSHOT]
            assert max(c.metadata.start_offset for c in snapshots[1:]) == 6
            assert load_aborted(session.storage, opened, ()).by_producer == {}

    def test_a_whole_read_needs_no_snapshot_more(self) -> None:
        log = self.log()
        fetcher = WatchedBucket(Bucket(log.tiered()))
        with session_of(fetcher) as session:
            opened = opened_in(session, COMMITTED, LogBounds())
            aborted = load_aborted(session.storage, opened, plan_offsets(opened, 0, opened.stable_stop))
        assert list(aborted.by_producer) == [1]
        assert sum(c.index_type is IndexType.PRODUCER_SNAPSHOT for c in fetcher.calls) == 1

    def test_a_hole_where_the_marker_should_be(self) -> None:
        """The tier ends with a segment that says all is decided; the marker's own segment is missing."""
        log = self.log()
        segments = log.tiered()
        with session_of(Bucket(segments)) as session:
            opened = opened_in(session, COMMITTED, LogBounds())
            known = opened.timeline.segments
            opened = opened.without({s.segment_id for s in known[1:-1]})
            assert load_aborted(session.storage, opened, plan_offsets(opened, 0, 1)).by_producer == {}

    def test_a_snapshot_missing_on_the_way(self) -> None:
        log = self.log()
        bucket = Bucket(log.tiered())
        bucket.write_index(2, IndexType.PRODUCER_SNAPSHOT, None)
        with session_of(bucket) as session:
            opened = opened_in(session, COMMITTED, LogBounds())
            with pytest.raises(Unlocatable, match="no producer snapshot"):
                load_aborted(session.storage, opened, plan_offsets(opened, 0, 2))


class TestNarrow:
    def test_only_what_wants_a_part(self) -> None:
        log = plain_log()
        fetcher = WatchedBucket(Bucket(log.segments(DENSE)))
        with session_of(fetcher) as session:
            opened = opened_in(session, UNCOMMITTED, LogBounds())
            steps = plan_offsets(opened, 7, 70)
            narrowed = narrow_edges(session.storage, session.locator, steps)
        assert narrowed[1:] == steps[1:]
        assert isinstance(narrowed[0], SegmentSlice)
        assert narrowed[0].start_position > 0 or narrowed[0].start_entry_offset == -1
        asked = [c.metadata.start_offset for c in fetcher.calls if c.index_type is IndexType.OFFSET]
        assert asked == [40, 0]  # the listing's look at the last one, then the one that is cut

    def test_eight_and_twelve_bytes(self) -> None:
        log = plain_log()
        found = []
        for entry_bytes in (8, 12):
            built = log.segments(SegmentOptions(0, 12 if entry_bytes == 12 else 8))[0]
            with session_of(Bucket([built])) as session:
                piece = narrow_slice(session.storage, SegmentSlice(built.metadata, 12, 13))
            found.append(replace(piece))
        assert found[0] == found[1]
        assert found[0].start_position > 0


@pytest.mark.parametrize("holds", [True, False])
def test_the_broker_confirms_the_lineage_of_the_tier(holds: bool) -> None:
    """After an unclean election, and before the new leader's first upload, nothing in the tier tells of it."""
    log = plain_log()
    asked: list[tuple[int, int]] = []

    def answer(partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        asked.append((leader_epoch, end_offset))
        return holds

    with session_of(Bucket(log.segments())) as session:
        if holds:
            assert opened_in(session, UNCOMMITTED, LogBounds(0, 60), answer).stop_offset == 60
        else:
            with pytest.raises(EpochMismatch, match="ended at 60 in the tier"):
                opened_in(session, UNCOMMITTED, LogBounds(0, 60), answer)
    assert asked == [(log.segments()[-1].metadata.segment_leader_epochs[-1].epoch, 60)]
