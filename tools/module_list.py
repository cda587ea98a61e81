"""Writes docs/modules.md: every module with the first paragraph of its docstring. `python -m tools.module_list`.

Rules of the file:

- Standard library only. The text is a pure function of the tree, so that a check can compare it with the page.
- A folder with an `__init__.py` has a heading and that file's sentence. A folder without modules of its own has none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FOLDERS", "PAGE", "listing", "main"]

PAGE = "docs/modules.md"
FOLDERS = ("remote_fetch", "fetchers", "tools", "tests/rig", "tests/stores", "tests/benchmarks")
_HEAD = """# The modules

Every module with the first sentence of its docstring. `make modules` writes this page; `make check` fails if it is out
of date. Where to start for a change is on [the map](map.md).
"""
_TITLES = {"remote_fetch": "the package", "tools": "what the Makefile runs", "tests/benchmarks": "figures"}


def listing(root: Path) -> str:
    """The text of the page for the project at `root`."""
    return "\n".join([_HEAD, *_sections(root)])


def _sections(root: Path) -> Iterator[str]:
    for name in FOLDERS:
        for folder in sorted({path.parent for path in (root / name).rglob("*.py")}):
            modules = [path for path in sorted(folder.glob("*.py")) if not _is_left_out(path)]
            if modules:
                place = folder.relative_to(root).as_posix()
                lead = _first_sentence(folder / "__init__.py") or _TITLES.get(place, "")
                lines = [f"- `{path.name}`: {_first_sentence(path)}" for path in modules]
                yield "\n".join([f"## {place}/", *(["", lead] if lead else []), "", *lines, ""])


def _is_left_out(path: Path) -> bool:
    return path.name == "__init__.py" or path.name.startswith("test_")


def _first_sentence(path: Path) -> str:
    """The first paragraph of a module's docstring in one line; empty if there is no module or no docstring."""
    if not path.is_file():
        return ""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def main() -> int:
    """Write docs/modules.md of this project."""
    root = Path(__file__).resolve().parents[1]
    (root / PAGE).write_text(listing(root), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
