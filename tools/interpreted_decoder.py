"""A pytest plugin that decodes in plain Python, although the native and the compiled libraries are installed.

`python -m pytest -p tools.interpreted_decoder tests/scan`

Rules of the file:

- It is a plugin, not an option of tests/conftest.py, because it has to run before a conftest imports the decoder.
- The native decoder cannot be imported, so that its plain reference runs. Compiled modules run from their source.
- It replaces nothing else.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

__all__ = ["INNER_LOOPS", "NATIVE", "SourceFinder", "pytest_load_initial_conftests"]

_PLACE = Path(__file__).resolve().parents[1] / "remote_fetch" / "decode"

INNER_LOOPS: Mapping[str, Path] = MappingProxyType({"remote_fetch.decode._messages": _PLACE / "_messages.py"})
"""The modules that are compiled by Cython, with their sources."""

NATIVE = "remote_fetch.decode._native"
"""The library that has no source in Python."""


class SourceFinder:
    """Imports the modules of Cython from their sources, even if a compiled library is in the same folder."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the source for the name of such a module, None for every other."""
        source = INNER_LOOPS.get(fullname)
        if source is None:
            return None
        return importlib.util.spec_from_file_location(fullname, source, loader=SourceFileLoader(fullname, str(source)))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Install the importer before a module of the project is imported. Raises UsageError if the decoder is loaded."""
    if not sys.modules.keys().isdisjoint({*INNER_LOOPS, NATIVE}):
        raise pytest.UsageError("tools.interpreted_decoder comes too late: the decoder is already loaded")
    sys.meta_path.insert(0, SourceFinder)
    sys.modules[NATIVE] = None  # type: ignore[assignment]  # its import raises ModuleNotFoundError with its name
