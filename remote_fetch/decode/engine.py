"""The choice of the engine: the native library if it was built, else a reference module in plain Python.

Rules of the file:

- The only import of the native library. It is not a statement, because the library may be missing.
- `_native.pyi` has the types of both engines.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["installed"]

_NATIVE = "remote_fetch.decode._native"


def installed(reference: ModuleType) -> ModuleType:
    """The native library, or `reference` if it was not built. One that was built and cannot be loaded is an error."""
    try:
        return importlib.import_module(_NATIVE)
    except ModuleNotFoundError as error:
        if error.name != _NATIVE:
            raise
        return reference
