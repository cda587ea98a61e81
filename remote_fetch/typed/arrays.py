"""pyarrow for code whose arrays have any type.

Rules of the file: pyarrow's type stubs have an overload for each type of an array, so an array whose type a schema
gives fits none of them. `Column` and `DataType` stand for the classes here, and `pa` is unchecked.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow

__all__ = ["Column", "DataType", "pa"]

pa: Any = pyarrow
Column: TypeAlias = Any
"""A pyarrow.Array."""
DataType: TypeAlias = Any
"""A pyarrow.DataType."""
