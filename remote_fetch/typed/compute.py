"""pyarrow's functions over columns, apart from its classes: they take 25 ms to load.

Rules of the file: only modules that decode import this one. A read without typed columns never loads it.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute

from remote_fetch.typed.arrays import Column, pa

__all__ = ["numbered", "pc"]

pc: Any = pyarrow.compute
"""Unchecked, as `pa` of arrays.py."""


def numbered(count: int) -> Column:
    """The numbers from 0 up to `count`, as int64. Without a Python object for each."""
    return pc.cast(pc.indices_nonzero(pa.nulls(count, pa.bool_()).fill_null(True)), pa.int64())
