"""Topic and partition as columns, for any number of rows up to the largest Arrow batch."""

from __future__ import annotations

import pyarrow as pa

from remote_fetch.decode.constant_columns import CONSTANT_COLUMNS, ConstantColumns


def test_the_columns_have_the_rows_that_are_asked_for() -> None:
    columns = ConstantColumns("orders", 3, 5000)
    for rows in (1, 700, 5000, 0, 2):
        made = columns.of(rows)
        assert tuple(made) == CONSTANT_COLUMNS
        assert made["topic"].cast(pa.binary()).to_pylist() == rows * [b"orders"]
        assert made["partition"].to_pylist() == rows * [3]
