"""The broker locator: how a timeline grows from answers, and answers that contradict each other or cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from remote_fetch.errors import UnknownTopic, Unlocatable
from remote_fetch.locate.broker_locator import BrokerLocator
from remote_fetch.locate.locations import Answer
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import UNKNOWN_SIZE, IsolationLevel, TopicIdPartition, Uuid
from remote_fetch.testing.log_builder import LogBuilder
from tests.locate.leader import Leader
from tests.scan.bucket import COMMITTED, UNCOMMITTED, plain_log


def leader_of(log: LogBuilder, **how: Any) -> Leader:
    return Leader(log, [segment.metadata for segment in log.tiered()], **how)


def locator_over(leader: Leader, said: list[str] | None = None) -> BrokerLocator:
    return BrokerLocator(cast(Any, leader), leader, say=(said if said is not None else []).append)


def bounds(timeline: Timeline) -> list[tuple[int, int]]:
    return [(segment.start_offset, segment.end_offset) for segment in timeline.segments]


def reached(leader: Leader, first: int, stop: int, isolation: IsolationLevel = COMMITTED, most: int = 99) -> Timeline:
    return locator_over(leader).reach(leader.partition, first, stop, isolation=isolation, most=most)


def test_one_question_a_segment() -> None:
    leader = leader_of(plain_log())
    timeline = reached(leader, 7, 60)
    assert bounds(timeline) == [(0, 19), (20, 39), (40, 59)]
    assert leader.asked == [7, 20, 40]
    assert timeline.listed_aborts is not None
    assert [offset for _, offset in timeline.listed_aborts] == leader.asked
    assert [segment.known_size_bytes for segment in timeline.segments] == [
        segment.segment_size_in_bytes for segment in leader.tiered
    ]


def test_no_further_than_wanted() -> None:
    assert bounds(reached(leader_of(plain_log()), 0, 20)) == [(0, 19)]
    assert bounds(reached(leader_of(plain_log()), 0, 21)) == [(0, 19), (20, 39)]
    assert bounds(reached(leader_of(plain_log()), 0, 60, most=2)) == [(0, 19), (20, 39)]
    assert bounds(reached(leader_of(plain_log()), 9, 9)) == []


def test_where_the_leader_serves_itself_the_timeline_ends() -> None:
    leader = leader_of(plain_log(), local_start=25)
    assert bounds(reached(leader, 0, 60)) == [(0, 19), (20, 39)]
    assert leader.asked == [0, 20, 40]
    assert bounds(reached(leader, 25, 60)) == []


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    log = plain_log()
    leader = leader_of(log)
    usual = leader.answer

    def unstable(*args: Any, **more: Any) -> Answer:
        return replace(usual(*args, **more), last_stable_offset=20)

    leader.answer = unstable  # type: ignore[method-assign]
    assert bounds(reached(leader, 0, 60)) == [(0, 19)]
    assert bounds(reached(leader, 25, 60)) == []
    uncommitted = reached(leader, 0, 60, UNCOMMITTED)
    assert bounds(uncommitted) == [(0, 19), (20, 39), (40, 59)]
    assert uncommitted.listed_aborts is None


@pytest.mark.parametrize("first", [0, 7, 19, 20, 33])
def test_ends_that_the_leader_does_not_tell_are_looked_for(first: int) -> None:
    leader = leader_of(plain_log(), tells=frozenset())
    timeline = reached(leader, first, 60)
    assert bounds(timeline) == [(0, 19), (20, 39), (40, 59)][first // 20 :]
    assert {segment.segment_size_in_bytes for segment in timeline.segments} == {UNKNOWN_SIZE}
    assert len(leader.asked) < 60


def test_ends_of_long_segments_are_found_in_few_questions() -> None:
    """The locator finds the end among a million offsets: its steps double, and are then halved."""
    log = plain_log(segments=1)
    (segment,) = leader_of(log).tiered
    long = replace(segment, end_offset=10**6)
    leader = Leader(log, [long, replace(long, start_offset=10**6 + 1, end_offset=2 * 10**6)], tells=frozenset())
    other = Uuid(b"another segment!")
    leader.tiered[1] = replace(leader.tiered[1], segment_id=replace(long.segment_id, id=other))
    timeline = locator_over(leader).reach(leader.partition, 5, 2 * 10**6, isolation=UNCOMMITTED, most=1)
    assert bounds(timeline) == [(0, 10**6)]
    assert len(leader.asked) < 40


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"start_offset": 8}, "a segment of offsets 8 to 19 for offset 7"),
        ({"end_offset": 6}, "a segment of offsets 0 to 6 for offset 7"),
        ({"end_offset": 2**63 - 1}, "a segment of offsets 0 to 9223372036854775807 for offset 7"),
    ],
)
def test_ends_without_the_offset_are_no_answer(wrong: dict[str, int], what: str) -> None:
    leader = leader_of(plain_log())
    first = leader.tiered[0]
    leader.covering = lambda offset: replace(first, **wrong)  # type: ignore[method-assign, arg-type]
    with pytest.raises(Unlocatable, match=what):
        reached(leader, 7, 60)


def failing_at(offset: int, leader: Leader) -> Callable[..., Answer]:
    usual = leader.ask

    def ask(partition: TopicIdPartition, asked: int, isolation: IsolationLevel) -> Answer:
        if asked == offset:
            raise Unlocatable("no leader answers")
        return usual(partition, asked, isolation)

    return ask


def test_what_was_located_before_an_error_counts() -> None:
    leader = leader_of(plain_log())
    leader.ask = failing_at(20, leader)  # type: ignore[method-assign]
    assert bounds(reached(leader, 0, 60)) == [(0, 19)]
    with pytest.raises(Unlocatable, match="no leader answers"):
        reached(leader, 20, 60)


def with_ids(leader: Leader, letter: bytes) -> None:
    """Replace the leader's uploads by others with the same offsets."""
    leader.tiered = [
        replace(each, segment_id=replace(each.segment_id, id=Uuid(letter * 15 + bytes((number,)))))
        for number, each in enumerate(leader.tiered)
    ]


def test_segment_ids_that_change_between_two_answers() -> None:
    """The newest answer wins, for as many offsets as it is about."""
    leader = leader_of(plain_log())
    locator = locator_over(leader)
    locator.reach(leader.partition, 0, 60, isolation=COMMITTED)
    with_ids(leader, b"n")
    timeline = locator.recheck(leader.partition, 30)
    assert bounds(timeline) == [(0, 19), (20, 29), (20, 39), (40, 59)]
    assert timeline.segments[2].segment_id == leader.tiered[1].segment_id
    timeline = locator.refresh(leader.partition)
    assert bounds(timeline) == [(0, 19), (20, 39), (40, 59)]
    assert [each.segment_id for each in timeline.segments] == [each.segment_id for each in leader.tiered]


def test_a_refresh_asks_again_for_what_was_asked() -> None:
    """Such as a location that has expired."""
    leader = leader_of(plain_log(), custom_metadata=b"old")
    locator = locator_over(leader)
    before = locator.reach(leader.partition, 7, 60, isolation=COMMITTED)
    leader.custom_metadata = b"new"
    after = locator.refresh(leader.partition)
    assert leader.asked == [7, 20, 40] * 2
    assert bounds(after) == bounds(before)
    assert {segment.custom_metadata for segment in after.segments} == {b"new"}
    assert after.listed_aborts == before.listed_aborts
    leader.local_start = 0
    assert bounds(locator.refresh(leader.partition)) == []


def test_a_timeline_that_nobody_asked_for_is_that_of_the_whole_log() -> None:
    leader = leader_of(plain_log())
    locator = locator_over(leader)
    for timeline in (locator.timeline(leader.partition), locator_over(leader).refresh(leader.partition)):
        assert bounds(timeline) == [(0, 19), (20, 39), (40, 59)]
        assert timeline.listed_aborts is None
    leader.asked.clear()
    assert bounds(locator.timeline(leader.partition)) == [(0, 19), (20, 39), (40, 59)]
    assert leader.asked == []
    assert locator.end_is_inferred(leader.tiered[0])
    assert bounds(locator.measure(leader.partition, [leader.tiered[0]])) == [(0, 19), (20, 39), (40, 59)]


def test_partitions_are_those_of_the_cluster() -> None:
    leader = leader_of(plain_log())
    locator = locator_over(leader)
    assert locator.partitions("topic") == (leader.partition,)
    with pytest.raises(UnknownTopic, match="has the id"):
        locator.partitions(f"topic:{Uuid(bytes(16))}")
    with pytest.raises(Unlocatable, match="one topic"):
        locator.partitions(None)


@pytest.mark.parametrize("old", ["is_old", "ignores"])
def test_old_brokers_are_asked_once(old: str) -> None:
    said: list[str] = []
    leader = leader_of(plain_log(), **{old: True})
    locator = locator_over(leader, said)
    for _ in range(3):
        assert bounds(locator.reach(leader.partition, 0, 60, isolation=COMMITTED)) == []
    assert len(said) == 1
    assert len(leader.asked) == (1 if old == "is_old" else 2)


def test_records_from_the_leaders_own_disk_are_no_sign_of_an_old_broker() -> None:
    said: list[str] = []
    leader = leader_of(plain_log(), local_start=0)
    locator = locator_over(leader, said)
    assert bounds(locator.reach(leader.partition, 0, 60, isolation=COMMITTED)) == []
    leader.local_start = 30
    assert bounds(locator.reach(leader.partition, 0, 60, isolation=COMMITTED)) == [(0, 19), (20, 39)]
    assert said == []
