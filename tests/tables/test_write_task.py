"""A task of a backfill holds back little, however much it writes; the rest is in test_backfill_job.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables.write_task_run import MAX_BYTES, RANGE_BYTES, RECORDS, ROW_GROUP_BYTES

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures by Linux's /proc")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """The bytes that are read ahead, that wait for row groups and that the writer has, and 24 MiB."""
    given = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 << 10), "ARROW_DEFAULT_MEMORY_POOL": "system"}
    command = [sys.executable, "-m", "tests.tables.write_task_run", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == 1600 * RECORDS
    assert 20 <= told["files"] <= 32
    assert told["size_bytes"] > 100 * MIB
    assert told["grown_bytes"] < MAX_BYTES + 2 * RANGE_BYTES + 3 * ROW_GROUP_BYTES + 24 * MIB
