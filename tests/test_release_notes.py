"""The notes of a release: the lines of its version, and clear refusals of a tag that is not ready."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import release_notes
from tools.release_notes import NotReady, notes, version_of_tag

CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- One thing,
  in two lines.

### Fixed

- Another.

## [0.2.0rc1]

- A candidate.

## [0.1.0]

- The first.
"""


def test_the_lines_of_a_version() -> None:
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n- One thing,\n  in two lines.\n\n### Fixed\n\n- Another.\n"
    assert notes(CHANGELOG, "0.2.0rc1") == "- A candidate.\n"
    assert notes(CHANGELOG, "0.1.0") == "- The first.\n"


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        (CHANGELOG.replace("[0.2.0]", "[0.3.0]"), "no heading '## [0.2.0]'"),
        (CHANGELOG + "\n## [0.2.0]\n\n- Again.\n", "2 headings '## [0.2.0]'"),
        (CHANGELOG.replace("- One", "One").replace("- Another", "Another"), "says nothing of version 0.2.0"),
        (CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n- Late.\n"), "move them below '## [0.2.0]'"),
    ],
)
def test_a_changelog_that_is_not_ready(changelog: str, message: str) -> None:
    with pytest.raises(NotReady, match=re.escape(message)):
        notes(changelog, "0.2.0")


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2.1", "v0.2", "v0.2.0.post1", ""])
def test_a_tag_that_is_not_the_version(tag: str) -> None:
    with pytest.raises(NotReady, match=re.escape("pyproject.toml has version 0.2.0: tag v0.2.0")):
        version_of_tag(tag, "0.2.0")
    assert version_of_tag("v0.2.0", "0.2.0") == "0.2.0"


def test_what_the_workflow_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n', encoding="utf-8")
    assert release_notes.main(["v0.2.0"], tmp_path) == 0
    assert capsys.readouterr().out == notes(CHANGELOG, "0.2.0")
    assert release_notes.main(["v0.1.0"], tmp_path) == 1
    assert capsys.readouterr().err.startswith("release notes: the tag is v0.1.0")
    assert release_notes.main([], tmp_path) == 2


def test_the_changelog_of_this_project_can_be_read() -> None:
    root = Path(__file__).parents[1]
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = release_notes._sections(text)
    assert {"## [Unreleased]", "## [0.1.0]"} <= {heading for heading, _ in sections}
