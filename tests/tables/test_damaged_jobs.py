"""Saved texts of a job that were damaged: an error that names the file and the way on, and never other records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.tables.job_records import with_checksum
from tests.tables.tables import FORMATS, Topic, export, held, same, target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def begun(tmp_path: Path, format_: str) -> tuple[Topic, dict[str, Any]]:
    """A job of two tasks that was killed in the second one."""
    topic = Topic(tmp_path / "tier").grow(2)
    to = tmp_path / "lake"
    where = {"format": format_, "to": str(to / "out")} if format_ == "parquet" else target(format_, to)

    def transform(batch: Any) -> Any:
        if 1 in batch.column("partition").to_pylist():
            raise KeyboardInterrupt
        return batch

    with pytest.raises(KeyboardInterrupt):
        export(topic, where, transform=transform)
    return topic, where


def found(tmp_path: Path, name: str) -> Path:
    (path,) = (tmp_path / "lake").rglob(name)
    return path


@pytest.mark.parametrize("format_", [*FORMATS, "parquet"])
def test_a_digit_of_a_plan(tmp_path: Path, format_: str) -> None:
    """Each of them is a plan that could be. It would lose records, or have them twice."""
    topic, where = begun(tmp_path, format_)
    path = found(tmp_path, "plan.json")
    text = path.read_text()
    for old, new in (
        (r"\"last_offset\": 9", r"\"last_offset\": 3"),
        (r"\"positions\": [0, ", r"\"positions\": [6, "),
        (r"\"0\": [0, 20]", r"\"0\": [0, 29]"),
        ('"tasks": [{', '"tasks": [], "other": [{'),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(
            CorruptSegment, match=r"its checksum is .* To go on, remove .*: the job is then begun again"
        ):
            export(topic, where)
    path.write_text(text)
    assert export(topic, where).rows == 40


def test_a_plan_that_is_none(tmp_path: Path) -> None:
    topic, where = begun(tmp_path, "parquet")
    path = found(tmp_path, "plan.json")
    for content in (b"", b"{", b"null", b"\xff\xfe{}", b'{"version": 2, "\xff": 0}', b"\0" * 9):
        path.write_bytes(content)
        with pytest.raises(CorruptSegment, match=rf"To go on, remove {path.parent}: the job is then begun again"):
            export(topic, where)


def test_a_record_that_is_none(tmp_path: Path) -> None:
    topic, where = begun(tmp_path, "parquet")
    path = found(tmp_path, "00000.json")
    path.write_bytes(b"")
    with pytest.raises(
        CorruptSegment, match=rf"not a record .*{path}.*To go on, remove it: its task is then run again"
    ):
        export(topic, where)
    path.unlink()
    done = export(topic, where)
    assert (done.rows, done.tasks_run) == (40, done.tasks)


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
    topic, where = begun(tmp_path, "parquet")
    staging = found(tmp_path, "plan.json").parent
    (staging / "_manifest.json").write_text('{"version": 9}')
    with pytest.raises(UnsupportedFormat, match=rf"version 9.*{staging}/_manifest.json.*remove {staging} and "):
        export(topic, where)
    (staging / "_manifest.json").unlink()
    export(topic, where)
    path = found(tmp_path, "_manifest.json")
    path.write_bytes(b"")
    with pytest.raises(CorruptSegment, match=rf"not a record .*{path}.*data files stay readable"):
        export(topic, where)


def test_a_digit_of_a_record(tmp_path: Path) -> None:
    """Bounds and rows are what readers of a Delta table believe without a look at the file."""
    topic, where = begun(tmp_path, "delta")
    path = found(tmp_path, "00000.json")
    text = path.read_text()
    for old, new in (('"offset": [0, 7]', '"offset": [4, 7]'), ('"rows": 8', '"rows": 7'), ('"task": 0', '"task": 1')):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(CorruptSegment, match=r"its checksum is .*00000\.json\]\. To go on, remove it: its task"):
            export(topic, where)
    path.unlink()
    assert export(topic, where).rows == 40
    assert same(held(where), topic.rows())


def test_a_record_of_another_task(tmp_path: Path) -> None:
    """A record of an older release has no checksum, and a whole one may be in a wrong place."""
    topic, where = begun(tmp_path, "delta")
    path = found(tmp_path, "00000.json")
    saved = json.loads(path.read_text())
    del saved["checksum"]
    for text in (json.dumps({**saved, "task": 1}), with_checksum({**saved, "task": 1})):
        path.write_text(text)
        with pytest.raises(CorruptSegment, match=r"task 1 in the place of another .*00000\.json\]\. To go on"):
            export(topic, where)
    path.write_text(json.dumps(saved))
    assert export(topic, where).rows == 40
