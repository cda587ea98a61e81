"""What all benchmarks have in common: where their tables stand in the documentation, and what they were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from remote_fetch.decode.columns import is_compiled

__all__ = ["DOCUMENT", "machine", "write"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"


def machine(*libraries: str) -> str:
    """What it was measured on, with the versions of these installed libraries."""
    model = platform.processor() or platform.machine()
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        lines = [line for line in cpu_info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in libraries)
    decoder = "compiled" if is_compiled() else "interpreted"
    busy = f", load average {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{model}, {os.cpu_count()} cores{busy}, {platform.system()}, Python {platform.python_version()}, {versions}; "
        f"decoder: {decoder}."
    )


def write(mark: str, section: str) -> None:
    """Put the section between the markers `mark: start` and `mark: end` of docs/performance.md."""
    start, end = f"<!-- {mark}: start -->", f"<!-- {mark}: end -->"
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(start, 1)
    _, after = rest.split(end, 1)
    DOCUMENT.write_text(f"{before}{start}\n{section}\n{end}{after}", encoding="utf-8")
