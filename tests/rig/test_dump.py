"""`dump` beside the broker's own tool, and `bounds` beside its answers, on a fresh topic of a real broker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from remote_fetch.cli import main
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.transactions import interleaved_transactions, wait_decided

pytestmark = [pytest.mark.scheduled, pytest.mark.slow]

_TIMEOUT_S = 150


def tool(rig: Rig, folder: Path, files: list[str]) -> str:
    """The output of the version's own DumpLogSegments, with the lines of 3.9 made as 4.3 prints them."""
    package = "org.apache.kafka" if rig.is_at_least(4, 3) else "kafka"
    (node,) = rig.brokers.values()
    command = [*node.java(128), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", f"{package}.tools.DumpLogSegments"]
    command += ["--deep-iteration", "--print-data-log", "--files", ",".join(files)]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT_S, check=True)
    return re.sub(r"^(producerId: .*) $", r"\1", done.stdout.decode(), flags=re.MULTILINE)


def test_every_file_line_by_line(
    rig: Rig,
    new_topic: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """All codecs, transactions of both outcomes, headers, nulls."""
    topic = new_topic("dump")
    topics.create_topic(rig, topic)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        topics.produce(rig, topic, 40, seed=number, compression_type=codec, enable_idempotence=number % 2 == 0)
    interleaved_transactions(rig, topic, (True, False, True))
    wait_decided(rig, topic)
    topics.wait_tiered(rig, topic)
    for path in rig.remote.glob(f"kafka-tiered-storage/{topic}-0-*/*"):
        shutil.copy(path, tmp_path / f"{path.name[:20]}{path.suffix}")
    files = sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith("checkpoint"))
    monkeypatch.chdir(tmp_path)
    assert main(["dump", *files]) == 0
    captured = capfdbinary.readouterr()
    ours = captured.out.decode()
    assert captured.err == b""
    assert ours.splitlines() == tool(rig, tmp_path, files).splitlines()
    for shown in ("gzip", "snappy", "lz4", "zstd", "endTxnMarker: ABORT", "endTxnMarker: COMMIT", "valueSize: -1"):
        assert shown in ours
    assert_bounds(rig, topic, capfdbinary)


def assert_bounds(rig: Rig, topic: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """With five records more on the broker alone."""
    topics.set_config(rig, topic, local_retention_ms=-2)
    topics.produce(rig, topic, 5)
    found = topics.offsets(rig, topic, 0)
    options = ["-b", rig.bootstrap, "--url", str(rig.remote), "-X", "log_level=0", "-t", topic]
    assert main(["bounds", *options, "--json"]) == 0
    line = json.loads(capfdbinary.readouterr().out)
    logs = list(rig.remote.glob(f"kafka-tiered-storage/{topic}-0-*/*.log"))
    assert (line["log_start"], line["high_watermark"], line["last_stable_offset"]) == (0, found.latest, found.latest)
    assert (line["tier_start"], line["tier_end"]) == (0, found.latest_tiered + 1)
    assert line["remote_stable_offset"] == line["tier_end"]
    assert line["local_start"] == found.earliest_local
    assert line["copy_lag"] == found.latest - found.latest_tiered - 1 > 0
    assert (line["segments"], line["remote_bytes"]) == (len(logs), sum(log.stat().st_size for log in logs))
    assert line["local_bytes"] > 0
