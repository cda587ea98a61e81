"""A restore into a second real broker: equal record for record, also if runs are killed anywhere."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from remote_fetch.cli import main
from remote_fetch.restore.journal import read_maps
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.rig import VERSIONS, Rig
from tests.rig.test_read import transaction
from tests.rig.topics import OracleRecord, broker_records

PARTITIONS = 5
SMALL = ("--to-property", "batch.size=2000")
"""Topics of the tests have segments of 8 KB, and no batch may be larger."""
NEEDS_TWO = pytest.mark.skipif(len(VERSIONS) == 1, reason="needs two clusters: RIG_KAFKA names one version")
"""A test that restores into another cluster. On a single broker the topic that it makes is there already."""
KEPT = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]


@pytest.fixture(scope="module")
def filled(rig_43: Rig) -> str:
    """Records of every shape in five partitions; transactions that abort and commit; headers, nulls, odd timestamps.

    A test that reads this topic does not change it.
    """
    rig, topic = rig_43, "restored-by-all"
    topics.create_topic(rig, topic, PARTITIONS)
    for number in range(PARTITIONS):
        topics.produce(rig, topic, 300, partition=number, seed=number, compression_type=("none", "zstd")[number % 2])
    with transaction(rig, topic, 40, "a", seed=6) as first, transaction(rig, topic, 40, "b", seed=7) as second:
        first.abort_transaction(30)
        second.commit_transaction(30)
    for number in range(PARTITIONS):
        topics.produce(rig, topic, 40, partition=number, seed=90 + number)
    topics.wait_tiered(rig, topic, range(PARTITIONS))
    return topic


def fill_a_little(rig: Rig, topic: str) -> None:
    """Forty records in one partition."""
    topics.make_tiered(rig, topic, 40)


def arguments_of(lost: Rig, other: Rig, topic: str, journal: Path) -> list[str]:
    """Of the bucket alone: the old brokers are not asked."""
    return ["restore", "--url", str(lost.remote), "-t", topic, "--to", other.bootstrap, "--journal", str(journal), "-q"]


def kept(record: OracleRecord) -> KEPT:
    """A record without its offset. A producer cannot send timestamps of 0 and below."""
    return record.key, record.value, record.headers, record.timestamp_ms if record.timestamp_ms > 0 else None


def check_equal(lost: Rig, other: Rig, topic: str, restored: str, journal: Path) -> None:
    """Both topics record for record, and every old offset at the record that a reader there would have got next."""
    _, maps, _ = read_maps(journal)
    for number in range(PARTITIONS):
        old = broker_records(lost, topic, number, "read_committed")
        new = broker_records(other, restored, number, "read_committed")
        untimed = {at for at, record in enumerate(old) if record.timestamp_ms <= 0}
        assert [kept(record) for record in old] == [
            (*kept(record)[:3], None) if at in untimed else kept(record) for at, record in enumerate(new)
        ]
        places = {record.offset: at for at, record in enumerate(new)}
        for at, record in enumerate(old):
            assert places[maps[number].translate(record.offset)] == at


@NEEDS_TWO
def test_a_topic_in_another_cluster(
    rig_43: Rig, rig_39: Rig, filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "journal"
    assert main([*arguments_of(rig_43, rig_39, filled, journal), "-J"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["different"] == {}
    assert outcome["records"] == outcome["records_of_this_run"] > PARTITIONS * 300
    check_equal(rig_43, rig_39, filled, filled, journal)


@NEEDS_TWO
def test_a_difference_at_the_end_is_told(
    rig_43: Rig, rig_39: Rig, new_topic: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new topic turns all timestamps into its own."""
    topic, journal = new_topic("restored"), tmp_path / "journal"
    fill_a_little(rig_43, topic)
    arguments = arguments_of(rig_43, rig_39, topic, journal)
    assert main([*arguments, "--topic-config", "message.timestamp.type=LogAppendTime"]) == 3
    assert "partition 0 DIFFERS: offset 0 of the old topic" in capsys.readouterr().out


def test_old_records_that_retention_deletes_afterwards(
    rig_43: Rig, new_topic: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next run compares the records that are left, and says so."""
    topic, new = new_topic("restored"), new_topic("restored-new")
    fill_a_little(rig_43, topic)
    arguments = [
        *arguments_of(rig_43, rig_43, topic, tmp_path / "journal"),
        "-b",
        rig_43.bootstrap,
        "-X",
        "log_level=0",
    ]
    arguments += ["--to-topic", new]
    assert main(arguments) == 0
    topics.delete_records(rig_43, topic, 0, 20)
    assert main(arguments) == 0
    assert "partition 0: the old topic no longer has the records before offset 20" in capsys.readouterr().out


@NEEDS_TWO
@pytest.mark.parametrize("kills", of_a_change([2, 10]))
def test_runs_that_are_killed_anywhere(
    rig_43: Rig, rig_39: Rig, filled: str, new_topic: Callable[[str], str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], kills: int,
) -> None:  # fmt: skip
    """Killed at random. The last run ends, and there is neither a record twice nor one that is lost."""
    restored, journal = new_topic("restored"), tmp_path / "journal"
    # Slow enough to be killed in the middle: small checkpoints, and batches of one record.
    slow = (
        "import remote_fetch.restore.job as job; job._CHECKPOINT_BYTES = 20_000; job._STABLE_S = 0.3; "
        "from remote_fetch.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [*arguments_of(rig_43, rig_39, filled, journal), "--to-topic", restored]
    command = [
        sys.executable,
        "-c",
        slow,
        *arguments,
        "--to-property",
        "batch.num.messages=3",
        "--to-property",
        "linger.ms=1",
    ]
    dice, left = random.Random(kills), kills
    while left:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, said = child.communicate(timeout=1.2 + 2 * dice.random())
            assert child.returncode == 0, said.decode()
            break  # it ended before it was killed
        child.kill()
        child.communicate()
        left -= 1
    assert left < kills, "no run was killed"
    assert main([*arguments, "-J"]) == 0
    assert json.loads(capsys.readouterr().out)["different"] == {}
    check_equal(rig_43, rig_39, filled, restored, journal)


def test_a_replay(
    rig_43: Rig, filled: str, new_topic: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A range of one partition, into a topic of the same cluster."""
    topic, again = filled, new_topic("again")
    topics.create_topic(rig_43, again, PARTITIONS)
    arguments = ["replay", "-b", rig_43.bootstrap, "--url", str(rig_43.remote), "-t", topic, "-p", "1", "-o", "20"]
    assert main([*arguments, "--end", "120", "--to-topic", again, *SMALL, "-q", "-X", "log_level=0"]) == 0
    assert "next offset of each partition: 1: 120" in capsys.readouterr().out
    wanted = [
        kept(record) for record in broker_records(rig_43, topic, 1, "read_committed") if 20 <= record.offset < 120
    ]
    found = [kept(record) for record in broker_records(rig_43, again, 1, "read_committed")]
    assert [record[:3] for record in found] == [record[:3] for record in wanted]


def tier_with_a_large_record(rig: Rig, topic: str) -> None:
    """A tiered topic of 320 records. The one with offset 150 has 3,000 bytes, and those before it have 30."""
    topics.create_topic(rig, topic)
    producer = Producer({"bootstrap.servers": rig.bootstrap, "batch.num.messages": 5, **topics.QUIET})
    for number in range(300):
        producer.produce(topic, bytes(3_000 if number == 150 else 30), f"{number}".encode(), partition=0)
    assert producer.flush(30) == 0
    topics.produce(rig, topic, 20)
    topics.wait_tiered(rig, topic)


@NEEDS_TWO
def test_a_record_that_the_target_refuses(
    rig_43: Rig, rig_39: Rig, new_topic: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No record behind it is written, so that a run with a larger limit goes on with it. Batches fit either limit."""
    topic, journal = new_topic("restored"), tmp_path / "journal"
    tier_with_a_large_record(rig_43, topic)
    topics.create_topic(rig_39, topic, max_message_bytes=1_500)
    plain = ("--to-property", "compression.type=none", "--any-retention")
    arguments = [*arguments_of(rig_43, rig_39, topic, journal), *plain]
    assert main(arguments) == 1
    assert "Broker: Message size too large" in capsys.readouterr().err
    assert len(broker_records(rig_39, topic, 0, "read_committed")) <= 150
    topics.set_config(rig_39, topic, max_message_bytes="6000")
    assert main([*arguments, "-J"]) == 0
    assert json.loads(capsys.readouterr().out)["different"] == {}
    assert len(broker_records(rig_39, topic, 0, "read_committed")) == 320


@NEEDS_TWO
def test_timestamps_of_the_future(
    rig_43: Rig, rig_39: Rig, new_topic: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Producers that mistake the unit write such. Kafka 4 refuses them, unless the topic takes any timestamp."""
    topic = new_topic("future")
    topics.create_topic(rig_39, topic)
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": rig_39.bootstrap})
    for at in range(30):
        producer.produce(topic, f"{at}", partition=0, timestamp=now_ms * 1000 if at == 20 else now_ms)
    producer.flush()
    first = [*arguments_of(rig_39, rig_43, topic, tmp_path / "journal"), "-b", rig_39.bootstrap]
    assert main([*first, "--topic-config", "message.timestamp.after.max.ms=3600000"]) == 1
    assert "Broker: Invalid timestamp" in capsys.readouterr().err
    second = [*arguments_of(rig_39, rig_43, topic, tmp_path / "again"), "-b", rig_39.bootstrap]
    assert main([*second, "--to-topic", new_topic("future-new"), "-J"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["records"], outcome["different"]) == (30, {})


def test_a_replay_that_the_target_ends_early(
    rig_43: Rig, new_topic: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It names an offset before which the topic has all records."""
    topic, again = new_topic("replayed"), new_topic("again")
    tier_with_a_large_record(rig_43, topic)
    topics.create_topic(rig_43, again, max_message_bytes=1_500)
    small = ("--to-property", "batch.num.messages=5", "--to-property", "compression.type=none", "-X", "log_level=0")
    arguments = ["replay", "-b", rig_43.bootstrap, "--url", str(rig_43.remote), "-t", topic, "--to-topic", again]
    assert main([*arguments, *small, "-J", "-q"]) == 1
    outcome = json.loads(capsys.readouterr().out)
    written = {record.key for record in broker_records(rig_43, again, 0, "read_uncommitted")}
    assert outcome["records"] <= outcome["next_offsets"]["0"] <= 150
    assert {f"{number}".encode() for number in range(outcome["next_offsets"]["0"])} <= written


@NEEDS_TWO
def test_a_topic_that_deletes_old_records(
    rig_43: Rig, rig_39: Rig, new_topic: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, journal = new_topic("restored"), tmp_path / "journal"
    fill_a_little(rig_43, topic)
    topics.create_topic(rig_39, topic, retention_ms=3_600_000)
    arguments = arguments_of(rig_43, rig_39, topic, journal)
    assert main(arguments) == 1
    assert "deletes records: retention.ms=3600000" in capsys.readouterr().err
    assert not journal.exists()
