"""From arguments to plans: which partitions, which bounds, and what is refused before the first record."""

from __future__ import annotations

from typing import Any

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, UnknownTopic
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import Event, Notice, Observer, ignore
from remote_fetch.plan.saved import dump_plan, load_plan
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.prepare.other_number import OtherNumber
from tests.scan.bucket import COMMITTED, UNCOMMITTED, Bucket


def bucket_of(partitions: int) -> Bucket:
    bucket = Bucket()
    for number in range(partitions):
        log = LogBuilder(partition=number)
        log.append_batch([Record(n) for n in range(5)])
        log.roll()
        bucket.add(log.segments()[0])
    return bucket


def plan(bucket: Bucket, observer: Observer = ignore, **arguments: Any) -> tuple[PartitionPlan, ...]:
    asked = {"start": "earliest", "end": "latest", "partitions": None, "isolation": UNCOMMITTED, **arguments}
    with Session(Config.parse({}), bucket, observer) as session:
        return plan_job(session, "topic", **asked)


def numbers(plans: tuple[PartitionPlan, ...]) -> list[int]:
    return [one.opened.partition.partition for one in plans]


def test_isolation() -> None:
    assert parse_isolation("read_committed") is COMMITTED
    assert parse_isolation(IsolationLevel.READ_UNCOMMITTED) is UNCOMMITTED
    with pytest.raises(ConfigError, match="read_uncommitted or read_committed"):
        parse_isolation("none")


def test_the_isolation_of_a_configuration() -> None:
    assert parse_isolation(None, {}) is COMMITTED
    assert parse_isolation(None, {"isolation.level": None}) is COMMITTED
    assert parse_isolation(None, {"isolation.level": UNCOMMITTED}) is UNCOMMITTED
    assert parse_isolation(None, {"isolation.level": "READ_UNCOMMITTED"}) is UNCOMMITTED
    assert parse_isolation("read_committed", {"isolation.level": "read_uncommitted"}) is COMMITTED
    with pytest.raises(ConfigError, match=r"^isolation\.level=Committed: choose") as caught:
        parse_isolation(None, {"isolation.level": "Committed"})
    assert caught.value.key == "isolation.level"


def test_partitions() -> None:
    bucket = bucket_of(3)
    assert numbers(plan(bucket)) == [0, 1, 2]
    assert numbers(plan(bucket, partitions=[2, 0, 2])) == [0, 2]
    assert numbers(plan(bucket, partitions=iter([2, 0]))) == [0, 2]
    assert numbers(plan(bucket, partitions=[OtherNumber(2)])) == [2]
    for wrong in (1, "1", "", b"0", [0, "1"], [0, 1.0], [True], [None]):
        with pytest.raises(ConfigError, match="give partition numbers") as caught:
            plan(bucket, partitions=wrong)
        assert caught.value.key == "partitions"
    heard: list[Event] = []
    assert numbers(plan(bucket, heard.append, partitions=[])) == []
    assert not any(isinstance(event, Notice) and event.is_warning for event in heard)
    with pytest.raises(UnknownTopic, match="no partition 3 was found; there are 0, 1, 2"):
        plan(bucket, partitions=[1, 3])


def test_bounds_by_partition() -> None:
    bucket = bucket_of(2)
    plans = plan(bucket, start={1: 2}, end={0: 3, 1: "latest"})
    assert [(p.steps[0].first_offset, p.steps[0].last_offset) for p in plans] == [(0, 2), (2, 4)]
    with pytest.raises(ConfigError, match=r"end names partitions that are not read: \[5\]"):
        plan(bucket, end={5: 1})
    with pytest.raises(ConfigError, match=r"start\[0\]"):
        plan(bucket, start={0: "tomorrow"})


def test_log_starts() -> None:
    bucket = bucket_of(2)
    assert [p.steps[0].first_offset for p in plan(bucket, log_start=1)] == [1, 1]
    assert [p.steps[0].first_offset for p in plan(bucket, log_start={1: 3})] == [0, 3]
    assert [p.steps[0].first_offset for p in plan(bucket, log_start=OtherNumber(2))] == [2, 2]
    assert plan(bucket, log_start=2**63 - 2)[0].steps == ()
    for wrong in (-1, {0: "1"}, {1: -5}, 2**63 - 1):
        with pytest.raises(ConfigError, match="log_start of partition"):
            plan(bucket, log_start=wrong)


def test_what_read_committed_needs_is_loaded_for_it_alone() -> None:
    bucket = bucket_of(1)
    assert plan(bucket)[0].aborted is None
    aborted = plan(bucket, isolation=COMMITTED)[0].aborted
    assert aborted is not None
    assert aborted.by_producer == {}


def test_plans_are_stable_and_can_be_saved() -> None:
    bucket = bucket_of(2)
    first, second = plan(bucket, start=1, end=4), plan(bucket, start=1, end=4)
    assert [p.steps for p in first] == [p.steps for p in second]
    for one in first:
        assert load_plan(dump_plan(one.steps)) == one.steps
