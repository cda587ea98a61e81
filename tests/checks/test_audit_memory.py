"""The memory of an audit does not grow with the number of segments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_MORE_KIB = 10_240
"""Ten times as many segments may take that much more."""


def audited(segments: int) -> dict[str, Any]:
    """The audit of so many segments, in a process of its own."""
    command = [sys.executable, "-m", "tests.checks.large_tier", str(segments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["segments"], found["found"]) == (segments, {"missing": -(-segments // 1000)})
    return found


@pytest.mark.scheduled
def test_ten_times_as_many_segments() -> None:
    small, large = audited(20_000), audited(200_000)
    print(small, large)
    assert large["peak_kib"] - small["peak_kib"] < _MORE_KIB
