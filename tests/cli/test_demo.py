"""`demo`: the tour of the bucket that ships with the package."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from remote_fetch.cli.demo import _shown

if TYPE_CHECKING:
    import pytest

    from tests.cli.conftest import Run


def test_the_tour(run: Run) -> None:
    outcome = run("demo")
    assert (outcome.code, outcome.stderr) == (0, "")
    text = outcome.stdout.decode("utf-8")
    titles = re.findall(r"^== (.*)$", text, re.MULTILINE)
    assert titles == [
        "The segments of topic tx",
        "What a read would fetch",
        "The records of tx-1 under both isolation levels",
        "The report of both reads",
        "Read it yourself, in a directory that does not exist yet",
    ]
    assert "10 segments, " in text
    assert "total: 10 segments, 10 GETs, " in text
    side_by_side = text.split("read_committed\n", 1)[1].split("\n\n")[0].splitlines()
    assert len(side_by_side) == 16, "the broker delivers as many records under read_uncommitted"
    assert sum("(aborted)" in line for line in side_by_side) == 7
    for line in side_by_side:
        left, right = line[:56].strip(), line[56:].strip()
        assert right in (left, "(aborted)")
    assert re.search(r"^25 records in \d", text, re.MULTILINE)


def test_the_commands_it_names_work(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ remote-fetch (.*)$", run("demo").stdout.decode("utf-8"), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["ls", "plan", "cat", "demo"]
    for command in commands:
        assert run(*command.split()).code == 0


def test_its_bucket_is_a_part_of_the_recording() -> None:
    """The demo shows exactly the records that the broker wrote."""
    bucket = Path(str(files("remote_fetch.cli") / "demo_bucket"))
    recording = Path(__file__).parents[1] / "golden" / "data" / "local-4.1" / "remote"
    shipped = [path for path in bucket.rglob("*") if path.is_file()]
    assert len(shipped) > 50
    for path in shipped:
        assert path.read_bytes() == (recording / path.relative_to(bucket)).read_bytes()


def test_a_copy_of_its_bucket_can_be_read(run: Run, tmp_path: Path) -> None:
    bucket = Path(str(files("remote_fetch.cli") / "demo_bucket"))
    copied = run("demo", "--copy", str(tmp_path / "my tier"))
    assert copied.code == 0
    for path in bucket.rglob("*"):
        assert path.is_dir() or (tmp_path / "my tier" / path.relative_to(bucket)).read_bytes() == path.read_bytes()
    command = shlex.split(copied.stdout.decode("utf-8").partition("remote-fetch ")[2])
    assert run(*command).stdout == run("ls", "--url", str(bucket)).stdout


def test_a_copy_into_a_url_is_refused(run: Run) -> None:
    assert "s3://bucket/tier is a URL" in run("demo", "--copy", "s3://bucket/tier").stderr


def test_a_copy_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("mine")
    refused = run("demo", "--copy", str(tmp_path))
    assert refused.code != 0
    assert not refused.stdout
    assert str(tmp_path) in refused.stderr
    assert "Name a new directory" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own.txt"]


def test_a_copy_that_cannot_be_written_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", fail)
    directory = str(tmp_path / "tier")
    refused = run("demo", "--copy", directory)
    assert refused.code == 1
    assert refused.stderr.startswith(f"remote-fetch: --copy {directory}: No space left on device. Name a new directory")
    assert refused.stderr.count("\n") == 1


def test_nulls_are_shown_as_such() -> None:
    nulls = {"offset": 7, "timestampMs": 0, "key": None, "value": None}
    assert _shown(nulls) == "   7  1970-01-01T00:00:00.000Z  null        null"
    assert _shown({**nulls, "key": b"\xff\n", "value": b"ab"}).endswith("  \\xff\\n      2 bytes")
