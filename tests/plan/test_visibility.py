"""Visibility: two ways to the same answer, and both to what the log's own memory says."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.formats.batches import BatchFramer, FramedBatch
from remote_fetch.formats.checkpoints import ProducerState, parse_producer_snapshot
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import ControlType, control_type
from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.model import AbortedTransaction
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts, closes_before, remote_stable_offset
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.oracle import TxnOutcome
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.strategies import logs
from tests.searches import examples

CODECS = Codecs(max_bytes=1 << 20)


def framed(segment: BuiltSegment) -> list[FramedBatch]:
    framer = BatchFramer(0)
    framer.feed(memoryview(segment.log))
    found = []
    while (batch := framer.next_batch()) is not None:
        found.append(batch)
    return found


def entries_of(segments: list[BuiltSegment]) -> list[AbortedTransaction]:
    return [e for s in segments if s.transaction_index for e in parse_transaction_index(s.transaction_index)]


def control_of(batch: FramedBatch) -> ControlType | None:
    return control_type(batch, CODECS) if batch.header.is_control else None


def aborted_offsets(log: LogBuilder) -> set[int]:
    return {record.offset for record in log.records() if record.outcome is TxnOutcome.ABORTED}


class TestIntervals:
    @examples(250)
    @given(logs(), st.data())
    def test_they_are_the_brokers_list_and_the_logs_memory(self, log: LogBuilder, data: st.DataObject) -> None:
        segments = log.tiered()
        if not segments:
            return
        entries = entries_of(segments)
        intervals = AbortedIntervals.of([*entries, *entries])
        stop = segments[-1].metadata.end_offset + 1
        stable = remote_stable_offset(stop, parse_producer_snapshot(segments[-1].producer_snapshot))
        assert stable == log.stable_offset_at(stop)
        first = data.draw(st.integers(segments[0].metadata.start_offset, stop), label="fetch offset")
        # What a broker lists for a fetch from `first`: every abort whose marker is not before it.
        fetched = [b for s in segments for b in framed(s) if b.header.last_offset >= first]
        begins = fetched[0].header.base_offset if fetched else stop
        sequential = SequentialAborts((e.producer_id, e.first_offset) for e in entries if e.last_offset >= begins)
        gone, written = aborted_offsets(log), {record.offset for record in log.records()}
        clipped = intervals.clip(begins, stable - 1)
        for batch in fetched:
            header = batch.header
            shown = sequential.shows(header, control_of(batch))
            if header.base_offset >= stable:
                continue
            assert intervals.shows(header) == shown == clipped.shows(header)
            records = written & set(range(header.base_offset, header.last_offset + 1))
            if records and not header.is_control:
                assert shown == (not records & gone)
            if control_of(batch) is ControlType.ABORT:
                ends = any(e.last_offset == header.base_offset for e in entries)
                assert intervals.ends_at(header.producer_id, header.base_offset) == ends

    def test_two_transactions_of_one_producer(self) -> None:
        intervals = AbortedIntervals.of(
            [AbortedTransaction(1, 20, 29, 30), AbortedTransaction(1, 0, 9, 10), AbortedTransaction(2, 5, 25, 26)]
        )
        assert [e.first_offset for e in intervals.by_producer[1]] == [0, 20]
        assert not intervals.ends_at(1, 8)
        assert intervals.ends_at(1, 9)
        assert not intervals.ends_at(1, 15)
        assert not intervals.ends_at(3, 9)
        assert pickle.loads(pickle.dumps(intervals)) == intervals

    def test_clip_keeps_intervals_that_touch(self) -> None:
        entries = [AbortedTransaction(1, 0, 9, 10), AbortedTransaction(1, 10, 19, 20), AbortedTransaction(2, 5, 25, 26)]
        clipped = AbortedIntervals.of(entries).clip(10, 12)
        assert clipped == AbortedIntervals.of(entries[1:])
        assert AbortedIntervals.of(entries).clip(9, 9) == AbortedIntervals.of([entries[0], entries[2]])
        assert AbortedIntervals.of(entries).clip(26, 99) == AbortedIntervals.of([])
        for entry in entries:  # also what touches with one offset only, at either end
            for offset in (entry.first_offset, entry.last_offset):
                kept = AbortedIntervals.of(entries).clip(offset, offset)
                assert entry in kept.by_producer[entry.producer_id]

    @examples(250)
    @given(
        st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20), st.integers(0, 12)), max_size=6),
        st.integers(0, 25),
        st.integers(0, 8),
    )
    def test_clip_decides_as_the_whole_even_if_intervals_overlap(
        self, found: list[tuple[int, int, int]], first: int, span: int
    ) -> None:
        """An index that lies may have such intervals, and then a marker must not end another one than before."""
        whole = AbortedIntervals.of(AbortedTransaction(one, at, at + size, 0) for one, at, size in found)
        clipped = whole.clip(first, first + span)
        for producer in (1, 2):
            for offset in range(first, first + span + 1):
                assert clipped._containing(producer, offset) == whole._containing(producer, offset)


class TestStableOffset:
    @staticmethod
    def producer(first: int) -> ProducerState:
        return ProducerState(1, 0, 0, 0, 0, 0, 0, first)

    def test_the_earliest_open_transaction(self) -> None:
        assert remote_stable_offset(50, []) == 50
        assert remote_stable_offset(50, [self.producer(-1), self.producer(0), self.producer(7)]) == 0
        assert remote_stable_offset(50, [self.producer(60)]) == 50

    def test_closes_before(self) -> None:
        assert closes_before(10, [])
        assert closes_before(10, [self.producer(-1), self.producer(10)])
        assert not closes_before(10, [self.producer(9)])
        assert not closes_before(10, [self.producer(0)])

    @examples(100)
    @given(logs())
    def test_where_a_snapshot_says_so_every_marker_has_come(self, log: LogBuilder) -> None:
        for segment in log.segments():
            stop = segment.metadata.end_offset + 1
            producers = parse_producer_snapshot(segment.producer_snapshot)
            for offset in range(segment.metadata.start_offset, stop + 1):
                assert closes_before(offset, producers) == (log.stable_offset_at(stop) >= offset)


class TestListsOfBrokers:
    """A batch that comes again is one that is read again, after an error or without its index."""

    @staticmethod
    def log() -> list[FramedBatch]:
        log = LogBuilder()
        for end in (log.abort, log.commit, log.abort):
            log.begin(1)
            for _ in range(2):
                log.append_batch([Record(0)], producer_id=1)
            end(1)
        log.roll()
        return list(framed(log.segments()[0]))

    @pytest.mark.parametrize("again", range(9))
    def test_a_batch_that_comes_again_changes_nothing(self, again: int) -> None:
        batches = self.log()
        sequential = SequentialAborts([(1, 0), (1, 6)])
        shown = []
        for number, batch in enumerate(batches):
            if number == again:  # from the first byte of the segment on
                for earlier in batches[:number]:
                    sequential.shows(earlier.header, control_of(earlier))
            shown.append(sequential.shows(batch.header, control_of(batch)))
        assert shown == [False, False, False, True, True, False, False, False, False]


def test_a_batch_outside_of_transactions_is_shown_whoever_wrote_it() -> None:
    """As Kafka's consumers do it: the producer of an aborted transaction may write without one, too."""
    log = LogBuilder()
    log.append_batch([Record(0)], producer_id=1)
    log.roll()
    (batch,) = framed(log.segments()[0])
    assert AbortedIntervals.of([AbortedTransaction(1, 0, 9, 10)]).shows(batch.header)
    assert SequentialAborts([(1, 0)]).shows(batch.header, None)
