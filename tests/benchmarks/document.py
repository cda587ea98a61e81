"""Parts that the benchmarks share: the pages that hold their tables, and the machine that they ran on.

Rules of the file:

- A page under `docs/performance/` has its date in its name and holds the tables of one or more benchmarks.
- A benchmark's tables stand between two comments with its mark. `write` replaces what stands between them, in the
  newest page that has them. To keep an old page as it is, copy it to a new date first.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from remote_fetch.decode.run_decoder import is_native

__all__ = ["PAGES", "machine", "marked", "newest", "write"]

PAGES = Path(__file__).parents[2] / "docs" / "performance"


def machine(*libraries: str) -> str:
    """The processor, its load and the versions, of these installed libraries too, in one line."""
    model = platform.processor() or platform.machine()
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        lines = [line for line in cpu_info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in libraries)
    decoder = "native" if is_native() else "plain Python"
    busy = f", load average {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{model}, {os.cpu_count()} cores{busy}, {platform.system()}, Python {platform.python_version()}, {versions}; "
        f"decoder: {decoder}."
    )


def newest(mark: str, pages: Path = PAGES) -> Path:
    """The page with the latest date in its name that has this mark. Raises LookupError if no page has it."""
    for page in sorted(pages.glob("*.md"), reverse=True):
        if _comments(mark)[0] in page.read_text(encoding="utf-8"):
            return page
    raise LookupError(f"no page in {pages} has the mark {mark!r}")


def marked(mark: str, text: str) -> tuple[str, str, str]:
    """The text before the mark's comments, between them, and after them."""
    start, end = _comments(mark)
    before, rest = text.split(start, 1)
    section, after = rest.split(end, 1)
    return before + start, section, end + after


def write(mark: str, section: str, pages: Path = PAGES) -> None:
    """Replace the tables with this mark in the newest page that has them."""
    page = newest(mark, pages)
    before, _, after = marked(mark, page.read_text(encoding="utf-8"))
    page.write_text(f"{before}\n{section}\n{after}", encoding="utf-8")


def _comments(mark: str) -> tuple[str, str]:
    return f"<!-- {mark}: start -->", f"<!-- {mark}: end -->"
