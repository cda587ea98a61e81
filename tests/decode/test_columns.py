"""The columns of a read: names, types, and timestamps that do not fit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from remote_fetch.decode.columns import COLUMNS, DEFAULT_COLUMNS, is_saturated, microseconds, schema_for
from remote_fetch.errors import ConfigError

LAST_MS = 9223372036854775


def test_the_schema_is_that_of_spark_s_kafka_source() -> None:
    columns: dict[str, pa.DataType] = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    assert schema_for(DEFAULT_COLUMNS) == pa.schema(columns)
    assert schema_for(COLUMNS).names == [*DEFAULT_COLUMNS, "leaderEpoch", "timestampMs"]
    two: dict[str, pa.DataType] = {"leaderEpoch": pa.int32(), "key": pa.binary()}
    assert schema_for(["leaderEpoch", "key"]) == pa.schema(two)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["key", "keys"], "unknown column 'keys'; the columns are key, value, topic"),
        (["key", "value", "key"], "named twice: key, value, key"),
        ([], "no column is named"),
    ],
)
def test_a_wrong_choice_of_columns_is_a_config_error(columns: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        schema_for(columns)
    assert caught.value.key == "columns"


@pytest.mark.parametrize(
    ("timestamp_ms", "saturated"),
    [
        (0, 0),
        (LAST_MS, LAST_MS * 1000),
        (LAST_MS + 1, 2**63 - 1),
        (-LAST_MS, -LAST_MS * 1000),
        (-LAST_MS - 1, -(2**63)),
    ],
)
def test_microseconds_are_saturated(timestamp_ms: int, saturated: int) -> None:
    assert microseconds(timestamp_ms) == saturated
    assert is_saturated(timestamp_ms) == (saturated != timestamp_ms * 1000)
