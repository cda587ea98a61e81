"""The questions of the guard while slices are read: which, how often, and its waits while no broker answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import OffsetOutOfRange, TopicRecreated
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.model import NO_ID, IsolationLevel, LogBounds, TopicIdPartition, Uuid
from remote_fetch.observe import Event, Notice
from remote_fetch.session.guard import LogGuard, Patience

ID = Uuid(bytes(15) + b"\x01")
PARTITION = TopicIdPartition(ID, "topic", 0)
LEVEL = IsolationLevel.READ_COMMITTED
PATIENCE = Patience(wait_s=20, blind_s=30, pause_s=0, slice_pause_s=10, slice_timeout_s=3)


@dataclass
class Asked:
    """A cluster that counts its questions. While it is away, each takes the time that was given for it.

    - `slow_s`: a description comes after this time, and the ends of the log after `lists_s`.
    - `refused`: the code of the error of a description.
    """

    log_start: int = 0
    described: Topic = field(default_factory=lambda: Topic("topic", ID, (0,), may_read=True))
    is_away: bool = False
    now_s: float = 100.0
    slow_s: float = 0.0
    lists_s: float = 0.0
    refused: int | None = None
    describes: int = 0
    lists: int = 0

    def describe(self, name: str, *, timeout_s: float | None = None) -> Topic:
        self.describes += 1
        if self.refused is not None:
            raise KafkaException(KafkaError(self.refused))
        if self.slow_s and self.slow_s >= (timeout_s or 8):
            self.now_s += timeout_s or 8
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Local: Timed out"))
        self.now_s += self.slow_s
        return self.described

    def log_bounds(
        self, partition: TopicIdPartition, isolation: IsolationLevel, *, timeout_s: float | None = None, **_: object
    ) -> LogBounds:
        self.lists += 1
        if self.refused is not None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))  # as librdkafka says it
        if self.is_away:
            self.now_s += timeout_s or 8
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Local: Timed out"))
        self.now_s += self.lists_s
        return LogBounds(self.log_start, 100)


def guard_of(cluster: Asked, heard: list[Event], *, skips: bool = False) -> LogGuard:
    return LogGuard(cast(Cluster, cluster), heard.append, skips=skips, patience=PATIENCE, clock=lambda: cluster.now_s)


def test_nothing_is_asked_too_often() -> None:
    cluster, heard = Asked(), list[Event]()
    guard = guard_of(cluster, heard)
    for _ in range(100):
        assert guard.check(PARTITION, LEVEL, 5) == 5
        cluster.now_s += 0.1
    assert 10 <= cluster.lists <= 25
    assert 2 <= cluster.describes <= 4
    assert heard == []


def test_an_answer_about_the_ends_counts_for_a_moment() -> None:
    """A feed of a consumer asks for the ends milliseconds before it reads its first slice."""
    cluster = Asked(log_start=3)
    guard = guard_of(cluster, [])
    assert guard.ask(PARTITION, LEVEL) == LogBounds(3, 100)
    cluster.now_s += 0.4
    assert guard.check(PARTITION, LEVEL, 5) == 5
    assert cluster.lists == 1
    cluster.now_s += 0.2
    assert guard.check(PARTITION, LEVEL, 5) == 5
    assert cluster.lists == 2
    cluster.now_s += 1
    assert guard.bounds(PARTITION, LEVEL) == LogBounds(3, 100)
    guard.check(PARTITION, LEVEL, 5)
    assert cluster.lists == 4, "a plan may be read later"
    cluster.is_away = True
    with pytest.raises(KafkaException):
        guard.ask(PARTITION, LEVEL)
    assert cluster.lists == 5, "the caller decides how long to wait"


def test_an_answer_counts_from_when_it_comes() -> None:
    """Over a slow line it would be too old at once, and each slice would be asked about."""
    cluster = Asked(lists_s=0.6)
    guard = guard_of(cluster, [])
    for _ in range(5):
        assert guard.check(PARTITION, LEVEL, 5) == 5
    assert cluster.lists == 1


def test_a_log_start_that_has_passed() -> None:
    cluster, heard = Asked(log_start=9), list[Event]()
    with pytest.raises(OffsetOutOfRange, match="offsets 5 to 8 are gone: the log starts at 9 now"):
        guard_of(cluster, heard).check(PARTITION, LEVEL, 5)
    guard = guard_of(cluster, heard, skips=True)
    assert guard.check(PARTITION, LEVEL, 5) == 9
    assert guard.pass_over(PARTITION, 7, 9) == 9
    assert len(heard) == 1, "a later range of the plan lies before the same log start"
    cluster.log_start = 12
    assert guard.pass_over(PARTITION, 9, 12) == 12
    assert ["offsets 9 to 11 are gone" in str(event) for event in heard] == [False, True]


@pytest.mark.parametrize("skips", [True, False])
def test_a_log_start_that_the_broker_takes_back(*, skips: bool) -> None:
    """A leader that has just started gave a log start past unread records. The next answer decides."""
    cluster, heard = Asked(log_start=3), list[Event]()
    guard = guard_of(cluster, heard, skips=skips)
    assert guard.pass_over(PARTITION, 5, 9) == 5
    assert heard == []
    cluster.log_start = 6
    if skips:
        assert guard.pass_over(PARTITION, 5, 9) == 6
    else:
        with pytest.raises(OffsetOutOfRange, match="offsets 5 to 5 are gone: the log starts at 6 now"):
            guard.pass_over(PARTITION, 5, 9)


def test_another_topic_is_noticed_within_seconds() -> None:
    cluster = Asked()
    guard = guard_of(cluster, [])
    guard.check(PARTITION, LEVEL, 5)
    cluster.described = Topic("topic", Uuid(bytes(15) + b"\x02"), (0,), may_read=True)
    with pytest.raises(TopicRecreated, match="This read is of topic:"):
        guard.confirm(PARTITION)
    cluster.now_s += 5
    with pytest.raises(TopicRecreated):
        guard.check(PARTITION, LEVEL, 5)


def test_a_permission_that_is_taken_away() -> None:
    cluster = Asked()
    guard = guard_of(cluster, [])
    guard.authorise(PARTITION)
    cluster.described = Topic("topic", ID, (0,), may_read=False)
    guard.authorise(PARTITION)
    cluster.now_s += 5
    with pytest.raises(KafkaException) as raised:
        guard.authorise(PARTITION)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    """A seek of a consumer is for the topic that has the name then."""
    cluster = Asked(slow_s=1)
    guard = guard_of(cluster, [])
    guard.authorise(PARTITION)
    guard.authorise(PARTITION, since_s=100)
    assert cluster.describes == 1
    guard.authorise(PARTITION, since_s=100.5)
    assert cluster.describes == 2, "the answer came later, but the question was asked before"


def test_topics_without_an_id_are_each_asked_about() -> None:
    """Some brokers tell no ids, and some objects have none in their names. All such topics have the same id then."""
    cluster = Asked(described=Topic("topic", None, (0,), may_read=True))
    guard, ours = guard_of(cluster, []), TopicIdPartition(NO_ID, "topic", 0)
    guard.authorise(ours)
    guard.authorise(ours)
    assert cluster.describes == 1
    cluster.described = Topic("secret", None, (0,), may_read=False)
    with pytest.raises(KafkaException, match="this principal may not READ topic secret"):
        guard.authorise(TopicIdPartition(NO_ID, "secret", 0))


def test_slices_are_read_on_while_the_broker_is_away() -> None:
    """With what it has said last, and rarely held up; after a while it is waited for."""
    cluster, heard = Asked(), list[Event]()
    guard = guard_of(cluster, heard)
    guard.check(PARTITION, LEVEL, 5)
    cluster.is_away = True
    began_s = cluster.now_s
    cluster.now_s += 1
    while cluster.now_s < began_s + PATIENCE.blind_s:
        assert guard.check(PARTITION, LEVEL, 5) == 5
        cluster.now_s += 0.5
    assert cluster.lists <= 5
    cluster.now_s += PATIENCE.slice_pause_s
    with pytest.raises(KafkaException) as raised:
        guard.check(PARTITION, LEVEL, 5)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert [type(event) for event in heard] == [Notice]


@pytest.mark.parametrize("slow_s", [0, 2, 60])
def test_a_look_at_the_broker_holds_up_a_slice_for_one_timeout(slow_s: float) -> None:
    """It is two questions, and an answer to the first leaves less time for the second."""
    cluster = Asked(is_away=True, slow_s=slow_s)
    guard = guard_of(cluster, [])
    guard.remember(PARTITION, 0)
    began_s = cluster.now_s
    assert guard.check(PARTITION, LEVEL, 5) == 5
    assert cluster.now_s - began_s == PATIENCE.slice_timeout_s


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_a_topic_that_is_out_of_sight_is_no_broker_that_is_away(code: int) -> None:
    """librdkafka says the same of its ends as of a partition without a leader. No slice is read on after that."""
    cluster, heard = Asked(), list[Event]()
    guard = guard_of(cluster, heard)
    guard.check(PARTITION, LEVEL, 5)
    cluster.refused = code
    cluster.now_s += 1
    with pytest.raises(KafkaException) as raised:
        guard.check(PARTITION, LEVEL, 5)
    assert raised.value.args[0].code() == code
    assert not heard


def test_a_partition_without_a_leader_is_read_on() -> None:
    cluster, heard = Asked(), list[Event]()
    guard = guard_of(cluster, heard)
    guard.check(PARTITION, LEVEL, 5)
    cluster.refused = KafkaError.LEADER_NOT_AVAILABLE
    cluster.now_s += 1
    assert guard.check(PARTITION, LEVEL, 5) == 5
    assert [type(event) for event in heard] == [Notice]


def test_it_is_said_again_when_it_goes_away_again() -> None:
    cluster, heard = Asked(), list[Event]()
    guard = guard_of(cluster, heard)
    for _ in range(2):
        cluster.is_away = False
        guard.check(PARTITION, LEVEL, 5)
        cluster.is_away = True
        cluster.now_s += PATIENCE.slice_pause_s + 1
        guard.check(PARTITION, LEVEL, 5)
        cluster.now_s += PATIENCE.slice_pause_s
    assert len(heard) == 2


def test_what_a_plan_was_told_holds_where_nobody_answers() -> None:
    """A worker that cannot reach the broker goes by what the driver heard, as long as it reads, and says so once."""
    cluster, heard = Asked(is_away=True), list[Event]()
    patience = Patience(wait_s=20, blind_s=math.inf, pause_s=0, slice_pause_s=10, slice_timeout_s=3)
    guard = LogGuard(cast(Cluster, cluster), heard.append, skips=True, patience=patience, clock=lambda: cluster.now_s)
    guard.remember(PARTITION, 7)
    for _ in range(100):
        assert guard.check(PARTITION, LEVEL, 9) == 9
        cluster.now_s += 100
    assert len([event for event in heard if "does not answer" in str(event)]) == 1
    with pytest.raises(KafkaException):
        guard.check(PARTITION, LEVEL, 5)  # without the broker no record is passed over
    cluster.is_away, cluster.log_start = False, 8
    cluster.now_s += 100
    assert guard.check(PARTITION, LEVEL, 5) == 8
