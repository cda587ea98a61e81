"""Rows that match are never pruned: filters of many shapes, beside a plain search through all values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode.columns import schema_for
from remote_fetch.engines.pruning import Box, Filter
from tests.searches import examples

NAMES = ("partition", "offset", "timestamp", "value")
SCHEMA = schema_for(NAMES)
TYPES = {name: SCHEMA.field(name).type for name in NAMES}
SMALL = st.integers(-1, 12)


def compared(name: str, op: str, value: int) -> Any:
    field, scalar = pc.field(name), pa.scalar(value, TYPES[name])
    return getattr(field, op)(scalar)


leaves: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        compared,
        st.sampled_from(NAMES[:3]),
        st.sampled_from(["__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__"]),
        SMALL,
    ),
    st.builds(
        lambda name, values: pc.field(name).isin(pa.array(values, TYPES[name])),
        st.sampled_from(NAMES[:2]),
        st.lists(SMALL, min_size=1, max_size=3),
    ),
    st.just(pc.field("value") == pa.scalar(b"3")),
)
filters: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=6,
)


@examples(60)
@given(filters, st.randoms(use_true_random=False))
def test_no_match_is_lost(expression: Any, dice: Any) -> None:
    rows = [(partition, offset, dice.randint(-1, 12)) for partition in range(2) for offset in range(10)]
    table = pa.table(
        [
            pa.array([row[0] for row in rows], TYPES["partition"]),
            pa.array([row[1] for row in rows], TYPES["offset"]),
            pa.array([row[2] for row in rows], TYPES["timestamp"]),
            pa.array([str(row[2]).encode() for row in rows], pa.binary()),
        ],
        schema=SCHEMA,
    )
    wanted = Filter(expression, SCHEMA)
    left = table.filter(expression)
    for partition in range(2):
        matches = left.filter(pc.field("partition") == partition)
        offsets: Any = matches.column("offset").to_pylist()
        times: Any = matches.column("timestamp").cast(pa.int64()).to_pylist()
        if not offsets:
            continue
        edges = wanted.offsets(partition, 0, 9)
        assert edges is not None
        assert edges[0] <= min(offsets)
        assert max(offsets) <= edges[1]
        span = wanted.times_us()
        assert span is not None
        assert span[0] <= min(times)
        assert max(times) <= span[1]


def test_what_can_be_told_is_told() -> None:
    expression = (pc.field("offset") >= 150) & (pc.field("offset") < 320) & (pc.field("partition") == 3)
    wanted = Filter(expression & (pc.field("value") == pa.scalar(b"x")), SCHEMA)
    assert wanted.may_match([Box(3), Box(4), Box(3, 0, 149), Box(3, 0, 150), Box(3, 320)]) == [
        True, False, False, True, False,
    ]  # fmt: skip
    assert wanted.offsets(3, 0, 10**12) == (150, 319)
    assert wanted.offsets(3, 400, 500) is None
    late = pc.field("timestamp") > pa.scalar(1_700_000_000_000_000, TYPES["timestamp"])
    assert Filter(late, SCHEMA).times_us() == (1_700_000_000_000_001, 2**63 - 1)
    assert Filter(None, SCHEMA).offsets(0, 5, 7) == (5, 7)


def test_a_number_that_cannot_be_compared_with_every_bound() -> None:
    """Arrow compares a float with the bound as a float, and refuses a bound that is not exact in that type."""
    wanted = Filter(pc.field("offset") < 20.5, SCHEMA)
    assert wanted.may_match([Box(3), Box(3, 0, 5)]) == [True, True]
    assert wanted.offsets(3, 0, 2**40) == (0, 2**40)
    with pytest.raises(pa.ArrowInvalid, match="nothing"):
        Filter(pc.field("nothing") < 20.5, SCHEMA)
