"""Between Arrow's columns of plain Avro values and those that their logical types ask for; and defaults of schemas.

Rules of the file:

- A number becomes a time without a copy.
- Avro's specification tells what a default means: bytes are text of ISO-8859-1, and the default of a union is a value
  of the first branch that it fits (1.12).
"""

from __future__ import annotations

import decimal
import uuid
from typing import Any

from remote_fetch.typed.arrays import Column, DataType, pa
from remote_fetch.typed.avro_nodes import Array, Back, Enum, Field, Fixed, Map, Node, Record, Scalar, Union
from remote_fetch.typed.outcome import Undecodable

__all__ = ["default_array", "with_logical"]

_EXACT = decimal.Context(prec=200)


def with_logical(array: Column, node: Scalar | Fixed) -> Column:
    """Plain values of a scalar or a fixed, in the type that its logical type asks for. Raises Undecodable."""
    if array.type == node.arrow:
        return array
    if pa.types.is_decimal(node.arrow):
        return _decimals(array, node.arrow)
    if isinstance(node, Fixed):
        texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    return array.view(node.arrow)


def default_array(node: Node, default: Any, rows: int) -> Column:
    """`rows` times the default of a field. Raises Undecodable for a default that the type does not have."""
    try:
        value = _value(node, default)
        if value is None:
            return pa.nulls(rows, node.arrow)
        one = pa.array([value], node.arrow)
        return one.take(pa.nulls(rows, pa.int8()).fill_null(0))
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        shown = repr(default)[:200]
        raise Undecodable(f"the default {shown} of a field of the reader's schema is none of its type") from error


def _decimals(array: Column, kind: DataType) -> Column:
    scale = kind.scale
    values = [
        None if value is None else decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)
        for value in array.to_pylist()
    ]
    try:
        return pa.array(values, kind)
    except pa.ArrowException as error:
        raise Undecodable(f"a decimal does not fit into {kind}") from error


def _value(node: Node, default: Any) -> Any:
    """A default's JSON as Arrow takes it for the node's type. Raises ValueError and its kin."""
    if isinstance(node, Union):
        return _union(node, default)
    if isinstance(node, Record):
        return {field.name: _field(field, default) for field in node.fields}
    if isinstance(node, Array):
        return [_value(node.items, item) for item in _of(list, default)]
    if isinstance(node, Map):
        return [(name, _value(node.values, item)) for name, item in _of(dict, default).items()]
    if isinstance(node, Enum):
        if default not in node.symbols:
            raise ValueError(default)
        return default
    if isinstance(node, Back):
        raise ValueError("a record inside itself")
    assert isinstance(node, (Scalar, Fixed))
    return _leaf(node, default)


def _field(field: Field, default: Any) -> Any:
    given = _of(dict, default)
    if field.name not in given and not field.has_default:
        raise ValueError(field.name)
    return _value(field.node, given.get(field.name, field.default))


def _union(node: Union, default: Any) -> Any:
    if default is None:
        if not node.has_null:
            raise ValueError(default)
        return None
    for number, branch in enumerate(node.branches):
        try:
            value = _value(branch, default)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        return value if len(node.branches) == 1 else {f"member{number}": value}
    raise ValueError(default)


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,), "int": (int,), "long": (int,), "float": (int, float), "double": (int, float),
    "string": (str,), "bytes": (str,),
}  # fmt: skip
_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""JSON has no words for them, and Java writes them as text."""


def _leaf(node: Scalar | Fixed, default: Any) -> Any:
    if isinstance(node, Scalar) and node.kind == "null":
        if default is not None:
            raise ValueError(default)
        return None
    kind = "bytes" if isinstance(node, Fixed) else node.kind
    if kind in ("int", "long") and isinstance(default, float) and default.is_integer():
        default = int(default)
    if kind in ("float", "double") and isinstance(default, str):
        return _NO_NUMBERS[default]
    if not isinstance(default, _JSON_TYPES[kind]) or (isinstance(default, bool) and kind != "boolean"):
        raise ValueError(default)
    plain: Any = str(default).encode("latin-1") if kind == "bytes" else default
    if isinstance(node, Fixed) and len(plain) != node.size_bytes:
        raise ValueError(default)
    if kind == "bytes" and node.plain != node.arrow:
        return with_logical(pa.array([plain], pa.binary()), node)[0].as_py()
    return plain  # Arrow takes the numbers of times as they are


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(value)
    return value
