"""Tasks read one by one: together they are the log, whatever it is and however it was shared out."""

from __future__ import annotations

import json
import pickle
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.local import LocalFetcher
from remote_fetch.config import Config
from remote_fetch.errors import OffsetOutOfRange, RemoteFetchError, SegmentNotFound, StorageDenied, Unlocatable
from remote_fetch.locate.listing import GAP_HINT
from remote_fetch.model import IsolationLevel, Uuid
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.prepare.completion import complete
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.strategies import logs, segment_options
from tests.scan.bucket import COMMITTED, UNCOMMITTED, plain_log, snapshot_config
from tests.scan.test_relocation import Refreshing, SignedBucket
from tests.searches import examples
from tests.spark.buckets import at, expected, planned, read, tier


@examples(60)
@given(logs(), segment_options(), st.sampled_from(IsolationLevel), st.sampled_from((1, 3, 9, 40)), st.data())
def test_tasks_are_the_log(
    log: LogBuilder, options: SegmentOptions, isolation: IsolationLevel, tasks: int, data: st.DataObject
) -> None:
    segments = log.tiered(options)
    if not segments:
        return
    first, stop = segments[0].metadata.start_offset, segments[-1].metadata.end_offset + 1
    if isolation is COMMITTED:
        stop = max(first, log.stable_offset_at(stop))
    begin = data.draw(st.integers(first, stop), label="begin")
    end = data.draw(st.integers(begin, stop), label="end")
    more = {
        "kafka.isolation.level": isolation.value,
        "minPartitions": str(tasks),
        "startingOffsets": at(begin),
        "endingOffsets": at(end),
    }
    if data.draw(st.booleans(), label="by offsets"):
        more["maxRecordsPerPartition"] = str(data.draw(st.integers(1, 9), label="records"))
    with tempfile.TemporaryDirectory() as directory:
        where = tier(Path(directory), segments)
        rows, report = read({**where, **more})
    assert rows == expected(log.expected(isolation, begin, end))
    assert (report.rereads, report.fallbacks) == ({}, {})


def spanning_log() -> LogBuilder:
    """Transactions of which one spans five segments and is aborted, and others that are committed beside it."""
    log = LogBuilder()
    log.begin(1)
    log.append_batch([Record(0, 0, b"a", b"aborted")], producer_id=1)
    for number in range(5):
        log.begin(2)
        log.append_batch([Record(n, n, b"c", b"committed %d" % number) for n in range(4)], producer_id=2)
        log.commit(2)
        log.append_batch([Record(0, 0, b"a", b"aborted")], producer_id=1)
        log.roll()
    log.abort(1)
    log.append_batch([Record(0, 0, b"p", b"plain")])
    log.roll()
    return log


@pytest.mark.parametrize("locator", ["snapshot", "listing"])
def test_a_marker_further_on_than_a_task_was_told(locator: str, tmp_path: Path) -> None:
    log = spanning_log()
    where = {**tier(tmp_path, log.segments()), "remote.locator": locator}
    rows, _ = read({**where, "minPartitions": "12", "kafka.isolation.level": "read_committed"})
    assert rows == expected(log.expected(COMMITTED, 0, log.next_offset))
    assert len(rows) == 21


def test_tasks_of_a_segment_with_a_gap_where_the_copy_of_another_leader_begins(tmp_path: Path) -> None:
    """A listing cannot tell the gap from a missing object: the one task that has it needs a broker, and says so."""
    log = plain_log(segments=1, batches=3)
    log.take_out(7)
    for _ in range(3):
        log.append_batch([Record(n, value=b"v" * 40) for n in range(5)])
    log.roll()
    (whole,) = log.segments(cuts=[0, log.next_offset])
    where = {**tier(tmp_path, [whole]), "remote.locator": "listing", "minPartitions": "6"}
    copy = replace(whole.metadata, start_offset=20, segment_id=replace(whole.metadata.segment_id, id=Uuid(bytes(16))))
    tier(tmp_path, [replace(log.segments(cuts=[22, log.next_offset])[0], metadata=copy)])
    plan = planned(where)
    assert len(plan.tasks) > 4
    rows: list[Any] = []
    errors: list[RemoteFetchError] = []
    for task in plan.tasks:
        try:
            rows += read(where, replace(plan, tasks=(task,)))[0]
        except RemoteFetchError as error:
            errors.append(error)
    assert [row[2] for row in rows] == [*range(15), *range(27, 37)]  # the task with the gap has 22 to 26 too
    (missing,) = errors
    assert isinstance(missing, Unlocatable)
    assert (missing.first, missing.last, missing.hint) == (15, 19, GAP_HINT)


@pytest.mark.parametrize("cut", ["1", "12"])
def test_where_a_bucket_ends_is_in_the_log_and_in_the_report(
    cut: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver logs where the bucket ends. The report has it from the events of the executors."""
    where = {**tier(tmp_path, plain_log(segments=3).segments()), "minPartitions": cut}
    says = "topic-0 is read up to offset 60 (exclusive), where the tier ends (not-tiered)"
    with caplog.at_level("INFO", "remote_fetch"):
        plan = planned(where)
    assert caplog.messages.count(says) == 1
    assert read(where, plan)[1].ends == {"topic-0": says}
    assert read({**where, "endingOffsets": at(59)})[1].ends == {}


def test_what_a_task_is_stays_small(tmp_path: Path) -> None:
    log = plain_log(segments=60, batches=1)
    where = tier(tmp_path, log.segments())
    plan = planned({**where, "minPartitions": "30", "kafka.isolation.level": "read_committed"})
    assert len(plan.tasks) == 30
    assert max(len(pickle.dumps(task)) for task in plan.tasks) < 4096
    known = [len(part.opened.timeline.segments) for task in plan.tasks for part in task.parts]
    assert max(known) <= 5


def test_planning_reads_no_object(tmp_path: Path) -> None:
    log = plain_log(segments=4)
    where = tier(tmp_path, log.segments())
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            path.write_bytes(b"")
    assert len(planned({**where, "minPartitions": "10"}).tasks) >= 10


def test_the_parts_of_a_task_are_made_ready_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs_ = [LogBuilder(partition=number) for number in range(2)]
    for log in logs_:
        for _ in range(4):
            log.append_batch([Record(n, n, b"k", b"v") for n in range(2)])
        log.roll()
    where = tier(tmp_path, [segment for log in logs_ for segment in log.segments()])
    plan = planned({**where, "startingOffsets": json.dumps({"topic": {"0": 3, "1": 5}})})
    assert [len(task.parts) for task in plan.tasks] == [2]
    two, fetch_index = threading.Barrier(2, timeout=60), LocalFetcher.fetch_index

    def meet(*asked: Any) -> Any:
        two.wait()
        return fetch_index(*asked)

    monkeypatch.setattr(LocalFetcher, "fetch_index", meet)
    rows, _ = read({**where, "fetch.remote.read.timeout.ms": "60000"}, plan)
    assert [row[1:3] for row in rows] == [*((0, offset) for offset in range(3, 8)), *((1, at) for at in range(5, 8))]


@pytest.mark.parametrize("is_cut", [True, False])
def test_an_object_that_is_gone_is_never_silence(is_cut: bool, tmp_path: Path) -> None:
    log = plain_log(segments=3)
    where = tier(tmp_path, log.segments())
    plan = planned({**where, "minPartitions": "12" if is_cut else "1"})
    assert is_cut == any(isinstance(s, SegmentSlice) and s.is_cut for task in plan.tasks for s in task.steps)
    gone = sorted(tmp_path.rglob("*.log"))[1]
    gone.unlink()
    with pytest.raises((SegmentNotFound, Unlocatable)) as caught:
        read(where, plan)
    assert caught.value.object_name is not None


@pytest.mark.parametrize("fails", [True, False])
def test_offsets_that_the_log_does_not_have(fails: bool, tmp_path: Path) -> None:
    log = plain_log(segments=3)
    first, *rest = log.segments()
    where = tier(tmp_path, rest)
    where |= {"startingOffsets": at(7), "endingOffsets": at(99)}
    if fails:
        with pytest.raises(OffsetOutOfRange, match=r"some data may have been missed.*'failOnDataLoss' to"):
            read(where)
        return
    rows, _ = read({**where, "failOnDataLoss": "false"})
    assert rows == expected(log.expected(UNCOMMITTED, first.metadata.end_offset + 1, 60))


@pytest.mark.parametrize("hears", [True, False])
@pytest.mark.parametrize("refusal", [StorageDenied, SegmentNotFound])
def test_a_location_that_expires_before_a_cut_is_looked_for(
    refusal: type[RemoteFetchError], hears: bool, tmp_path: Path
) -> None:
    """A signed URL may be too old when its task comes out of the queue: where the segment is now is asked for."""
    log = plain_log(segments=3)
    bucket = SignedBucket(log)
    bucket.refusal = refusal
    plan = planned({**tier(tmp_path, log.segments()), "minPartitions": "12"})
    parts = [part for task in plan.tasks for part in task.parts]
    assert any(isinstance(step, SegmentSlice) and step.is_cut for part in parts for step in part.steps)
    with Session(Config.parse(snapshot_config(bucket.metadata)), bucket) as session:
        session.locator = locator = Refreshing(bucket)
        locator.hears = hears
        offsets: list[int] = []
        for part in parts:
            steps = tuple(
                replace(step, segment=replace(step.segment, custom_metadata=b"location 0"))
                for step in part.steps
                if isinstance(step, SegmentSlice)
            )
            if not hears:
                with pytest.raises(refusal):
                    complete(session, part.opened, steps)
                return
            for slice_ in complete(session, part.opened, steps).steps:
                offsets += range(slice_.first_offset, slice_.last_offset + 1)
    assert offsets == list(range(log.next_offset))
