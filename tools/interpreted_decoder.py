"""A pytest plugin that decodes in plain Python, although the native library is installed.

`python -m pytest -p tools.interpreted_decoder tests/scan`

Rules of the file:

- It is a plugin, not an option of tests/conftest.py, because it has to run before a conftest imports the decoder.
- The native library cannot be imported, so that its references in plain Python run. Nothing else is replaced.
"""

from __future__ import annotations

import sys

import pytest

__all__ = ["NATIVE", "pytest_load_initial_conftests"]

NATIVE = "remote_fetch.decode._native"
"""The library that has no source in Python."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Hide the library before a module of the project is imported. Raises UsageError if it is loaded already."""
    if NATIVE in sys.modules:
        raise pytest.UsageError("tools.interpreted_decoder comes too late: the decoder is already loaded")
    sys.modules[NATIVE] = None  # type: ignore[assignment]  # its import raises ModuleNotFoundError with its name
