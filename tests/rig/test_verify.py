"""`verify` on a real broker: a sound topic of everything in both isolation levels, and one byte that was changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from remote_fetch.cli import main
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATION_OF_A_CHANGE, mixed_topic
from tools.fuzz_batches import reseal_log

VALUE = b"a value that is there once"
LIMIT = "fetch.remote.broker.timeout.ms"


@pytest.fixture
def place(rig: Rig, new_topic: Callable[[str], str]) -> tuple[Rig, str]:
    """A topic with all codecs and transactions, and with VALUE in a plain batch."""
    topic = new_topic("verify")
    mixed_topic(rig, topic)
    producer = Producer({"bootstrap.servers": rig.bootstrap, **topics.QUIET})
    producer.produce(topic, VALUE, partition=0)
    assert producer.flush(30) == 0
    topics.produce(rig, topic, 30, seed=3)
    topics.wait_tiered(rig, topic)
    return rig, topic


def verify(rig: Rig, url: Path, topic: str, *more: str) -> int:
    """The exit code of the command."""
    return main(["verify", "-b", rig.bootstrap, "--url", str(url), "-t", topic, "-X", "log_level=0", *more])


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_all_is_alike(place: tuple[Rig, str], capsys: pytest.CaptureFixture[str], isolation: str) -> None:
    """On a broker before 3.9.1 a difference is its known fault, and is named so."""
    rig, topic = place
    code = verify(rig, rig.remote, topic, "-J", "--time", "--isolation", isolation)
    captured = capsys.readouterr()
    verdict = json.loads(captured.out)
    if isolation == "read_committed" and not rig.is_at_least(3, 9, 1):
        print(captured.out)
        assert all(finding["is_aborted_shown"] for finding in verdict["findings"])
        assert code == (3 if verdict["findings"] else 0)
        return
    assert (verdict["findings"], code) == ([], 0)
    assert verdict["records"] + verdict["left_out"].get("not-tiered", 0) > 100
    assert verdict["segments"] > 3
    (fetches,) = re.findall(r"^  (\d+) fetch requests$", captured.err, re.MULTILINE)
    assert 1 <= int(fetches) <= 10_000
    told = [line.split(" in ")[0] for line in captured.err.splitlines() if line.startswith(("store:", "broker:"))]
    assert told == [f"{way}: {verdict['records']} records" for way in ("store", "broker")]


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_one_changed_byte(
    place: tuple[Rig, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], isolation: str
) -> None:
    """In a copy of the tier, with a right checksum. The command names offset, segment and both values."""
    rig, topic = place
    folder = shutil.copytree(rig.remote, tmp_path / "copy")
    paths = folder.glob(f"kafka-tiered-storage/{topic}-0-*/*.log")
    (path,) = (path for path in paths if VALUE in path.read_bytes())
    path.write_bytes(reseal_log(path.read_bytes().replace(VALUE, b"X" + VALUE[1:])))
    assert verify(rig, folder, topic, "-J", "-q", "--isolation", isolation) == 3
    findings = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = (one for one in findings if not one["is_aborted_shown"])
    assert finding["columns"] == ["value"]
    assert finding["store"]["value"] == repr(b"X" + VALUE[1:])
    assert finding["broker"]["value"] == repr(VALUE)
    assert finding["segment"] in path.name


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_an_object_that_the_broker_lacks_too(
    place: tuple[Rig, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], isolation: str
) -> None:
    """The broker reads the same object, so it gives nothing of that segment for ever. The others are compared."""
    rig, topic = place
    lost = sorted(rig.remote.glob(f"kafka-tiered-storage/{topic}-0-*/*.log"))[1]
    kept = shutil.move(lost, tmp_path)
    limit = f"{LIMIT}=5000"
    try:
        code = verify(rig, rig.remote, topic, "-J", "-q", "-X", limit, "--isolation", isolation)
    finally:
        shutil.move(kept, lost)
    verdict = json.loads(capsys.readouterr().out)
    assert code == 3
    assert verdict["records"] > 50
    (finding,) = (one for one in verdict["findings"] if not one["is_aborted_shown"])
    assert lost.name in finding["error"]


def test_a_broker_that_has_lost_its_storage(
    place: tuple[Rig, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It answers with an error for each segment. Each is named. Only the first has the whole wait, and is a finding."""
    rig, topic = place
    folder = shutil.copytree(rig.remote, tmp_path / "copy")
    logs = {path: tmp_path / path.name for path in rig.remote.glob(f"kafka-tiered-storage/{topic}-0-*/*.log")}
    for path, kept in logs.items():
        path.rename(kept)
    try:
        code = verify(rig, folder, topic, "-J", "-q", "--isolation", "read_uncommitted", "-X", f"{LIMIT}=4000")
    finally:
        for path, kept in logs.items():
            kept.rename(path)
    verdict = json.loads(capsys.readouterr().out)
    markers = 1  # a segment of them alone has no record that the broker could owe
    assert (code, len(verdict["findings"]), len(verdict["unheard"])) == (3, 1, verdict["segments"] - markers - 1)
    told = "\n".join(each["error"] for each in [*verdict["findings"], *verdict["unheard"]])
    waits = [float(wait_s) for wait_s in re.findall(r" on for ([\d.]+) s,", told)]
    assert (waits[0], waits[-1]) == (4, 1)
    assert waits == sorted(waits, reverse=True)
    assert verdict["left_out"]["stalled"] > 0


def test_a_lost_snapshot_is_a_finding(
    place: tuple[Rig, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the newest one nothing of the partition can be read from the store under read_committed."""
    rig, topic = place
    folder = shutil.copytree(rig.remote, tmp_path / "copy")
    max(folder.glob(f"kafka-tiered-storage/{topic}-0-*/*.snapshot")).unlink()
    assert verify(rig, folder, topic, "-J", "-q", "--isolation", "read_committed") == 3
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["records"], list(verdict["left_out"])) == (0, ["unlocatable"])
    (finding,) = verdict["findings"]
    assert "no producer snapshot" in finding["error"]


def test_a_wrong_url_is_no_success(place: tuple[Rig, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A nightly check of a URL with a typing error, or one level too high, must not stay green."""
    rig, topic = place
    (tmp_path / "empty").mkdir()
    for url in (tmp_path / "absent", tmp_path / "empty", rig.remote.parent):
        assert verify(rig, url, topic) == 1
        assert f"nothing was compared: the store has no segment of '{topic}'" in capsys.readouterr().err
