"""Runs the tutorial "your first backfill", unchanged, on a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from tests.rig import topics
from tests.rig.rig import Rig

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-backfill.md"
_TIMEOUT_S = 120


def test_every_command_and_the_script(rig_43: Rig, tmp_path: Path) -> None:
    topics.create_topic(rig_43, "orders", 2)
    for partition in (0, 1):
        topics.produce(rig_43, "orders", 100, partition=partition, seed=partition)
    topics.wait_tiered(rig_43, "orders", (0, 1))
    topics.set_config(rig_43, "orders", local_retention_ms=-2)
    topics.produce(rig_43, "orders", 20, seed=5)

    blocks = re.findall(r"```(bash|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [kind for kind, _ in blocks].count("bash") == 5
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "BROKER": rig_43.bootstrap,
        "TIER": str(rig_43.remote),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
    }
    printed = []
    for kind, text in blocks:
        if text.startswith("export"):
            continue
        command = ["bash", "-euc", text] if kind == "bash" else [sys.executable, "-W", "error", "-c", text]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=tmp_path,
            env=environment,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert "segments" in printed[0]
    assert "from the broker (not-tiered)" in printed[1]
    assert printed[2].count("\n") == 3
    assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 220
    assert pq.read_table(tmp_path / "orders.parquet").num_rows == 220
    assert printed[4].startswith("220 records: ")
