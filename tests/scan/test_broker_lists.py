"""Reads through the broker locator: the leader names segments and lists aborted transactions (KIP-1254, KIP-98).

Rules of the file:

- The fake leader of tests/locate/leader.py answers.
- The expected rows come from the log in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.config import Config
from remote_fetch.errors import Unlocatable
from remote_fetch.model import AbortedTransaction, IsolationLevel
from remote_fetch.observe import Report
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.scan.work import works_of
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import Fault, FaultKind, FetchCall
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.strategies import logs, segment_options
from tests.cases import each_of
from tests.locate.leader import EVERYTHING, Leader, attach
from tests.scan.bucket import (
    COLUMNS,
    COMMITTED,
    UNCOMMITTED,
    Bucket,
    Row,
    WatchedBucket,
    expected_rows,
    plain_log,
    rows_of,
)
from tests.scan.test_relocation import SignedBucket
from tests.searches import examples


def read(
    leader: Leader, fetcher: Any, isolation: IsolationLevel, start: Any = "earliest", end: Any = "latest"
) -> tuple[list[Row], Report]:
    config = Config.parse({"fetch.remote.range.bytes": 1024, "fetch.remote.retry.backoff.ms": 1})
    rows: list[Row] = []
    with Session(config, fetcher) as session:
        attach(session, leader)
        plans = plan_job(session, "topic", start=start, end=end, partitions=None, isolation=isolation)
        for batch in Scan(session, plans, COLUMNS).batches():
            rows += rows_of(batch)
        return rows, session.counters.report()


@examples(120)
@given(logs(), segment_options(), st.data())
def test_any_log_as_its_own_memory_has_it(log: LogBuilder, options: Any, data: st.DataObject) -> None:
    """Wherever a read begins and whatever the leader tells of a segment's ends."""
    segments = log.tiered(options)
    tells = data.draw(st.sampled_from([EVERYTHING, frozenset(), frozenset({"end_offset"})]), label="tells")
    leader = Leader(log, [segment.metadata for segment in segments], tells=tells)
    for isolation in (COMMITTED, UNCOMMITTED):
        end = leader.bounds(leader.partition, isolation).end_offset or 0
        start = data.draw(st.integers(leader.log_start, end), label="start")
        rows, report = read(leader, Bucket(segments), isolation, start)
        assert rows == expected_rows(log.expected(isolation, start))
        assert set(report.fallbacks) <= {"not-found", "unlocatable"}  # gaps that a cleaner left at ends of segments


def transactions() -> LogBuilder:
    """Three producers whose transactions cross segments, are aborted and committed, and follow each other."""
    log = LogBuilder()

    def write(producer: int) -> None:
        log.append_batch([Record(n, n, b"%d" % producer, b"v%d" % n) for n in range(3)], producer_id=producer)

    for number in range(6):
        for producer in (1, 2, 3):
            log.begin(producer)
            write(producer)
        write(-1)
        if number % 2:
            log.roll()
        (log.abort if number % 3 else log.commit)(1)
        write(2)
        log.abort(2)
        log.roll()
        write(3)
        (log.abort if number % 2 else log.commit)(3)
    log.roll()
    return log


@each_of("start", range(0, 100, 7))
def test_transactions_from_any_offset_on(start: int) -> None:
    log = transactions()
    segments = log.tiered()
    leader = Leader(log, [segment.metadata for segment in segments])
    rows, report = read(leader, Bucket(segments), COMMITTED, start)
    assert rows == expected_rows(log.expected(COMMITTED, start))
    assert (report.broker_records, report.fallbacks) == (0, {})
    assert report.index_gets > 0


def test_no_transaction_index_and_no_producer_snapshot_is_read() -> None:
    log = transactions()
    segments = log.tiered()
    kinds = set()

    def note(call: FetchCall) -> None:
        kinds.add(call.index_type)

    rows, _ = read(Leader(log, [each.metadata for each in segments]), WatchedBucket(Bucket(segments), note), COMMITTED)
    assert rows == expected_rows(log.expected(COMMITTED))
    assert kinds == {None, "leader-epoch"}


@each_of("kind", [FaultKind.DENIED, FaultKind.NOT_FOUND, FaultKind.FLIP_BYTE, FaultKind.TRUNCATE, FaultKind.SHORT_BODY])
def test_a_store_that_fails_in_the_middle_of_transactions(kind: FaultKind) -> None:
    """The markers that passed are remembered when a range is read again. The leader reads the rest of a lost one."""
    log = transactions()
    segments = log.tiered()
    for at in range(1, 12):
        calls: list[FetchCall] = []

        def schedule(call: FetchCall, calls: list[FetchCall] = calls, at: int = at) -> Fault | None:
            if call.index_type is None:
                calls.append(call)
            return Fault(kind) if call.index_type is None and len(calls) == at else None

        leader = Leader(log, [each.metadata for each in segments])
        rows, _ = read(leader, WatchedBucket(Bucket(segments), schedule), COMMITTED)
        assert rows == expected_rows(log.expected(COMMITTED))


def test_a_list_that_leaves_a_transaction_out_is_an_error_that_the_leader_mends() -> None:
    """The abort marker contradicts the list. It comes after some of the records, as in a lost transaction index."""
    log = transactions()
    segments = log.tiered()
    leader = Leader(log, [each.metadata for each in segments])
    leader.aborted = []
    _, report = read(leader, Bucket(segments), COMMITTED)
    assert report.fallbacks["corrupt"] > 0


def test_a_leader_that_serves_offsets_itself_gets_the_rest() -> None:
    log = plain_log()
    segments = log.tiered()
    leader = Leader(log, [each.metadata for each in segments], local_start=40)
    rows, report = read(leader, Bucket(segments), UNCOMMITTED)
    assert rows == expected_rows(log.records())
    assert (report.records, report.broker_records, report.fallbacks) == (60, 20, {})
    assert leader.served == [(40, 59)]


@pytest.mark.parametrize("old", ["is_old", "ignores"])
def test_an_old_broker_turns_the_locator_off_with_one_line(old: str) -> None:
    log = plain_log()
    segments = log.tiered()
    leader = Leader(log, [each.metadata for each in segments], **{old: True})  # type: ignore[arg-type]
    rows, report = read(leader, Bucket(segments), COMMITTED)
    assert rows == expected_rows(log.records())
    assert (report.remote_gets, report.broker_records, report.fallbacks) == (0, 60, {})
    (line,) = [notice for notice in report.notices if "in plain Python" not in notice]
    assert line.startswith("remote.locator=broker is off, and the brokers give all records: ")


@each_of(
    ("asked", "wrong", "reasons"),
    [
        (0, {"start_offset": 8}, {"unlocatable"}),  # a segment that does not hold the offset
        (20, {"start_offset": 13}, set()),
        (7, {"start_offset": 5}, {"corrupt"}),
        (0, {"end_offset": 9}, set()),
        (0, {"end_offset": 33}, {"not-found"}),
        (0, {"end_offset": 59}, {"not-found", "unlocatable"}),  # its rest has no list of its own
        (40, {"end_offset": 70}, {"not-found"}),
        (20, {"segment_size_in_bytes": 100}, set()),
        (20, {"segment_size_in_bytes": 1 << 40}, set()),
    ],
)
def test_lies_about_a_segment(asked: int, wrong: dict[str, int], reasons: set[str]) -> None:
    """The rows are right, whatever the leader tells of one segment. If the bytes contradict it, the leader reads."""
    log = plain_log(segments=3)
    log.append_batch([Record(0)] * 1)
    segments = log.tiered()
    for isolation in (COMMITTED, UNCOMMITTED):
        leader = Leader(log, [each.metadata for each in segments])
        usual = leader.covering

        def lying(offset: int, usual: Any = usual) -> Any:
            found = usual(offset)
            return replace(found, **wrong) if offset == asked else found

        leader.covering = lying  # type: ignore[method-assign]
        start = asked if asked == 7 else 0
        rows, report = read(leader, Bucket(segments), isolation, start)
        assert rows == expected_rows(log.expected(isolation, start))
        assert set(report.fallbacks) <= reasons
        assert bool(report.fallbacks) == bool(reasons)


@pytest.mark.parametrize("stable", [20, 35, 10**6])
def test_lies_about_the_last_stable_offset(stable: int) -> None:
    """The ends of the log by ListOffsets are the limit. Where a segment's part is left, the leader reads."""
    log = transactions()
    segments = log.tiered()
    leader = Leader(log, [each.metadata for each in segments])
    usual = leader.answer
    leader.answer = lambda *args, **more: replace(  # type: ignore[method-assign]
        usual(*args, **more), last_stable_offset=stable
    )
    rows, report = read(leader, Bucket(segments), COMMITTED)
    assert rows == expected_rows(log.expected(COMMITTED))
    assert bool(report.broker_records) == (stable < log.next_offset)


def test_a_slice_without_a_list_of_its_own_is_an_error() -> None:
    """Without its list, a reader would show the records of aborted transactions."""
    log = transactions()
    segments = log.tiered()
    leader = Leader(log, [each.metadata for each in segments])
    with Session(Config.parse({}), Bucket(segments)) as session:
        attach(session, leader)
        for isolation in (COMMITTED, UNCOMMITTED):
            (plan,) = plan_job(session, "topic", start=0, end="latest", partitions=None, isolation=isolation)
            later = replace(plan, steps=(replace(plan.steps[0], first_offset=1),))
            if isolation is UNCOMMITTED:
                assert len(list(works_of(later, COLUMNS))) == 1
            else:
                with pytest.raises(Unlocatable):
                    list(works_of(later, COLUMNS))


def test_a_list_with_a_committed_transaction_is_believed() -> None:
    """A consumer believes such a list too, because no data before the marker contradicts it."""
    log = plain_log(segments=1)
    log.begin(1)
    log.append_batch([Record(0)], producer_id=1)
    log.commit(1)
    log.roll()
    segments = log.tiered()
    leader = Leader(log, [each.metadata for each in segments])
    leader.aborted = [AbortedTransaction(1, 20, 21, 22)]
    rows, _ = read(leader, Bucket(segments), COMMITTED)
    assert [row.offset for row in rows] == list(range(20))


def test_deleted_offsets_between_a_transaction_and_its_marker() -> None:
    """The log start moves while a slice is read. The marker that it passes over still ends the transaction."""
    log = LogBuilder()
    log.append_batch([Record(0)])
    log.begin(1)
    log.append_batch([Record(0)], producer_id=1)
    log.abort(1)
    log.append_batch([Record(0)])
    log.begin(1)
    log.append_batch([Record(0)], producer_id=1)
    log.commit(1)
    log.roll()
    segments = log.tiered()
    leader = Leader(log, [each.metadata for each in segments])
    leader.check = lambda partition, isolation, next_offset: max(next_offset, 3)  # type: ignore[method-assign]
    rows, _ = read(leader, Bucket(segments), COMMITTED)
    assert [row.offset for row in rows] == [3, 4]


def test_locations_that_expire_are_asked_for_again() -> None:
    """As for signed URLs in custom metadata, the leader gives a newer location. The list stays valid."""
    log = transactions()
    bucket = SignedBucket(log)
    bucket.uses = 10  # more than the GETs that are under way at once, which all count
    leader = Leader(log, bucket.metadata)
    usual = leader.ask

    def ask(*question: Any) -> Any:
        leader.custom_metadata = b"location %d" % bucket.newest
        return usual(*question)

    leader.ask = ask  # type: ignore[method-assign, assignment]
    rows, report = read(leader, bucket, COMMITTED)
    assert rows == expected_rows(log.expected(COMMITTED))
    assert (report.broker_records, report.fallbacks) == (0, {})
    assert report.retries["auth"] > 0
