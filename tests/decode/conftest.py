"""Both variants of the inner loop, side by side.

Rules of the file: the decoder is imported inside fixtures only, because the session chooses its variant after this
file is loaded.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import remote_fetch.decode

PLACE = Path(remote_fetch.decode.__path__[0])


def _load(loader: ExtensionFileLoader | SourceFileLoader) -> ModuleType:
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def interpreted() -> ModuleType:
    """The source of the inner loop as plain Python, whatever library lies beside it."""
    from remote_fetch.decode import _columns

    if not _columns.COMPILED:
        return _columns
    return _load(SourceFileLoader("remote_fetch.decode._columns_interpreted", str(PLACE / "_columns.py")))


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    """The compiled inner loop; the test is skipped where no compiler made one."""
    from remote_fetch.decode import _columns

    if _columns.COMPILED:
        return _columns
    for suffix in EXTENSION_SUFFIXES:
        path = PLACE / f"_columns{suffix}"
        if path.exists():
            return _load(ExtensionFileLoader("remote_fetch.decode._columns_compiled._columns", str(path)))
    pytest.skip("no compiled decoder: it is made where a C compiler is at hand")


@pytest.fixture(scope="session", params=["interpreted", "compiled"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each variant in turn."""
    module: ModuleType = request.getfixturevalue(request.param)
    return module
