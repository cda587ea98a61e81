"""Both decoders of batches, and both variants of the loop to messages, side by side.

Rules of the file:

- The decoder is imported inside fixtures only, because the session chooses its variant after this file is loaded.
"""

from __future__ import annotations

import importlib.util
import shutil
from functools import cache
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


@pytest.fixture(params=["plain", "native"])
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """Each decoder of batches in turn."""
    from remote_fetch.decode import run_reference

    return run_reference if request.param == "plain" else native()


@pytest.fixture
def native_engine() -> ModuleType:
    """The native decoder of batches, for what only that can get wrong."""
    return native()


@cache
def native() -> ModuleType:
    """The native decoder of batches, also if the session decodes in plain Python.

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


@pytest.fixture(scope="session", params=["interpreted", "compiled"])
def message_kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each variant of the inner loop from columns to messages in turn."""
    from remote_fetch.decode import _messages

    return _interpreted(_messages) if request.param == "interpreted" else _compiled(_messages)
