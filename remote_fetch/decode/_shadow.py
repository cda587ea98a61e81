"""A stand-in for the `cython` module, for when Cython is not installed and the inner loops run as plain Python.

Rules of the file:

- Only the names that the sources of the inner loops use. Each does nothing.
- Most type names are missing, because annotations are not evaluated there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

__all__ = ["cclass", "cfunc", "compiled", "declare", "exceptval", "inline", "int", "longlong", "nogil"]

_T = TypeVar("_T")

compiled = False
int = longlong = object


def _unchanged(decorated: _T) -> _T:
    return decorated


cclass = cfunc = inline = _unchanged


class _NoGil(nullcontext[None]):
    """Both a decorator and a context manager, as `cython.nogil` is."""

    def __call__(self, decorated: _T) -> _T:
        return decorated


nogil = _NoGil()


def exceptval(*_args: Any, **_options: Any) -> Callable[[_T], _T]:
    """The decorator that names the return value of an exception; it does nothing in plain Python."""
    return _unchanged


def declare(_type: Any, value: Any = None, **_options: Any) -> Any:
    """Return the value; plain Python has no declarations."""
    return value
