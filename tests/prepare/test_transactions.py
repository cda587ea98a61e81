"""Which slices of a read_committed read the store gives, where brokers list aborted transactions.

The rest of the module is tested with whole reads, in tests/scan and in test_planner.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from struct import pack

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import CorruptSegment, Unlocatable
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import AbortedLists, Timeline
from remote_fetch.model import IndexType, LeaderEpoch, LogBounds, RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice, plan_offsets
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.segment_files import ProducerSnapshots
from remote_fetch.prepare.transactions import is_decided, load_aborted, measured_behind, settle_listed, settle_steps
from remote_fetch.prepare.view import OpenPartition, untiered
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.work import SharedPartition, Work, work_for
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from tests.cases import each_of
from tests.locate.timelines import timeline_of
from tests.scan.bucket import COMMITTED, UNCOMMITTED, Bucket, WatchedBucket, plain_log, read, snapshot_config

SEGMENTS = [segment.metadata for segment in plain_log().segments()]
FIRST, SECOND, THIRD = (segment.segment_id for segment in SEGMENTS)


def opened(lists: AbortedLists | None) -> OpenPartition:
    partition = SEGMENTS[0].topic_id_partition
    timeline = replace(timeline_of(partition, SEGMENTS), listed_aborts=lists)
    return replace(untiered(partition, COMMITTED, LogBounds(0, 60)), timeline=timeline)


def test_a_slice_needs_the_list_of_its_own_first_offset() -> None:
    found = opened({(FIRST, 7): (), (SECOND, 21): (), (THIRD, 40): ()})
    steps = settle_listed(found, plan_offsets(found, 7, 70))
    assert [(type(step), step.first_offset) for step in steps] == [
        (SegmentSlice, 7),
        (BrokerRange, 20),
        (SegmentSlice, 40),
        (BrokerRange, 60),
    ]
    assert [step.reason for step in steps if isinstance(step, BrokerRange)] == [Reason.UNSTABLE, Reason.NOT_TIERED]


def test_work_takes_the_list_of_its_slice() -> None:
    found = opened({(FIRST, 0): ((4, 2),), (SECOND, 20): ()})
    rows = PartitionRows("topic", 0, ("offset",), found.lineage, AbortedIntervals.of(()), 0)
    shared = SharedPartition(found, rows)
    first, second, third = (SegmentSlice(each, each.start_offset, each.end_offset) for each in SEGMENTS)
    work = work_for(first, shared)
    assert isinstance(work, Work)
    assert isinstance(work.aborts, SequentialAborts)
    work = work_for(second, shared)
    assert isinstance(work, Work)
    assert work.aborts == AbortedIntervals.of(())
    with pytest.raises(Unlocatable, match="from offset 40 on"):
        work_for(third, shared)
    for plain in (opened(None), replace(found, isolation=UNCOMMITTED)):
        work = work_for(third, SharedPartition(plain, rows))
        assert isinstance(work, Work)
        assert work.aborts is None


@pytest.mark.parametrize("between", ["broker", "nothing"])
def test_an_abort_behind_a_slice_that_no_slice_follows_directly(between: str) -> None:
    """A broker has to serve the offsets behind it, or a filter has dropped them."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(at, value=b"aborted") for at in range(3)], producer_id=7)
    log.roll()
    log.append_batch([Record(0, value=b"v")])
    marker = log.abort(7)
    log.roll()
    log.append_batch([Record(0, value=b"w")])
    log.roll()
    built = [segment.metadata for segment in log.segments()]
    with Session(Config.parse({}), Bucket(log.segments())) as session:
        timeline = session.locator.timeline(built[0].topic_id_partition)
        whole = Planner(session, COMMITTED).open_timeline(timeline, LogBounds(0, log.next_offset))
        first, last = (SegmentSlice(each, each.start_offset, each.end_offset) for each in (built[0], built[2]))
        served = BrokerRange(whole.partition, built[1].start_offset, built[1].end_offset, Reason.UNSTABLE)
        steps: list[PlanStep] = [first, served, last] if between == "broker" else [first, last]
        assert is_decided(whole, steps, ProducerSnapshots(session.storage))
        # One slice whose markers are lost is enough.
        assert not is_decided(whole.without([built[1].segment_id]), steps, ProducerSnapshots(session.storage))
        assert load_aborted(session.storage, whole, steps).ends_at(7, marker)
        assert not load_aborted(session.storage, whole, [last]).ends_at(7, marker)


@pytest.mark.parametrize("data", [bytes(34), pack(">hqqqq", 0, 7, 0, 2, 3)], ids=["zeros", "marker before"])
def test_an_index_whose_markers_lie_before_its_segment(data: bytes) -> None:
    """A broker does not take it. The read ends before the marker, so that no batch contradicts the index."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(at, value=b"aborted") for at in range(3)], producer_id=7)
    log.roll()
    log.append_batch([Record(0, value=b"v")])
    log.abort(7)
    log.roll()
    bucket = Bucket(log.segments())
    assert read(bucket, end=4, isolation=COMMITTED).offsets == [3]
    bucket.write_index(1, IndexType.TRANSACTION, data)
    found = read(bucket, end=4, isolation=COMMITTED)
    assert found.rows == []
    with pytest.raises(CorruptSegment, match=r"marker \d lies before the segment, which starts at 3"):
        found.fine()


def aborted_log() -> LogBuilder:
    """One segment: an aborted transaction of offsets 0 to 2, and its marker."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(at, value=b"aborted") for at in range(3)], producer_id=7)
    log.abort(7)
    log.roll()
    return log


def test_an_index_that_loses_its_bytes_on_the_way_is_asked_for_again() -> None:
    """As an answer 200 or 416 without a byte. Else an aborted record would be given, because the marker is not read."""
    log = aborted_log()

    class Losing(Bucket):
        asked = 0

        def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
            data = super().fetch_index(metadata, index_type)
            self.asked += index_type is IndexType.TRANSACTION
            return b"" if index_type is IndexType.TRANSACTION and self.asked == 1 else data

    bucket = Losing(log.segments())
    assert read(bucket, end=3, isolation=COMMITTED).offsets == []
    assert bucket.asked == 2
    bucket.write_index(0, IndexType.TRANSACTION, b"")
    assert read(bucket, end=3, isolation=COMMITTED).offsets == [0, 1, 2]  # as a broker gives them


@each_of("again", [None, b""], ids=["missing", "empty"])
def test_an_index_that_was_damaged_does_not_turn_out_to_be_missing(again: bytes | None) -> None:
    """It was there, so a later answer does not prove that it has no entries: an aborted record would be given."""
    log = aborted_log()

    class Damaging(Bucket):
        asked = 0

        def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
            data = super().fetch_index(metadata, index_type)
            if index_type is not IndexType.TRANSACTION or data is None:
                return data
            self.asked += 1
            return data[:-1] if self.asked == 1 else again

    found = read(Damaging(log.segments()), end=3, isolation=COMMITTED)
    assert (found.offsets, type(found.error)) == ([], CorruptSegment)


def test_empty_indexes_are_asked_for_again_at_once() -> None:
    """Some storage plug-ins may write an empty index for each segment. One question after another took too long."""
    segments = plain_log(segments=3).segments()

    class Meeting(Bucket):
        def __init__(self) -> None:
            super().__init__(segments)
            self.asked: Counter[RemoteLogSegmentMetadata] = Counter()
            self.meeting = threading.Barrier(3, timeout=60)

        def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
            if index_type is not IndexType.TRANSACTION:
                return super().fetch_index(metadata, index_type)
            self.asked[metadata] += 1
            if self.asked[metadata] == 2:
                self.meeting.wait()
            return b""

    bucket = Meeting()
    for number in range(3):
        bucket.write_index(number, IndexType.TRANSACTION, b"")
    assert len(read(bucket, isolation=COMMITTED).fine()) == 60
    assert set(bucket.asked.values()) == {2}


def test_a_snapshot_of_a_later_segment() -> None:
    """Its checksum is right, and by it the transaction is over: its records would be given."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(at, value=b"aborted") for at in range(3)], producer_id=7)
    log.roll()
    log.append_batch([Record(0, value=b"v")], producer_id=9)
    log.abort(7)
    log.roll()
    bucket = Bucket(log.segments())
    config = snapshot_config(bucket.metadata)
    assert read(bucket, end=3, isolation=COMMITTED, config=config).offsets == []
    first, second = (each.segment_id.id for each in bucket.metadata)
    later = bucket.indexes[second, IndexType.PRODUCER_SNAPSHOT]
    bucket.write_index(0, IndexType.PRODUCER_SNAPSHOT, later)
    watched = WatchedBucket(bucket)
    found = read(watched, end=3, isolation=COMMITTED, config=config)
    assert found.rows == []
    with pytest.raises(CorruptSegment, match="a batch at offset 3 lies behind the segment, which ends at 2"):
        found.fine()
    asked = [call.metadata.segment_id.id for call in watched.calls if call.index_type is IndexType.PRODUCER_SNAPSHOT]
    assert asked[-2:] == [first, first]


def test_a_snapshot_of_a_listed_segment_that_goes_on_behind_its_end() -> None:
    """The next segment begins before the end, because two leaders have uploaded these offsets."""
    log = LogBuilder()
    log.append_batch([Record(at, value=b"v") for at in range(3)], producer_id=9)
    log.roll()
    (built,) = log.segments()
    listed = replace(built.metadata, end_offset=1, segment_leader_epochs=())
    with Session(Config.parse({}), Bucket([built])) as session:
        assert ProducerSnapshots(session.storage).of(listed) == ()


def test_the_ends_of_segments_with_an_open_transaction_are_measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    log.begin(7)
    for _ in range(3):
        log.append_batch([Record(0, value=b"aborted")], producer_id=7)
        log.roll()
    log.abort(7)
    log.roll()
    bucket, meeting = Bucket(log.segments()), threading.Barrier(3, timeout=60)

    def fetch_index(metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        if index_type is IndexType.OFFSET:
            meeting.wait()
        return Bucket.fetch_index(bucket, metadata, index_type)

    with Session(Config.parse({}), bucket) as session:
        timeline = session.locator.timeline(bucket.at(0).topic_id_partition)
        whole = Planner(session, COMMITTED).open_timeline(timeline, LogBounds(0, log.next_offset))
        assert [session.locator.end_is_inferred(one) for one in timeline.segments] == [True, True, True, False]
        monkeypatch.setattr(bucket, "fetch_index", fetch_index)
        snapshots = ProducerSnapshots(session.storage)
        settled, steps = settle_steps(snapshots, session.locator, whole, 0, log.next_offset)
        assert [(step.first_offset, step.last_offset) for step in steps] == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert not any(map(session.locator.end_is_inferred, settled.timeline.segments))


def lost_marker() -> tuple[LogBuilder, list[BuiltSegment]]:
    """A log, and its segments without the one that has the marker of an aborted transaction."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(at, value=b"aborted") for at in range(3)], producer_id=7)
    log.append_batch([Record(at, value=b"v") for at in range(2)])
    log.roll()
    log.append_batch([Record(at, value=b"w") for at in range(5)])
    log.roll()
    log.abort(7)
    log.roll()
    log.append_batch([Record(at, value=b"x") for at in range(3)])
    log.roll()
    return log, [segment for number, segment in enumerate(log.segments()) if number != 2]


@pytest.mark.parametrize("end", [4, 5, 8])
def test_a_lost_marker_behind_the_end_of_a_read(end: int) -> None:
    """A listing guesses that the segment before the lost one ends where the next one begins."""
    _, segments = lost_marker()
    found = read(Bucket(segments), end=end, isolation=COMMITTED)
    assert found.rows == []
    with pytest.raises(Unlocatable, match=r"offsets 0 to \d cannot be read from the bucket alone \(unstable\)"):
        found.fine()


def test_a_guess_that_stays_a_guess_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that ends before a gap keeps the guess. Measured again and again, a plan would never be made."""
    segments = lost_marker()[1]
    measured: list[int] = []
    with Session(Config.parse(snapshot_config(each.metadata for each in segments)), Bucket(segments)) as session:
        whole, locator = opened_of(session), session.locator

        def measure(partition: TopicIdPartition, guessed: Sequence[RemoteLogSegmentMetadata]) -> Timeline:
            measured.extend(each.start_offset for each in guessed)
            assert len(measured) < 9
            return locator.timeline(partition)

        monkeypatch.setattr(locator, "end_is_inferred", lambda segment: True)
        monkeypatch.setattr(locator, "measure", measure)
        steps = [SegmentSlice(each, each.start_offset, each.end_offset) for each in whole.timeline.segments[:1]]
        measured_behind(locator, whole, steps, ProducerSnapshots(session.storage))
    assert measured == [5]


def test_a_lost_marker_behind_a_segment_without_a_snapshot() -> None:
    """Nothing tells that a transaction is open there. So the segment is measured, and the hole behind it is found."""
    bucket = Bucket(lost_marker()[1])
    bucket.write_index(1, IndexType.PRODUCER_SNAPSHOT, None)
    found = read(bucket, isolation=COMMITTED)
    assert found.rows == []
    with pytest.raises(Unlocatable, match="no producer snapshot"):
        found.fine()


def test_a_lost_marker_behind_offsets_that_the_broker_has_on_its_disk() -> None:
    log, segments = lost_marker()
    config = Config.parse(snapshot_config(segment.metadata for segment in segments))
    with Session(config, Bucket(segments)) as session:
        (partition,) = session.locator.partitions("topic")
        timeline = session.locator.timeline(partition)
        whole = Planner(session, COMMITTED).open_timeline(timeline, LogBounds(0, log.next_offset))
        held = replace(whole, local_start=5)
        _, settled = settle_steps(ProducerSnapshots(session.storage), session.locator, held, 0, 10)
        local = BrokerRange(partition, 5, 9, Reason.LOCAL)
        assert settled == (BrokerRange(partition, 0, 4, Reason.UNSTABLE), local)


def test_a_lost_marker_leaves_the_transactions_before_it_to_the_store() -> None:
    """The transaction of producer 7 ends before the hole, in the next segment."""
    log = LogBuilder()
    for producer_id in (7, 8):
        log.begin(producer_id)
        log.append_batch([Record(0, value=b"v")], producer_id=producer_id)
    log.roll()
    for end, producer_id in ((log.commit, 7), (log.abort, 8)):
        end(producer_id)
        log.roll()
    log.append_batch([Record(0, value=b"x")])
    log.roll()
    bucket = Bucket(segment for number, segment in enumerate(log.segments()) if number != 2)
    with Session(Config.parse(snapshot_config(bucket.metadata)), bucket) as session:
        _, steps = settle_steps(ProducerSnapshots(session.storage), session.locator, opened_of(session), 0, 2)
        assert [(type(step), step.first_offset) for step in steps] == [(SegmentSlice, 0), (BrokerRange, 1)]


def cut_off_log() -> tuple[LogBuilder, LogBuilder]:
    """A log whose segment at offset 10 a new leader has cut off, and the log of that leader."""
    lost = LogBuilder()
    lost.append_batch([Record(at, value=b"v") for at in range(10)])
    lost.roll()
    log = lost.fork(10)
    log.new_leader_epoch()
    lost.append_batch([Record(0, value=b"lost")])
    lost.roll()
    return lost, log


@pytest.mark.parametrize("checkpoint", ["sound", "missing"])
def test_an_abort_of_a_log_that_was_cut_off_hides_nothing(checkpoint: str) -> None:
    """A listing does not tell that its segment belongs to another log. The producer has committed in the log."""
    lost, log = cut_off_log()
    markers = []
    for branch, producer_id in ((lost, 7), (log, 9)):
        branch.begin(producer_id)
        branch.append_batch([Record(at, value=b"in a transaction") for at in range(6)], producer_id=producer_id)
        markers.append(branch.abort(producer_id))
        branch.roll()
    bucket = Bucket([*lost.segments(), *log.segments()[1:]])
    if checkpoint == "missing":
        del bucket.indexes[lost.segments()[2].metadata.segment_id.id, IndexType.LEADER_EPOCH]
    with Session(Config.parse({}), bucket) as session:
        (partition,) = session.locator.partitions("topic")
        listed = session.locator.timeline(partition)
        whole = Planner(session, COMMITTED).open_timeline(listed, LogBounds(0, log.next_offset))
        steps = [SegmentSlice(each, each.start_offset, each.start_offset + 5) for each in listed.segments]
        found = load_aborted(session.storage, whole, steps)
    assert not any(segment.segment_leader_epochs for segment in listed.segments)
    assert found.ends_at(9, markers[1])
    assert found.ends_at(7, markers[0]) == (checkpoint == "missing")


def test_an_abort_of_a_log_that_was_cut_off_hides_nothing_in_a_log_of_one_later_leader() -> None:
    """Retention has taken the records of the other leaders, so the lineage has one epoch. It is not the first one."""
    lost, log = cut_off_log()
    lost.begin(7)
    lost.append_batch([Record(at, value=b"aborted") for at in range(6)], producer_id=7)
    marker = lost.abort(7)
    lost.roll()
    log.append_batch([Record(at, value=b"v") for at in range(10)])
    log.roll()
    bucket = Bucket([*lost.segments()[1:], *log.segments()[1:]])
    with Session(Config.parse({}), bucket) as session:
        (partition,) = session.locator.partitions("topic")
        listed = session.locator.timeline(partition)
        whole = replace(
            Planner(session, COMMITTED).open_timeline(listed, LogBounds(10, log.next_offset)),
            lineage=Lineage((LeaderEpoch(1, 10),)),
        )
        steps = [SegmentSlice(each, each.start_offset, each.end_offset) for each in listed.segments]
        found = load_aborted(session.storage, whole, steps)
    assert not found.ends_at(7, marker)


@pytest.mark.parametrize("end", [13, "latest"])
def test_a_checkpoint_that_denies_the_epoch_of_a_marker(end: int | str) -> None:
    """It is the one of the segment before, from which the last leader epoch is missing. The marker's batch has it."""
    log = LogBuilder()
    for _ in range(2):
        log.append_batch([Record(at, value=b"v") for at in range(5)])
        log.roll()
        log.new_leader_epoch()
    log.append_batch([Record(at, value=b"v") for at in range(3)])
    log.begin(7)
    log.append_batch([Record(at, value=b"aborted") for at in range(3)], producer_id=7)
    log.abort(7)
    log.roll()
    log.append_batch([Record(0, value=b"last")])
    log.roll()
    bucket = Bucket(log.segments())
    sound = read(bucket, end=end, isolation=COMMITTED)
    sound.fine()
    assert sound.offsets == [*range(13), *([17] if end == "latest" else [])]
    before = bucket.indexes[log.segments()[1].metadata.segment_id.id, IndexType.LEADER_EPOCH]
    bucket.write_index(2, IndexType.LEADER_EPOCH, before)
    found = read(bucket, end=end, isolation=COMMITTED)
    assert (type(found.error), found.rows) == (CorruptSegment, [])
    assert "by the checkpoint, offset 16 has leader epoch 1; its batch has 2" in str(found.error)


@each_of("cut", ["nothing", "marker", "end"])
def test_only_the_batch_of_a_marker_can_deny_its_checkpoint(cut: str) -> None:
    """The batches around it have other leader epochs. Compaction may have removed it from a log that was cut off."""
    lost = LogBuilder()
    lost.append_batch([Record(at, value=b"v") for at in range(10)])
    lost.roll()
    log = lost.fork(10)
    lost.begin(7)
    lost.append_batch([Record(0, value=b"aborted")], producer_id=7)
    lost.new_leader_epoch(1)
    marker = lost.abort(7)
    lost.new_leader_epoch(2)
    lost.append_batch([Record(0, value=b"w")])
    lost.roll()
    log.new_leader_epoch(3)
    log.append_batch([Record(at, value=b"v") for at in range(10)])
    log.roll()
    bucket = Bucket([*lost.segments(), *log.segments()[1:]])
    first, *last = (batch.data for batch in lost.batches[1:])
    bucket.write(1, first + b"".join({"nothing": last, "marker": last[1:], "end": []}[cut]))
    with Session(Config.parse({}), bucket) as session:
        whole = replace(opened_of(session), lineage=Lineage((LeaderEpoch(0, 0), LeaderEpoch(3, 10))))
        steps = [SegmentSlice(each, each.start_offset, 12) for each in whole.timeline.segments if each.start_offset]
        assert not load_aborted(session.storage, whole, steps).ends_at(7, marker)


def hidden_marker() -> tuple[Bucket, int]:
    """An aborted transaction over three segments, and its marker. The second says that it has the third's offsets."""
    log = LogBuilder()
    log.append_batch([Record(0, value=b"v")])
    log.begin(7)
    log.roll()
    for count in (3, 2):
        log.append_batch([Record(at, value=b"aborted") for at in range(count)], producer_id=7)
        if count == 3:
            log.append_batch([Record(0, value=b"w")])
            log.roll()
    marker = log.abort(7)
    log.append_batch([Record(0, value=b"x")])
    log.roll()
    log.append_batch([Record(0, value=b"y")])
    log.roll()
    bucket = Bucket(log.segments())
    bucket.metadata[1] = replace(bucket.metadata[1], end_offset=bucket.metadata[2].end_offset)
    return bucket, marker


def opened_of(session: Session) -> OpenPartition:
    (partition,) = session.locator.partitions("topic")
    timeline = session.locator.timeline(partition)
    return Planner(session, COMMITTED).open_timeline(timeline, LogBounds(0, None))


@pytest.mark.parametrize("end", [5, 8])
def test_the_index_of_a_segment_below_one_that_reaches_too_far(end: int) -> None:
    """It has the marker, and none of the planned slices is one of its own."""
    bucket, marker = hidden_marker()
    hidden = bucket.metadata[2].segment_id
    with Session(Config.parse(snapshot_config(bucket.metadata)), bucket) as session:
        whole = opened_of(session)
        # The one that reaches too far was finished later: at its offsets it is preferred.
        steps = [SegmentSlice(each, each.start_offset, end - 1) for each in whole.timeline.segments[1:2]]
        assert steps[0].segment.segment_id != hidden
        assert load_aborted(session.storage, whole, steps).ends_at(7, marker)


def test_segments_that_share_no_offset_cost_nothing() -> None:
    bucket, marker = hidden_marker()
    watched = WatchedBucket(bucket)
    with Session(Config.parse(snapshot_config(bucket.metadata)), watched) as session:
        whole = opened_of(session)
        before = len(watched.calls)
        last = whole.timeline.segments[2]
        steps = [SegmentSlice(last, marker + 1, last.end_offset)]
        load_aborted(session.storage, whole, steps)
        asked = [call for call in watched.calls[before:] if call.index_type is IndexType.TRANSACTION]
    assert [call.metadata.start_offset for call in asked] == [last.start_offset]


def test_the_index_of_a_segment_that_is_not_of_the_log_is_not_read() -> None:
    bucket, marker = hidden_marker()
    with Session(Config.parse(snapshot_config(bucket.metadata)), bucket) as session:
        whole = opened_of(session)
        first, hidden, *others = whole.timeline.segments[1:]
        lost = replace(hidden, segment_leader_epochs=(LeaderEpoch(5, hidden.start_offset),))
        timeline = timeline_of(whole.partition, [first, lost, *others])
        whole = replace(whole.with_timeline(timeline), lineage=Lineage((LeaderEpoch(0, 0),)))
        steps = [SegmentSlice(first, first.start_offset, first.end_offset)]
        assert not load_aborted(session.storage, whole, steps).ends_at(7, marker)
