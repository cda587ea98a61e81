"""The log builder: a foreign reader reads its bytes, and gets the records of its oracle."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given

from remote_fetch.model import IsolationLevel, LeaderEpoch, TimestampType
from remote_fetch.testing.log_builder import FIRST_TIMESTAMP_MS, TOPIC_ID, LogBuilder
from remote_fetch.testing.oracle import LogRecord, TxnOutcome
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.strategies import logs
from tests.searches import examples

COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
ONE = [Record(0, 0, b"k", b"v")]
TWO = [Record(0, 0, b"k", b"v"), Record(1, 1, b"k", b"w")]


def foreign_batches(log: bytes) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The header fields and the foreign library's view of every batch."""
    at = 0
    while at < len(log):
        fields = struct.unpack_from(">qiibIhiqqqhii", log, at)
        size = 12 + fields[1]
        yield fields, MemoryRecords(log[at : at + size]).next_batch()
        at += size


def aborted_intervals(segments: Sequence[BuiltSegment]) -> dict[int, list[tuple[int, int]]]:
    """By producer, the offsets from first data to marker of every aborted transaction in the indexes."""
    found = defaultdict(list)
    for segment in segments:
        for _, producer_id, first, last, _ in struct.iter_unpack(">hqqqq", segment.transaction_index or b""):
            found[producer_id].append((first, last))
    return found


def read(segments: Sequence[BuiltSegment], isolation: IsolationLevel) -> list[tuple[Any, ...]]:
    """A slow reader: the records of whole segments, those of aborted transactions left out if asked for."""
    intervals = aborted_intervals(segments) if isolation is COMMITTED else {}
    found: list[tuple[Any, ...]] = []
    for segment in segments:
        for fields, batch in foreign_batches(segment.log):
            base, attributes, producer_id = fields[0], fields[5], fields[9]
            if attributes & 0x20:
                continue
            if attributes & 0x10 and any(first <= base <= last for first, last in intervals.get(producer_id, ())):
                continue
            assert batch.validate_crc()
            found += [
                (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers), fields[2]) for r in batch
            ]
    return found


def delivered(records: Sequence[LogRecord]) -> list[tuple[Any, ...]]:
    return [
        (r.offset, r.timestamp_ms, int(r.timestamp_type), r.key, r.value, r.headers, r.leader_epoch) for r in records
    ]


@examples(100)
@given(logs(legacy=False))
def test_a_slow_foreign_reader_delivers_the_records_of_the_oracle(log: LogBuilder) -> None:
    segments = log.segments()
    end = segments[-1].metadata.end_offset + 1 if segments else log.start_offset
    assert read(segments, UNCOMMITTED) == delivered(log.expected(UNCOMMITTED, 0, end))
    # The indexes of these segments decide all that is below their own stable offset.
    stable = log.stable_offset_at(end)
    below = [row for row in read(segments, COMMITTED) if row[0] < stable]
    assert below == delivered([r for r in log.records() if r.offset < stable and r.outcome is not TxnOutcome.ABORTED])
    if end == log.next_offset:
        assert below == delivered(log.expected(COMMITTED))


@examples(100)
@given(logs())
def test_each_snapshot_tells_the_stable_offset_of_its_segments_end(log: LogBuilder) -> None:
    for segment in log.segments():
        entries = struct.iter_unpack(">qhiqiqiq", segment.producer_snapshot[10:])
        open_offsets = [entry[7] for entry in entries if entry[7] >= 0]
        end = segment.metadata.end_offset + 1
        assert min(open_offsets, default=end) == log.stable_offset_at(end)


@examples(100)
@given(logs())
def test_segments_lie_end_to_end_and_only_whole_ones_below_the_stable_offset_are_tiered(log: LogBuilder) -> None:
    segments = log.segments()
    starts = [segment.metadata.start_offset for segment in segments]
    assert starts == list(log.cuts[:-1])
    assert [segment.metadata.end_offset + 1 for segment in segments] == list(log.cuts[1:])
    tiered = log.tiered()
    assert tiered == segments[: len(tiered)]
    assert all(segment.metadata.end_offset < log.last_stable_offset for segment in tiered)
    assert all(segment.metadata.end_offset >= log.last_stable_offset for segment in segments[len(tiered) :])


class TestAppend:
    def test_a_new_log(self) -> None:
        log = LogBuilder("t", partition=3, start_offset=7, leader_epoch=2)
        assert (log.start_offset, log.next_offset, log.last_stable_offset) == (7, 7, 7)
        assert (log.cuts, log.lineage, log.boundaries()) == ((7,), (LeaderEpoch(2, 7),), [7])
        assert (log.records(), log.segments(), log.batches) == ([], [], ())
        assert str(log.topic_id_partition) == f"{TOPIC_ID}:t-3"

    def test_records_get_offsets_and_a_second_each(self) -> None:
        log = LogBuilder(start_offset=5)
        assert (log.append_batch(TWO), log.append_batch(ONE)) == (5, 7)
        assert [r.offset for r in log.records()] == [5, 6, 7]
        assert [r.timestamp_ms - FIRST_TIMESTAMP_MS for r in log.records()] == [5000, 5001, 7000]

    def test_records_taken_out_leave_their_offsets(self) -> None:
        log = LogBuilder()
        log.append_batch([Record(2)], last_offset_delta=4)
        log.append_batch([], last_offset_delta=1)
        log.take_out(3)
        log.append_batch(ONE)
        assert [r.offset for r in log.records()] == [2, 10]
        assert [(b.base_offset, b.last_offset, len(b.data) > 0) for b in log.batches] == [
            (0, 4, True), (5, 6, True), (7, 9, False), (10, 10, True),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("deltas", "last"), [([], None), ([], -1), ([0, 0], None), ([1, 0], None), ([-1], None), ([3], 2)]
    )
    def test_deltas_ascend_within_the_batch(self, deltas: list[int], last: int | None) -> None:
        with pytest.raises(ValueError, match="ascend"):
            LogBuilder().append_batch([Record(delta) for delta in deltas], last_offset_delta=last)

    def test_log_append_time_counts_for_all(self) -> None:
        log = LogBuilder()
        log.append_batch(TWO, log_append_time_ms=77)
        assert {(r.timestamp_ms, r.timestamp_type) for r in log.records()} == {(77, TimestampType.LOG_APPEND_TIME)}

    def test_sequences_go_on_within_an_epoch(self) -> None:
        log = LogBuilder()
        for _ in range(2):
            log.append_batch(TWO, producer_id=5)
        assert [(b.producer_epoch, b.base_sequence, b.transactional) for b in log.batches] == [
            (0, 0, False),
            (0, 2, False),
        ]


class TestLegacy:
    @pytest.mark.parametrize("codec", [0, 1])
    def test_format_1(self, codec: int) -> None:
        log = LogBuilder(start_offset=3)
        assert log.append_legacy(TWO, magic=1, codec=codec, base_timestamp_ms=10) == 3
        assert [(r.offset, r.timestamp_ms, r.timestamp_type, r.leader_epoch) for r in log.records()] == [
            (3, 10, TimestampType.CREATE_TIME, -1),
            (4, 11, TimestampType.CREATE_TIME, -1),
        ]
        assert log.next_offset == 5

    def test_format_0_has_no_timestamps(self) -> None:
        log = LogBuilder()
        log.append_legacy(ONE, magic=0)
        log.roll()
        (record,) = log.records()
        assert (record.timestamp_ms, record.timestamp_type) == (-1, TimestampType.NO_TIMESTAMP_TYPE)
        assert log.segments()[0].time_index == b""

    def test_bare_messages_are_one_append_call(self) -> None:
        log = LogBuilder()
        log.append_legacy(TWO, magic=1, log_append_time_ms=9)
        assert [(b.base_offset, b.max_timestamp_ms) for b in log.batches] == [(0, 9), (1, 9)]
        assert log.boundaries() == [0, 2]

    def test_a_wrapper_is_one_batch(self) -> None:
        log = LogBuilder()
        log.append_legacy([Record(1), Record(4)], magic=1, codec=2)
        assert [(b.base_offset, b.last_offset) for b in log.batches] == [(1, 4)]

    def test_an_empty_message_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match="ascend"):
            LogBuilder().append_legacy([], magic=1)


class TestTransactions:
    def test_an_abort_over_two_segments(self) -> None:
        log = LogBuilder()
        log.begin(5)
        log.append_batch(TWO, producer_id=5)
        log.roll()
        log.append_batch(ONE)
        assert (log.last_stable_offset, log.tiered()) == (0, [])
        assert log.abort(5) == 3
        log.roll()
        assert [r.outcome for r in log.records()] == [TxnOutcome.ABORTED, TxnOutcome.ABORTED, TxnOutcome.NONE]
        assert [segment.transaction_index is None for segment in log.tiered()] == [True, False]
        assert [r.offset for r in log.expected(COMMITTED)] == [2]
        assert [r.offset for r in log.expected(UNCOMMITTED, 1, 3)] == [1, 2]

    def test_an_epoch_bump_starts_the_sequences_over(self) -> None:
        log = LogBuilder()
        for _ in range(2):
            log.begin(5)
            log.append_batch(ONE, producer_id=5)
            log.commit(5, bump_epoch=True, timestamp_ms=42)
        data, marker, again, _ = log.batches
        assert (data.producer_epoch, marker.producer_epoch, again.producer_epoch) == (0, 1, 1)
        assert (data.base_sequence, marker.base_sequence, again.base_sequence) == (0, -1, 0)
        assert marker.max_timestamp_ms == 42

    def test_who_is_in_one(self) -> None:
        log = LogBuilder()
        log.begin(5)
        assert (log.in_transaction(5), log.in_transaction(6)) == (True, False)

    def test_a_batch_taken_out_can_open_it(self) -> None:
        log = LogBuilder()
        log.begin(5)
        log.take_out(2, producer_id=5)
        assert log.last_stable_offset == 0
        log.append_batch(ONE, producer_id=5)
        log.abort(5)
        log.roll()
        assert aborted_intervals(log.segments()) == {5: [(0, 3)]}

    def test_an_abort_without_data_has_no_index_entry(self) -> None:
        log = LogBuilder()
        log.begin(5)
        log.abort(5)
        log.roll()
        assert log.segments()[0].transaction_index is None


class TestLeaderEpochs:
    def test_batches_carry_them(self) -> None:
        log = LogBuilder()
        log.append_batch(ONE)
        assert log.new_leader_epoch() == 1
        log.append_batch(ONE)
        assert [r.leader_epoch for r in log.records()] == [0, 1]
        assert log.lineage == (LeaderEpoch(0, 0), LeaderEpoch(1, 1))

    def test_one_that_wrote_nothing_leaves_no_trace(self) -> None:
        log = LogBuilder()
        log.new_leader_epoch(3)
        log.append_batch(ONE)
        log.new_leader_epoch(4)
        log.new_leader_epoch(6)
        assert log.lineage == (LeaderEpoch(3, 0), LeaderEpoch(6, 1))
        assert log.leader_epoch == 6

    def test_they_ascend(self) -> None:
        with pytest.raises(ValueError, match="does not follow"):
            LogBuilder(leader_epoch=2).new_leader_epoch(2)


class TestSegments:
    def test_an_empty_segment_is_not_closed(self) -> None:
        log = LogBuilder()
        assert not log.roll()
        log.append_batch(ONE)
        assert (log.roll(), log.roll()) == (True, False)
        assert log.cuts == (0, 1)

    def test_another_leader_has_other_roll_points(self) -> None:
        log = LogBuilder()
        for _ in range(4):
            log.append_batch(ONE)
        assert [s.metadata.start_offset for s in log.segments(cuts=[1, 3, 4])] == [1, 3]
        assert [s.metadata.start_offset for s in log.tiered(cuts=[1, 3, 4])] == [1, 3]

    def test_boundaries_are_between_append_calls(self) -> None:
        log = LogBuilder(start_offset=4)
        log.append_batch(TWO)
        log.append_batch(ONE, same_append=True)
        log.append_batch(ONE)
        assert log.boundaries() == [4, 7, 8]


class TestFork:
    @pytest.fixture
    def log(self) -> LogBuilder:
        log = LogBuilder(start_offset=10, leader_epoch=1)
        log.append_batch(TWO)
        log.roll()
        log.new_leader_epoch()
        log.begin(5)
        log.append_batch(TWO, producer_id=5)
        log.commit(5)
        return log

    def test_a_fork_has_the_earlier_records(self, log: LogBuilder) -> None:
        other = log.fork(14)
        assert other.batches == log.batches[:2]
        assert (other.next_offset, other.cuts, other.lineage) == (14, log.cuts, log.lineage)
        assert (other.in_transaction(5), other.last_stable_offset) == (True, 12)

    def test_the_two_go_their_own_ways(self, log: LogBuilder) -> None:
        other = log.fork(14)
        other.new_leader_epoch(7)
        other.abort(5)
        other.append_batch(ONE, producer_id=5)
        assert log.records()[-1].outcome is TxnOutcome.COMMITTED
        assert [r.outcome for r in other.records()[-2:]] == [TxnOutcome.ABORTED, TxnOutcome.NONE]
        assert other.batches[-1].base_sequence == 2
        assert (log.leader_epoch, other.leader_epoch) == (2, 7)

    def test_at_the_start_nothing_is_left_but_the_first_epoch(self, log: LogBuilder) -> None:
        other = log.fork(10)
        assert (other.batches, other.cuts, other.lineage) == ((), (10,), (LeaderEpoch(1, 10),))

    @pytest.mark.parametrize(("offset", "message"), [(11, "inside a batch"), (9, "outside"), (16, "outside")])
    def test_only_between_batches_of_the_log(self, log: LogBuilder, offset: int, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            log.fork(offset)
