"""`doctor` on a real broker: a sound set-up, and ten broken ones, each with its cause and its mend.

Rules of the file:

- Each broken set-up differs from the sound one in one thing.
- The store is a directory, or an S3 server over it that checks signatures, their age, users and policies.
- Errors that this server does not know come from a server that answers every request with one of S3's error codes.
"""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore.auth
import pytest
from confluent_kafka import Producer

from remote_fetch.cli import main
from remote_fetch.locate.cluster import Cluster
from tests.rig.acls import allow, revoke_all
from tests.rig.rig import Rig, single
from tests.rig.topics import QUIET, create_topic, produce, wait_tiered
from tests.stores.artifacts import MissingTool
from tests.stores.refusing_server import refusing
from tests.stores.s3_server import S3Server, s3_server
from tools.fuzz_batches import reseal_log

TOPIC, UNTIERED, EMPTY = "watched", "untiered", "empty"
USER = "reader"
VALUE = b"a value in every batch"
PARTITIONS = 2
RECORDS = 60


@pytest.fixture(scope="module")
def guarded(needs_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A broker with access control, a topic in its tier, one that is not tiered, and one without segments."""
    with single(tmp_path_factory.mktemp("doctor"), access_control=True) as running:
        create_topic(running, TOPIC, PARTITIONS)
        create_topic(running, UNTIERED, remote_storage_enable="false")
        create_topic(running, EMPTY)
        producer = Producer({"bootstrap.servers": running.bootstrap, **QUIET})
        for partition in range(PARTITIONS):
            produce(running, TOPIC, RECORDS, partition=partition)
            for _ in range(RECORDS):
                producer.produce(TOPIC, VALUE * 20, partition=partition)
                assert producer.flush(30) == 0  # a batch for each record
        wait_tiered(running, TOPIC, range(PARTITIONS))
        yield running


@pytest.fixture(scope="module")
def s3(guarded: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server whose bucket is the broker's tier."""
    try:
        with s3_server(tmp_path_factory.mktemp("doctor-s3"), guarded.remote) as running:
            yield running
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.fixture
def rules(guarded: Rig) -> Iterator[Callable[..., None]]:
    """Grants operations to the principal. It has no permission before the test and after it."""

    def grant(**operations: str) -> None:
        for topic, names in operations.items():
            for name in names.split():
                allow(guarded, USER, name, topic)

    yield grant
    revoke_all(guarded, USER)


class Outcome:
    """The output of the command with --json: the checks in order, the gain and the configuration."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        objects = [json.loads(line) for line in text.splitlines()]
        self.checks = [each for each in objects if "check" in each]
        self.gain: dict[str, Any] | None = objects[-2]["gain"]
        self.configuration: dict[str, str] = objects[-1]["configuration"]

    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [check["check"] for check in self.checks if check["state"] == "FAILED"]

    def said(self, name: str) -> str:
        """The text and the hint of the last check of this name."""
        check = [check for check in self.checks if check["check"] == name][-1]
        return f"{check['state']}: {check['text']} | {check['hint']}"


@pytest.fixture
def doctor(guarded: Rig, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command. As the administrator, with the directory as store, unless the arguments differ."""

    def run(*arguments: str, configs: Mapping[str, str] | None = None, user: bool = False, url: str = "") -> Outcome:
        given = {**(guarded.sasl_client(USER) if user else {"bootstrap.servers": guarded.bootstrap})}
        given |= {"remote.storage.url": url or str(guarded.remote), "log_level": "0", **(configs or {})}
        words = [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
        size = () if "--sample-bytes" in arguments else ("--sample-bytes", "2000")
        code = main(["doctor", "--json", "--seed", "1", *size, *arguments, *words])
        return Outcome(code, capsys.readouterr().out)

    return run


def test_a_sound_set_up(doctor: Callable[..., Outcome], guarded: Rig) -> None:
    """From brokers and a URL alone. Both ways give the same records."""
    outcome = doctor("-t", TOPIC, "--sample-bytes", str(64 << 20))
    assert (outcome.code, outcome.failed()) == (0, [])
    advice = {check["check"] for check in outcome.checks if check["state"] == "advice"}
    assert advice == {"batches", "segments"} | (set() if guarded.is_at_least(3, 9) else {"settings"})
    assert [check["check"] for check in outcome.checks if check["check"] not in advice - {"settings"}] == [
        "brokers", "topic", "settings", "plug-in", "fetcher", "list", "metadata", "segment", "index", "sample",
    ]  # fmt: skip
    assert outcome.configuration["remote.storage.layout"] == "kafka_local"
    gain = outcome.gain or {}
    assert (gain["topic"], gain["partitions"]) == (TOPIC, PARTITIONS)
    assert gain["store"]["records"] == gain["brokers"]["records"] > 0
    assert 0 < gain["offsets"] <= gain["offsets_of_log"] == 2 * PARTITIONS * RECORDS
    small = doctor("-t", TOPIC, "--sample-bytes", "1").gain or {}
    assert 0 < small["store"]["records"] < gain["store"]["records"]


def test_the_topic_is_chosen(doctor: Callable[..., Outcome]) -> None:
    outcome = doctor()
    assert (outcome.code, outcome.failed()) == (0, [])
    assert (outcome.gain or {})["topic"] == TOPIC


def test_a_wrong_prefix(doctor: Callable[..., Outcome], guarded: Rig) -> None:
    """The URL is one level too high. The right one is found and used."""
    outcome = doctor("-t", TOPIC, url=str(guarded.remote.parent))
    assert (outcome.code, outcome.failed()) == (1, ["list"])
    (wrong,) = (check for check in outcome.checks if check["state"] == "FAILED")
    assert wrong["hint"] == f"Set remote.storage.url={guarded.remote}"
    assert outcome.configuration["remote.storage.url"] == str(guarded.remote)
    assert outcome.said("sample").startswith("ok")


def test_no_permission_to_read_the_topic(doctor: Callable[..., Outcome], rules: Callable[..., None]) -> None:
    rules(**{TOPIC: "DESCRIBE", "__remote_log_metadata": "READ"})
    outcome = doctor("-t", TOPIC, user=True)
    assert outcome.code == 1
    assert outcome.failed()[0] == "topic"
    said = outcome.said("topic")
    assert "may not read the topic (READ)" in said
    assert f"--allow-principal User:{USER} --operation Read --topic {TOPIC}" in said
    assert outcome.gain is None


def test_no_permission_to_list(doctor: Callable[..., Outcome], s3: S3Server) -> None:
    """A reader with brokers works without. The check is advice, and says who needs the permission."""
    s3.add_user("no-lister", "no-lister-secret")
    s3.allow("no-lister", "s3:GetObject")
    try:
        outcome = doctor("-t", TOPIC, configs=s3.configs(key="no-lister", secret="no-lister-secret"))
    finally:
        s3.allow("no-lister")
    assert (outcome.code, outcome.failed()) == (0, [])
    said = outcome.said("list")
    assert said.startswith("advice: ")
    assert "s3:ListBucket" in said
    assert outcome.said("sample").startswith("ok")
    assert "no-lister-secret" not in json.dumps(outcome.configuration)


@pytest.mark.parametrize(
    ("status", "code", "cause", "mend"),
    [
        (301, "PermanentRedirect", "somewhere else", "Set the bucket's region or endpoint"),
        (400, "AuthorizationHeaderMalformed", "somewhere else", "Set the bucket's region or endpoint"),
        (400, "ExpiredToken", "have expired", "Renew them"),
        (403, "AccessDenied", "refused access", "permission to read the objects"),
    ],
    ids=["another region", "a wrong region", "an expired key", "no permission to read"],
)
def test_what_s3_refuses(
    doctor: Callable[..., Outcome], s3: S3Server, status: int, code: str, cause: str, mend: str
) -> None:
    with refusing(status, code, region="eu-north-1") as endpoint:
        outcome = doctor("-t", TOPIC, configs=s3.configs(endpoint_url=endpoint))
    assert outcome.code == 1
    assert {"segment", "index", "list"} <= set(outcome.failed())
    for name in ("segment", "list"):
        assert cause in outcome.said(name)
        assert mend in outcome.said(name)


@pytest.mark.parametrize("hours", [-1, 1], ids=["an hour behind", "an hour ahead"])
def test_a_wrong_clock(
    doctor: Callable[..., Outcome], s3: S3Server, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    def wrong(remove_tzinfo: bool = True) -> datetime.datetime:
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
        return now.replace(tzinfo=None) if remove_tzinfo else now

    monkeypatch.setattr(botocore.auth, "get_current_datetime", wrong)
    outcome = doctor("-t", TOPIC, configs=s3.configs())
    assert outcome.code == 1
    for name in ("segment", "list"):
        assert "this machine's clock is wrong" in outcome.said(name)
        assert "| Set the clock" in outcome.said(name)


def test_a_wrong_layout(doctor: Callable[..., Outcome]) -> None:
    """The brokers name their plug-in, and with it the layout."""
    outcome = doctor("-t", TOPIC, "--layout", "aiven")
    assert (outcome.code, outcome.failed()) == (1, ["plug-in"])
    assert "LocalTieredStorage, whose layout is 'kafka_local' | Set remote.storage.layout=kafka_local" in outcome.said(
        "plug-in"
    )
    assert outcome.said("sample").startswith("ok")


def test_a_topic_that_is_not_tiered(doctor: Callable[..., Outcome]) -> None:
    outcome = doctor("-t", UNTIERED)
    assert (outcome.code, outcome.failed()) == (1, ["settings"])
    said = outcome.said("settings")
    assert "the topic is not tiered: remote.storage.enable=false" in said
    assert f"--entity-name {UNTIERED} --add-config remote.storage.enable=true" in said
    assert outcome.gain is None


def test_a_topic_without_segments(doctor: Callable[..., Outcome]) -> None:
    outcome = doctor("-t", EMPTY)
    assert (outcome.code, outcome.failed()) == (0, [])
    assert outcome.said("metadata").startswith(f"advice: the brokers have copied no segment of {EMPTY}")


@pytest.mark.parametrize("words", [("-t", TOPIC), ()])
def test_no_permission_to_read_the_metadata_topic(
    doctor: Callable[..., Outcome], rules: Callable[..., None], words: tuple[str, ...]
) -> None:
    """The bucket can be listed, so the sample is read with its listing, and the configuration says so."""
    rules(**{TOPIC: "READ DESCRIBE_CONFIGS"})
    outcome = doctor(*words, user=True)
    assert (outcome.code, outcome.failed()) == (1, ["metadata"])
    said = outcome.said("metadata")
    assert "may not read __remote_log_metadata" in said
    assert f"User:{USER} --operation Describe --operation Read --topic __remote_log_metadata" in said
    assert outcome.configuration["remote.locator"] == "listing"
    assert outcome.said("sample").startswith("ok")


@pytest.mark.parametrize("age", ["without tiered storage", "before 3.9"])
def test_old_brokers(doctor: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, age: str) -> None:
    """A broker of Kafka 3.5 does not show the setting. One of 3.6 to 3.8 shows no setting of 3.9."""
    asked = Cluster.topic_settings
    lost = "remote.storage.enable" if age == "without tiered storage" else "remote.log.copy.disable"

    def settings(cluster: Cluster, name: str) -> dict[str, str]:
        return {key: value for key, value in asked(cluster, name).items() if key != lost}

    monkeypatch.setattr(Cluster, "topic_settings", settings)
    outcome = doctor("-t", TOPIC)
    if age == "before 3.9":
        assert (outcome.code, outcome.failed()) == (0, [])
        assert "KAFKA-17801) | Upgrade to 3.9.1" in outcome.said("settings")
    else:
        assert (outcome.code, outcome.failed()) == (1, ["settings"])
        assert "older than Kafka 3.6" in outcome.said("settings")


def test_brokers_that_do_not_answer(doctor: Callable[..., Outcome]) -> None:
    """The store is examined all the same."""
    away = {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": "1000"}
    outcome = doctor("-t", TOPIC, configs=away)
    assert (outcome.code, outcome.failed()) == (1, ["brokers"])
    assert "127.0.0.1:1" in outcome.said("brokers")
    assert outcome.said("segment").startswith("ok")


def test_a_topic_that_is_misspelt(doctor: Callable[..., Outcome]) -> None:
    outcome = doctor("-t", TOPIC[:-1])
    assert (outcome.code, outcome.failed()) == (1, ["topic"])
    assert f"The nearest name is '{TOPIC}'" in outcome.said("topic")


def test_a_tier_that_differs(doctor: Callable[..., Outcome], guarded: Rig, tmp_path: Path) -> None:
    """One byte of a value is another one in each record, with right checksums. The sample finds it."""
    folder = shutil.copytree(guarded.remote, tmp_path / "copy")
    for path in folder.glob(f"kafka-tiered-storage/{TOPIC}-*/*.log"):
        path.write_bytes(reseal_log(path.read_bytes().replace(VALUE, b"X" + VALUE[1:])))
    outcome = doctor("-t", TOPIC, "--sample-bytes", str(64 << 20), url=str(folder))
    assert (outcome.code, outcome.failed()) == (1, ["sample"])
    assert f"store and brokers differ in {TOPIC}-" in outcome.said("sample")
    assert ": value differ | " in outcome.said("sample"), "the record itself may be long, and secret"
    assert f"remote-fetch verify -t {TOPIC}" in outcome.said("sample")


@pytest.mark.parametrize("is_different", [False, True])
def test_an_object_that_the_brokers_have_lost(
    doctor: Callable[..., Outcome],
    guarded: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_different: bool,
) -> None:
    """The brokers give nothing of it. The examination ends, and says where to look.

    A piece that differs is worse. The command names it, though the broker gives nothing of the piece before it.
    """
    monkeypatch.setattr("remote_fetch.checks.doctor._LONGEST_WAIT_MS", 2000)
    monkeypatch.setattr("remote_fetch.checks.gain._PIECES", 1_000)
    copy = shutil.copytree(guarded.remote, tmp_path / "copy")
    logs = list(guarded.remote.glob(f"kafka-tiered-storage/{TOPIC}-{0 if is_different else '*'}-*/*.log"))
    if is_different:
        for path in copy.glob(f"kafka-tiered-storage/{TOPIC}-1-*/*.log"):
            path.write_bytes(reseal_log(path.read_bytes().replace(VALUE, b"X" + VALUE[1:])))
    kept = [path.rename(tmp_path / f"{number}.log") for number, path in enumerate(logs)]
    try:
        outcome = doctor("-t", TOPIC, "--sample-bytes", str(64 << 20), url=str(copy))
    finally:
        for path, saved in zip(logs, kept, strict=True):
            saved.rename(path)
    assert (outcome.code, outcome.failed()) == (1, ["sample"])
    if is_different:
        assert f"store and brokers differ in {TOPIC}-1" in outcome.said("sample")
        return
    assert "the broker gave nothing from offset" in outcome.said("sample")
    assert "their logs tell what they lack" in outcome.said("sample")


def test_a_segment_that_is_damaged(doctor: Callable[..., Outcome], guarded: Rig, tmp_path: Path) -> None:
    """No sample is read then."""
    folder = shutil.copytree(guarded.remote, tmp_path / "copy")
    for path in folder.glob(f"kafka-tiered-storage/{TOPIC}-*/*.log"):
        path.write_bytes(b"\0" * 100)
    outcome = doctor("-t", TOPIC, url=str(folder))
    assert (outcome.code, outcome.failed()) == (1, ["segment"])
    assert outcome.gain is None
