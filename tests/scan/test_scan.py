"""Whole reads of random logs, from the bucket to rows: against the oracle, through both locators, also in parts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.config import Config
from remote_fetch.errors import Cancelled, CorruptSegment, ErrorKind, SegmentNotFound, Unlocatable
from remote_fetch.fetch.readahead import Awaited, RangeReader, RangeRequest
from remote_fetch.model import IndexType, IsolationLevel, RemoteLogSegmentMetadata
from remote_fetch.observe import RecordsRead
from remote_fetch.plan.cost import estimate
from remote_fetch.plan.ranges import PlanStep, SegmentSlice
from remote_fetch.plan.shares import share_out
from remote_fetch.prepare.cuts import settle_cut
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import Fault, FaultKind, FetchCall, seeded
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment, SegmentOptions
from remote_fetch.testing.strategies import cuts, logs, segment_options
from tests.eventually import eventually
from tests.scan.bucket import (
    COLUMNS,
    COMMITTED,
    DENSE,
    UNCOMMITTED,
    Bucket,
    WatchedBucket,
    expected_rows,
    plain_log,
    planned,
    read,
    snapshot_config,
)
from tests.searches import examples

RANGE_BYTES = st.sampled_from((1024, 1500, 8 << 20))


def last_offsets(log: LogBuilder, segments: Sequence[BuiltSegment]) -> list[int]:
    """The last offset that the bytes of each segment hold: a cleaner may have taken out the tail."""
    return [
        max(b.last_offset for b in log.batches if b.data and s.metadata.start_offset <= b.base_offset <= end)
        for s in segments
        for end in [s.metadata.end_offset]
    ]


def holes(log: LogBuilder, segments: Sequence[BuiltSegment], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The wanted offsets [first, last] that lie between the bytes of two segments: a bucket shows no more."""
    for (held, following), segment in zip(
        pairwise(zip(last_offsets(log, segments), segments, strict=True)), segments, strict=False
    ):
        last = segment.metadata.end_offset
        first = max(held[0] + 1, start)
        if first <= min(last, stop - 1) and following:
            yield first, last


def first_hole(log: LogBuilder, segments: Sequence[BuiltSegment], start: int, stop: int) -> tuple[int, int] | None:
    """The first of the holes."""
    return next(holes(log, segments, start, stop), None)


def undecided(log: LogBuilder, segments: list[BuiltSegment], start: int, stop: int) -> set[int]:
    """Where transactions begin that are open at a hole. Planning measures such holes, and refuses the read at once."""
    begun = {
        max(start, log.stable_offset_at(first)): first
        for first, _ in holes(log, segments, start, segments[-1].metadata.end_offset + 1)
    }
    return {offset for offset, hole in begun.items() if offset < min(hole, stop)}


def first_unreadable(
    log: LogBuilder, segments: list[BuiltSegment], isolation: IsolationLevel, start: int, stop: int
) -> int | None:
    """Where a bucket alone has to give up: at a hole, or where a transaction begins whose marker may lie in one."""
    if isolation is COMMITTED:
        hole = first_hole(log, segments, start, segments[-1].metadata.end_offset + 1)
        undecided = stop if hole is None else max(start, log.stable_offset_at(hole[0]))
        if hole is not None and undecided < min(hole[0], stop):
            return undecided
    hole = first_hole(log, segments, start, stop)
    return None if hole is None else hole[0]


class TestModel:
    @examples(150)
    @given(logs(), segment_options(), st.sampled_from(IsolationLevel), RANGE_BYTES, st.data())
    def test_a_bucket_alone(
        self, log: LogBuilder, options: SegmentOptions, isolation: IsolationLevel, range_bytes: int, data: st.DataObject
    ) -> None:
        segments = log.tiered(options)
        if not segments:
            return
        begin, end = segments[0].metadata.start_offset, last_offsets(log, segments)[-1] + 1
        if isolation is COMMITTED:
            end = min(end, log.stable_offset_at(segments[-1].metadata.end_offset + 1))
        start = data.draw(st.integers(begin, max(begin, end)), label="start")
        stop = data.draw(st.integers(start, max(start, end)), label="stop")
        outcome = read(
            Bucket(segments),
            start=start,
            end=stop,
            isolation=isolation,
            config={"fetch.remote.range.bytes": range_bytes, "fetch.remote.max.bytes": 4 * range_bytes},
        )
        first = first_unreadable(log, segments, isolation, start, stop)
        if first is None:
            assert outcome.fine() == expected_rows(log.expected(isolation, start, stop))
        else:
            assert isinstance(outcome.error, Unlocatable)
            refused = undecided(log, segments, start, stop) if isolation is COMMITTED else set()
            if outcome.error.first in refused:
                assert outcome.rows == []
                return
            assert outcome.error.first == first
            assert outcome.rows == expected_rows(log.expected(isolation, start, first))

    @examples(150)
    @given(logs(), segment_options(), st.sampled_from(IsolationLevel), RANGE_BYTES, st.data())
    def test_exact_metadata(
        self, log: LogBuilder, options: SegmentOptions, isolation: IsolationLevel, range_bytes: int, data: st.DataObject
    ) -> None:
        segments = log.tiered(options)
        if not segments:
            return
        begin, end = segments[0].metadata.start_offset, segments[-1].metadata.end_offset + 1
        if isolation is COMMITTED:
            end = max(begin, log.stable_offset_at(end))
        start = data.draw(st.integers(begin, end), label="start")
        stop = data.draw(st.integers(start, end), label="stop")
        config = snapshot_config(s.metadata for s in segments)
        try:
            whole = read(
                Bucket(segments),
                start=start,
                end=stop,
                isolation=isolation,
                config={**config, "fetch.remote.range.bytes": range_bytes},
            )
            target_bytes = data.draw(st.sampled_from((30, 100, 400)), label="target_bytes")
            parts = read(
                Bucket(segments),
                start=start,
                end=stop,
                isolation=isolation,
                config=config,
                cut=lambda session, plan: in_parts(session, plan, target_bytes),
            )
        finally:
            os.unlink(config["remote.locator.snapshot.file"])
        assert whole.fine() == expected_rows(log.expected(isolation, start, stop))
        assert parts.fine() == whole.rows
        assert (whole.report.scans, whole.report.rereads, whole.report.fallbacks) == ({}, {}, {})

    @examples(60)
    @given(logs(transactions=False), st.data())
    def test_overlapping_uploads(self, log: LogBuilder, data: st.DataObject) -> None:
        segments = [*log.segments(), *log.segments(SegmentOptions(upload=1), cuts=data.draw(cuts(log)))]
        if not log.segments():
            return
        start, stop = log.segments()[0].metadata.start_offset, log.cuts[-1]
        config = snapshot_config(s.metadata for s in segments)
        try:
            exact = read(Bucket(segments), start=start, end=stop, config=config)
        finally:
            os.unlink(config["remote.locator.snapshot.file"])
        assert exact.fine() == expected_rows(log.expected(UNCOMMITTED, start, stop))


def in_parts(session: Session, plan: PartitionPlan, target_bytes: int) -> list[list[PlanStep]]:
    """The plan in even shares, each a plan of its own and settled alone, the last one first."""
    found: list[list[PlanStep]] = []
    for share in reversed(share_out([plan.steps], target_bytes)):
        found.append([])
        for _, step in share.steps:
            assert isinstance(step, SegmentSlice)
            settled = settle_cut(session.storage, step) if step.is_cut else step
            if settled is not None:
                found[-1].append(settled)
    return found[::-1]


def has_gap(log: LogBuilder) -> bool:
    """Whether offsets lie in no batch: a cleaner took out a batch, or a message of a set that is not compressed."""
    return any(not batch.data for batch in log.batches) or any(
        before.last_offset + 1 < after.base_offset for before, after in pairwise(log.batches)
    )


class TestOverlaps:
    @examples(60)
    @given(logs(transactions=False), st.data())
    def test_listed_uploads_of_two_leaders(self, log: LogBuilder, data: st.DataObject) -> None:
        """A listing does not tell where segments end; the one that starts last has to reach furthest, as uploads do."""
        segments = [*log.segments(), *log.segments(SegmentOptions(upload=1), cuts=data.draw(cuts(log)))]
        segments = [segment for segment in segments if segment.log]
        ends = sorted((s.metadata.start_offset, s.metadata.end_offset) for s in segments)
        if not ends or ends[-1][1] < max(end for _, end in ends):
            return
        outcome = read(Bucket(segments))
        expected = expected_rows(log.expected(UNCOMMITTED, ends[0][0], ends[-1][1] + 1))
        if outcome.error is None:
            assert outcome.rows == expected
        else:
            assert isinstance(outcome.error, Unlocatable)
            assert min(ends)[1] < ends[-1][0] or has_gap(log)
            assert outcome.rows == expected[: len(outcome.rows)]

    def test_other_roll_points(self) -> None:
        log = plain_log()
        bucket = Bucket([*log.segments(), *log.segments(SegmentOptions(upload=1), cuts=[10, 30, 60])])
        outcome = read(bucket)
        assert outcome.fine() == expected_rows(log.records())
        assert (outcome.report.fallbacks, outcome.report.rereads) == ({}, {})

    def test_a_longer_upload_is_found_behind_a_shorter_one(self) -> None:
        """The upload that starts last before the hole ends too soon; an earlier one reaches over it."""
        log = plain_log()
        bucket = Bucket([*log.segments(cuts=[0, 40]), *log.segments(SegmentOptions(upload=1), cuts=[10, 20])])
        bucket.add(log.segments()[2])
        outcome = read(bucket)
        assert outcome.fine() == expected_rows(log.records())
        assert outcome.report.fallbacks == {ErrorKind.NOT_FOUND: 1}

    @pytest.mark.parametrize("broken", [0, 1])
    def test_of_two_uploads_the_whole_one_is_used(self, broken: int) -> None:
        log = plain_log()
        bucket = Bucket([*log.segments(DENSE), log.segments(SegmentOptions(upload=1))[1]])
        number = (1, 3)[broken]
        bucket.flip(number, len(bucket.log(number)) - 70)
        outcome = read(bucket)
        assert outcome.fine() == expected_rows(log.records())
        assert outcome.report.fallbacks in ({}, {ErrorKind.CORRUPT: 1})

    def test_two_uploads_broken_in_different_places_make_one_whole(self) -> None:
        log = plain_log(segments=1, batches=8)
        bucket = Bucket([*log.segments(DENSE), *log.segments(SegmentOptions(index_interval_bytes=0, upload=1))])
        batch_bytes = len(bucket.log(0)) // 8
        bucket.flip(0, 2 * batch_bytes + 70)
        bucket.flip(1, 5 * batch_bytes + 70)
        outcome = read(bucket)
        assert outcome.fine() == expected_rows(log.records())
        assert outcome.report.fallbacks[ErrorKind.CORRUPT] in (1, 2)

    def test_two_uploads_broken_in_the_same_place_are_an_error(self) -> None:
        log = plain_log(segments=1, batches=8)
        bucket = Bucket([*log.segments(), *log.segments(SegmentOptions(upload=1))])
        batch_bytes = len(bucket.log(0)) // 8
        for number in range(2):
            bucket.flip(number, 3 * batch_bytes + 70)
        outcome = read(bucket)
        assert isinstance(outcome.error, CorruptSegment)
        assert outcome.offsets == list(range(15))


class TestMissingObjects:
    @pytest.mark.parametrize("exact", [False, True])
    def test_in_the_middle(self, exact: bool) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        config = snapshot_config(bucket.metadata) if exact else None
        bucket.drop(1)
        outcome = read(bucket, config=config)
        assert isinstance(outcome.error, Unlocatable)
        assert (outcome.error.first, outcome.error.last) == (20, 39)
        assert (outcome.error.topic, outcome.error.partition) == ("topic", 0)
        assert outcome.error.object_name is not None
        assert outcome.offsets == list(range(20))

    def test_another_upload_stands_in(self) -> None:
        log = plain_log()
        bucket = Bucket([*log.segments(), *log.segments(SegmentOptions(upload=1), cuts=[10, 50])])
        config = snapshot_config(bucket.metadata)
        bucket.drop(1)
        outcome = read(bucket, config=config)
        assert outcome.fine() == expected_rows(log.records())

    def test_what_lies_before_a_hole_is_read_from_another_upload(self) -> None:
        """Segment 20..39 is gone; another upload has 20..29 of it, and then nothing."""
        log = plain_log()
        bucket = Bucket([*log.segments(), *log.segments(SegmentOptions(upload=1), cuts=[10, 30])])
        config = snapshot_config(bucket.metadata)
        bucket.drop(1)
        outcome = read(bucket, config=config)
        assert isinstance(outcome.error, Unlocatable)
        assert (outcome.error.first, outcome.error.last) == (30, 39)
        assert outcome.offsets == list(range(30))

    def test_a_hole_that_is_known_beforehand(self) -> None:
        log = plain_log()
        segments = log.segments()
        outcome = read(Bucket(segments), config=snapshot_config([segments[0].metadata, segments[2].metadata]))
        assert isinstance(outcome.error, Unlocatable)
        assert (outcome.error.first, outcome.error.last, outcome.rows) == (20, 39, [])
        assert "hole" in outcome.error.message

    def test_the_first_segment_deleted_while_reading(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        gone = WatchedBucket(bucket, lambda call: Fault(FaultKind.NOT_FOUND) if call.index_type is None else None)
        outcome = read(gone, config=snapshot_config(bucket.metadata))
        assert isinstance(outcome.error, Unlocatable)
        assert isinstance(outcome.error.__cause__, SegmentNotFound)
        assert (outcome.error.first, outcome.error.last) == (0, 19)


class TestFaults:
    @pytest.mark.parametrize("kind", [FaultKind.FLIP_BYTE, FaultKind.SHORT_BODY, FaultKind.TRUNCATE])
    @pytest.mark.parametrize("position", [0, 16, 40, 333, 999])
    def test_a_damage_that_passes_is_read_again(self, kind: FaultKind, position: int) -> None:
        log = plain_log()
        hit: list[FetchCall] = []

        def once(call: FetchCall) -> Fault | None:
            wanted = call.index_type is None and call.metadata.start_offset == 20 and not hit
            if wanted:
                hit.append(call)
            return Fault(kind, position=position) if wanted else None

        fetcher = WatchedBucket(Bucket(log.segments()), once)
        outcome = read(fetcher, config=snapshot_config(s.metadata for s in log.segments()))
        assert outcome.fine() == expected_rows(log.records())
        assert sum(outcome.report.rereads.values()) == 1
        assert len(fetcher.injected) == 1

    @pytest.mark.parametrize("kind", [FaultKind.THROTTLED, FaultKind.UNAVAILABLE])
    def test_what_may_pass_is_tried_again(self, kind: FaultKind) -> None:
        log = plain_log()
        fetcher = WatchedBucket(Bucket(log.segments()), lambda call: Fault(kind) if call.attempt == 0 else None)
        outcome = read(fetcher)
        assert outcome.fine() == expected_rows(log.records())
        assert sum(outcome.report.retries.values()) == len(fetcher.injected)

    @pytest.mark.parametrize("kind", [FaultKind.DENIED, FaultKind.TIMEOUT])
    def test_what_was_read_before_a_refusal_is_delivered(self, kind: FaultKind) -> None:
        log = plain_log()
        fetcher = WatchedBucket(
            Bucket(log.segments()), lambda call: Fault(kind) if call.metadata.start_offset == 20 else None
        )
        outcome = read(fetcher, config=snapshot_config(s.metadata for s in log.segments()))
        assert outcome.error is not None
        assert outcome.offsets == list(range(20))
        assert "topic-0" in str(outcome.error)

    @examples(40)
    @given(st.integers(0, 2**32), st.sampled_from((1024, 8 << 20)))
    def test_random_faults_give_the_right_rows_or_an_error(self, seed: int, range_bytes: int) -> None:
        log = plain_log(value_bytes=200)
        kinds = (FaultKind.FLIP_BYTE, FaultKind.SHORT_BODY, FaultKind.TRUNCATE, FaultKind.UNAVAILABLE)
        fetcher = WatchedBucket(Bucket(log.segments()), seeded(seed, 0.2, kinds))
        outcome = read(fetcher, config={"fetch.remote.range.bytes": range_bytes})
        expected = expected_rows(log.records())
        # A cut listing of the last segment may end the tier sooner; nothing else may be missing.
        assert outcome.rows == expected[: len(outcome.rows)]
        assert outcome.error is not None or len(outcome.rows) in (40, 45, 50, 55, 60)


class HangingBucket(Bucket):
    """Once `hangs` is set, ranges of partition 1 come only when `goes_on` is set."""

    def __init__(self, segments: Iterable[BuiltSegment]) -> None:
        super().__init__(segments)
        self.hangs, self.goes_on = False, threading.Event()

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> memoryview:
        """As the bucket's own."""
        if self.hangs and metadata.topic_id_partition.partition == 1:
            self.goes_on.wait(20)
        return super().fetch_log_segment(metadata, start_position, end_position)


def two_logs() -> Iterator[LogBuilder]:
    for number in range(2):
        log = LogBuilder(partition=number)
        log.append_batch([Record(0, value=b"p%d" % number)])
        log.roll()
        yield log


class TestScan:
    def test_partitions_one_after_the_other(self) -> None:
        logs_ = [LogBuilder(partition=number) for number in range(3)]
        for log in logs_:
            log.append_batch([Record(0, value=b"p%d" % log.topic_id_partition.partition)])
            log.roll()
        bucket = Bucket(segment for log in reversed(logs_) for segment in log.segments())
        assert [row.value for row in read(bucket).fine()] == [b"p0", b"p1", b"p2"]
        assert [row.value for row in read(bucket, partitions=[2, 0]).fine()] == [b"p0", b"p2"]

    @pytest.mark.parametrize("damaged", [0, 1])
    def test_rows_of_a_partition_whose_last_slice_has_an_error_behind_its_offsets(
        self, damaged: int, tmp_path: Path
    ) -> None:
        """They come before those of the next partition, and although no slice follows."""
        logs_ = [LogBuilder(partition=number) for number in range(2)]
        for number, log in enumerate(logs_):
            for _ in range(3):
                log.append_batch([Record(at, value=b"%d" % number) for at in range(5)])
            log.roll()
        bucket = Bucket(segment for log in logs_ for segment in log.segments())
        bucket.flip(damaged, 2 * len(bucket.log(damaged)) // 3 + 16)  # the magic of the last batch
        found = read(bucket, end=10, config=snapshot_config(bucket.metadata, tmp_path)).fine()
        assert [(row.value, row.offset) for row in found] == [(b"%d" % n, at) for n in range(2) for at in range(10)]

    def test_a_slice_stops_at_its_last_offset(self) -> None:
        log = plain_log()
        bucket = WatchedBucket(Bucket(log.segments(DENSE)))
        outcome = read(bucket, start=22, end=27)
        assert outcome.fine() == expected_rows(log.records())[22:27]
        (piece,) = planned(Bucket(log.segments(DENSE)), start=22, end=27)
        assert piece.size_bytes is not None
        assert piece.size_bytes < len(log.segments()[1].log)

    @pytest.mark.parametrize(("start", "last"), [(0, 60), (3, 60), (3, 9)])
    def test_ranges_end_at_multiples_unless_one_is_enough(self, start: int, last: int) -> None:
        """A store that keeps chunks is asked for each chunk once, at any start of a read; and the estimate is right."""
        log = plain_log(segments=1, value_bytes=300)
        bucket = WatchedBucket(Bucket(log.segments(DENSE)))
        config = {**snapshot_config(s.metadata for s in log.segments(DENSE)), "fetch.remote.range.bytes": 1024}
        assert read(bucket, start=start, end=min(last, log.next_offset), config=config).error is None
        ranges = sorted((c.start_position, c.end_position) for c in bucket.calls if c.index_type is None)
        assert all(end % 1024 == 0 for _, end in ranges[:-1])
        assert [end for _, end in ranges[:-1]] == [begin for begin, _ in ranges[1:]]
        assert all(0 < end - begin <= 1024 for begin, end in ranges)
        steps = planned(Bucket(log.segments(DENSE)), start=start, end=min(last, log.next_offset))
        assert estimate([steps], 1024).gets == len(ranges)

    def test_an_observer_hears_of_every_row(self) -> None:
        log = plain_log()
        heard: list[RecordsRead] = []
        with Session(
            Config.parse({}), Bucket(log.segments()), lambda e: heard.append(e) if isinstance(e, RecordsRead) else None
        ) as session:
            plans = plan_job(
                session, "topic", start="earliest", end="latest", partitions=None, isolation=UNCOMMITTED, log_start=0
            )
            batches = list(Scan(session, plans, COLUMNS).batches())
        assert sum(event.records for event in heard) == sum(batch.num_rows for batch in batches) == 60
        assert heard[-1].next_offset == 60

    def test_an_observer_that_fails_at_the_very_end_is_heard_of(self) -> None:
        """When the last rows are counted there is nothing left to read; the error is the observer's all the same."""

        def observer(event: object) -> None:
            if isinstance(event, RecordsRead):
                raise LookupError("the observer's own")

        with Session(Config.parse({}), Bucket(plain_log().segments()), observer) as session:
            plans = plan_job(
                session, "topic", start="earliest", end="latest", partitions=None, isolation=UNCOMMITTED, log_start=0
            )
            with pytest.raises(LookupError, match="the observer's own"):
                list(Scan(session, plans, COLUMNS).batches())

    def test_a_scan_given_up_leaves_no_thread(self) -> None:
        log = plain_log(value_bytes=5000)
        before = threading.active_count()
        with Session(Config.parse({"fetch.remote.range.bytes": 1024}), Bucket(log.segments())) as session:
            plans = plan_job(
                session, "topic", start="earliest", end="latest", partitions=None, isolation=UNCOMMITTED, log_start=0
            )
            next(Scan(session, plans, COLUMNS).batches())
        assert eventually(lambda: threading.active_count() <= before)  # a thread of another test may have ended since

    def test_a_scan_given_up_cancels_the_range_that_it_has_not_waited_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It gives the rows that it has while the next range is under way, and may be closed there, as by a seek."""
        bucket = HangingBucket(segment for log in two_logs() for segment in log.segments())
        taken: list[Awaited] = []
        read_ahead = RangeReader.read_ahead

        def noted(*args: Any, **kwargs: Any) -> Iterator[tuple[RangeRequest, Awaited]]:
            for request, wait in read_ahead(*args, **kwargs):
                taken.append(wait)
                yield request, wait

        monkeypatch.setattr(RangeReader, "read_ahead", noted)
        with Session(Config.parse({}), bucket) as session:
            plans = plan_job(
                session, "topic", start="earliest", end="latest", partitions=None, isolation=UNCOMMITTED, log_start=0
            )
            bucket.hangs = True
            rows = Scan(session, plans, COLUMNS).batches()
            assert next(rows).num_rows == 1
            rows.close()  # type: ignore[attr-defined]
            with pytest.raises(Cancelled):
                taken[1]()
            bucket.goes_on.set()
        assert len(taken) == 2

    def test_a_segment_of_no_bytes(self, tmp_path: Path) -> None:
        """All that it held was taken out: the next segment begins where it says that it ends."""
        log = plain_log(segments=3)
        bucket = Bucket(log.segments())
        bucket.write(1, b"")
        bucket.write_index(1, IndexType.OFFSET, b"")
        known = [replace(one, segment_size_in_bytes=len(bucket.log(at))) for at, one in enumerate(bucket.metadata)]
        outcome = read(bucket, config=snapshot_config(known, tmp_path))
        rows = expected_rows(log.records())
        assert outcome.fine() == rows[:20] + rows[40:]


@pytest.mark.parametrize("is_left_out", [True, False])
def test_an_abort_behind_a_marker_that_the_plan_leaves_out(is_left_out: bool) -> None:
    """A filter may leave out the marker of a commit. The next marker is of a transaction without records."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch([Record(0, value=b"v")], producer_id=7)
    log.roll()
    log.commit(7)
    log.append_batch([Record(0, value=b"w")])
    log.roll()
    log.begin(7)
    log.abort(7)
    log.append_batch([Record(0, value=b"x")])
    log.roll()

    def kept(session: Session, plan: PartitionPlan) -> list[list[PlanStep]]:
        first, middle, last = plan.steps
        return [[first, last] if is_left_out else [first, middle, last]]

    found = read(Bucket(log.segments()), isolation=COMMITTED, cut=kept).fine()
    assert [row.value for row in found] == ([b"v", b"x"] if is_left_out else [b"v", b"w", b"x"])
