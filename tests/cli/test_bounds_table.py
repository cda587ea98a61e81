"""`bounds`: from the bucket alone, where most facts are unknown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.errors import MissingExtra, Unlocatable
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.model import LogBounds, Uuid
from remote_fetch.prepare import log_layout

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_a_line_for_each_partition(run: Run, bucket: str) -> None:
    outcome = run("bounds", "-t", "shop", "--url", bucket, "--json")
    assert (outcome.code, outcome.stderr) == (0, "")
    first, second = (json.loads(line) for line in outcome.lines)
    sizes = [path.stat().st_size for path in Path(bucket).rglob("shop-0-*/*.log")]
    assert (first["partition"], second["partition"]) == (0, 1)
    assert (first["tier_start"], first["tier_end"], first["remote_stable_offset"]) == (0, 9, 9)
    assert (first["segments"], first["remote_bytes"]) == (3, sum(sizes))
    assert {name for name, value in first.items() if value is None} == {
        *("log_start", "local_start", "last_stable_offset", "high_watermark", "copy_lag"),
        *("stored_bytes", "local_bytes"),
    }


def test_a_table(run: Run, bucket: str) -> None:
    head, row = run("bounds", "-t", "shop", "-p", "1", "--url", bucket).lines
    assert head.split()[:4] == ["TOPIC", "PARTITION", "LOG", "START"]
    assert row.split()[:6] == ["shop", "1", "-", "0", "2", "2"]


def test_a_lost_snapshot_leaves_one_fact_unknown(run: Run, bucket: str, tmp_path: Path) -> None:
    shutil.copytree(bucket, copy := tmp_path / "copy")
    for path in copy.rglob("shop-0-*/*.snapshot"):
        path.unlink()
    outcome = run("bounds", "-t", "shop", "-p", "0", "--url", str(copy), "-J")
    line = json.loads(outcome.lines[0])
    assert (outcome.code, line["remote_stable_offset"], line["tier_end"]) == (0, None, 9)
    assert "remote stable offset unknown" in outcome.stderr


def test_why_brokers_do_not_tell_of_their_disks(run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note has the form that those of `ls` and `plan` have."""

    def refuse(*_: object, **__: object) -> None:
        raise MissingExtra("no answer", extra="broker-api")

    described = Topic("shop", Uuid(bytes(range(16))), (0, 1), may_read=True)
    monkeypatch.setattr(Cluster, "describe", lambda *_, **__: described)
    monkeypatch.setattr(Cluster, "log_bounds", lambda *_: LogBounds(0, 9))
    monkeypatch.setattr("remote_fetch.locate.broker_channel.BrokerChannel", refuse)
    outcome = run("bounds", "-t", "shop", "-b", "127.0.0.1:1", "-X", "remote.locator=listing", "--url", bucket)
    assert (outcome.code, len(outcome.lines)) == (0, 3)
    assert outcome.stderr == "% note: no answer; the columns of the local log are empty\n"


def test_one_cause_of_several_partitions_is_noted_once(run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise Unlocatable("no producer snapshot")

    monkeypatch.setattr(log_layout, "open_partition", lost)
    said = run("bounds", "-t", "shop", "--url", bucket).stderr
    assert said == "% note: remote stable offset unknown: no producer snapshot\n"


def test_what_is_not_there(run: Run, bucket: str) -> None:
    for words, says in (
        (("-t", "none"), "no segment of topic 'none'"),
        (("-t", "shop", "-p", "7"), "no partition 7 was found; there are 0, 1"),
    ):
        outcome = run("bounds", "--url", bucket, *words)
        assert (outcome.code, outcome.stdout) == (1, b"")
        assert says in outcome.stderr
