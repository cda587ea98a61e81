"""A topic as a LazyFrame, and Polars' predicates as Arrow expressions as far as a plan can use them.

Rules of the file:

- A predicate that is not understood makes the plan no smaller. Polars' own filter decides on every row.
- `and` may lose a side that is not understood. `or` and `not` may not.
- Polars before 1.22 is refused: it applies no filter that it cannot hand over, such as one on a time.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars.io.plugins import register_io_source

from remote_fetch.engines.topic_scan import TopicScan
from remote_fetch.errors import MissingExtra

__all__ = ["arrow_predicate", "lazy_frame"]

_TYPES: dict[str, pa.DataType] = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""The columns of which a plan knows something."""
_SWAPPED = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}


_OLDEST = (1, 22)


class _NotUnderstood(Exception):
    """A part of a predicate that says nothing of partition, offset and timestamp, or says it in another way."""


_STRANGE = (
    _NotUnderstood, AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError, pa.ArrowException,
)  # fmt: skip
"""The errors of a tree that is not understood. A number of more than 64 bits is an OverflowError."""


def lazy_frame(scan: TopicScan) -> pl.LazyFrame:
    """The topic as a LazyFrame that reads what a query needs, while it runs. Raises MissingExtra for an old Polars."""
    if tuple(map(int, pl.__version__.split(".")[:2])) < _OLDEST:
        raise MissingExtra(f"Polars {pl.__version__} leaves filters out", hint='pip install "polars>=1.22"')
    schema: Any = pl.from_arrow(scan.schema.empty_table())

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        shown = list(scan.schema.names) if with_columns is None else with_columns
        read = list(shown)
        if predicate is not None:
            read += [name for name in predicate.meta.root_names() if name not in read]
        left = n_rows
        # Polars wants the first `n_rows` rows of all, and then those of them for which the predicate is true.
        known = None if predicate is None or left is not None else arrow_predicate(predicate)
        for batch in scan.planned(read, known):  # Polars alone filters the rows that the plan brings
            frame: Any = pl.from_arrow(batch)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield (frame if predicate is None else frame.filter(predicate)).select(shown)
            if left == 0:
                return

    return register_io_source(source, schema=schema.schema)


def arrow_predicate(predicate: pl.Expr) -> Any:
    """An Arrow expression that is true for each row for which the predicate is. None: nothing is known of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the form is not promised; whatever is not known in it is passed over
        try:
            tree = json.loads(predicate.meta.serialize(format="json"))
        except Exception:
            return None
    try:
        return _known(tree)
    except (*_STRANGE, RecursionError):
        return None


def _known(tree: Any) -> Any:
    """The expression of a tree, of which `and` may lose a side."""
    parts = tree.get("BinaryExpr") if isinstance(tree, dict) else None
    if parts is None or parts["op"] != "And":
        return _exact(tree)
    sides = []
    for side in ("left", "right"):
        try:
            sides.append(_known(parts[side]))
        except _STRANGE:
            continue
    if not sides:
        raise _NotUnderstood
    return sides[0] if len(sides) == 1 else sides[0] & sides[1]


def _exact(tree: Any) -> Any:
    """The expression of a tree, all of it. Raises _NotUnderstood."""
    if "BinaryExpr" in tree:
        parts = tree["BinaryExpr"]
        if parts["op"] in ("And", "Or"):
            left, right = _exact(parts["left"]), _exact(parts["right"])
            return left & right if parts["op"] == "And" else left | right
        return _compared(parts["left"], parts["op"], parts["right"])
    if "Function" not in tree:
        raise _NotUnderstood
    inputs, how = tree["Function"]["input"], tree["Function"]["function"]["Boolean"]
    if how == "Not":
        return ~_exact(inputs[0])
    if "IsIn" in how:
        name = inputs[0]["Column"]
        stream = pa.ipc.open_stream(pa.py_buffer(bytes(inputs[1]["Literal"]["Scalar"]["List"])))
        return pc.field(name).isin(stream.read_all().column(0).combine_chunks().cast(_TYPES[name]))
    closed = how["IsBetween"]["closed"]
    low = _compared(inputs[0], "GtEq" if closed in ("Both", "Left") else "Gt", inputs[1])
    high = _compared(inputs[0], "LtEq" if closed in ("Both", "Right") else "Lt", inputs[2])
    return low & high


def _compared(left: Any, op: str, right: Any) -> Any:
    if "Column" not in left:
        left, op, right = right, _SWAPPED[op], left
    name = left["Column"]
    field, value = pc.field(name), pa.scalar(_literal(right["Literal"]), _TYPES[name])
    compare = {"Gt": "__gt__", "GtEq": "__ge__", "Lt": "__lt__", "LtEq": "__le__", "Eq": "__eq__"}[op]
    return getattr(field, compare)(value)


def _literal(literal: Any) -> int:
    ((_, scalar),) = literal.items()  # with a type, or "Dyn", which takes the column's
    ((kind, value),) = scalar.items()
    if kind == "Datetime":
        count, unit, _ = value
        exact = count if unit == "Microseconds" else count * 1000 if unit == "Milliseconds" else None
        if exact is None:
            raise _NotUnderstood
        return int(exact)
    if not kind.startswith(("Int", "UInt")):
        raise _NotUnderstood
    return int(value)
