"""`verify` beside a broker that is a second bucket: what is changed, lost, shown or missing is found."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from remote_fetch import read_arrow
from remote_fetch.checks.verify import PartitionVerdict, choose, has_segments, verify
from remote_fetch.errors import ConfigError, ErrorKind, Unlocatable, UnsupportedFormat
from remote_fetch.failures.broker_errors import BrokerStalled
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import Notice
from remote_fetch.plan.ranges import BrokerRange, Reason
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.progress import Position
from remote_fetch.session.configured_locator import ConfiguredLocator
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.bucket import snapshot_config
from tools.fuzz_batches import reseal_log

if TYPE_CHECKING:
    from tests.cli.conftest import Run

PRODUCER = 7
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def built(*, lost: bool = False) -> list[BuiltSegment]:
    """Six segments of 20 records, of which the third ends in an aborted transaction. `lost`: record 85 is not there."""
    log = LogBuilder("orders")
    for segment in range(6):
        if segment == 2:
            log.append_batch([Record(0, 0, b"k", b"first")])
            log.begin(PRODUCER)
            log.append_batch([Record(at, at, b"k", b"hidden") for at in range(18)], producer_id=PRODUCER)
            log.abort(PRODUCER)
        else:
            records = [Record(at, at, b"k%d" % at, b"value %d" % at, (("h", b"x"),)) for at in range(20)]
            if lost and segment == 4:
                del records[5]
            log.append_batch(records, last_offset_delta=19)
        log.roll()
    return log.segments()


def write_topic(folder: Path, *, lost: bool = False) -> Path:
    """The topic as a broker tiers it."""
    write_kafka_local(folder, built(lost=lost))
    return folder


class OtherBucket:
    """Reads broker ranges out of a bucket. `shows`: the isolation level that it reads by, whichever it is asked for."""

    def __init__(self, folder: Path, shows: IsolationLevel | None = None) -> None:
        self._config = {"remote.storage.url": str(folder)}
        self._shows = shows
        self.asked: list[tuple[int, int]] = []

    def read(
        self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str], *, haste: int = 0
    ) -> Iterator[pa.RecordBatch]:
        self.asked.append((step.first_offset, step.last_offset))
        yield from read_arrow(
            "orders",
            start=step.first_offset,
            end=step.last_offset + 1,
            isolation=str(self._shows or isolation),
            columns=columns,
            config=self._config,
        )


class StalledBroker(OtherBucket):
    """A broker that cannot read the records from 60 to 79, and gives nothing from there on.

    It stalls behind record 40: a client passes over hidden records if it has heard of what follows them.
    """

    def read(
        self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str], *, haste: int = 0
    ) -> Iterator[pa.RecordBatch]:
        if step.first_offset <= 40:
            yield from super().read(replace(step, last_offset=min(step.last_offset, 40)), isolation, columns)
        if step.first_offset < 80 and step.last_offset > 40:
            raise BrokerStalled(KafkaError(KafkaError._TIMED_OUT, "the broker gave nothing from offset 60 on"))
        if step.first_offset >= 80:
            yield from super().read(step, isolation, columns)


Check = Callable[..., PartitionVerdict]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Verifies a folder beside the sound topic."""
    sound = write_topic(tmp_path / "sound")

    def run_check(
        folder: Path,
        isolation: IsolationLevel = COMMITTED,
        *,
        shows: IsolationLevel | None = None,
        metadata: Mapping[str, str] | None = None,
        **how: Any,
    ) -> PartitionVerdict:
        with Session.open({"remote.storage.url": str(folder), **(metadata or {})}) as session:
            plans = plan_job(session, "orders", start="earliest", end="latest", partitions=None, isolation=isolation)
            broker: Any = OtherBucket(sound, shows)
            session.fallback.reader = broker
            compared: list[None] = []
            (verdict,) = verify(session, choose(plans, **how), lambda: compared.append(None))
            assert len(compared) == verdict.steps
            if not how and not any(finding.text for finding in verdict.findings):
                assert broker.asked == [(0, 119)], "the broker is asked once for what is in one piece"
            return verdict

    return run_check


def segment_file(folder: Path, number: int) -> Path:
    return sorted(folder.rglob("*.log"))[number]


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_all_is_alike(check: Check, tmp_path: Path, isolation: IsolationLevel) -> None:
    verdict = check(tmp_path / "sound", isolation)
    assert (verdict.records, verdict.steps, verdict.left_out, verdict.findings) == (
        101 if isolation is COMMITTED else 119,
        6,
        {},
        (),
    )


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_one_changed_byte(check: Check, tmp_path: Path, isolation: IsolationLevel) -> None:
    """Its checksum is right, as if another program had written the object."""
    path = segment_file(shutil.copytree(tmp_path / "sound", tmp_path / "changed"), 3)
    path.write_bytes(reseal_log(path.read_bytes().replace(b"value 7", b"value X")))
    verdict = check(tmp_path / "changed", isolation)
    (finding,) = verdict.findings
    difference = finding.difference
    assert difference is not None
    assert difference.store is not None
    assert difference.broker is not None
    assert (difference.offset, difference.columns) == (67, ("value",))
    assert (difference.store["value"], difference.broker["value"]) == (b"value X", b"value 7")
    assert verdict.records == (101 if isolation is COMMITTED else 119) - 13  # the rest of the segment is passed over


def test_one_lost_record(check: Check, tmp_path: Path) -> None:
    verdict = check(write_topic(tmp_path / "lost", lost=True))
    (finding,) = verdict.findings
    difference = finding.difference
    assert difference is not None
    assert difference.store is None
    assert difference.broker is not None
    assert (difference.offset, difference.broker["value"]) == (85, b"value 5")
    assert not finding.is_aborted_shown


def test_a_broker_that_shows_aborted_records(check: Check, tmp_path: Path) -> None:
    verdict = check(tmp_path / "sound", COMMITTED, shows=UNCOMMITTED)
    (finding,) = verdict.findings
    assert finding.difference is not None
    assert (finding.difference.offset, finding.difference.store) == (41, None)
    assert finding.is_aborted_shown


def test_an_object_that_is_gone_or_damaged(check: Check, tmp_path: Path) -> None:
    folder = shutil.copytree(tmp_path / "sound", tmp_path / "gone")
    path = segment_file(folder, 1)
    path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    (finding,) = check(folder).findings
    assert (finding.difference, finding.step.first_offset) == (None, 20)
    assert finding.text.startswith("checksum mismatch")
    assert f"object {path.stem}" in finding.text


@pytest.mark.parametrize("fault", ["broker", "both", "hole"])
def test_a_broker_that_cannot_read_a_segment(tmp_path: Path, fault: str) -> None:
    """A broker mostly reads the same objects. The check goes on behind such a segment, and finds it alone."""
    sound, folder = write_topic(tmp_path / "sound"), write_topic(tmp_path / "gone")
    known = snapshot_config(
        [one.metadata for one in built() if fault != "hole" or one.metadata.start_offset != 60], tmp_path
    )
    if fault == "both":
        segment_file(folder, 3).unlink()
    with Session.open({"remote.storage.url": str(folder), **known}) as session:
        plans = plan_job(session, "orders", start="earliest", end="latest", partitions=None, isolation=COMMITTED)
        broker: Any = StalledBroker(sound)
        session.fallback.reader = broker
        (verdict,) = verify(session, choose(plans))
    (finding,) = verdict.findings
    assert (finding.step.first_offset, finding.difference, finding.is_of_broker) == (60, None, fault != "both")
    assert ("no such object" if fault == "both" else "gave nothing from offset 60") in finding.text
    assert verdict.records == 81
    assert broker.asked == [(0, 40), (80, 119)]


class SlowBroker(OtherBucket):
    """A broker that takes so many seconds to give the segment at each offset, and has a minute."""

    takes_s: Mapping[int, float] = {20: 99, 40: 31, 60: 15, 80: 60, 100: 61}

    def read(
        self, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str], *, haste: int = 0
    ) -> Iterator[pa.RecordBatch]:
        for first in range(step.first_offset, step.last_offset, 20):
            wait_s = 60 / 2**haste
            if self.takes_s.get(first, 0) > wait_s:
                text = f"the broker gave nothing for {wait_s:g} s"
                raise BrokerStalled(KafkaError(KafkaError._TIMED_OUT, text), was_hurried=wait_s < 60)
            haste = 0
            yield from super().read(replace(step, first_offset=first, last_offset=first + 19), isolation, columns)


def test_what_a_broker_does_not_give_within_a_short_wait_is_no_finding(tmp_path: Path) -> None:
    """It may be slow: a store behind it may be cold. As soon as it gives records, it has the whole time again."""
    folder = write_topic(tmp_path / "sound")
    with Session.open({"remote.storage.url": str(folder)}) as session:
        plans = plan_job(session, "orders", start="earliest", end="latest", partitions=None, isolation=UNCOMMITTED)
        broker: Any = SlowBroker(folder)
        session.fallback.reader = broker
        (verdict,) = verify(session, choose(plans))
    assert [(one.step.first_offset, one.text[-8:]) for one in verdict.findings] == [(20, "for 60 s"), (100, "for 60 s")]
    assert [(one.step.first_offset, one.text[-8:]) for one in verdict.unheard] == [(40, "for 30 s")]
    assert verdict.left_out == {"stalled": 20}
    assert verdict.records == 60


@pytest.mark.parametrize(("folder", "bad"), [("sound", 20), ("sound", 25), ("lost", 85), ("hidden", 40)])
def test_a_record_whose_headers_the_brokers_client_cannot_give(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, bad: int
) -> None:
    """Its segment is compared without headers, and those before and after it as usual. A difference is found."""
    read = OtherBucket.read

    def failing(
        self: OtherBucket, step: BrokerRange, isolation: IsolationLevel, columns: Sequence[str], **_: int
    ) -> Iterator[pa.RecordBatch]:
        if "headers" in columns and step.first_offset <= bad <= step.last_offset:
            if step.first_offset < bad:
                yield from read(self, replace(step, last_offset=bad - 1), isolation, columns)
            raise UnsupportedFormat("the client cannot give it")
        yield from read(self, step, isolation, columns)

    monkeypatch.setattr(OtherBucket, "read", failing)
    shows = UNCOMMITTED if folder == "hidden" else COMMITTED
    where = write_topic(tmp_path / "lost", lost=True) if folder == "lost" else tmp_path / "sound"
    verdict = check(where, shows=shows, share=0.999)
    (without_headers,) = verdict.without_headers
    assert (without_headers.step.first_offset, without_headers.text) == (bad // 20 * 20, "the client cannot give it")
    assert verdict.records == {"sound": 101, "lost": 86, "hidden": 101}[folder]
    found = [(one.difference and one.difference.offset, one.is_aborted_shown) for one in verdict.findings]
    assert found == {"sound": [], "lost": [(85, False)], "hidden": [(41, True)]}[folder]


def test_a_hole_has_what_the_broker_has_there(check: Check, tmp_path: Path) -> None:
    """The metadata lacks a segment, as after a lost record of its topic."""
    known = [one.metadata for one in built() if one.metadata.start_offset != 20]
    (finding,) = check(tmp_path / "sound", metadata=snapshot_config(known, tmp_path)).findings
    assert isinstance(finding.step, BrokerRange)
    assert finding.difference is not None
    assert (finding.difference.offset, finding.difference.store) == (20, None)


@pytest.mark.parametrize("more", [[], ["--sample", "0.5"]])
def test_a_partition_that_cannot_be_opened(
    run: Run, beside: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    """Its newest producer snapshot is lost. A reader leaves the whole partition to the broker; a check must not."""

    def plans_of(_arguments: object, session: Session) -> tuple[PartitionPlan, ...]:
        planner = Planner(session, COMMITTED)
        return planner.open(session.locator.partitions("orders"), lambda opened: planner.plan(opened, 0, 120))

    monkeypatch.setattr("remote_fetch.cli.verify.plans_from", plans_of)
    beside()
    folder = shutil.copytree(tmp_path / "sound", tmp_path / "lost")
    max(folder.rglob("*.snapshot")).unlink()
    outcome = run("verify", "-t", "orders", "--url", str(folder), *more)
    assert outcome.code == 3
    assert outcome.lines[0] == (
        "orders-0: 0 records alike, DIFFERENT in 1 of 1 segment; offsets not compared: 120 unlocatable"
    )
    told = "orders-0: the store does not give what it should in offsets 0 to 119: the segment has no producer snapshot"
    assert outcome.lines[1].startswith(told)


def test_a_store_without_any_log_has_no_segments(tmp_path: Path) -> None:
    """So that a wrong URL is an error of its own, and not a finding in each partition."""
    metadata = snapshot_config([one.metadata for one in built()], tmp_path)

    def is_there(folder: Path) -> bool:
        with Session.open({"remote.storage.url": str(folder), **metadata}) as session:
            session.fallback.reader = OtherBucket(folder)  # type: ignore[assignment]
            planner = Planner(session, COMMITTED)
            plans = planner.open(session.locator.partitions("orders"), lambda opened: planner.plan(opened, 0, 120))
            choices = choose(plans)
            assert (choices[0].steps, len(choices[0].unread)) == ([], 1)
            return has_segments(session, choices)

    folder = write_topic(tmp_path / "tier")
    max(folder.rglob("*.snapshot")).unlink()
    assert is_there(folder)
    segment_file(folder, 0).unlink()
    assert is_there(folder)
    segment_file(folder, -1).unlink()
    assert not is_there(folder)


def test_the_reasons_that_are_no_findings(check: Check, tmp_path: Path) -> None:
    with Session.open({"remote.storage.url": str(tmp_path / "sound")}) as session:
        (plan,) = plan_job(session, "orders", start=0, end=1, partitions=None, isolation=UNCOMMITTED)
    reasons = [*Reason, ErrorKind.NOT_CONFIGURED, ErrorKind.UNLOCATABLE, ErrorKind.UNAVAILABLE]
    steps = [BrokerRange(plan.opened.partition, at, at, reason) for at, reason in enumerate(reasons)]
    (choice,) = choose([replace(plan, steps=tuple(steps))])
    assert [step.reason for step in choice.unread] == [ErrorKind.UNLOCATABLE, ErrorKind.UNAVAILABLE]
    assert set(choice.left_out) == set(reasons) - {Reason.HOLE}


@pytest.mark.scheduled
@pytest.mark.slow
def test_one_of_a_million(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed byte, a lost record and an aborted record that is shown, each among a million records."""

    def million(folder: Path, *, changed: int = -1, lost: int = -1, hides: int = -1) -> Path:
        log = LogBuilder("orders")
        for first in range(0, 1_000_000, 10_000):
            records = []
            for at in range(10_000):
                if first + at != lost:
                    value = b"value %d" % (first + at)
                    records.append(Record(at, at, b"k", value if first + at != changed else value[:-1] + b"X"))
            is_hidden = first <= hides < first + 10_000
            if is_hidden:
                log.begin(PRODUCER)
            log.append_batch(records, last_offset_delta=9_999, producer_id=PRODUCER if is_hidden else -1)
            if is_hidden:
                log.abort(PRODUCER)
            if first % 100_000 == 90_000:
                log.roll()
        write_kafka_local(folder, log.segments())
        return folder

    def found(folder: Path, broker: OtherBucket) -> PartitionVerdict:
        with Session.open({"remote.storage.url": str(folder)}) as session:
            plans = plan_job(session, "orders", start="earliest", end="latest", partitions=None, isolation=COMMITTED)
            monkeypatch.setattr(session.fallback, "reader", broker)
            (verdict,) = verify(session, choose(plans))
            return verdict

    sound = million(tmp_path / "sound")
    assert found(sound, OtherBucket(sound)).records == 1_000_000
    for name, place in (("changed", 123_456), ("lost", 987_654)):
        verdict = found(million(tmp_path / name, **{name: place}), OtherBucket(sound))
        assert [one.difference and one.difference.offset for one in verdict.findings] == [place]
    hidden = million(tmp_path / "hidden", hides=500_000)
    verdict = found(hidden, OtherBucket(hidden, UNCOMMITTED))
    (finding,) = verdict.findings
    assert finding.difference is not None
    assert (finding.difference.offset, finding.is_aborted_shown) == (500_000, True)


def test_a_broker_that_shows_another_record(check: Check, tmp_path: Path) -> None:
    """The store has an aborted record at that offset, and it is not the one that the broker shows."""
    folder = shutil.copytree(tmp_path / "sound", tmp_path / "changed")
    path = segment_file(folder, 2)
    path.write_bytes(reseal_log(path.read_bytes().replace(b"hidden", b"Hidden", 1)))
    (finding,) = check(folder, COMMITTED, shows=UNCOMMITTED).findings
    assert finding.difference is not None
    assert (finding.difference.offset, finding.is_aborted_shown) == (41, False)


def test_a_sample(check: Check, tmp_path: Path) -> None:
    verdict = check(tmp_path / "sound", share=0.34, dice=random.Random(3))
    assert verdict.steps == 2
    assert sum(verdict.left_out.values()) == 80
    assert set(verdict.left_out) == {"not sampled"}


def test_there_has_to_be_a_broker(run: Run, tmp_path: Path) -> None:
    outcome = run("verify", "-t", "orders", "--url", str(write_topic(tmp_path / "tier")))
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "set bootstrap.servers (-b)" in outcome.stderr
    with (
        Session.open({"remote.storage.url": str(tmp_path / "tier")}) as session,
        pytest.raises(ConfigError, match="-b"),
    ):
        list(verify(session, ()))
    assert run("verify", "-t", "orders", "--url", "x", "--sample", "2").code == 1


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives the sessions of commands the sound topic as their broker."""
    sound = write_topic(tmp_path / "sound")

    def set_broker(shows: IsolationLevel | None = None, kind: type[OtherBucket] = OtherBucket) -> None:
        opened = Session.open

        def with_broker(*arguments: Any, **how: Any) -> Session:
            session = opened(*arguments, **how)
            if session.fallback.reader is None:
                broker: Any = kind(sound, shows)
                session.fallback.reader = broker
            return session

        monkeypatch.setattr("remote_fetch.cli.verify.Session.open", with_broker)

    return set_broker


def test_the_command(run: Run, beside: Callable[..., None], tmp_path: Path) -> None:
    folder = shutil.copytree(tmp_path / "sound", tmp_path / "changed")
    path = segment_file(folder, 3)
    path.write_bytes(reseal_log(path.read_bytes().replace(b"value 7", b"value X")))
    beside()
    alike = run("verify", "-t", "orders", "--url", str(tmp_path / "sound"), "--time")
    assert alike.code == 0
    assert alike.lines[-1] == "orders-0: 101 records alike, 6 segments"
    assert [line.split(":")[0] for line in alike.lines[:3:2]] == ["store", "broker"]
    assert " 101 records in " in alike.lines[2]
    outcome = run("verify", "-t", "orders", "--url", str(folder))
    assert outcome.code == 3
    assert outcome.lines[0] == "orders-0: 88 records alike, DIFFERENT in 1 of 6 segments"
    assert outcome.lines[1].startswith("orders-0, offset 67, in segment 00000000000000000060-")
    assert outcome.lines[1].endswith(": value differ")
    assert outcome.lines[2:] == ["  store:  value=b'value X'", "  broker: value=b'value 7'"]
    (line,) = run("verify", "-t", "orders", "--url", str(folder), "-J", "-q").lines
    found: dict[str, Any] = json.loads(line)
    assert (found["records"], found["findings"][0]["offset"], found["findings"][0]["columns"]) == (88, 67, ["value"])


@pytest.mark.parametrize("fault", ["store", "broker"])
def test_a_rate_that_cannot_be_had(run: Run, beside: Callable[..., None], tmp_path: Path, fault: str) -> None:
    """The comparison goes on, and finds what ended the reading."""
    folder = shutil.copytree(tmp_path / "sound", tmp_path / "other")
    beside(kind=StalledBroker if fault == "broker" else OtherBucket)
    if fault == "store":
        path = segment_file(folder, 3)
        path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    outcome = run("verify", "-t", "orders", "--url", str(folder), "--time")
    assert outcome.code == 3
    text = {"store": "store: no rate: checksum mismatch", "broker": "broker: no rate: the broker gave nothing"}[fault]
    assert [line.startswith(text) for line in outcome.lines].count(True) == 1
    assert f"the {fault} does not give what it should in segment 00000000000000000060-" in outcome.lines[-1]


def test_the_lines_about_a_broker_that_stalls(run: Run, beside: Callable[..., None], tmp_path: Path) -> None:
    beside(kind=SlowBroker)
    words = ("verify", "-t", "orders", "-q", "--isolation", "read_uncommitted", "--url", str(tmp_path / "sound"))
    outcome = run(*words)
    assert outcome.code == 3
    assert outcome.lines[0].endswith(" DIFFERENT in 2 of 6 segments; offsets not compared: 20 stalled")
    assert outcome.lines[-1].startswith("orders-0: not compared, in segment 00000000000000000040-")
    assert outcome.lines[-1].endswith(": the broker gave nothing for 30 s")
    found = json.loads("".join(run(*words, "-J").lines))
    assert [each["first_offset"] for each in found["findings"]] == [20, 100]
    assert [(each["first_offset"], each["error"][-4:]) for each in found["unheard"]] == [(40, "30 s")]


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ([], "(the range is empty). remote-fetch bounds shows"),
        ([Reason.NOT_TIERED], "(20 not-tiered). remote-fetch bounds shows"),
        ([Reason.LOCAL, Reason.UNSTABLE], "(20 local, 20 unstable). The brokers have them on their disks"),
        ([ErrorKind.NOT_CONFIGURED, Reason.LOCAL], "the store has no segment of 'orders' in the wanted offsets. Check"),
    ],
)
def test_to_compare_nothing_is_no_success(
    run: Run,
    beside: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reasons: list[str],
    said: str,
) -> None:
    """A mistyped URL must not stay green in a nightly check. It is not blamed for offsets that no URL gives."""

    def plans_of(_arguments: object, session: Session) -> tuple[PartitionPlan, ...]:
        (plan,) = plan_job(session, "orders", start=0, end=40, partitions=None, isolation=UNCOMMITTED)
        steps = [BrokerRange(plan.opened.partition, 20 * at, 20 * at + 19, reason) for at, reason in enumerate(reasons)]
        return (replace(plan, steps=tuple(steps)),)

    monkeypatch.setattr("remote_fetch.cli.verify.plans_from", plans_of)
    beside()
    outcome = run("verify", "-t", "orders", "-q", "--url", str(tmp_path / "sound"))
    assert outcome.code == 1
    assert "nothing was compared: " in outcome.stderr
    assert said in outcome.stderr


def test_a_sample_tells_its_share(
    run: Run, beside: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share is that of the chosen segments: it ends at all of them, wherever in the topic they are."""
    shown: list[Position] = []
    monkeypatch.setattr("remote_fetch.cli.progress.Progress.at", lambda _, position: shown.append(position))
    beside()
    assert run("verify", "-t", "orders", "--url", str(tmp_path / "sound"), "--sample", "0.5").code == 0
    assert shown == [Position("segments compared", number, 3) for number in (1, 2, 3)]


def test_a_comparison_that_ctrl_c_ends_has_a_report(
    run: Run, beside: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Iterator[PartitionVerdict]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("remote_fetch.cli.verify.verify", interrupted)
    beside()
    outcome = run("verify", "-t", "orders", "--url", str(tmp_path / "sound"), "--sample", "0.5", "--seed", "7")
    assert (outcome.code, outcome.stdout) == (130, b"")
    assert outcome.stderr.startswith("% chosen with --seed 7\n% 0 records in ")


@pytest.mark.parametrize("share", ["0.5", "1"])
def test_a_wait_is_told_also_in_a_sample(
    run: Run, beside: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    beside()
    opened = Session.open

    def waits(config: Any, observer: Any) -> Session:
        session = opened(config, observer)
        observer(Notice("the broker gives nothing", is_warning=True, is_wait=True))
        return session

    monkeypatch.setattr("remote_fetch.cli.verify.Session.open", waits)
    outcome = run("verify", "-t", "orders", "--url", str(tmp_path / "sound"), "--sample", share)
    assert "% the broker gives nothing\n" in outcome.stderr


def test_the_command_names_the_brokers_fault(run: Run, beside: Callable[..., None], tmp_path: Path) -> None:
    beside(UNCOMMITTED)
    outcome = run("verify", "-t", "orders", "--url", str(tmp_path / "sound"), "-q")
    assert (outcome.code, outcome.stderr) == (3, "")
    assert "only the broker has the record" in outcome.lines[1]
    assert "KAFKA-17801" in outcome.lines[-1]


def test_the_locators_error_is_the_reason_that_nothing_is_compared(
    run: Run, beside: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no partition differs."""

    def plans_of(_arguments: object, session: Session) -> tuple[PartitionPlan, ...]:
        planner = Planner(session, COMMITTED)
        return planner.open(session.locator.partitions("orders"), lambda opened: planner.plan(opened, 0, 120))

    def unlocated(_located_by: ConfiguredLocator) -> None:
        raise Unlocatable("there is no topic of metadata")

    monkeypatch.setattr("remote_fetch.cli.verify.plans_from", plans_of)
    monkeypatch.setattr(ConfiguredLocator, "check", unlocated)
    beside()
    max((tmp_path / "sound").rglob("*.snapshot")).unlink()  # so that nothing of the partition can be compared
    outcome = run("verify", "-t", "orders", "-q", "--url", str(tmp_path / "sound"))
    assert (outcome.code, outcome.stderr) == (1, "remote-fetch: there is no topic of metadata\n")
    assert outcome.lines == []
