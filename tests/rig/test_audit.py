"""`audit` on a real broker: nothing on what it wrote, and what is damaged in a copy of its tier."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from remote_fetch.cli import main
from tests.rig import topics
from tests.rig.faults import tier_folder
from tests.rig.rig import Rig, single
from tests.rig.test_read import mixed_topic

SEGMENTS = 5_000
PARTITIONS = 50
STRAY = "a-segment-of-no-brokeA"
"""The id of a segment without an event."""


def audit(rig: Rig, url: Path, *more: str) -> int:
    """The exit code of the command."""
    return main(["audit", "-b", rig.bootstrap, "--url", str(url), "-X", "log_level=0", "-J", "-q", *more])


def lines_of(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The findings, and the totals of topics."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if "finding" in line], [line for line in lines if "finding" not in line]


def test_a_copy_of_the_tier_that_was_damaged(
    rig: Rig, new_topic: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic("audit")
    mixed_topic(rig, topic)
    assert audit(rig, rig.remote, "-t", topic, "--deep") == 0
    sound, (totals,) = lines_of(capsys)
    assert sound == []
    logs = sorted(tier_folder(rig, topic, 0).glob("*.log"))
    assert (totals["segments"], totals["partitions"]) == (len(logs), 1)
    assert totals["segment_bytes"] == sum(path.stat().st_size for path in logs)

    copy = shutil.copytree(rig.remote, tmp_path / "copy")
    folder = next(copy.glob(f"kafka-tiered-storage/{topic}-0-*"))
    lost, cut, changed, *_ = sorted(folder.glob("*.log"))
    lost.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    changed.write_bytes(changed.read_bytes()[:-1] + b"\xa5")
    (folder / lost.name.replace(lost.stem[21:], STRAY)).write_bytes(b"left over")
    deleted = tmp_path / "deleted.txt"
    assert audit(rig, copy, "-t", topic, "--deep", "--delete-list", str(deleted)) == 3
    found, _ = lines_of(capsys)
    kinds = {(finding["finding"], finding["segment"]) for finding in found}
    lost_id, cut_id, changed_id = (path.stem[21:] for path in (lost, cut, changed))
    assert kinds >= {("missing", lost_id), ("short", cut_id), ("corrupt", changed_id), ("orphaned", STRAY)}
    assert {segment for _, segment in kinds} == {lost_id, cut_id, changed_id, STRAY}
    assert [(copy / name).read_bytes() for name in deleted.read_text(encoding="utf-8").splitlines()] == [b"left over"]


def test_a_topic_that_was_deleted(
    rig: Rig, new_topic: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker deletes its objects. In a copy of the tier they are left, and the delete list has them all."""
    topic = new_topic("audit-deleted")
    topics.make_tiered(rig, topic, 60)
    copy = shutil.copytree(rig.remote, tmp_path / "copy")
    folder = tier_folder(rig, topic, 0)
    admin = topics.admin(rig)
    admin.delete_topics([topic])[topic].result(60)
    rig.until("the broker has deleted the segments", lambda: not list(folder.glob("*.log")))
    assert audit(rig, rig.remote, "-t", topic) == 0
    assert lines_of(capsys) == ([], [])
    deleted = tmp_path / "deleted.txt"
    audit(rig, copy, "-t", topic, "--delete-list", str(deleted))
    found, _ = lines_of(capsys)
    assert {finding["finding"] for finding in found} <= {"orphaned", "deleted-topic"}
    left = {str(path.relative_to(copy)) for path in copy.glob(f"*/{folder.name}/*")}
    assert left == set(deleted.read_text(encoding="utf-8").splitlines()) != set()


def test_records_deleted_before_the_upload(
    rig: Rig, new_topic: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The log starts within a segment that is uploaded after that."""
    topic = new_topic("audit-cut")
    topics.create_topic(rig, topic)
    topics.produce(rig, topic, 30, sizes=(100, 120))
    topics.delete_records(rig, topic, 0, 10)
    topics.produce(rig, topic, 200, seed=4)
    topics.wait_tiered(rig, topic)
    assert audit(rig, rig.remote, "-t", topic, "--deep") == 0
    found, _ = lines_of(capsys)
    assert found == []


@pytest.mark.scheduled
def test_a_sound_tier_of_five_thousand_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All topics, transactions among them, on a broker of its own."""
    with single(tmp_path / "broker") as rig:
        topics.create_topic(rig, "many", PARTITIONS)
        producer = Producer(
            {"bootstrap.servers": rig.bootstrap, "batch.num.messages": 1, "linger.ms": 0, **topics.QUIET}
        )
        lost: list[KafkaError] = []

        def note(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                lost.append(error)

        for number in range(SEGMENTS + PARTITIONS):
            producer.produce("many", bytes([number % 251]) * 5_000, partition=number % PARTITIONS, on_delivery=note)
            producer.poll(0)
        assert (producer.flush(300), lost) == (0, [])
        mixed_topic(rig, "mixed")
        topics.wait_tiered(rig, "many", range(PARTITIONS))
        assert audit(rig, rig.remote) == 0
        found, totals = lines_of(capsys)
    assert found == []
    by_topic = {each["topic"]: each for each in totals}
    assert by_topic["many"]["segments"] >= SEGMENTS
    assert set(by_topic) == {"many", "mixed"}
