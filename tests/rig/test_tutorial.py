"""Runs the tutorial "your first backfill", unchanged, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tests.rig.rig import Rig
from tests.rig.tutorials import blocks_of, half_tiered_topic, run_blocks

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-backfill.md"


def test_every_command_and_the_script(rig_43: Rig, tmp_path: Path) -> None:
    half_tiered_topic(rig_43, "orders")
    blocks = blocks_of(PAGE.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks].count("bash") == 5
    printed = run_blocks(rig_43, blocks, tmp_path, ["-W", "error"])
    assert "segments" in printed[0]
    assert "from the broker (not-tiered)" in printed[1]
    assert printed[2].count("\n") == 3
    assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 220
    assert pq.read_table(tmp_path / "orders.parquet").num_rows == 220
    assert printed[4].startswith("220 records: ")
