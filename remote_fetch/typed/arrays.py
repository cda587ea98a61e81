"""pyarrow for code whose arrays have any type.

Rules of the file: pyarrow's type stubs have an overload for each type of an array, so an array whose type a schema
gives fits none of them. `Column` and `DataType` stand for the classes here, and `pa` is unchecked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow

__all__ = ["Column", "DataType", "holds", "is_nanoseconds", "pa"]

pa: Any = pyarrow
Column: TypeAlias = Any
"""A pyarrow.Array."""
DataType: TypeAlias = Any
"""A pyarrow.DataType."""


def holds(kind: DataType, is_wanted: Callable[[DataType], bool]) -> bool:
    """Whether a type is a wanted one, or has one in it, at any depth."""
    if is_wanted(kind):
        return True
    inner = [kind.value_type] if pa.types.is_dictionary(kind) else []
    inner += [kind.field(at).type for at in range(kind.num_fields)]
    return any(holds(each, is_wanted) for each in inner)


def is_nanoseconds(kind: DataType) -> bool:
    """Whether a type is a timestamp in nanoseconds."""
    return pa.types.is_timestamp(kind) and bool(kind.unit == "ns")
