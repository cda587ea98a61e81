"""Conditions in words, as Arrow expressions: `offset >= 100 and value.country in ["DE", "FR"]`.

Rules of the file:

- Pure. The grammar is a part of Python's: names, literals, comparisons, `in`, `is None`, `and`, `or`, `not`. Nothing is
  evaluated but by Arrow.
- A literal becomes a value of the column that it is compared with: text of a time becomes a time, text becomes bytes.
- A name that the columns do not have is an error, not false.
- A comparison is true or false, as in Python. Null equals null alone, and is neither less nor greater than a value.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from remote_fetch.errors import ConfigError

__all__ = ["Where"]

_OPTION = "--where"
_MAX_CHARS = 10_000
_GRAMMAR = "Compare with ==, and give text in quotes: key == 'a' and offset >= 5"
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Eq: operator.eq, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)  # fmt: skip


class Where:
    """A condition. Raises ConfigError for text that is none."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > _MAX_CHARS:
            raise _wrong(f"it has more than {_MAX_CHARS} characters")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _wrong(f"{text!r}: {getattr(error, 'msg', error)}", _GRAMMAR) from None
        self._filters: dict[Any, Any] = {}

    def check(self, schema: pa.Schema) -> None:
        """Raise ConfigError for names and literals that do not fit the columns of this schema."""
        self.matching(pa.RecordBatch.from_pylist([], schema))

    def matching(self, batch: pa.RecordBatch) -> list[int]:
        """The numbers of the rows that match. Raises ConfigError for names and literals that do not fit the columns."""
        if batch.schema not in self._filters:
            try:
                self._filters = {batch.schema: _Builder(batch.schema).condition(self._tree)}
            except RecursionError:
                raise _wrong("it is nested too deeply") from None
        rows: Any = pa.array(range(batch.num_rows), pa.int64())
        numbered: Any = pa.Table.from_batches([batch]).append_column("", rows)
        try:
            found: list[int] = numbered.filter(self._filters[batch.schema]).column("").to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _wrong(f"{self._text!r}: {error}") from None
        return found


class _Builder:
    """Builds the expression for one schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def condition(self, node: ast.expr) -> Any:
        """A node as a condition."""
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value) for value in node.values]
            return functools.reduce(operator.and_ if isinstance(node.op, ast.And) else operator.or_, parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.condition(node.operand)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [self._compared(*each) for each in zip(sides, node.ops, sides[1:], strict=False)]
            return functools.reduce(operator.and_, parts)
        if _is_column(node) and pa.types.is_boolean(self._column(node)[1]):
            return _decided(self._column(node)[0])
        raise _wrong(f"{ast.unparse(node)!r} is no condition")

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
        if isinstance(op, (ast.In, ast.NotIn)):
            inside = self._inside(left, right)
            return ~inside if isinstance(op, ast.NotIn) else inside
        if isinstance(op, (ast.Is, ast.IsNot)) or _is_null(left) or _is_null(right):
            return self._null(left, op, right)
        if _is_column(left) and _is_column(right):
            one, other = self._column(left)[0], self._column(right, _GRAMMAR)[0]
            both = one.is_null() & other.is_null() if isinstance(op, (ast.Eq, ast.NotEq)) else None
            return _decided_by(op, one, other, both)
        if _is_column(left):
            column, kind = self._column(left)
            return _decided_by(op, column, _literal(right, kind))
        column, kind = self._column(right)
        return _decided_by(op, _literal(left, kind), column)

    def _null(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
        if _is_null(left):
            left, right = right, left
        if not _is_null(right):
            raise _wrong("'is' compares with None alone")
        if not isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            raise _wrong("None is neither less nor greater than a value: compare with 'is None' or 'is not None'")
        is_null = self._column(left)[0].is_null()
        return ~is_null if isinstance(op, (ast.IsNot, ast.NotEq)) else is_null

    def _inside(self, left: ast.expr, right: ast.expr) -> Any:
        column, kind = self._column(left)
        if not isinstance(right, (ast.List, ast.Tuple, ast.Set)) or not right.elts:
            raise _wrong(f"{ast.unparse(right)!r} is no list such as [1, 2]")
        given = [each for each in right.elts if not _is_null(each)]
        values: Any = pa.array([_literal(each, kind).as_py() for each in given], kind)
        inside = column.isin(values)
        return inside if len(given) == len(right.elts) else inside | column.is_null()

    def _column(self, node: ast.expr, hint: str | None = None) -> tuple[Any, Any]:
        """A column or a field in it, and its type. `hint` is that of the error if there is none."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            raise _wrong(f"{ast.unparse(node)!r} is no column")
        path.insert(0, node.id)
        kind: Any = pa.struct(list(self._schema))
        for at, name in enumerate(path):
            names = [field.name for field in kind] if pa.types.is_struct(kind) else []
            if name not in names:
                place = ".".join(path[:at]) or "a record"
                raise _wrong(f"{place} has no {name!r}" + (f", but {', '.join(names)}" if names else ""), hint)
            kind = kind.field(name).type
        return pc.field(*path), kind


def _decided_by(op: ast.cmpop, left: Any, right: Any, are_null: Any = None) -> Any:
    """A comparison without null as its result. `are_null`: whether both sides are null, if that makes them equal."""
    if isinstance(op, ast.NotEq):
        return ~_decided_by(ast.Eq(), left, right, are_null)
    decided = _decided(_COMPARISONS[type(op)](left, right))
    return decided if are_null is None else decided | are_null


def _decided(condition: Any) -> Any:
    """A condition that is false where it was null."""
    return condition & condition.is_valid()


def _is_column(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _is_null(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _literal(node: ast.expr, kind: Any) -> Any:
    """A literal as a scalar of this type. Raises ConfigError."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = None
    if not isinstance(value, (str, bytes, int, float)):
        raise _wrong(f"{ast.unparse(node)!r} is no text and no number", _GRAMMAR)
    try:
        if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is not None:
            plain: Any = pa.scalar(value).cast(pa.timestamp(kind.unit))
            return plain.cast(kind)
        if type(value) is int and pa.types.is_integer(kind):
            whole: Any = pa.scalar(value, kind)  # also above the numbers of int64, which Arrow takes by default
            return whole
        if type(value) is int and pa.types.is_decimal(kind):
            exact: Any = pa.scalar(Decimal(value), kind)  # Arrow's cast wants room for all of int64
            return exact
        return pa.scalar(value).cast(kind)
    except OverflowError:
        raise _wrong(f"{ast.unparse(node)!r} cannot be compared with {kind}: it is outside its range") from None
    except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _wrong(f"{ast.unparse(node)!r} cannot be compared with {kind}: {error}") from None


def _wrong(text: str, hint: str | None = None) -> ConfigError:
    return ConfigError(f"{_OPTION}: {text}", key=_OPTION, hint=hint)
