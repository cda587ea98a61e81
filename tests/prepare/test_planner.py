"""The planner: no offset behind the log, the slices a feed begins with, and what goes to a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.config import Config
from remote_fetch.errors import ErrorKind, StorageUnavailable
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.model import IndexType, IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.observe import Event, Fallback, Notice
from remote_fetch.plan.ranges import BrokerRange, Reason, SegmentSlice
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import OpenPartition, PartitionPlan, untiered
from remote_fetch.session.broker import BrokerReader
from remote_fetch.session.brokers import Brokers
from remote_fetch.session.guard import LogGuard, Patience
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import Fault, FaultKind, FetchCall
from remote_fetch.testing.log_builder import FIRST_TIMESTAMP_MS, TOPIC_ID
from tests.scan.bucket import COMMITTED, UNCOMMITTED, Bucket, WatchedBucket, plain_log

LOG = plain_log()
"""Three segments, of offsets 0 to 19, 20 to 39 and 40 to 59."""


def session_of(*, fails: bool = False, events: list[Event] | None = None) -> Session:
    def schedule(call: FetchCall) -> Fault | None:
        is_snapshot = call.index_type is IndexType.PRODUCER_SNAPSHOT
        return Fault(FaultKind("unavailable")) if fails and is_snapshot else None

    once = {"fetch.remote.read.timeout.ms": 10_000, "fetch.remote.retry.backoff.ms": 60_000}  # no second attempt
    observe = (events if events is not None else []).append
    return Session(Config.parse(once), WatchedBucket(Bucket(LOG.segments()), schedule), observe)


def opened_in(session: Session, isolation: IsolationLevel, log: LogBounds) -> OpenPartition:
    (partition,) = session.locator.partitions("topic")
    return Planner(session, isolation).open_timeline(session.locator.timeline(partition), log)


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
@pytest.mark.parametrize("is_outline", [True, False])
def test_no_offset_behind_the_end_of_the_log_is_planned(isolation: IsolationLevel, is_outline: bool) -> None:
    with session_of() as session:
        opened = opened_in(session, isolation, LogBounds(0, 45))
        planner = Planner(session, isolation)
        plan = (planner.outline if is_outline else planner.plan)(opened, 7, 60)
    assert [(step.first_offset, step.last_offset) for step in plan.steps] == [(7, 19), (20, 39), (40, 44)]


def test_a_stop_before_the_start_plans_nothing() -> None:
    with session_of() as session:
        opened = opened_in(session, UNCOMMITTED, LogBounds(0, 60))
        assert Planner(session, UNCOMMITTED).plan(opened, 30, 10).steps == ()


class TestLeading:
    def leading(self, first: int, most: int, log: LogBounds, local_start: int | None = None) -> PartitionPlan | str:
        with session_of() as session:
            opened = replace(opened_in(session, UNCOMMITTED, log), local_start=local_start)
            return Planner(session, UNCOMMITTED).leading(opened, first, most)

    @pytest.mark.parametrize(
        ("first", "most", "end", "expected"),
        [
            (0, 2, 60, [(0, 19), (20, 39)]),
            (25, 16, 60, [(25, 39), (40, 59)]),
            (25, 16, 50, [(25, 39), (40, 49)]),
        ],
    )
    def test_slices_that_follow_each_other(
        self, first: int, most: int, end: int, expected: list[tuple[int, int]]
    ) -> None:
        plan = self.leading(first, most, LogBounds(0, end))
        assert isinstance(plan, PartitionPlan)
        assert all(isinstance(step, SegmentSlice) for step in plan.steps)
        assert [(step.first_offset, step.last_offset) for step in plan.steps] == expected

    @pytest.mark.parametrize(
        ("first", "local_start", "reason"), [(60, None, Reason.NOT_TIERED), (30, 20, Reason.LOCAL)]
    )
    def test_the_reason_if_there_is_none(self, first: int, local_start: int | None, reason: Reason) -> None:
        assert self.leading(first, 16, LogBounds(0, 100), local_start) == reason


class Elects:
    """A cluster that elects leaders. No broker answers its first question of each kind about a leader."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def _answer(self, kind: str) -> None:
        if kind not in self._asked:
            self._asked.add(kind)
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    def describe(self, name: str, **_: object) -> Topic:
        return Topic(name, TOPIC_ID, (0,), may_read=True)

    def log_bounds(self, partition: TopicIdPartition, isolation: IsolationLevel, **_: object) -> LogBounds:
        self._answer("bounds")
        return LogBounds(0, 70)

    def still_holds(self, partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        self._answer("epoch")
        return True

    def offset_for_time(self, partition: TopicIdPartition, timestamp_ms: int, isolation: IsolationLevel) -> int:
        self._answer("time")
        return 65

    def close(self) -> None:
        """There is nothing to close."""


def give_electing(session: Session, heard: list[Event]) -> None:
    """Give a session brokers that elect leaders."""
    cluster = cast(Cluster, Elects())
    guard = LogGuard(cluster, heard.append, skips=False, patience=Patience(pause_s=0))
    session.brokers = Brokers(cluster, guard, None)


def test_a_broker_that_is_away_is_waited_for() -> None:
    """It answers about the ends of the log, about the end of the tier, and about a time behind the tier."""
    heard: list[Event] = []
    with session_of(events=heard) as session:
        give_electing(session, heard)
        planner = Planner(session, UNCOMMITTED)
        partitions = session.locator.partitions("topic")
        late_ms = FIRST_TIMESTAMP_MS + 1000 * 65
        times = planner.times
        found = planner.open(partitions, lambda opened: (opened.stop_offset, times.first_offset_at(opened, late_ms)))
    assert found == ((60, 65),)
    assert [event.is_wait for event in heard if isinstance(event, Notice)] == [True, True, True]


def test_a_broker_that_is_away_is_also_waited_for_when_a_partition_is_opened_again() -> None:
    """The store's checkpoints are read once."""
    heard: list[Event] = []
    fetcher = WatchedBucket(Bucket(LOG.segments()))
    with Session(Config.parse({}), fetcher, heard.append) as session:
        give_electing(session, heard)
        (partition,) = session.locator.partitions("topic")
        unread = BrokerRange(partition, 0, 59, "unavailable")
        failed = replace(untiered(partition, UNCOMMITTED, LogBounds(0, 70)), unread=unread)
        assert Planner(session, UNCOMMITTED).reopened(failed).stop_offset == 60
    read = [call.metadata.start_offset for call in fetcher.calls if call.index_type is IndexType.LEADER_EPOCH]
    assert sorted(read) == [0, 20, 40]


def test_what_cannot_be_planned_is_raised_or_left_to_the_broker() -> None:
    events: list[Event] = []
    with session_of() as well:
        opened = opened_in(well, COMMITTED, LogBounds(0, 60))
    with session_of(fails=True, events=events) as session:
        planner = Planner(session, COMMITTED)
        with pytest.raises(StorageUnavailable):
            planner.outline(replace(opened, stop_offset=70), 0, 60)
        session.fallback.reader = cast(BrokerReader, object())
        plan = planner.outline(replace(opened, stop_offset=70), 0, 60)
    assert plan.steps == (BrokerRange(opened.partition, 0, 59, ErrorKind.UNAVAILABLE),)
    fallbacks = [event for event in events if isinstance(event, Fallback)]
    assert [(event.first_offset, event.last_offset, event.reason) for event in fallbacks] == [(0, 59, "unavailable")]


def test_a_partition_that_cannot_be_opened_has_the_reason_of_its_error() -> None:
    """Not `not-tiered`: its offsets are in the tier. The fallback is reported once."""
    events: list[Event] = []
    with session_of(fails=True, events=events) as session:
        session.fallback.reader = cast(BrokerReader, object())
        planner = Planner(session, COMMITTED)
        (partition,) = session.locator.partitions("topic")
        (plan,) = planner.open([partition], lambda opened: planner.plan(opened, 10, 60))
    (step,) = plan.steps
    assert step == BrokerRange(partition, 10, 59, ErrorKind.UNAVAILABLE)
    (fallback,) = (event for event in events if isinstance(event, Fallback))
    assert isinstance(step, BrokerRange)
    assert (fallback.reason, fallback.detail) == (step.reason, step.detail)
    assert step.detail


def test_an_empty_log_whose_tier_cannot_be_read_leaves_nothing_to_the_broker() -> None:
    """DeleteRecords empties a log, and the objects may be gone before the metadata says so."""
    events: list[Event] = []
    with session_of(fails=True, events=events) as session, pytest.MonkeyPatch.context() as patched:
        session.fallback.reader = cast(BrokerReader, object())
        patched.setattr(Planner, "_log_bounds", lambda *_: LogBounds(60, 60))
        planner = Planner(session, COMMITTED)
        (partition,) = session.locator.partitions("topic")
        (plan,) = planner.open([partition], lambda opened: planner.plan(opened, 60, 60))
    assert plan.steps == ()
    assert [event for event in events if isinstance(event, Fallback)] == []


def test_a_tier_that_cannot_be_located_has_that_reason() -> None:
    with session_of() as session:
        opened = opened_in(session, UNCOMMITTED, LogBounds(0, 100))
        session.configured_locator.unlocated = ErrorKind.UNLOCATABLE
        plan = Planner(session, UNCOMMITTED).plan(opened, 50, 70)
    assert [getattr(step, "reason", None) for step in plan.steps] == [None, ErrorKind.UNLOCATABLE]
