"""The notes of a release, out of CHANGELOG.md. `python -m tools.release_notes v0.2.0` prints those of a tag.

Rules of the file:

- Standard library only.
- A release that is not ready is an error: the workflow of a tag asks here before it builds anything.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NotReady", "main", "notes", "version_of_tag"]

ROOT = Path(__file__).resolve().parents[1]

_HEADING = re.compile(r"^## .*$", re.MULTILINE)
_LINE = re.compile(r"^- ", re.MULTILINE)


class NotReady(Exception):
    """The changelog or the version does not fit the tag. The text says what to do."""


def version_of_tag(tag: str, project_version: str) -> str:
    """The version that a tag `vVERSION` names. Raises NotReady if it is not that of pyproject.toml."""
    if tag != f"v{project_version}":
        raise NotReady(
            f"the tag is {tag}, and pyproject.toml has version {project_version}: "
            f"tag v{project_version}, or change the version first"
        )
    return project_version


def notes(changelog: str, version: str) -> str:
    """The text below the heading `## [VERSION]`, up to the next version, without blank lines around it.

    Raises NotReady if there is not exactly one such heading, if no line is below it, and if lines are left below
    `## [Unreleased]`: a tagged tree has no change that is not part of the release.
    """
    sections = _sections(changelog)
    found = [text for heading, text in sections if heading.startswith(f"## [{version}]")]
    if len(found) != 1:
        times = f"{len(found)} headings" if found else "no heading"
        raise NotReady(f"CHANGELOG.md has {times} '## [{version}]': write one, above the lines of this release")
    if not _LINE.search(found[0]):
        raise NotReady(f"CHANGELOG.md says nothing of version {version}: no line is below '## [{version}]'")
    if any(heading.startswith("## [Unreleased]") and _LINE.search(text) for heading, text in sections):
        raise NotReady(f"CHANGELOG.md has lines below '## [Unreleased]': move them below '## [{version}]'")
    return found[0].strip() + "\n"


def _sections(changelog: str) -> list[tuple[str, str]]:
    """The headings of versions, each with the text below it."""
    headings = list(_HEADING.finditer(changelog))
    ends = [heading.start() for heading in headings[1:]] + [len(changelog)]
    return [(heading[0], changelog[heading.end() : end]) for heading, end in zip(headings, ends, strict=True)]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the notes of the tag. The exit code is 1 if there are none, with the reason on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) != 1:
        print("usage: python -m tools.release_notes vVERSION", file=sys.stderr)
        return 2
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        version = version_of_tag(words[0], project["version"])
        text = notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except NotReady as error:
        print(f"release notes: {error}", file=sys.stderr)
        return 1
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
