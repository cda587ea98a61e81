"""A task has the part of the tier that it needs beside its own steps."""

from __future__ import annotations

import pytest

from remote_fetch.config import Config
from remote_fetch.model import IsolationLevel
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.prepare.job import plan_job
from remote_fetch.session.session import Session
from remote_fetch.tables.planning import tasks_of
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.scan.bucket import COMMITTED, Bucket, plain_log, snapshot_config


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_it_knows_whether_the_tier_goes_on_behind_its_last_segment(isolation: IsolationLevel) -> None:
    """Else a segment that compaction ended early would count as the end of the tier, and a broker would be asked."""
    bucket = Bucket(plain_log().segments())
    with Session(Config.parse(snapshot_config(bucket.metadata)), bucket) as session:
        plans = plan_job(session, "topic", start="earliest", end="latest", partitions=None, isolation=isolation)
        tasks = tasks_of(plans, session.locator.end_is_inferred, task_bytes=1)
    assert len(tasks) > 3
    for task in tasks:
        (part,) = task.parts
        last = part.steps[-1]
        assert isinstance(last, SegmentSlice)
        goes_on = part.opened.tiered(last.segment.end_offset + 1) is not None
        assert goes_on == (last.segment.end_offset < 59)


def test_it_knows_from_where_on_a_segment_without_the_flag_has_a_transaction_index() -> None:
    """The segment that has the flag is not among its own. Else a lost index of its own would count as empty."""
    log = LogBuilder()
    log.append_batch([Record(0, value=b"v")])
    log.roll()
    for _ in range(2):
        log.begin(7)
        log.append_batch([Record(0, value=b"aborted")], producer_id=7)
        log.abort(7)
        log.roll()
    bucket = Bucket(log.segments())
    assert [segment.txn_index_empty for segment in bucket.metadata] == [True, False, False]
    with Session(Config.parse(snapshot_config(bucket.metadata)), bucket) as session:
        plans = plan_job(session, "topic", start="earliest", end="latest", partitions=None, isolation=COMMITTED)
        (part,) = tasks_of(plans, session.locator.end_is_inferred, task_bytes=1)[-1].parts
    assert not any(segment.txn_index_empty for segment in part.opened.timeline.segments)
    assert part.opened.tells_txn_index_from == 0
