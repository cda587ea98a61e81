"""Saved files stay readable: the numbers on the page are those of the code, and old files are read.

Rules of the file:

- `tests/golden/saved/` has a file of each version that was ever written. A new version gets a new file.
- The bytes of now are compared with the newest file, so that a change of shape needs a new version, or a look.
- After such a change: the number in the module, the page, and `python -m tests.saved_samples`.
"""

from __future__ import annotations

import ast
import json
import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from remote_fetch.errors import ConfigError, UnsupportedFormat
from remote_fetch.spark.stream_limits import from_json, to_json
from remote_fetch.tables.job_records import with_checksum
from tests.cases import each_of
from tests.saved_samples import AGAIN, FOLDER, SAMPLES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "saved-formats.md").read_text(encoding="utf-8")
MODULES = {
    "plan/saved.py": "plan",
    "tables/saved_tasks.py": "tasks",
    "tables/job_records.py": "manifest",
    "locate/snapshot.py": "timelines",
    "locate/saved_replay.py": "replay",
    "restore/journal.py": "journal",
    "checks/deep_journal.py": "audit",
}
HEADER_BYTES = 18
SQLITE = b"SQLite format 3"
USER_VERSION = slice(60, 64)
"""Of SQLite's file header, as the pragma of that name."""
_ROW = re.compile(r"^\| (\w+) \| .* \| .* \| (\d+) \| ([\d, ]+) \|$", re.MULTILINE)


def told() -> dict[str, tuple[int, tuple[int, ...]]]:
    """The version that is written, and those that are read, of each format on the page."""
    return {name: (int(now), tuple(map(int, known.split(", ")))) for name, now, known in _ROW.findall(PAGE)}


def versions_of_the_code() -> dict[str, tuple[int, ...]]:
    """The versions of each module that has some: `_VERSION = 1`, or those of a `Frame`. The last one is written."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted((ROOT / "remote_fetch").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign([ast.Name("_VERSION")], ast.Constant(int(version))):
                    found[path.relative_to(ROOT / "remote_fetch").as_posix()] = (version,)
                case ast.Assign(_, ast.Call(ast.Name("Frame"), [_, versions, *_])):
                    found[path.relative_to(ROOT / "remote_fetch").as_posix()] = ast.literal_eval(versions)
    return found


def comparable(data: bytes) -> tuple[bytes, bytes]:
    """The bytes, or magic, version and body: another zlib compresses the same body to other bytes.

    Of a database its version and its rows: another SQLite arranges the same rows otherwise.
    """
    if data.startswith(SQLITE):
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(data)
            return data[USER_VERSION], "\n".join(database.iterdump()).encode()
    return (data[:6], zlib.decompress(data[HEADER_BYTES:])) if data.startswith(b"RF") else (data, b"")


def test_the_page_has_the_version_of_every_format() -> None:
    code = {MODULES[module]: (versions[-1], versions) for module, versions in versions_of_the_code().items()}
    assert told() == code


def test_there_is_a_file_of_every_version() -> None:
    names = [path.name for path in FOLDER.iterdir()]
    for name, (now, known) in told().items():
        assert now in known
        for version in known:
            assert any(found.startswith(f"{name}-{version}.") for found in names), (name, version)
    assert SAMPLES.keys() <= set(names)


@each_of("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_saved_file_is_read(path: Path) -> None:
    AGAIN[path.stem.partition("-")[0]](path.read_bytes())


@each_of("name", SAMPLES)
def test_what_is_written_now_is_what_the_file_of_its_version_has(name: str) -> None:
    saved = (FOLDER / name).read_bytes()
    assert comparable(SAMPLES[name]()) == comparable(saved)
    assert comparable(AGAIN[name.partition("-")[0].partition(".")[0]](saved)) == comparable(saved)


@each_of("name", [name for name in SAMPLES if "-" in name])
def test_another_version_is_refused(name: str) -> None:
    """As the page says it."""
    kind, _, version = name.partition(".")[0].partition("-")
    data = (FOLDER / name).read_bytes()
    if data.startswith(b"RF"):
        newer = data[:4] + (99).to_bytes(2, "big") + data[6:]
    elif data.startswith(SQLITE):
        newer = data[: USER_VERSION.start] + (99).to_bytes(4, "big") + data[USER_VERSION.stop :]
    else:
        newer = re.sub(rf'("(?:version|restore)": ){version}\b'.encode(), rb"\g<1>99", data, count=1)
    assert newer != data
    with pytest.raises((UnsupportedFormat, ConfigError), match="99") as raised:
        AGAIN[kind](newer)
    (row,) = re.findall(rf"^\| {kind} \| ((?:UnsupportedFormat|ConfigError|The reader).*) \|$", PAGE, re.MULTILINE)
    for piece in re.findall(r'"([^"]+)"', row):
        assert piece.strip(". ") in str(raised.value)


def test_what_is_passed_over() -> None:
    for kind, name in (("progress", "progress.json"), ("manifest", "manifest-1.json")):
        data = (FOLDER / name).read_bytes()
        assert AGAIN[kind](data.replace(b"{", b'{"new": [1], ', 1)) == data


@each_of("name", ["record.json", "tasks-2.json"])
def test_what_is_passed_over_beside_a_checksum(name: str) -> None:
    """It is a checksum of all fields, those that only a later release knows among them."""
    saved = json.loads((FOLDER / name).read_bytes())
    del saved["checksum"]
    later = with_checksum({"new": [1], **saved, "newer": 0.1}).encode()
    assert AGAIN[name.partition("-")[0].partition(".")[0]](later) == (FOLDER / name).read_bytes()


def test_a_checkpoint_has_sparks_own_offsets() -> None:
    (shown,) = re.findall(r'`(\{"topic": \{"0": 23\}\})`', PAGE)
    assert to_json(from_json(ast.literal_eval(shown))) == ast.literal_eval(shown)
