"""pyarrow for code whose arrays have any type.

Rules of the file: pyarrow's type stubs have an overload for each type of an array, so an array whose type a schema
gives fits none of them. `Column` and `DataType` stand for the classes here, and `pa` and `pc` are unchecked.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow
import pyarrow.compute

__all__ = ["Column", "DataType", "numbered", "pa", "pc"]

pa: Any = pyarrow
pc: Any = pyarrow.compute
Column: TypeAlias = Any
"""A pyarrow.Array."""
DataType: TypeAlias = Any
"""A pyarrow.DataType."""


def numbered(count: int) -> Column:
    """The numbers from 0 up to `count`, as int64. Without a Python object for each."""
    return pc.cast(pc.indices_nonzero(pa.nulls(count, pa.bool_()).fill_null(True)), pa.int64())
