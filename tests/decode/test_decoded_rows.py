"""Decoded rows that are joined: the same rows in the same order."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode import run_reference
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.decode.decoded_rows import DecodedRows
from tests.decoded import decoded
from tests.searches import examples

ITEMS = st.none() | st.binary(max_size=9)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": ITEMS,
            "value": ITEMS,
            "timestampMs": st.sampled_from([-1, 0, 7, 2**62]),
            "timestampType": st.sampled_from([-1, 0, 1]),
            "headers": st.lists(st.tuples(st.text(max_size=3), ITEMS), max_size=3),
            "leaderEpoch": st.integers(-1, 3),
        }
    ),
    max_size=19,
)


def facts(rows: DecodedRows) -> tuple[int, ...]:
    return rows.num_rows, rows.size_bytes, rows.end_offset, rows.run.saturated  # type: ignore[attr-defined]


@examples(150)
@given(
    parts=st.lists(ROWS, min_size=1, max_size=6), columns=st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)
)
def test_joined_rows_are_those_of_one_run(
    native_engine: ModuleType, parts: list[list[dict[str, Any]]], columns: list[str]
) -> None:
    rows = [row for part in parts for row in part]
    for at, row in enumerate(rows):
        row["offset"] = 3 * at
    whole = decoded(rows, engine=run_reference, columns=columns)
    for engine in (run_reference, native_engine):
        joined = DecodedRows.joined([decoded(part, engine=engine, columns=columns) for part in parts])
        if rows:
            assert facts(joined) == facts(whole)
        for batch in joined.to_arrow():
            batch.validate(full=True)
        assert joined.to_arrow() == whole.to_arrow()
