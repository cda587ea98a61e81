"""The native decoder and its references in plain Python, side by side.

Rules of the file:

- The decoder is imported inside fixtures only, because the session chooses its variant after this file is loaded.
"""

from __future__ import annotations

import importlib.util
import shutil
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import remote_fetch.decode

PLACE = Path(remote_fetch.decode.__path__[0])


def _load(loader: ExtensionFileLoader) -> ModuleType:
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(params=["plain", "native"])
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """Each decoder of batches in turn."""
    from remote_fetch.decode import run_reference

    return run_reference if request.param == "plain" else native()


@pytest.fixture(scope="session")
def native_engine() -> ModuleType:
    """The native decoder, for what only that can get wrong."""
    return native()


@cache
def native() -> ModuleType:
    """The native decoder, also if the session decodes in plain Python.

    The test is skipped where no Rust compiler is, and fails where one made none.
    """
    from remote_fetch.decode.run_decoder import is_native

    if is_native():
        from remote_fetch.decode import _native

        return _native
    for suffix in EXTENSION_SUFFIXES:
        path = PLACE / f"_native{suffix}"
        if path.exists():
            return _load(ExtensionFileLoader("remote_fetch.decode.beside._native", str(path)))
    assert shutil.which("cargo") is None, "cargo is here and the native decoder is not: pip install -v -e . says why"
    pytest.skip("no native decoder: it is built where a Rust compiler is at hand")
