"""A pytest plugin: the decoder's source runs as Python although a compiled one is installed.

`python -m pytest -p tools.interpreted_decoder tests/read`

Rules of the file: a plugin of its own and no option of tests/conftest.py, because it has to be there before any
conftest imports the decoder; it replaces one module and nothing else.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

__all__ = ["DECODER", "SourceFinder", "pytest_load_initial_conftests"]

DECODER = "remote_fetch.decode._columns"
SOURCE = Path(__file__).resolve().parents[1] / "remote_fetch" / "decode" / "_columns.py"


class SourceFinder:
    """An importer for one module: the decoder's source, whatever library lies beside it."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the source for the decoder's name, None for every other."""
        if fullname != DECODER:
            return None
        return importlib.util.spec_from_file_location(DECODER, SOURCE, loader=SourceFileLoader(DECODER, str(SOURCE)))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Step in before anything of the project is imported. Raises UsageError if the decoder is loaded already."""
    if DECODER in sys.modules:
        raise pytest.UsageError("tools.interpreted_decoder comes too late: the decoder is already loaded")
    sys.meta_path.insert(0, SourceFinder)
