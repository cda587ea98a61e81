"""An export that is killed anywhere and started again: each record is in the table once, and nothing else is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import of_a_change
from tests.own_processes import killed_after
from tests.tables.tables import FORMATS, Topic, held, same, target

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def kill(directory: Path, format_: str, seed: int, points: int) -> list[str]:
    """Kill exports at so many points of a first and of a later run. Each table is checked. Returns the points."""
    command = [sys.executable, "-m", "tests.tables.killed_exports", str(directory), format_, str(seed), str(points)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    points_found: list[str] = json.loads(done.stdout)
    return points_found


@pytest.mark.slow
@pytest.mark.parametrize("format_", of_a_change(FORMATS, "delta"))
def test_killed_at_some_points(tmp_path: Path, format_: str) -> None:
    assert len(kill(tmp_path, format_, 1, 2)) >= 4


@pytest.mark.scheduled
@pytest.mark.parametrize("format_", FORMATS)
def test_processes_at_once(tmp_path: Path, format_: str) -> None:
    """Three exports at the same time, one of them of one partition: each ends well, and each record is there once."""
    topic, where = Topic(tmp_path / "tier").grow(2), target(format_, tmp_path / "lake")
    to = ["--format", format_, "--to", where["to"], "--file-size", "400", "--partition-by", "hour"]
    to += ["--to-option", f"warehouse={tmp_path / 'lake'}"] if format_ == "iceberg" else []
    command = [sys.executable, "-m", "remote_fetch", "export", "--url", str(topic.directory), "-t", "topic", *to, "-q"]
    for _ in range(2):
        running = [
            subprocess.Popen([*command, *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for more in ([], [], ["-p", "1"])
        ]
        for process in running:
            with killed_after(300, process):
                _, said = process.communicate()
            assert (process.returncode, said) == (0, "")
        assert same(held(where), topic.rows())
        topic.grow()


@pytest.mark.scheduled
@pytest.mark.parametrize("format_", FORMATS)
def test_killed_at_every_kind_of_step(tmp_path: Path, format_: str) -> None:
    points = kill(tmp_path, format_, 2, 40)
    assert len(points) >= 60
    kinds = {point.split(" ")[0] for point in points}
    assert {"open", "os.rename", "os.mkdir", "before", "after"} <= kinds
