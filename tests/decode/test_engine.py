"""The choice of the engine: the native library, or plain Python if it was not built."""

from __future__ import annotations

import importlib
import sys

import pytest

from remote_fetch.decode import run_reference
from remote_fetch.decode.engine import installed

NATIVE = "remote_fetch.decode._native"


def test_plain_python_decodes_if_the_library_was_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NATIVE, None)  # its import raises ModuleNotFoundError with its name
    assert installed(run_reference) is run_reference


def test_a_library_that_cannot_be_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def misses_another(_: str) -> None:
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(importlib, "import_module", misses_another)
    with pytest.raises(ModuleNotFoundError, match="other"):
        installed(run_reference)
