"""A pytest plugin, and a function, that import the native decoder from a file named by an environment variable.

See `tools.sanitize`.

Rules of the file:

- It replaces that library and nothing else, before the project is imported (as `tools.interpreted_decoder`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

import pytest

from tools.interpreted_decoder import NATIVE

__all__ = ["LIBRARY_KEY", "LibraryFinder", "install", "pytest_load_initial_conftests"]

LIBRARY_KEY = "REMOTE_FETCH_DECODER_LIBRARY"


class LibraryFinder:
    """Imports the native decoder from the file that the environment variable LIBRARY_KEY names."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the library for its name, None for every other."""
        if fullname != NATIVE:
            return None
        library = os.environ[LIBRARY_KEY]
        return importlib.util.spec_from_file_location(fullname, library, loader=ExtensionFileLoader(fullname, library))


def install() -> None:
    """Install the importer before the decoder is imported. Raises RuntimeError if it is loaded already."""
    if NATIVE in sys.modules:
        raise RuntimeError("tools.sanitized_decoder comes too late: the decoder is already loaded")
    sys.meta_path.insert(0, LibraryFinder)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """As `install`, for pytest."""
    install()
