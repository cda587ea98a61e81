"""A pytest plugin, and a function, that import the C code from a directory named by an environment variable.

See `tools.sanitize`.

Rules of the file:

- It replaces the modules of Cython and nothing else, before the project is imported (as `tools.interpreted_decoder`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from tools.interpreted_decoder import INNER_LOOPS

__all__ = ["LIBRARIES_KEY", "LibraryFinder", "install", "pytest_load_initial_conftests"]

LIBRARIES_KEY = "REMOTE_FETCH_DECODER_LIBRARIES"


class LibraryFinder:
    """Imports the modules that Cython compiled (INNER_LOOPS) from `<name>.so` in a directory.

    The environment variable LIBRARIES_KEY names the directory.
    """

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the library for the name of such a module, None for every other."""
        if fullname not in INNER_LOOPS:
            return None
        library = str(Path(os.environ[LIBRARIES_KEY]) / f"{fullname.rpartition('.')[2]}.so")
        return importlib.util.spec_from_file_location(fullname, library, loader=ExtensionFileLoader(fullname, library))


def install() -> None:
    """Install the importer before the decoder is imported. Raises RuntimeError if it is loaded already."""
    if any(name in sys.modules for name in INNER_LOOPS):
        raise RuntimeError("tools.sanitized_decoder comes too late: the decoder is already loaded")
    sys.meta_path.insert(0, LibraryFinder)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """As `install`, for pytest."""
    install()
