"""Both variants of the inner loops, side by side.

Rules of the file:

- The decoder is imported inside fixtures only, because the session chooses its variant after this file is loaded.
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


def _interpreted(installed: ModuleType) -> ModuleType:
    """The source of an inner loop as plain Python, whatever library lies beside it."""
    if not installed.COMPILED:
        return installed
    name = installed.__name__.rpartition(".")[2]
    return _load(SourceFileLoader(f"remote_fetch.decode.{name}_interpreted", str(PLACE / f"{name}.py")))


def _compiled(installed: ModuleType) -> ModuleType:
    """The compiled inner loop; the test is skipped where no compiler made one."""
    if installed.COMPILED:
        return installed
    name = installed.__name__.rpartition(".")[2]
    for suffix in EXTENSION_SUFFIXES:
        path = PLACE / f"{name}{suffix}"
        if path.exists():
            return _load(ExtensionFileLoader(f"remote_fetch.decode.{name}_compiled.{name}", str(path)))
    pytest.skip("no compiled decoder: it is made where a C compiler is at hand")


@pytest.fixture(scope="session")
def interpreted() -> ModuleType:
    """The inner loop to columns, interpreted."""
    from remote_fetch.decode import _columns

    return _interpreted(_columns)


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    """The inner loop to columns, compiled."""
    from remote_fetch.decode import _columns

    return _compiled(_columns)


@pytest.fixture(scope="session", params=["interpreted", "compiled"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each variant in turn."""
    module: ModuleType = request.getfixturevalue(request.param)
    return module


@pytest.fixture(scope="session", params=["interpreted", "compiled"])
def message_kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each variant of the inner loop from columns to messages in turn."""
    from remote_fetch.decode import _messages

    return _interpreted(_messages) if request.param == "interpreted" else _compiled(_messages)


@pytest.fixture(scope="session", params=["interpreted", "compiled"])
def run_kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each variant of the walk over headers in turn."""
    from remote_fetch.decode import runs

    return _interpreted(runs) if request.param == "interpreted" else _compiled(runs)
