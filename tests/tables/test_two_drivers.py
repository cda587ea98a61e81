"""Two drivers run the job of a directory at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote_fetch.tables.target import Target
from tests.tables.tables import Topic, export


def test_one_commits_while_the_other_looks_at_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is the job's own, although it was not there a moment before."""
    topic, where = Topic(tmp_path / "tier").grow(1), {"format": "parquet", "to": str(tmp_path / "out")}
    is_free = Target.is_free

    def later(target: Target) -> bool:
        monkeypatch.setattr(Target, "is_free", is_free)
        assert export(topic, where).tasks_run > 0
        return target.is_free()

    monkeypatch.setattr(Target, "is_free", later)
    done = export(topic, where)
    assert (done.rows, done.tasks_run) == (20, 0)
