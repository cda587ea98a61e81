"""Jobs that were killed, and whose objects were deleted or replaced before they are resumed."""

from __future__ import annotations

import base64
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from remote_fetch import export_topic
from remote_fetch.config import Config
from remote_fetch.errors import CorruptSegment, ErrorKind, OffsetOutOfRange, TopicRecreated, Unlocatable
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, LeaderEpoch, LogBounds, Uuid
from remote_fetch.observe import Observer
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.prepare.view import untiered
from remote_fetch.session.configured_locator import Planned
from remote_fetch.session.session import Session
from remote_fetch.tables import export_job
from remote_fetch.tables.export_job import TableForm, _spec
from remote_fetch.tables.export_plan import ExportBounds, plan_export
from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.report import TableReport
from remote_fetch.tables.saved_tasks import _has_parted, _is_outdated
from remote_fetch.tables.tasks import Task
from remote_fetch.tables.write_task import TaskWriter
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.stores import write_kafka_local
from tests.stores.stand_in import Broker, give_broker
from tests.tables.tables import COLUMNS, FORMATS, Topic, export, held, same, target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=[*FORMATS, "parquet"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A target of each format that is not there yet."""
    if request.param == "parquet":
        return {"format": "parquet", "to": str(tmp_path / "out")}
    return target(request.param, tmp_path / "lake")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """A topic that makes three tasks. The first one reads partition 0, and the others partition 1 too."""
    return Topic(tmp_path / "tier").grow(4)


def dying(dies: Callable[[pa.RecordBatch], bool]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A transform that ends the process at a batch."""

    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        if dies(batch):
            raise KeyboardInterrupt
        return batch

    return transform


def killed_in_partition_1(topic: Topic, where: dict[str, Any]) -> None:
    """An export that ends behind its first task."""
    with pytest.raises(KeyboardInterrupt):
        export(topic, where, transform=dying(lambda batch: 1 in batch.column("partition").to_pylist()))


def delete(topic: Topic, partition: int, below: int) -> None:
    """Delete the segments of a partition that begin before an offset, as retention does it."""
    for path in topic.directory.rglob("*"):
        if path.is_file() and f"-{partition}-" in path.parent.name and int(path.name[:20]) < below:
            path.unlink()


def rows_of(where: dict[str, Any]) -> pa.Table:
    """The rows of a target, in order."""
    if where["format"] != "parquet":
        return held(where)
    order: Any = [("partition", "ascending"), ("offset", "ascending")]
    found: pa.Table = pads.dataset(where["to"]).to_table(columns=COLUMNS)
    return found.sort_by(order).combine_chunks()


def test_what_was_deleted_is_lost_if_that_may_pass(where: dict[str, Any], topic: Topic) -> None:
    killed_in_partition_1(topic, where)
    delete(topic, 1, 10)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match=r"topic-1: offsets 0 to 9 were deleted before .*--allow-lost"):
            export(topic, where)
    done = export(topic, where, allow_lost=True)
    assert (done.ranges, done.rows, done.tasks_run) == ({0: (0, 40), 1: (10, 40)}, 70, done.tasks)
    assert export(topic, where).tasks_run == 0


def test_a_partition_without_any_object(where: dict[str, Any], topic: Topic) -> None:
    """A bucket alone does not show it any more: its offsets are lost, and the topic is the same."""
    killed_in_partition_1(topic, where)
    delete(topic, 1, 40)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match=r"topic-1: offsets 0 to 39 were deleted before .*--allow-lost"):
            export(topic, where)
    done = export(topic, where, allow_lost=True)
    assert (done.ranges, done.rows) == ({0: (0, 40)}, 40)
    assert export(topic, where).tasks_run == 0


def test_a_topic_that_was_created_again(where: dict[str, Any], topic: Topic) -> None:
    killed_in_partition_1(topic, where)
    for partition in (0, 1):
        delete(topic, partition, 40)
    with pytest.raises(TopicRecreated, match=r"of the id .*created again.* remove .*"):
        export(Topic(topic.directory, Uuid(b"another topic id")).grow(), where)


def test_what_a_finished_task_has_read_may_be_deleted(where: dict[str, Any], topic: Topic) -> None:
    killed_in_partition_1(topic, where)
    delete(topic, 0, 30)
    done = export(topic, where)
    assert (done.ranges, done.rows, done.tasks_run) == ({0: (0, 40), 1: (0, 40)}, 80, 2)


def test_a_finished_task_without_its_files_is_not_finished(where: dict[str, Any], topic: Topic, tmp_path: Path) -> None:
    """Housekeeping of a table removes files that no version has. Then the task has to be run, and cannot be."""
    killed_in_partition_1(topic, where)
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    delete(topic, 0, 10)
    assert export(topic, where, allow_lost=True).ranges == {0: (10, 40), 1: (0, 40)}
    assert same(rows_of(where), topic.rows())


def test_a_task_of_the_plan_before(where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of Spark outlives its driver. Its task ends when the job has another plan with tasks of its own."""
    left: list[Callable[[], TaskRecord]] = []

    def dies(observer: Observer, writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]) -> Any:
        yield writer.run(0, tasks[0], observer)
        left.append(lambda: writer.run(2, tasks[2], observer))
        raise KeyboardInterrupt

    def goes_on(observer: Observer, writer: TaskWriter, tasks: Sequence[Task], numbers: Sequence[int]) -> Any:
        for number in numbers:
            if number == 2:
                left[0]()
            yield writer.run(number, tasks[number], observer)

    monkeypatch.setattr(export_job, "_run_here", dies)
    with pytest.raises(KeyboardInterrupt):
        export(topic, where)
    delete(topic, 1, 10)
    monkeypatch.setattr(export_job, "_run_here", goes_on)
    assert export(topic, where, allow_lost=True).rows == 70
    assert same(rows_of(where), topic.rows())


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_segment_that_was_cut(where: dict[str, Any], tmp_path: Path, is_replaced: bool) -> None:
    """Its parts are those of one object. If there is another one, it is planned again."""
    dice, log = random.Random(1), LogBuilder()
    for _ in range(100):
        log.append_batch([Record(delta, 0, b"k", dice.randbytes(200)) for delta in range(5)])
    log.roll()
    write_kafka_local(tmp_path, log.segments())
    how: dict[str, Any] = {"config": {"remote.storage.url": str(tmp_path)}, "row_group_bytes": 3000, **where}
    with pytest.raises(KeyboardInterrupt):
        export_topic("topic", file_bytes=8000, transform=dying(lambda b: 400 in b.column("offset").to_pylist()), **how)
    if is_replaced:
        other = base64.urlsafe_b64encode(b"another segment!").decode().rstrip("=")
        for path in list(tmp_path.rglob("00000000000000000000-*")):  # uploaded by another leader
            path.rename(path.with_name(path.name[:21] + other + path.name[43:]))
    done = export_topic("topic", file_bytes=8000, **how)
    assert (done.rows, done.tasks_run == done.tasks) == (500, is_replaced)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_whole_segments_that_were_replaced(tmp_path: Path, isolation: str) -> None:
    """Their snapshots and transaction indexes are replaced too. Without these, read_committed has to plan again."""
    log = LogBuilder()
    for number in range(3):
        log.begin(7)
        log.append_batch([Record(delta, 0, b"k", b"%d" % number) for delta in range(5)], producer_id=7)
        (log.abort if number == 1 else log.commit)(7)
        log.roll()
    tier = tmp_path / "tier"
    write_kafka_local(tier, log.segments())
    how: dict[str, Any] = {"config": {"remote.storage.url": str(tier)}, "to": tmp_path / "out", "isolation": isolation}
    with pytest.raises(KeyboardInterrupt):
        export_topic("topic", file_bytes=60, transform=dying(lambda b: 12 in b.column("offset").to_pylist()), **how)
    shutil.rmtree(tier)
    write_kafka_local(tier, log.segments(SegmentOptions(upload=1)))
    done = export_topic("topic", file_bytes=60, **how)
    assert (done.rows, done.tasks) == (10 if isolation == "read_committed" else 15, 3)
    assert (done.tasks_run == done.tasks) == (isolation == "read_committed")


def killed_beside_a_broker(tier: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], TableReport]:
    """An export to the end of a broker's log that is killed behind offset 29. Returns the same call again.

    The broker's log gets other records from offset 20 on.
    """

    def made(value: bytes) -> LogBuilder:
        log = LogBuilder()
        for number in range(4):
            log.append_batch([Record(one, 0, b"k", b"same" if number < 2 else value) for one in range(10)])
            log.roll()
        return log

    open_session, logs = Session.open, [made(b"lost"), made(b"new")]

    def opened(*given: Any, **named: Any) -> Session:
        session = open_session(*given, **named)
        give_broker(session, logs[0])
        return session

    monkeypatch.setattr(Session, "open", opened)
    write_kafka_local(tier, logs[0].segments())
    config = {"remote.storage.url": str(tier), "fetch.remote.when": "always"}
    how: dict[str, Any] = {"to": str(tier.parent / "out"), "config": config, "end": "latest", "file_bytes": 60}
    how["columns"] = ["offset", "value"]
    with pytest.raises(KeyboardInterrupt):
        export_topic("topic", transform=dying(lambda batch: 30 in batch.column("offset").to_pylist()), **how)
    logs.pop(0)
    return lambda: export_topic("topic", **how)


def test_a_log_that_was_cut_off_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished tasks have records that an unclean leader election has cut off. A new plan reads what the log has."""
    again = killed_beside_a_broker(tmp_path / "tier", monkeypatch)
    monkeypatch.setattr(Broker, "still_holds", lambda *_: False)
    done = again()
    assert (done.rows, done.tasks_run, dict(done.cost.fallbacks)) == (40, done.tasks, {ErrorKind.TRUNCATED: 1})
    values = pads.dataset(tmp_path / "out").to_table().sort_by("offset").column("value").to_pylist()
    assert values == [b"same"] * 20 + [b"new"] * 20


def test_a_partition_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its leader epochs nothing tells that its slices are still of the log."""
    again = killed_beside_a_broker(tmp_path / "tier", monkeypatch)
    whole = {path: path.read_bytes() for path in (tmp_path / "tier").rglob("*.leader_epoch_checkpoint")}
    for path in whole:
        path.write_bytes(b"damaged")
    with pytest.raises(CorruptSegment, match=r"If that lasts, remove .*/_out\."):
        again()
    for path, data in whole.items():
        path.write_bytes(data)
    done = again()
    assert (done.rows, done.tasks_run < done.tasks) == (40, True)


def without_segments(patch: pytest.MonkeyPatch, change: Callable[[Session], None]) -> None:
    """From now on a session locates no segment, and `change` tells it why."""
    open_session = Session.open

    def opened(*given: Any, **named: Any) -> Session:
        session = open_session(*given, **named)
        change(session)
        session.locator = KnownTimelines([Timeline(LogBuilder().topic_id_partition, (), ())])
        return session

    patch.setattr(Session, "open", opened)


def test_segments_that_cannot_be_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeline without segments has no leader epochs. The slices of the saved plan would be of any log."""
    again = killed_beside_a_broker(tmp_path / "tier", monkeypatch)
    with monkeypatch.context() as patch:
        without_segments(patch, lambda session: session.configured_locator.cannot_locate("the service is away"))
        with pytest.raises(Unlocatable, match=r"located: the service is away\. If that lasts, remove .*/_out\."):
            again()
    done = again()
    assert (done.rows, done.tasks_run < done.tasks) == (40, True)


def test_a_store_that_is_not_configured_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers give what is left."""
    again = killed_beside_a_broker(tmp_path / "tier", monkeypatch)
    without_segments(
        monkeypatch, lambda session: setattr(session.configured_locator, "unlocated", ErrorKind.NOT_CONFIGURED)
    )
    done = again()
    assert (done.rows, done.tasks_run < done.tasks) == (40, True)


def test_a_segment_of_a_log_that_was_cut_off() -> None:
    """A new leader has uploaded segments of its own: the tier can be opened, and its lineage lacks the old ones."""
    log = LogBuilder()
    log.append_batch([Record(one, 0, b"k", b"v") for one in range(10)])
    log.roll()
    segment = replace(log.segments()[0].metadata, segment_leader_epochs=(LeaderEpoch(0, 0),))
    step = SegmentSlice(segment, 0, 9)
    opened = untiered(segment.topic_id_partition, IsolationLevel.READ_UNCOMMITTED, LogBounds(0, 10))
    logs = [Lineage((LeaderEpoch(0, 0), LeaderEpoch(1, cut)), 20) for cut in (10, 5)]
    assert [_has_parted(replace(opened, lineage=one), step) for one in logs] == [False, True]
    reads = BrokerRange(segment.topic_id_partition, 0, 9, "not tiered")
    assert not _has_parted(replace(opened, unread=reads), reads)
    shorter = [replace(opened, log=LogBounds(0, 9)), replace(opened, log=LogBounds())]
    assert [[_has_parted(one, each) for each in (step, reads)] for one in shorter] == [[True, True], [False, False]]


def test_a_task_of_a_job_passes_over_no_cut(topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target counts the offsets up to the planned end. Records that come there later would never be exported."""
    open_session, cut = Session.open, []

    def opened(*given: Any, planned: Planned | None = None) -> Session:
        cut.append(planned is not None and not planned.may_be_cut)
        return open_session(*given, planned=planned)

    monkeypatch.setattr(Session, "open", opened)
    done = export(topic, {"format": "parquet", "to": str(tmp_path / "out")}, allow_lost=True)
    assert cut == [False, *[True] * done.tasks]


def test_with_a_broker_the_task_decides(topic: Topic) -> None:
    """A broker tells that offsets were deleted. Outdated is a slice that was cut, and whose offsets are there."""
    level = IsolationLevel.READ_UNCOMMITTED
    bounds = ExportBounds("topic", "earliest", "tier", [0], level, None, False, 1 << 20, topic.config)
    part = plan_export(bounds, None).tasks[0].parts[0]
    opened, step = replace(part.opened, start_offset=5), part.steps[0]
    assert isinstance(step, SegmentSlice)

    def outdated(step: PlanStep, has_broker: bool) -> bool:
        return _is_outdated(opened, step, has_broker)

    cut, gone = replace(step, is_cut=True), replace(step, is_cut=True, last_offset=4)
    assert [outdated(one, True) for one in (step, cut, gone)] == [False, True, False]
    assert [outdated(one, False) for one in (step, cut, gone)] == [True, True, True]


def test_what_was_deleted_during_a_task_may_pass_as_in_a_plan(tmp_path: Path) -> None:
    """`allow_lost` alone tells whether it may, and not the configuration."""
    given = {"auto.offset.reset": "earliest"}
    for theirs in (given, {"default.topic.config": given}):
        config = {"remote.storage.url": str(tmp_path), **theirs}
        bounds = ExportBounds("topic", "earliest", "tier", [0], IsolationLevel.READ_COMMITTED, None, False, 1, config)
        form = TableForm(None, None, (), "zstd", 1, 1)
        read_by = [Config.parse(_spec(replace(bounds, may_lose=may), form, print).config) for may in (True, False)]
        assert [one.librdkafka["auto.offset.reset"] for one in read_by] == ["earliest", "error"]
