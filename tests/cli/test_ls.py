"""`ls`: the segments of a storage, as a table and as JSON."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.amounts import human_bytes
from remote_fetch.cli.ls import print_segments
from remote_fetch.errors import Unlocatable
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.metadata_replay import MetadataTopic
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import UNKNOWN_SIZE, LogBounds, Uuid
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions
from remote_fetch.testing.stores import write_kafka_local
from tests.golden.conftest import AivenTier
from tests.scan.bucket import plain_log, snapshot_config

if TYPE_CHECKING:
    from tests.cli.conftest import Run

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    "command", [("ls",), ("bounds", "-t", "shop"), ("cat", "-t", "shop", "-o", "-1", "-e")], ids=lambda argv: argv[0]
)
def test_ends_of_partitions_are_read_at_once(run: Run, bucket: str, command: tuple[str, ...]) -> None:
    meeting = "remote.storage.fetcher.class=tests.cli.meeting:MeetingFetcher"
    found = run(*command, "--url", bucket, "-X", meeting)
    assert found.code == 0
    assert found.stdout == run(*command, "--url", bucket).stdout


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ((), "no remote storage is configured. Set remote.storage.url (--url"),
        (("--url", "{bucket}"), "the segments cannot be located: no answer from the topic"),
    ],
    ids=["no storage", "no metadata"],
)
@pytest.mark.parametrize("command", [("ls",), ("bounds",), ("dump", "-p", "0", "-o", "3")], ids=lambda argv: argv[0])
def test_a_tier_that_cannot_be_located_is_not_empty(
    run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], more: tuple[str, ...], says: str
) -> None:
    def unanswered(*_: object) -> None:
        raise Unlocatable("no answer from the topic")

    described = Topic("shop", Uuid.parse(TOPIC_ID), (0,), may_read=True)
    monkeypatch.setattr(Cluster, "describe", lambda *_: described)
    monkeypatch.setattr(Cluster, "log_bounds", lambda *_: LogBounds(0, 9))
    monkeypatch.setattr(MetadataTopic, "read_for", unanswered)
    monkeypatch.setattr("remote_fetch.session.local_logs.LocalLogs.ask", lambda *_, **__: {})
    outcome = run(*command, "-t", "shop", "-b", "127.0.0.1:1", *(word.format(bucket=bucket) for word in more))
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert says in outcome.stderr


def test_all_topics_without_a_storage(run: Run) -> None:
    outcome = run("ls", "-b", "127.0.0.1:1")
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "no remote storage is configured. Set remote.storage.url (--url" in outcome.stderr


@pytest.mark.parametrize(
    "command", [("ls",), ("bounds",), ("plan",), ("cat", "-e", "-c", "0")], ids=lambda argv: argv[0]
)
def test_a_storage_that_does_not_exist_is_told_beside_brokers(
    run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """The brokers have the records. A bucket with segments of other topics is as it should be."""
    topic_id = Uuid.parse(TOPIC_ID)
    for name in ("shop", "new"):
        described = Topic(name, topic_id if name == "shop" else Uuid(b"another topic id"), (0,), may_read=True)
        monkeypatch.setattr(Cluster, "describe", lambda *_, described=described, **__: described)
        monkeypatch.setattr(Cluster, "log_bounds", lambda *_, **__: LogBounds(0, 9))
        monkeypatch.setattr(Cluster, "still_holds", lambda *_: True)
        monkeypatch.setattr("remote_fetch.session.local_logs.LocalLogs.ask", lambda *_, **__: {})
        asked = (*command, "-t", name, "-b", "127.0.0.1:1", "-X", "remote.locator=listing")
        outcome = run(*asked, "--url", f"{bucket}/nothing")
        assert outcome.code == 0
        assert outcome.stderr.count("nothing: it does not exist") == 1
        assert "no segment of topic" not in run(*asked, "--url", bucket).stderr


def test_a_table_of_all_segments(run: Run, bucket: str) -> None:
    outcome = run("ls", "--url", bucket)
    assert (outcome.code, outcome.stderr) == (0, "")
    head, *rows, total = outcome.lines
    assert head.split() == ["TOPIC", "PARTITION", "START", "END", "SIZE", "MAX", "TIMESTAMP", "SEGMENT", "ID"]
    assert [row.split()[:4] for row in rows] == [
        ["shop", "0", "0", "2"],
        ["shop", "0", "3", "5"],
        ["shop", "0", "6", "8"],
        ["shop", "1", "0", "1"],
    ]
    sizes = {path.name: path.stat().st_size for path in Path(bucket).rglob("*.log")}
    for row in rows:
        start, size_bytes, segment_id = int(row.split()[2]), int(row.split()[4]), row.split()[-1]
        assert sizes[f"{start:020d}-{segment_id}.log"] == size_bytes
    assert total == f"4 segments, {human_bytes(sum(sizes.values()))}"


def test_bytes_in_the_store(run: Run, tmp_path: Path) -> None:
    """Aiven's REMOTE_SIZE (KIP-917) comes with the brokers' metadata. Without it there is no such column."""
    tier = AivenTier("aiven-zstd")
    segments = [one for each in tier.timelines.values() for one in each.segments]
    objects = [path.stat().st_size for path in Path(tier.url).rglob("*") if path.is_file()]
    configs = {**tier.config, **snapshot_config(segments, tmp_path)}
    saved = [word for name, value in configs.items() for word in ("-X", f"{name}={value}")]
    head, *rows, total = run("ls", *saved).lines
    assert head.split()[:7] == ["TOPIC", "PARTITION", "START", "END", "SIZE", "STORED", "MAX"]
    assert len(rows) == len(segments)
    assert total.endswith(f", {human_bytes(sum(objects))} in the store")
    lines = [json.loads(line) for line in run("ls", *saved, "-J").lines]
    assert sum(line["stored_bytes"] for line in lines) == sum(objects)
    without = [word for name, value in tier.config.items() for word in ("-X", f"{name}={value}")]
    assert "STORED" not in run("ls", *without).lines[0]


@pytest.mark.parametrize(
    "command", [("ls",), ("plan", "-t", "tx-java"), ("bounds", "-t", "tx-java")], ids=lambda argv: argv[0]
)
def test_a_property_of_the_brokers_file_without_a_counterpart_is_noted(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    package = "io.aiven.kafka.tieredstorage."
    (tmp_path / "server.properties").write_text(
        f"remote.log.storage.manager.class.name={package}RemoteStorageManager\n"
        f"rsm.config.storage.backend.class={package}storage.filesystem.FileSystemStorage\n"
        f"rsm.config.storage.root={AivenTier('aiven-zstd').url}\n"
        "rsm.config.key.prefix=tiered/\nrsm.config.storage.proxy.host=h\n"
    )
    outcome = run(*command, "-X", f"remote.storage.broker.properties={tmp_path / 'server.properties'}")
    assert outcome.code == 0
    assert (
        outcome.stderr == "% note: not understood of the brokers' file: storage.proxy.host: has no counterpart here\n"
    )


def test_a_choice_of_nothing_is_a_mistake(run: Run, bucket: str, tmp_path: Path) -> None:
    for said, argv in (
        ("no partition 7 in", ("--url", bucket, "-p", "7")),
        ("no partition 7, 9 in", ("--url", bucket, "-p", "9", "-p", "0,7")),
        (f"no segment is in the remote storage {tmp_path}: it is empty", ("--url", str(tmp_path))),
        (f"in the remote storage {tmp_path}/no: it does not exist", ("--url", f"{tmp_path}/no")),
    ):
        outcome = run("ls", *argv)
        assert (outcome.code, outcome.stdout) == (1, b"")
        assert said in outcome.stderr


@pytest.mark.parametrize(
    ("argv", "count"),
    [
        (("-t", "shop"), 4),
        (("-t", f"shop:{TOPIC_ID}"), 4),
        (("-p", "1"), 1),
        (("-t", "shop", "-p", "0"), 3),
        (("-p", "0,1"), 4),
    ],
)
def test_a_choice_of_them(run: Run, bucket: str, argv: tuple[str, ...], count: int) -> None:
    outcome = run("ls", "--url", bucket, *argv)
    assert outcome.lines[-1].startswith(f"{count} segment{'' if count == 1 else 's'}, ")
    assert len(outcome.lines) == count + 2


def test_json(run: Run, bucket: str) -> None:
    outcome = run("ls", "--url", bucket, "-t", "shop", "-p", "1", "-J")
    (row,) = (json.loads(line) for line in outcome.lines)
    (path,) = Path(bucket).rglob("shop-1-*/*.log")
    assert row == {
        "topic": "shop",
        "topic_id": TOPIC_ID,
        "partition": 1,
        "orphan_updates": 0,
        "malformed_records": 0,
        "segment_id": path.stem[21:],
        "start_offset": 0,
        "end_offset": 1,
        "size_bytes": path.stat().st_size,
        "stored_bytes": None,
        "max_timestamp_ms": None,
        "leader_epochs": {},
    }


def test_unknown_sizes_and_known_times_are_shown(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = LogBuilder("shop", Uuid.parse(TOPIC_ID), 0)
    log.append_batch([Record(0, 0, b"k", b"v")])
    log.roll()
    (built,) = log.tiered()
    segment = replace(built.metadata, segment_size_in_bytes=UNKNOWN_SIZE)
    with Session.open({"remote.storage.url": bucket}) as session:
        session.locator = KnownTimelines([Timeline(log.topic_id_partition, (segment,), (0,))])
        print_segments(session, [], None, as_json=False)
        print_segments(session, [], None, as_json=True)
    _, row, _, text = capsys.readouterr().out.splitlines()
    assert row.split()[3:6] == ["0", "unknown", "2023-11-14T22:13:20.000Z"]
    found = json.loads(text)
    assert (found["size_bytes"], found["max_timestamp_ms"]) == (None, 1_700_000_000_000)
    assert found["leader_epochs"] == {"0": 0}


def test_metadata_that_locates_nothing_is_counted(
    bucket: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one line, even if a timeline is read several times. The table has the column only if needed."""
    log = LogBuilder("orphans")
    log.append_batch([Record(0)])
    log.roll()
    segment = log.segments()[0].metadata
    some, none = log.topic_id_partition, replace(log.topic_id_partition, partition=1)
    timelines = [
        Timeline(some, (segment,), (0,), orphan_updates=2, malformed_records=1),
        Timeline(none, (), (), orphan_updates=1, malformed_records=1),
    ]
    with Session.open({"remote.storage.url": bucket}) as session:
        session.locator = KnownTimelines(timelines)
        print_segments(session, [], None, as_json=False)
        print_segments(session, [], None, as_json=True)
        report = session.counters.report()
    head, first, second, _, said, *objects = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "ORPHANS"
    assert [first.split()[0], *first.split()[1:3], first.split()[-1]] == ["orphans", "0", "0", "2"]
    assert second.split() == ["orphans", "1", "-", "-", "-", "-", "-", "1"]
    assert said == (
        "finished segments of which metadata has an update alone, so that no offset is found: 3; "
        "metadata records that cannot be read: 1"
    )
    assert [json.loads(one)["orphan_updates"] for one in objects] == [2, 1]
    assert (report.orphan_updates, report.malformed_records) == (3, 1)
    lines = [record for record in caplog.records if "in plain Python" not in record.getMessage()]
    assert [record.levelname for record in lines] == ["WARNING", "WARNING"]


def test_a_saved_listing_reads_without_one(
    run: Run, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    saved = tmp_path / "timelines.bin"
    assert run("ls", "--url", bucket, "--save", str(saved)).stdout == run("ls", "--url", bucket).stdout
    assert saved.stat().st_mode & 0o077 == 0
    whole = saved.read_bytes()
    saved.write_bytes(b"of an earlier run")
    saved.chmod(0o644)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", full)
        assert "No space left" in run("ls", "--url", bucket, "--save", str(saved)).stderr
    assert (saved.read_bytes(), [*tmp_path.glob(".*.draft")]) == (b"of an earlier run", []), "all of it, or nothing"
    assert run("ls", "--url", bucket, "--save", str(saved)).code == 0
    assert (saved.read_bytes(), saved.stat().st_mode & 0o077) == (whole, 0), "an older file becomes private too"
    assert run("ls", "--url", bucket, "--save", os.devnull).code == 0
    to_read, to_write = os.pipe()  # as in the shell's --save >(gzip > FILE)
    assert run("ls", "--url", bucket, "--save", f"/dev/fd/{to_write}").code == 0
    assert os.read(to_read, len(whole) + 1) == whole
    os.close(to_read)
    os.close(to_write)
    snapshot = ("-X", "remote.locator=snapshot", "-X", f"remote.locator.snapshot.file={saved}")
    read = ("cat", "-t", "shop", "-e", "-q", "--url", bucket)
    found = run(*read, *snapshot)
    assert (found.code, found.stdout) == (0, run(*read).stdout)
    assert found.stdout
    refused = run("ls", "--url", bucket, "--save", str(tmp_path / "no" / "folder"))
    assert (refused.code, refused.stderr.partition(": ")[2].partition(":")[0]) == (1, f"--save {tmp_path}/no/folder")


def test_a_saved_listing_has_the_real_ends(run: Run, tmp_path: Path) -> None:
    """Two leaders have uploaded the same offsets. A listing guesses that the first segment ends before the second."""
    log, saved = plain_log(), tmp_path / "timelines.bin"
    uploads = [*log.segments(cuts=[0, 40]), *log.segments(SegmentOptions(upload=1), cuts=[10, 20]), log.segments()[2]]
    url = str(write_kafka_local(tmp_path, uploads))
    assert run("ls", "--url", url, "--save", str(saved)).code == 0
    snapshot = ("-X", "remote.locator=snapshot", "-X", f"remote.locator.snapshot.file={saved}")
    for first in (0, 15, 20):
        found = run("cat", "-t", "topic", "-o", str(first), "-e", "-q", "-f", "%o ", "--url", url, *snapshot)
        assert (found.code, list(map(int, found.stdout.split()))) == (0, list(range(first, 60)))
