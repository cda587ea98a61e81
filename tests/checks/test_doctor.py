"""`doctor` without brokers: what it finds of a store alone, its lines, its exit code, its secrets.

Rules of the file:

- The tiers are a small one of this project's writer, and those that Aiven's plug-in wrote.
- With brokers it is tried in tests/rig/test_doctor.py.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from remote_fetch.checks import storage_checks
from remote_fetch.checks.check import State
from remote_fetch.checks.doctor import Doctor
from remote_fetch.checks.holes import holes_check
from remote_fetch.config import Config
from remote_fetch.errors import ErrorKind, Unlocatable
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.unreadable import Unreadable, denied
from remote_fetch.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.session.brokers import make_cluster
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import kafka_local_files, write_kafka_local
from tests.cli.conftest import bucket
from tests.scan.bucket import Bucket, plain_log, snapshot_config
from tests.stores.range_server import RangeServer

if TYPE_CHECKING:
    from remote_fetch.session.session import Session
    from tests.cli.conftest import Outcome, Run

__all__ = ["bucket"]

AIVEN = Path(__file__).parents[1] / "golden" / "aiven" / "aiven-zstd"
PREFIX = "remote.storage.layout.key.prefix"
SETUP_TIMEOUT = "socket.connection.setup.timeout.ms"
GRANT = "kafka-acls.sh --bootstrap-server other:9092 --add --allow-principal User:alice "


def states(outcome: Outcome) -> list[str]:
    """The states and names of the checks, in order."""
    lines = outcome.lines[: outcome.lines.index("")]
    return [" ".join(line.partition(":")[0].split()) for line in lines if not line.startswith(" ")]


def test_a_tier_of_this_machine(run: Run, bucket: str) -> None:
    outcome = run("doctor", "--url", bucket, "-t", "shop", "-X", "remote.storage.options.auto_mkdir=s3cret")
    assert outcome.code == 0
    assert states(outcome) == [
        "skipped brokers", "ok fetcher", "ok list", "ok segment", "ok index", "advice batches",
    ]  # fmt: skip
    gain = next(line for line in outcome.lines if line.startswith("shop: "))
    assert gain.endswith(", segments: 4, partitions: 2")
    assert outcome.lines[-4:] == [
        "configuration of read_arrow, RemoteConsumer and Spark, and of -F FILE:",
        "  remote.storage.options.auto_mkdir=***",
        f"  remote.storage.url={bucket}",
        "  fetch.remote.enabled=true",
    ]


def test_offsets_that_no_segment_has(run: Run, tmp_path: Path) -> None:
    """The check has the words of a read without brokers. A snapshot tells where segments end."""
    log = LogBuilder("shop", Uuid(bytes(range(16))), 0)
    for _ in range(3):
        log.append_batch([Record(delta, delta, b"k", b"v", ()) for delta in range(10)])
        log.roll()
    first, _, third = log.segments()
    write_kafka_local(tmp_path, [first, third])
    configs = {"remote.storage.url": str(tmp_path), **snapshot_config([first.metadata, third.metadata], tmp_path)}
    words = [word for name, value in configs.items() for word in ("-X", f"{name}={value}")]
    outcome = run("doctor", "-t", "shop", *words)
    assert outcome.code == 1
    assert "FAILED offsets" in states(outcome)
    assert (
        "offsets 10 to 19 cannot be read from the bucket alone (hole: no segment has them)" in outcome.stdout.decode()
    )


def test_a_segment_without_its_log_is_not_the_first_listed() -> None:
    class Listing(Bucket):
        def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
            first, *rest = super().list_segments(topic)
            yield from (replace(first, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED), *rest)

    bucket = Listing(plain_log().segments())
    found = storage_checks.listed(Config.parse({}), bucket, "topic", has_broker=False)
    assert found.check.text == "the first listed is topic-0, offset 20"
    assert found.segment is not None
    assert found.segment.start_offset == 20


@pytest.mark.parametrize("command", [("doctor",), ("config", "check")])
def test_a_saved_timeline_needs_no_listing(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    """HTTP cannot list. The file tells the segments, and a topic that it lacks fails."""
    log = LogBuilder("shop", Uuid(bytes(range(16))), 0)
    log.append_batch([Record(0, 0, b"k", b"v", ())])
    log.roll()
    (segment,) = log.segments()
    with RangeServer(files=dict(kafka_local_files(segment))) as server:
        configs = {"remote.storage.url": server.url, **snapshot_config([segment.metadata], tmp_path)}
        words = [*command, *(word for name, value in configs.items() for word in ("-X", f"{name}={value}"))]
        outcome = run(*words, "-t", "shop")
        assert outcome.code == 0, outcome.stdout
        said = states(outcome) if command == ("doctor",) else [" ".join(line.split()) for line in outcome.lines]
        for start in ("skipped list", "ok metadata", "ok segment", "ok index"):
            assert any(line.startswith(start) for line in said), (start, said)
        assert run(*words, "-t", "absent").code == 1


def test_with_brokers_a_hole_is_advice() -> None:
    def tier(*reasons: str) -> Any:
        partition = TopicIdPartition(Uuid(bytes(16)), "shop", 4)
        steps = [BrokerRange(partition, 10 * at, 10 * at + 9, reason) for at, reason in enumerate(reasons)]
        return SimpleNamespace(plans=[SimpleNamespace(steps=steps)])

    assert holes_check(tier("local", "unstable", "not-tiered"), has_broker=True) is None
    one = holes_check(tier("local", "hole"), has_broker=True)
    assert one is not None
    assert one.state is State.ADVICE
    assert one.text == "no segment has offsets 10 to 19 of shop-4: only a broker can give them"
    three = holes_check(tier("hole", "hole", "hole"), has_broker=True)
    assert three is not None
    assert "offsets 0 to 9 of shop-4, and 2 more holes are in the tier" in three.text


def test_a_wrong_topic_is_told_with_those_that_are_there(run: Run, bucket: str) -> None:
    """Nothing could be read, so that the configuration is none to copy."""
    outcome = run("doctor", "--url", bucket, "-t", "shoop")
    assert outcome.code == 1
    said = outcome.stdout.decode()
    assert f"no segment of topic 'shoop' is in the remote storage {bucket}; topics there: shop" in said
    assert "        hint: The nearest name is 'shop'" in said
    assert "configuration so far, with which nothing could be read:" in outcome.lines


@pytest.mark.parametrize("command", [("doctor",), ("config", "check")])
def test_a_topic_without_any_log_is_not_said_to_be_another(
    run: Run, tmp_path: Path, bucket: str, command: tuple[str, ...]
) -> None:
    tier = shutil.copytree(bucket, tmp_path / "tier")
    for lost in tier.rglob("*.log"):
        lost.unlink()
    outcome = run(*command, "--url", str(tier), "-t", "shop")
    assert outcome.code == 1
    said = outcome.stdout.decode()
    assert f"no log of topic 'shop' is in the remote storage {tier}, but other files of its segments" in said
    assert "topics there" not in said


def test_lost_logs_at_the_ends_of_a_listed_topic_are_told(run: Run, tmp_path: Path, bucket: str) -> None:
    """The listing by which the tier is planned shows them."""
    tier = shutil.copytree(bucket, tmp_path / "tier")
    for pattern in ("shop-1-*/*.log", f"shop-0-*/{0:020d}-*.log"):
        (lost,) = tier.rglob(pattern)
        lost.unlink()
    outcome = run("doctor", "--url", str(tier), "-t", "shop", "--json")
    assert outcome.code == 0
    checks = [one for one in map(json.loads, outcome.lines) if one.get("check") == "offsets"]
    assert [one["state"] for one in checks] == ["advice", "advice"]
    told = sorted(one["text"] for one in checks)
    assert told[0].startswith(f"shop-0: the store has files of segment {0:020d}-")
    assert told[0].endswith("What can be read begins at offset 3")
    assert told[1].startswith("shop-1: ")


def test_a_directory_is_named_by_its_whole_path(run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(bucket).parent)
    assert f"  remote.storage.url={bucket}" in run("doctor", "--url", Path(bucket).name, "-t", "shop").lines


def test_a_wrong_url_and_a_wrong_layout_at_once(run: Run, tmp_path: Path, bucket: str) -> None:
    """Both are found and used, one after the other."""
    shutil.copytree(bucket, tmp_path / "some" / "tier")
    outcome = run("doctor", "--url", str(tmp_path), "--layout", "aiven", "-t", "shop", "--json")
    checks = [json.loads(line) for line in outcome.lines]
    assert outcome.code == 1
    assert [check["hint"] for check in checks if check.get("state") == "FAILED"] == [
        "Set remote.storage.layout=kafka_local",
        f"Set remote.storage.url={tmp_path}/some/tier",
    ]
    assert next(check for check in checks if check.get("check") == "segment")["state"] == "ok"


@pytest.mark.parametrize(
    ("given", "failed"),
    [
        ({}, set()),
        ({"remote.storage.layout": "kafka_local"}, {"Set remote.storage.layout=aiven"}),
        ({"remote.storage.layout": "aiven"}, set()),
        ({"remote.storage.layout": "aiven", PREFIX: "other/"}, {f"Set {PREFIX}=tiered/"}),
    ],
    ids=["nothing is given", "another layout", "no prefix", "another prefix"],
)
def test_the_layout_and_its_prefix_are_found(run: Run, given: Mapping[str, str], failed: set[str]) -> None:
    """The names in the bucket tell the layout, and the plug-in's manifests tell the prefix."""
    words = [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
    objects = [json.loads(line) for line in run("doctor", "--url", str(AIVEN / "remote"), *words, "--json").lines]
    configuration = objects[-1]["configuration"]
    assert configuration["remote.storage.layout"] == "aiven"
    assert configuration[PREFIX] == "tiered/"
    assert {check["hint"] for check in objects if check.get("state") == "FAILED"} == failed
    assert next(check for check in objects if check.get("check") == "segment")["state"] == "ok"


def test_chunks_of_the_plug_in(run: Run) -> None:
    """The chunks of the golden tier are small, and doctor says so."""
    configs = {"remote.storage.url": str(AIVEN / "remote"), "remote.storage.layout": "aiven", PREFIX: "tiered/"}
    fetcher = load_fetcher(Config.parse(configs))
    segment = next(fetcher.list_segments())  # type: ignore[attr-defined]
    chunk_bytes = fetcher.chunk_size(segment)  # type: ignore[attr-defined]
    fetcher.close()
    assert 0 < chunk_bytes < 1 << 20
    words = [word for name, value in configs.items() for word in ("-X", f"{name}={value}")]
    outcome = run("doctor", "-t", segment.topic_id_partition.topic, *words)
    assert "advice chunks" in states(outcome)


def test_nothing_is_configured(run: Run) -> None:
    outcome = run("doctor")
    assert outcome.code == 1
    assert states(outcome) == ["skipped brokers", "FAILED fetcher"]
    assert "        hint: Set remote.storage.url" in outcome.stdout.decode()


@pytest.mark.parametrize(("words", "waits_ms"), [((), 10_000), (("-X", f"{SETUP_TIMEOUT}=1500"), 1500)])
def test_a_broker_that_does_not_answer(
    run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], waits_ms: int
) -> None:
    given: list[Mapping[str, Any]] = []

    def recorded(properties: Mapping[str, Any], *, checks: bool) -> Cluster:
        given.append(properties)
        return make_cluster({**properties, SETUP_TIMEOUT: 1000}, checks=checks)

    monkeypatch.setattr("remote_fetch.checks.doctor.make_cluster", recorded)
    outcome = run("doctor", "-b", "nowhere..invalid:1", "--url", bucket, *words)
    assert states(outcome)[:3] == ["FAILED brokers", "ok fetcher", "ok list"]
    assert "Failed to resolve 'nowhere..invalid:1'" in outcome.stdout.decode()
    assert [int(each[SETUP_TIMEOUT]) for each in given] == [waits_ms]


@pytest.mark.parametrize(
    ("error", "unlocated", "hint"),
    [
        (denied("__remote_log_metadata"), ErrorKind.UNLOCATABLE, GRANT),
        (denied("__remote_log_metadata"), None, GRANT),
        (Unlocatable("cannot be read: no broker answers"), ErrorKind.UNLOCATABLE, "list the bucket instead: "),
        (Unreadable("there is no topic", hint="Give another name"), None, "Give another name; or list the bucket "),
    ],
    ids=["one topic", "all topics", "brokers that are away", "all topics without a metadata topic"],
)
def test_the_metadata_topic_of_another_cluster(error: Unlocatable, unlocated: ErrorKind | None, hint: str) -> None:
    """The rights on it are those of its own client. Brokers that are away refuse nothing."""

    def refused(topic: str | None) -> tuple[TopicIdPartition, ...]:
        raise error

    main = {"bootstrap.servers": "main:9092", "sasl.username": "reader"}
    own = {"remote.locator.bootstrap.servers": "other:9092", "remote.locator.sasl.username": "alice"}
    doctor = Doctor({**main, **own}, None, sample_bytes=1, dice=random.Random(0))
    session = SimpleNamespace(
        locator=SimpleNamespace(partitions=refused),
        configured_locator=SimpleNamespace(failure=type(error), unlocated=unlocated),
    )
    check, _ = doctor._metadata(cast("Session", session))
    assert check.state is State.FAILED
    assert check.hint is not None
    assert check.hint.startswith(hint)
    assert check.hint.endswith("list the bucket instead: remote.locator=listing")


def test_the_first_segment_of_a_shared_tier_is_of_a_foreign_topic() -> None:
    """It is another cluster's, or this principal may not describe it. That is no fault of the set-up."""
    doctor = Doctor({"bootstrap.servers": "main:9092"}, None, sample_bytes=1, dice=random.Random(0))
    doctor._cluster = cast("Cluster", SimpleNamespace(names=lambda: ("orders",)))
    segment = SimpleNamespace(topic_id_partition=TopicIdPartition(Uuid(bytes(16)), "billing", 0))
    (check,) = doctor._examine_gain(cast("Session", None), cast("RemoteLogSegmentMetadata", segment))
    assert (check.state, check.hint) == (State.SKIPPED, "Name a topic: -t TOPIC")
    assert doctor.topic is None


def test_a_service_that_cannot_be_asked_needs_no_rights_on_the_metadata_topic() -> None:
    configs = {"bootstrap.servers": "main:9092", "remote.locator": "service", "remote.locator.url": "https://there"}
    doctor = Doctor(configs, None, sample_bytes=1, dice=random.Random(0))

    def checked() -> None:
        raise Unlocatable("the segments cannot be located: the service cannot be reached")

    locator = SimpleNamespace(partitions=lambda topic: ())
    configured = SimpleNamespace(unlocated=ErrorKind.UNLOCATABLE, check=checked)
    session = SimpleNamespace(locator=locator, configured_locator=configured)
    check, _ = doctor._metadata(cast("Session", session))
    assert (check.state, check.hint is not None and "remote.locator.url" in check.hint) == (State.FAILED, True)
    assert "the service cannot be reached" in check.text


@pytest.mark.parametrize("stalls", [True, False])
def test_what_the_brokers_do_not_give(monkeypatch: pytest.MonkeyPatch, stalls: bool) -> None:
    """A header key that is not UTF-8 is nothing that they lack: only their client cannot give it."""
    reason = SimpleNamespace(is_of_broker=True, is_aborted_shown=False, text="its text")
    verdict = SimpleNamespace(without_headers=[] if stalls else [reason])
    gain = SimpleNamespace(
        finding=reason if stalls else None, verdicts=[verdict], store=SimpleNamespace(records=1), offsets=2
    )
    monkeypatch.setattr("remote_fetch.checks.doctor.gain_of", lambda *_: gain)
    session: Any = SimpleNamespace()
    tier: Any = SimpleNamespace(offsets=1)
    check = Doctor({}, None, sample_bytes=1, dice=random.Random(0))._sample(session, tier)
    assert check.text.endswith("its text")
    assert (check.state, check.hint is None) == (State.FAILED if stalls else State.OK, not stalls)


def test_no_sample_because_the_segments_cannot_be_located() -> None:
    """The hint to wait for a copy would be wrong."""

    def checked() -> None:
        raise Unlocatable("the segments cannot be located: there is no topic of metadata")

    doctor = Doctor({}, None, sample_bytes=1, dice=random.Random(0))
    session: Any = SimpleNamespace(configured_locator=SimpleNamespace(check=checked))
    tier: Any = SimpleNamespace(offsets=0)
    with pytest.raises(Unlocatable, match="there is no topic of metadata"):
        doctor._sample(session, tier)
    session.configured_locator.check = lambda: None
    assert doctor._sample(session, tier).hint == "Wait until the brokers have copied a segment"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sample-bytes", "0"), "--sample-bytes 0: give a number above 0"),
        (("--isolation", "dirty"), "read_committed"),
        (("-X", "remote.storage.layot=x"), "remote.storage.layout"),
    ],
)
def test_mistakes_are_one_line(run: Run, bucket: str, words: tuple[str, ...], said: str) -> None:
    outcome = run("doctor", "--url", bucket, *words)
    assert outcome.code == 1
    assert said in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1
