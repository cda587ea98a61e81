"""Bounds: what users write, and times against a slow look through every record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, CorruptSegment, OffsetOutOfRange, Unlocatable
from remote_fetch.locate.locator import SharedStepwiseLocator
from remote_fetch.model import (
    IndexType,
    IsolationLevel,
    LogBounds,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.ranges import BrokerRange, Reason
from remote_fetch.prepare.bounds import Bound, Edge, Timestamp, parse_bound, resolve
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.time_lookup import TimeLookup
from remote_fetch.prepare.view import untiered
from remote_fetch.session.broker import BrokerReader
from remote_fetch.session.brokers import Brokers
from remote_fetch.session.local_logs import LocalLog, LocalLogs
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import Fault, FaultKind, FetchCall, Schedule
from remote_fetch.testing.log_builder import FIRST_TIMESTAMP_MS, LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions, encode_offset_index, encode_time_index
from remote_fetch.testing.strategies import segment_options
from tests.cases import each_of
from tests.prepare.other_number import OtherNumber
from tests.scan.bucket import (
    COMMITTED,
    DENSE,
    UNCOMMITTED,
    Bucket,
    DamagingBucket,
    MeetingBucket,
    WatchedBucket,
    expected_rows,
    plain_log,
    read,
    snapshot_config,
)
from tests.searches import examples


class TestParse:
    @each_of(
        ("value", "bound"),
        [
            ("earliest", Edge.EARLIEST),
            ("Beginning", Edge.EARLIEST),
            (-2, Edge.EARLIEST),
            ("-2", Edge.EARLIEST),
            ("latest", Edge.LATEST),
            (" end ", Edge.LATEST),
            (-1, Edge.LATEST),
            (0, 0),
            ("17", 17),
            (OtherNumber(17), 17),
            (OtherNumber(-2), Edge.EARLIEST),
            (2**63 - 1, 2**63 - 1),
            (datetime(1970, 1, 1, 0, 0, 1), Timestamp(1000)),
            (datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))), Timestamp(1000)),
            (datetime(1970, 1, 1, 0, 0, 0, 1001, tzinfo=UTC), Timestamp(2)),
            ("1970-01-01", Timestamp(0)),
            ("1970-01-01T00:00:01.5Z", Timestamp(1500)),
            ("1970-01-01T02:00+02:00", Timestamp(0)),
        ],
    )
    def test_forms(self, value: object, bound: Bound) -> None:
        assert parse_bound(value, "start") == bound

    @pytest.mark.parametrize("value", ["yesterday", "", "-3", -3, True, None, 1.5, [], b"1", "--1"])
    def test_no_bounds(self, value: object) -> None:
        with pytest.raises(ConfigError, match="start") as raised:
            parse_bound(value, "start")
        assert raised.value.key == "start"

    @given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))
    def test_a_time_is_rounded_up_to_milliseconds(self, moment: datetime) -> None:
        bound = parse_bound(moment, "end")
        assert isinstance(bound, Timestamp)
        exact = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        assert bound.timestamp_ms * 1000 >= exact > (bound.timestamp_ms - 1) * 1000


class TestOffsets:
    def test_ends(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments()[1:])
        assert read(bucket).offsets == list(range(20, 60))
        assert read(bucket, start="latest").offsets == []
        assert read(bucket, start=60, end=60).offsets == []
        assert read(bucket, start=25, end=25).offsets == []
        assert read(bucket, end=10).offsets == []

    @pytest.mark.parametrize("start", [19, 61, 0, 2**62])
    def test_a_start_outside(self, start: int) -> None:
        outcome = read(Bucket(plain_log().segments()[1:]), start=start)
        assert isinstance(outcome.error, OffsetOutOfRange)
        assert outcome.error.offset == start
        assert "topic-0" in str(outcome.error)
        assert "offsets 20 to 60" in str(outcome.error)

    def test_an_end_before_the_start(self) -> None:
        outcome = read(Bucket(plain_log().segments()), start=30, end=29)
        assert isinstance(outcome.error, ConfigError)

    def test_an_end_past_the_tier(self) -> None:
        outcome = read(Bucket(plain_log().segments()), end=61)
        assert isinstance(outcome.error, Unlocatable)
        assert (outcome.error.first, outcome.error.last) == (60, 60)
        assert "not-tiered" in str(outcome.error)
        assert "The tier ends before them" in str(outcome.error)

    def test_by_partition(self) -> None:
        bucket = Bucket()
        for number in range(2):
            log = LogBuilder(partition=number)
            log.append_batch([Record(n) for n in range(5)])
            log.roll()
            bucket.add(log.segments()[0])
        assert read(bucket, start={1: 3}, end={0: 2}).offsets == [0, 1, 3, 4]
        outcome = read(bucket, start={2: 3})
        assert isinstance(outcome.error, ConfigError)
        assert "[2]" in str(outcome.error)

    def test_a_transaction_open_at_the_end(self) -> None:
        log = LogBuilder()
        log.append_batch([Record(n) for n in range(5)])
        log.begin(1)
        log.append_batch([Record(n) for n in range(5)], producer_id=1)
        log.append_batch([Record(n) for n in range(5)])
        log.roll()
        log.commit(1)  # past the end of the tier
        bucket = Bucket(log.tiered())
        committed, uncommitted = read(bucket, isolation=COMMITTED), read(bucket, isolation=UNCOMMITTED)
        assert committed.offsets == list(range(5))
        assert uncommitted.offsets == list(range(15))
        assert list(uncommitted.report.ends.values()) == [
            "topic-0 is read up to offset 15 (exclusive), where the tier ends (not-tiered)"
        ]
        (end,) = committed.report.ends.values()
        assert end.startswith("topic-0 is read up to offset 5 (exclusive), its remote stable offset (unstable): ")
        assert "the tier, which goes on to 15," in end
        assert read(bucket, isolation=COMMITTED, end=4).report.ends == {}, "that is where it was to end"
        outcome = read(bucket, isolation=COMMITTED, end=6)
        assert isinstance(outcome.error, Unlocatable)
        assert (outcome.error.first, outcome.error.last) == (5, 5)
        assert "unstable" in str(outcome.error)
        assert "A transaction may be open there, and only a broker knows" in str(outcome.error)
        assert read(bucket, isolation=COMMITTED, start=7, end="latest").offsets == []

    def test_times_that_nothing_lies_between(self) -> None:
        """As with offsets, the wrong order is an error; a start after the last record gives a notice."""
        bucket = Bucket(plain_log().segments())
        outcome = read(bucket, start="2026-01-02", end="2026-01-01")
        assert isinstance(outcome.error, ConfigError)
        assert "start=1767312000000 lies after end=1767225600000" in str(outcome.error)
        late = "start=2099-01-01 is later than every record of 'topic': the read begins at the end"
        outcome = read(bucket, start="2099-01-01")
        assert (outcome.fine(), outcome.report.notices[-1]) == ([], late)
        assert read(bucket, start="2026-01-01", end="2026-01-01").fine() == []
        between = "start=2020-01-01 and end=2020-01-02 leave no record of 'topic' to read"
        outcome = read(bucket, start="2020-01-01", end="2020-01-02")
        assert (outcome.fine(), outcome.report.notices[-1]) == ([], between)
        assert late not in read(bucket, start="latest").report.notices
        both = Bucket([*plain_log().segments(), *later_partition().segments()])
        assert late not in read(both, start="2099-01-01").report.notices, "one partition has something"

    def test_a_start_behind_the_last_stable_offset_is_not_said_to_be_behind_the_log(self) -> None:
        """A broker tells the end. If a transaction is open, the log goes on behind its last stable offset."""
        partition = Bucket(plain_log().segments()).at(0).topic_id_partition
        said = {COMMITTED: "the last stable offset is 40", UNCOMMITTED: "the log ends at offset 40"}
        for isolation, end in said.items():
            opened = untiered(partition, isolation, LogBounds(3, 40))
            with pytest.raises(
                OffsetOutOfRange, match=rf"start=60 .* can be read: the log starts at offset 3, and {end}"
            ):
                resolve(opened, 60, Edge.LATEST, lambda opened, timestamp_ms: None)

    def test_the_log_start_inside_a_segment(self) -> None:
        bucket = Bucket(plain_log().segments())
        assert read(bucket, log_start=33).offsets == list(range(33, 60))
        assert read(bucket, log_start={0: 33}).offsets == list(range(33, 60))
        assert isinstance(read(bucket, log_start=33, start=32).error, OffsetOutOfRange)
        beyond = read(bucket, log_start=100)
        assert beyond.offsets == []
        assert list(beyond.report.ends.values()) == [
            "topic-0 starts at offset 100, and the tier ends before it (not-tiered)"
        ]
        assert any("log start unknown" in notice for notice in read(bucket).report.notices)
        assert not any("log start unknown" in notice for notice in read(bucket, log_start=0).report.notices)


def later_partition() -> LogBuilder:
    """Partition 1, whose records are of the year 2100."""
    log = LogBuilder(partition=1)
    log.append_batch([Record(0)], base_timestamp_ms=4_102_444_800_000)
    log.roll()
    return log


TIMES_MS = st.integers(0, 12).map(lambda n: FIRST_TIMESTAMP_MS + n)


@st.composite
def timed_logs(draw: st.DrawFn) -> LogBuilder:
    """Logs whose timestamps go up and down, some of them the broker's."""
    log = LogBuilder()
    for times in draw(st.lists(st.lists(TIMES_MS, min_size=1, max_size=4), min_size=1, max_size=12)):
        kind = draw(st.sampled_from(("create", "append", "legacy", "roll")))
        if kind == "roll" and log.cuts[-1] < log.next_offset:
            log.roll()
        records = [Record(n, time_ms - times[0]) for n, time_ms in enumerate(times)]
        codec = draw(st.sampled_from((0, 1)))
        if kind == "legacy":
            log.append_legacy(records, magic=draw(st.integers(0, 1)), codec=codec, base_timestamp_ms=times[0])
        else:
            append_ms = times[0] if kind == "append" else None
            log.append_batch(records, codec=codec, base_timestamp_ms=times[0], log_append_time_ms=append_ms)
    log.roll()
    return log


class TestTimes:
    @examples(200)
    @given(
        timed_logs(),
        segment_options(),
        TIMES_MS,
        TIMES_MS,
        st.sampled_from(("fine", "missing", "corrupt")),
        st.booleans(),
    )
    def test_the_first_record_that_is_not_before(
        self, log: LogBuilder, options: SegmentOptions, start_ms: int, end_ms: int, index: str, exact: bool
    ) -> None:
        start_ms, end_ms = sorted((start_ms, end_ms))
        bucket = Bucket(log.segments(options))
        for number in range(len(bucket.metadata)):
            if index != "fine":
                bucket.write_index(number, IndexType.TIMESTAMP, None if index == "missing" else b"12345")
        moments = [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms) for ms in (start_ms, end_ms)]
        config = snapshot_config(bucket.metadata) if exact else {}
        outcome = read(bucket, start=moments[0], end=moments[1].isoformat(), config=config)
        first, stop = (
            next((r.offset for r in log.records() if r.timestamp_ms >= ms), log.next_offset)
            for ms in (start_ms, end_ms)
        )
        assert outcome.fine() == expected_rows(r for r in log.records() if first <= r.offset < stop)

    def test_markers_count(self) -> None:
        """Markers count as in a broker: the marker at offset 5 is the first record that is late enough."""
        log = LogBuilder()
        log.begin(1)
        log.append_batch([Record(n) for n in range(5)], producer_id=1, base_timestamp_ms=1000)
        log.commit(1, timestamp_ms=2000)
        log.append_batch([Record(0)], base_timestamp_ms=1500)
        log.roll()
        outcome = read(Bucket(log.tiered()), start="1970-01-01T00:00:01.600Z", isolation=COMMITTED)
        assert outcome.offsets == [6]
        (told,) = (text for text in outcome.report.notices if "older" in text)
        assert "transaction marker at offset 5, which has the broker's clock; records after it are older" in told
        dense = WatchedBucket(Bucket(log.tiered(DENSE)))
        assert read(dense, start="1970-01-01T00:00:01.600Z", isolation=COMMITTED).offsets == [6]
        # Of the listing, of the search and of the read: to look at the records after the marker is worth no GET.
        assert sum(call.index_type is None for call in dense.calls) == 3
        younger = read(Bucket(log.tiered()), start="1970-01-01T00:00:01.400Z", isolation=COMMITTED)
        assert (younger.offsets, [text for text in younger.report.notices if "older" in text]) == ([6], [])

    def test_segments_that_end_before_are_not_read(self) -> None:
        log = plain_log()
        bucket = WatchedBucket(Bucket(log.segments(DENSE)))
        config = snapshot_config(s.metadata for s in log.segments(DENSE))
        moment = datetime.fromtimestamp((FIRST_TIMESTAMP_MS + 1000 * 46) / 1000, UTC)
        outcome = read(bucket, start=moment, config=config)
        assert outcome.offsets == list(range(50, 60))
        assert {c.metadata.start_offset for c in bucket.calls if c.index_type in (None, IndexType.TIMESTAMP)} == {40}

    def test_a_time_after_everything(self) -> None:
        bucket = Bucket(plain_log().segments())
        assert read(bucket, start="2100-01-01").offsets == []
        assert read(bucket, end="2100-01-01").offsets == list(range(60))

    def test_missing_and_damaged_time_indexes_are_counted(self) -> None:
        log = plain_log(segments=2)
        for data, reason in ((None, "missing"), (b"1", "corrupt"), (encode_time_index([(5, 1), (4, 2)]), "corrupt")):
            bucket = Bucket(log.segments())
            bucket.write_index(0, IndexType.TIMESTAMP, data)
            watched = WatchedBucket(bucket)
            outcome = read(watched, start=datetime.fromtimestamp((FIRST_TIMESTAMP_MS + 10_000) / 1000, UTC))
            assert outcome.offsets[0] == 10
            assert outcome.report.scans == {reason: 1}
            # No GET reaches far behind the segment: a budget counts its bytes. One byte tells where the object ends.
            assert max(call.end_position for call in watched.calls if call.index_type is None) <= len(bucket.log(0)) + 1

    @pytest.mark.parametrize(
        "entries", [[(4, 30), (9, 31), (14, 40)], [(4, 824 * 3 // 4)], [(4, 206 * 2), (9, 206 * 3)], [(7, 0)]]
    )
    def test_a_misleading_offset_index(self, entries: list[tuple[int, int]]) -> None:
        log = plain_log(segments=1)
        built = log.segments(DENSE)[0]
        bucket = Bucket([built])
        bucket.write_index(0, IndexType.OFFSET, encode_offset_index(entries))
        outcome = read(bucket, start=moment_of(10), config=snapshot_config(bucket.metadata))
        assert outcome.offsets == list(range(10, 20))
        assert outcome.report.scans["misleading"] >= 1

    def test_damage_that_passes_is_read_again(self) -> None:
        log = plain_log(segments=1)

        def once(call: FetchCall) -> Fault | None:
            broken = call.index_type is None and call.attempt == 0
            return Fault(FaultKind.FLIP_BYTE, position=100) if broken else None

        fetcher = WatchedBucket(Bucket(log.segments()), once)
        outcome = read(fetcher, start=moment_of(10), config=snapshot_config(s.metadata for s in log.segments()))
        assert outcome.offsets == list(range(10, 20))
        assert sum(outcome.report.rereads.values()) >= 1

    @pytest.mark.parametrize("batch", [0, 1, 2])
    @pytest.mark.parametrize("dense", [True, False])
    @pytest.mark.parametrize("times", [1, 2])
    def test_a_base_offset_that_is_a_little_too_high(self, times: int, dense: bool, batch: int) -> None:
        """No checksum covers it, and it lies in the segment. The batch behind it shows that it is wrong."""
        log = plain_log(segments=1)
        segments = log.segments(DENSE if dense else SegmentOptions())
        at, base_offset = batch * 206 + 7, 5 * batch
        bucket = DamagingBucket(segments[0], at, lambda byte: byte + 2, times)
        outcome: Any = read(bucket, start=moment_of(base_offset), config=snapshot_config(bucket.metadata))
        if times == 1:
            assert outcome.offsets == list(range(base_offset, 20))
            assert sum(outcome.report.scans.values()) + sum(outcome.report.rereads.values()) == 1
        else:
            assert isinstance(outcome.error, CorruptSegment)
            assert outcome.offsets == []
        assert bucket.left == 0

    @pytest.mark.parametrize("other", [0, 2], ids=["before", "behind"])
    @pytest.mark.parametrize("times", [1, 2])
    def test_bytes_of_another_segment(self, other: int, times: int) -> None:
        """They have no record for which the search stops, and so look like a segment without the time."""
        log = plain_log()
        segments = log.segments(DENSE)

        class Confused(Bucket):
            answers = 0

            def fetch_log_segment(
                self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
            ) -> memoryview:
                if metadata.start_offset == 20 and self.answers < times:
                    self.answers += 1
                    metadata = segments[other].metadata
                return super().fetch_log_segment(metadata, start_position, end_position)

        outcome: Any = read(
            Confused(segments), start=moment_of(25), config=snapshot_config(s.metadata for s in segments)
        )
        if times == 1:
            assert outcome.offsets == list(range(25, 60))
            assert sum(outcome.report.scans.values()) + sum(outcome.report.rereads.values()) == 1
        else:
            assert isinstance(outcome.error, CorruptSegment)
            assert outcome.offsets == []
            assert f"batch with offsets {other * 20} to" in str(outcome.error)

    def test_damage_that_stays_says_where(self) -> None:
        log = plain_log(segments=1)
        bucket = Bucket(log.segments())
        bucket.flip(0, 100)
        outcome: Any = read(bucket, start=moment_of(10))
        assert isinstance(outcome.error, CorruptSegment)
        assert (outcome.error.topic, outcome.error.position) == ("topic", 0)
        assert outcome.error.object_name is not None

    def test_a_missing_object(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        config = snapshot_config(bucket.metadata)
        bucket.drop(1)
        outcome = read(bucket, start=moment_of(30), config=config)
        assert outcome.error is not None
        assert (outcome.error.topic, outcome.error.object_name is None) == ("topic", False)

    def test_what_holds_no_records_is_passed_over(self) -> None:
        """A search skips a batch that the log cleaner has emptied, although it keeps its largest timestamp."""
        log = LogBuilder()
        log.append_batch([], last_offset_delta=4, base_timestamp_ms=5000)
        log.append_batch([Record(0)], base_timestamp_ms=5000)
        log.roll()
        assert read(Bucket(log.segments()), start="1970-01-01T00:00:04Z").offsets == [5]

    def test_a_listed_segment_that_ends_sooner_is_not_passed_over(self) -> None:
        """The time index of the short segment has no such time. The record is in an earlier upload, or in a hole."""
        log = LogBuilder()
        for seconds in (1, 2, 9, 3, 10):
            log.append_batch([Record(0, 0, b"k", b"v")], base_timestamp_ms=FIRST_TIMESTAMP_MS + 1000 * seconds)
            log.roll()
        start = datetime.fromtimestamp(FIRST_TIMESTAMP_MS / 1000 + 9, UTC)
        long, short = log.segments(cuts=[0, 3, 4, 5]), log.segments(SegmentOptions(upload=1), cuts=[0, 1, 2])
        bucket = Bucket([*long, *short])
        assert read(bucket, start=start).fine() == expected_rows(log.records())[2:]
        bucket.write_index(len(long) + 1, IndexType.TIMESTAMP, None)  # the batches of the short segment are read
        assert read(bucket, start=start).fine() == expected_rows(log.records())[2:]
        outcome = read(Bucket(segment for at, segment in enumerate(log.segments()) if at != 2), start=start)
        assert isinstance(outcome.error, Unlocatable)
        assert (outcome.error.first, outcome.error.last) == (2, 2)

    def test_a_listed_segment_is_not_measured_if_its_time_index_names_the_last_offset(self) -> None:
        """The time indexes suffice for the segments before the one that has the time."""
        bucket = WatchedBucket(Bucket(plain_log(segments=9).segments(DENSE)))
        assert read(bucket, start=moment_of(175)).offsets == [*range(175, 180)]
        asked = Counter(call.index_type for call in bucket.calls)
        assert asked[IndexType.TIMESTAMP] == 9
        assert asked[None] + asked[IndexType.OFFSET] < 9

    @pytest.mark.parametrize(
        ("wanted", "searched"), [((65, 75), {60}), ((65, 1000), {60, 80}), (None, {0, 20, 40, 60, 80})]
    )
    def test_only_the_wanted_offsets_are_searched(self, wanted: tuple[int, int] | None, searched: set[int]) -> None:
        bucket = WatchedBucket(Bucket(plain_log(segments=5).segments(DENSE)))
        with Session(Config.parse({}), bucket) as session:
            (partition,) = session.locator.partitions("topic")
            opened = Planner(session, UNCOMMITTED).open_timeline(session.locator.timeline(partition), LogBounds())
            before = len(bucket.calls)
            found = TimeLookup(session).first_offset_at(opened, FIRST_TIMESTAMP_MS + 10**9, wanted)
        assert (found, {call.metadata.start_offset for call in bucket.calls[before:]}) == (None, searched)

    def test_listed_segments_are_passed_over_at_once(self) -> None:
        log = plain_log(segments=4)
        middle = [segment.metadata.start_offset for segment in log.segments()[1:3]]

        class Meeting(MeetingBucket):
            def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
                fetch = super().fetch_index if metadata.start_offset in middle else partial(Bucket.fetch_index, self)
                return fetch(metadata, index_type)

        bucket = Meeting(log.segments(), IndexType.TIMESTAMP, 2)
        assert read(bucket, start=moment_of(75)).offsets == [*range(75, 80)]

    @pytest.mark.parametrize("without_index", [0, 2])
    def test_listed_segments_whose_last_batch_is_not_the_latest(self, without_index: int) -> None:
        """Their time indexes do not name the last offset. Their batches show it, also without an offset index."""
        log = LogBuilder()
        for seconds in range(8):
            for ms in (500, 0):
                log.append_batch([Record(0, 0, b"k", b"v")], base_timestamp_ms=FIRST_TIMESTAMP_MS + 1000 * seconds + ms)
            log.roll()
        bucket = Bucket(log.segments(DENSE))
        for segment in range(without_index):
            bucket.write_index(segment + 1, IndexType.OFFSET, None)
        start = datetime.fromtimestamp(FIRST_TIMESTAMP_MS / 1000 + 7, UTC)
        outcome = read(bucket, start=start)
        assert outcome.fine() == expected_rows(log.records())[14:]
        assert outcome.report.scans.get("missing", 0) == without_index
        # The latest time of a segment is in it, also if a damaged index does not tell.
        for damage in (False, True):
            if damage:
                bucket.write_index(6, IndexType.TIMESTAMP, b"1")
            assert read(bucket, start=start - timedelta(milliseconds=500)).fine() == expected_rows(log.records())[12:]

    @pytest.mark.parametrize("by_time", [False, True])
    def test_indexes_that_go_on_behind_an_inferred_end(self, by_time: bool) -> None:
        """Another leader's segment begins inside the first one."""
        log = plain_log()
        bucket = Bucket([*log.segments(DENSE, cuts=[0, 60]), *log.segments(SegmentOptions(upload=1), cuts=[20, 60])])
        outcome = read(bucket, start=moment_of(10) if by_time else 10)
        assert outcome.offsets == [*range(10, 60)]
        assert outcome.report.scans == {}

    def test_a_base_offset_out_of_order(self) -> None:
        log = plain_log(segments=1)
        bucket = Bucket(log.segments())
        config = snapshot_config(bucket.metadata)  # a listing would look at the batches itself
        bucket.flip(0, 412 + 7, 0x08)  # 10 becomes 2
        outcome = read(bucket, start=moment_of(15), config=config)
        assert isinstance(outcome.error, CorruptSegment)
        assert "base offset 2 follows one that ends with offset 9" in str(outcome.error)

    def test_a_truncated_object(self) -> None:
        log = plain_log()
        bucket = Bucket(log.segments())
        config = snapshot_config(bucket.metadata)
        bucket.write(1, bucket.log(1)[: len(bucket.log(1)) // 2])
        outcome = read(bucket, start=moment_of(35), config=config)
        assert isinstance(outcome.error, CorruptSegment)
        assert outcome.error.position == len(bucket.log(1))


def moment_of(offset: int) -> datetime:
    """A time for which the batch at `offset` of a plain log is the first that is late enough."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=FIRST_TIMESTAMP_MS + 1000 * offset)


class FakeCluster:
    """A fake cluster. `offset_for_time` always returns `answer`, and records the timestamps that it was asked for.

    `records` are the offsets that it reads, and the times of these records. `hidden` is the answer where read_committed
    has none.
    """

    def __init__(
        self,
        records: Sequence[int] = (),
        answer: int | None = 17,
        latest_ms: int | None = None,
        hidden: int | None = None,
    ) -> None:
        self.asked: list[int] = []
        self.reading = Lock()
        self._hidden = hidden
        self.tiered: bool | None = None
        self._latest_ms = latest_ms
        self._answer = answer
        self.reads: list[tuple[int, int]] = []
        self._records = records

    def offset_for_time(self, partition: TopicIdPartition, timestamp_ms: int, isolation: IsolationLevel) -> int | None:
        self.asked.append(timestamp_ms)
        return self._hidden if self._answer is None and isolation is UNCOMMITTED else self._answer

    def latest_local_time_ms(self, partition: TopicIdPartition) -> int | None:
        return self._latest_ms

    def is_tiered(self, topic: str) -> bool | None:
        return self.tiered

    def read(self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self.reading.locked(), "only one thread at a time may use the consumer"
        self.reads.append((step.first_offset, step.last_offset))
        rows = [offset for offset in self._records if step.first_offset <= offset <= step.last_offset]
        yield pa.record_batch([pa.array(rows, pa.int64())] * len(columns), list(columns))

    def close(self) -> None:
        """There is nothing to close."""


class TestTimesWithABroker:
    @pytest.mark.parametrize("index_type", [None, IndexType.TIMESTAMP])
    @pytest.mark.parametrize("kind", ["denied", "timeout", "unavailable"])
    def test_what_the_store_does_not_give_the_broker_is_asked_for(
        self, kind: str, index_type: IndexType | None
    ) -> None:
        def schedule(call: FetchCall) -> Fault | None:
            return Fault(FaultKind(kind)) if call.index_type is index_type else None

        broker, log = FakeCluster(), plain_log()
        assert first_with(broker, log, schedule, FIRST_TIMESTAMP_MS + 1000) == (17, 60)
        assert broker.asked == [FIRST_TIMESTAMP_MS + 1000]

    def test_else_the_broker_is_not_asked(self) -> None:
        broker, log = FakeCluster(), plain_log()
        assert first_with(broker, log, lambda call: None, FIRST_TIMESTAMP_MS + 1000) == (5, 60)
        assert broker.asked == []

    @pytest.mark.parametrize(
        ("end", "records", "found"), [(20, [17, 18], 17), (20, [16, 18], None), (17, [17, 18], None)]
    )
    def test_a_look_up_that_passes_markers_asks_for_the_record(
        self, end: int, records: list[int], found: int | None
    ) -> None:
        """A broker's answer may be a marker. The log may have grown, and its reader waits for what the log lacks."""
        broker, log = FakeCluster(records), plain_log(segments=1, batches=3)
        segments = log.segments(DENSE)
        config = Config.parse(snapshot_config(one.metadata for one in segments))
        with Session(config, Bucket(segments)) as session:
            (partition,) = session.locator.partitions("topic")
            timeline = session.locator.timeline(partition)
            opened = Planner(session, UNCOMMITTED).open_timeline(timeline, LogBounds(0, end))
            session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
            session.fallback.reader = cast(BrokerReader, broker)
            times = TimeLookup(session, passes_markers=True)
            assert times.first_offset_at(opened, FIRST_TIMESTAMP_MS + 1000) == 5
            assert broker.asked == []
            assert times.first_offset_at(opened, FIRST_TIMESTAMP_MS + 10**9) == found
        assert broker.reads == ([] if end == 17 else [(17, 17)])

    @each_of(
        ("local_start", "log_start", "late", "is_on_disk", "answer", "found", "least"),
        [
            *(
                (local_start, *row)
                for local_start in (None, 0, 4)
                for row in [
                    (0, (), False, None, None, 15),
                    (0, (), True, None, None, 12 if local_start is None else local_start),
                    (2, (), False, None, None, 15),
                    (4, (1,), False, None, None, 15),
                    (2, (1,), True, None, None, 12),
                    (2, (1, 9), True, None, 9, 9),
                    (13, (1,), True, None, None, 13),
                ]
            ),
            (4, 4, (1,), True, None, None, 4),  # the broker's own segment may begin before that of the tier
            (4, 4, (1,), True, 14, 14, 14),
            (None, 2, (1,), True, 14, 14, 12),
            (4, 2, (1,), True, 14, 14, 12),
            (0, 2, (1,), True, 14, 14, 14),  # an answer from the broker's disk, which has the whole log
        ],
    )
    def test_a_broker_s_answer_is_doubted_if_the_log_begins_behind_late_records_of_a_segment(
        self,
        local_start: int | None,
        log_start: int,
        late: Sequence[int],
        is_on_disk: bool,
        answer: int | None,
        found: int | None,
        least: int,
    ) -> None:
        """Kafka looks only into that segment then. Offsets 12 to 14 are not tiered."""
        log = LogBuilder()
        for offset in range(12):
            wanted_ms = 10**7 if offset in late else 0
            log.append_batch([Record(0, 0, b"k", b"v")], base_timestamp_ms=FIRST_TIMESTAMP_MS + wanted_ms)
            if offset % 4 == 3:
                log.roll()
        segments = log.segments(DENSE)
        config = Config.parse(snapshot_config(one.metadata for one in segments))
        with Session(config, Bucket(segments)) as session:
            (partition,) = session.locator.partitions("topic")
            timeline = session.locator.timeline(partition)
            opened = Planner(session, UNCOMMITTED).open_timeline(timeline, LogBounds(log_start, 15))
            wanted_ms = FIRST_TIMESTAMP_MS + 10**6
            broker = FakeCluster(answer=answer, latest_ms=wanted_ms if is_on_disk else wanted_ms - 1)
            session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
            session.fallback.reader = cast(BrokerReader, broker)
            planner = Planner(session, UNCOMMITTED)
            opened = replace(opened, local_start=local_start)
            assert planner.times.first_offset_at(opened, wanted_ms) == found
            assert planner.times.least_offset_at(opened, wanted_ms) == least

    @each_of(
        ("answer", "latest_ms", "is_unread", "least"),
        [
            (None, 99, False, 15),
            (None, 100, False, 2),
            (None, None, False, 2),
            (None, 99, True, 2),
            (9, 100, False, 9),
            (9, 100, True, 2),
        ],
    )
    def test_a_broker_with_the_whole_log_finds_none_if_all_on_its_disk_is_older(
        self, answer: int | None, latest_ms: int | None, is_unread: bool, least: int
    ) -> None:
        """A partition that could not be opened looks like one without a tier, but the tier may have late records."""
        with Session(Config.parse(snapshot_config(())), Bucket(())) as session:
            partition = TopicIdPartition(Uuid(bytes(16)), "topic", 0)
            broker = FakeCluster(answer=answer, latest_ms=latest_ms)
            session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
            opened = untiered(partition, UNCOMMITTED, LogBounds(2, 15))
            if is_unread:
                opened = replace(opened, unread=BrokerRange(partition, 2, 14, Reason.NOT_TIERED))
            assert Planner(session, UNCOMMITTED).times.least_offset_at(opened, 100) == least

    @each_of(
        ("latest_ms", "hidden", "least"),
        [(99, None, 15), (100, None, 0), (None, None, 0), (100, 17, 15), (100, 14, 0), (None, 17, 0)],
    )
    def test_a_broker_s_none_is_doubted_if_a_record_on_its_disk_is_late_enough(
        self, latest_ms: int | None, hidden: int | None, least: int
    ) -> None:
        """That record may lie behind the last stable offset. The broker tells it then under read_uncommitted."""
        with Session(Config.parse(snapshot_config(())), Bucket(())) as session:
            broker = FakeCluster(answer=None, latest_ms=latest_ms, hidden=hidden)
            session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
            partition = TopicIdPartition(Uuid(bytes(16)), "topic", 0)
            planner = Planner(session, COMMITTED)
            opened = untiered(partition, COMMITTED, LogBounds(0, 15))
            assert planner.times.least_offset_at(opened, 100) == least
            assert planner.times.first_offset_at(opened, 100) is None

    @each_of(
        ("latest_ms", "hidden", "found", "is_read"),
        [(130, None, 104, True), (99, None, None, False), (None, None, None, False), (130, 200, None, False)],
    )
    def test_a_broker_that_has_a_late_record_and_finds_none_is_read(
        self, latest_ms: int | None, hidden: int | None, found: int | None, is_read: bool
    ) -> None:
        """Else a start by time would leave out all records."""
        with Session(Config.parse(snapshot_config(())), Bucket(())) as session:
            broker = FakeCluster([3, 99, 104, 120], None, latest_ms, hidden)
            session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
            session.fallback.reader = cast(BrokerReader, broker)
            partition = TopicIdPartition(Uuid(bytes(16)), "topic", 0)
            opened = untiered(partition, COMMITTED, LogBounds(2, 200))
            assert Planner(session, COMMITTED).times.first_offset_at(opened, 100) == found
            assert broker.reads == ([(2, 199)] if is_read else [])
            assert any("read from offset 2 on" in one for one in session.counters.report().notices) is is_read

    @each_of(
        ("local_start", "latest_ms", "answer", "least"),
        [
            (None, 9, 9, 9),
            (None, 9, 14, 14),
            (None, 9, None, 15),
            (None, 10**6, 7, 7),
            (None, 10**6, 8, 0),
            (None, 10**6, None, 0),
            (9, 10**6, 8, 8),  # it was found in the tier
            (9, 10**6, 9, 0),
            (4, 10**6, 14, 14),  # the segment is on the broker's disk too
        ],
    )
    def test_an_answer_behind_a_segment_that_the_store_does_not_give_is_doubted(
        self, local_start: int | None, latest_ms: int, answer: int | None, least: int
    ) -> None:
        """If no record of it has a timestamp, its metadata has the time of its file. The broker finds nothing there."""
        log = LogBuilder()
        for offset in range(12):
            log.append_batch([Record(0, 0, b"k", b"v")], base_timestamp_ms=FIRST_TIMESTAMP_MS)
            if offset % 4 == 3:
                log.roll()
        segments = log.segments(DENSE)
        known = [one.metadata for one in segments]
        known[1] = replace(known[1], max_timestamp_ms=FIRST_TIMESTAMP_MS + latest_ms)
        config = Config.parse(ONCE | snapshot_config(known))
        wanted_ms = FIRST_TIMESTAMP_MS + 10
        with Session(config, WatchedBucket(Bucket(segments), fails_segments)) as session:
            (partition,) = session.locator.partitions("topic")
            planner = Planner(session, UNCOMMITTED)
            opened = planner.open_timeline(session.locator.timeline(partition), LogBounds(0, 15))
            broker = FakeCluster(answer=answer, latest_ms=wanted_ms - 1)
            session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
            session.fallback.reader = cast(BrokerReader, broker)
            planner = Planner(session, UNCOMMITTED)
            opened = replace(opened, local_start=local_start)
            assert planner.times.least_offset_at(opened, wanted_ms) == least

    @each_of(
        ("local_start", "answer", "least"),
        [(0, 9, 9), (0, None, 15), (10, 9, 9), (10, 10, None), (10, None, None), (None, 9, None)],
    )
    @pytest.mark.parametrize("is_stepwise", [False, True])
    @pytest.mark.parametrize("log_start", [0, 2])
    def test_a_tier_that_was_not_looked_up_is_doubted(
        self, log_start: int, is_stepwise: bool, local_start: int | None, answer: int | None, least: int | None
    ) -> None:
        """The broker may have looked into a tiered segment in which the log begins, then gone on with its own disk."""
        with Session(Config.parse(snapshot_config(())), Bucket(())) as session:
            partition = TopicIdPartition(Uuid(bytes(16)), "topic", 0)
            broker = FakeCluster(answer=answer, latest_ms=99)
            known = {} if local_start is None else {partition: LocalLog(local_start, None)}
            session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
            session.local_logs = cast(LocalLogs, SimpleNamespace(ask=lambda *_, **__: known))
            if is_stepwise:
                session.stepwise = cast(SharedStepwiseLocator, object())
            else:
                session.configured_locator.cannot_locate("there is no topic __remote_log_metadata")
            opened, planner = untiered(partition, UNCOMMITTED, LogBounds(log_start, 15)), Planner(session, UNCOMMITTED)
            assert planner.times.least_offset_at(opened, 100) == (log_start if least is None else least)
            broker.tiered = False
            assert planner.times.least_offset_at(opened, 100) == (15 if answer is None else answer)


ONCE = {"fetch.remote.read.timeout.ms": 10_000, "fetch.remote.retry.backoff.ms": 60_000}  # no second attempt


def fails_segments(call: FetchCall) -> Fault | None:
    return Fault(FaultKind("unavailable")) if call.index_type in (None, IndexType.TIMESTAMP) else None


def first_with(broker: FakeCluster, log: LogBuilder, schedule: Schedule, timestamp_ms: int) -> tuple[int, int]:
    """The offsets of a read from a time on, with a broker. Each fallback was reported."""
    segments = log.segments(DENSE)
    config = Config.parse(ONCE | snapshot_config(one.metadata for one in segments))
    with Session(config, WatchedBucket(Bucket(segments), schedule)) as session:
        (partition,) = session.locator.partitions("topic")
        timeline = session.locator.timeline(partition)
        opened = Planner(session, UNCOMMITTED).open_timeline(timeline, LogBounds(0, log.next_offset))
        session.brokers = cast(Brokers, SimpleNamespace(cluster=broker, guard=broker))
        session.fallback.reader = cast(BrokerReader, broker)
        planner = Planner(session, UNCOMMITTED)
        found = resolve(opened, Timestamp(timestamp_ms), Edge.LATEST, planner.times.first_offset_at)
        assert sum(session.counters.report().fallbacks.values()) == len(broker.asked)
        return found
