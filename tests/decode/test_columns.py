"""The builder around the inner loop: schema, sizes, when Arrow batches are returned, and the state after an error."""

from __future__ import annotations

import mmap
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote_fetch.decode import _columns
from remote_fetch.decode.columns import (
    COLUMNS,
    DEFAULT_COLUMNS,
    ColumnBuilder,
    is_compiled,
    microseconds,
    saturated_timestamps,
    schema_for,
)
from remote_fetch.errors import ConfigError, CorruptSegment, DecompressionLimit
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, read_header
from remote_fetch.testing.records import Record, encode_batch
from tests.cases import each_of

EVERYTHING = 2**63 - 1
LAST_MS = 9223372036854775
MIB = 1 << 20


def batch_of(base_offset: int, count: int, value: bytes = b"v" * 100) -> tuple[BatchHeader, memoryview]:
    """A batch of `count` equal records, as framing gives it."""
    data = memoryview(encode_batch(base_offset, [Record(delta, delta, b"k", value) for delta in range(count)]))
    head = read_header(data, 0, position=0)
    assert isinstance(head, BatchHeader)
    return head, data[HEADER_BYTES:]


def broken(head: BatchHeader) -> BatchHeader:
    """The header with a record too many."""
    return head._replace(record_count=head.record_count + 1)


def offsets(batches: list[pa.RecordBatch]) -> list[Any]:
    """All offsets, in order."""
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def flushed(builder: ColumnBuilder) -> list[pa.RecordBatch]:
    """The pending rows as a list."""
    batch = builder.flush()
    return [] if batch is None else [batch]


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
        ColumnBuilder("t", 0, columns)
    assert caught.value.key == "columns"


@pytest.mark.parametrize("target_bytes", [0, 2**30 + 1])
def test_target_bytes_has_bounds(target_bytes: int) -> None:
    with pytest.raises(ConfigError, match=f"target_bytes is {target_bytes}"):
        ColumnBuilder("t", 0, target_bytes=target_bytes)


@pytest.mark.parametrize("max_rows", [0, 2**22 + 1])
def test_max_rows_has_bounds(max_rows: int) -> None:
    with pytest.raises(ConfigError, match=f"max_rows is {max_rows}"):
        ColumnBuilder("t", 0, max_rows=max_rows)


def test_is_compiled_tells_which_variant_is_in_use() -> None:
    assert is_compiled() is _columns.COMPILED


def test_every_column(kernel: ModuleType) -> None:
    data = encode_batch(
        40,
        [Record(0, 0, b"k", b"v", (("a", b"1"), ("a", None))), Record(3, -5, None, None)],
        leader_epoch=6,
        base_timestamp_ms=1_700_000_000_000,
    )
    head = read_header(memoryview(data), 0, position=0)
    assert isinstance(head, BatchHeader)
    builder = ColumnBuilder("orders", 2, COLUMNS, kernel=kernel)
    assert builder.append(head, memoryview(data)[HEADER_BYTES:], 0, EVERYTHING) == []
    batch = builder.flush()
    assert batch is not None
    batch.validate(full=True)
    assert batch.schema == builder.schema == schema_for(COLUMNS)
    assert batch.set_column(5, "timestamp", batch.column("timestamp").cast(pa.int64())).to_pylist() == [
        {
            "key": b"k", "value": b"v", "topic": "orders", "partition": 2, "offset": 40,
            "timestamp": 1_700_000_000_000_000, "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], "leaderEpoch": 6,
            "timestampMs": 1_700_000_000_000,
        },
        {
            "key": None, "value": None, "topic": "orders", "partition": 2, "offset": 43,
            "timestamp": 1_699_999_999_995_000, "timestampType": 0, "headers": [], "leaderEpoch": 6,
            "timestampMs": 1_699_999_999_995,
        },
    ]  # fmt: skip


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
def test_microseconds_are_saturated_and_counted(timestamp_ms: int, saturated: int) -> None:
    assert microseconds(timestamp_ms) == saturated
    around = [-1, 2**63 - 2, 0, -(2**63) + 1]
    column = pa.array([*around, saturated, *around], pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([column], names=["timestamp"])
    assert saturated_timestamps(batch) == (saturated % 1000 != 0)
    assert saturated_timestamps(batch.slice(4, 1)) == (saturated % 1000 != 0)
    assert saturated_timestamps(batch.slice(5)) == saturated_timestamps(batch.slice(0, 0)) == 0
    assert saturated_timestamps(batch.rename_columns(["other"])) == 0


@each_of("column", COLUMNS)
def test_a_column_alone_equals_the_same_column_among_all(kernel: ModuleType, column: str) -> None:
    head, records = batch_of(7, 20)
    alone, among = ColumnBuilder("t", 1, [column], kernel=kernel), ColumnBuilder("t", 1, COLUMNS, kernel=kernel)
    for builder in (alone, among):
        builder.append(head, records, 9, 25)
    (one,), (all_of_them,) = flushed(alone), flushed(among)
    assert one.num_columns == 1
    assert one.column(0) == all_of_them.column(column)
    assert one.num_rows == 16


def test_a_legacy_batch_has_no_timestamp_type(kernel: ModuleType) -> None:
    head, records = batch_of(0, 1)
    builder = ColumnBuilder("t", 0, ["timestampType"], kernel=kernel)
    builder.append(head._replace(magic=0), records, 0, EVERYTHING)
    assert flushed(builder)[0].column(0).to_pylist() == [-1]


def test_nothing_pending_gives_none() -> None:
    builder = ColumnBuilder("t", 0)
    assert (builder.rows, builder.flush()) == (0, None)
    head, records = batch_of(0, 3)
    assert builder.append(head, records, 3, 9) == []
    assert (builder.rows, builder.flush()) == (0, None)
    builder.append(head, records, 0, 9)
    assert builder.rows == 3
    assert offsets(flushed(builder)) == [0, 1, 2]
    assert (builder.rows, builder.flush()) == (0, None)


@pytest.mark.parametrize(
    ("start", "stop", "wanted"),
    [(0, 99, 3), (-5, 2**70, 3), (11, 99, 2), (0, 11, 1), (11, 12, 1), (12, 12, 0), (12, 11, 0), (0, -1, 0)],
)
def test_the_window_clips_at_both_ends(kernel: ModuleType, start: int, stop: int, wanted: int) -> None:
    head, records = batch_of(10, 3)
    builder = ColumnBuilder("t", 0, kernel=kernel)
    builder.append(head, records, start, stop)
    assert builder.rows == wanted


@pytest.mark.parametrize(("base", "last"), [(-1, 5), (7, 6), (2**63 - 2, 2**63 - 1), (0, 2**63)])
def test_offsets_outside_the_log_are_corrupt(base: int, last: int) -> None:
    head, records = batch_of(0, 1)
    with pytest.raises(CorruptSegment, match=f"from offset {base} to {last}") as caught:
        ColumnBuilder("t", 0).append(head._replace(base_offset=base, last_offset=last), records, 0, EVERYTHING)
    assert caught.value.offset == base


def test_a_batch_that_might_not_fit_closes_the_one_before_it(kernel: ModuleType) -> None:
    head, records = batch_of(0, 10)
    builder = ColumnBuilder("t", 0, kernel=kernel, target_bytes=2 * len(records))
    assert builder.append(head, records, 0, EVERYTHING) == []
    assert builder.append(*batch_of(10, 10), 0, EVERYTHING) == []
    (full,) = builder.append(*batch_of(20, 10), 0, EVERYTHING)
    assert offsets([full]) == list(range(20))
    assert builder.rows == 10
    assert offsets(flushed(builder)) == list(range(20, 30))


def test_max_rows_closes_a_batch_too(kernel: ModuleType) -> None:
    builder = ColumnBuilder("t", 0, ["offset"], kernel=kernel, max_rows=25)
    got = [batch for base in range(0, 60, 10) for batch in builder.append(*batch_of(base, 10), 0, EVERYTHING)]
    assert [batch.num_rows for batch in got] == [20, 20]
    assert offsets(got + flushed(builder)) == list(range(60))


def test_a_large_batch_goes_out_at_once_and_in_order(kernel: ModuleType) -> None:
    builder = ColumnBuilder("t", 0, kernel=kernel, target_bytes=5000)
    builder.append(*batch_of(0, 3), 0, EVERYTHING)
    small, large = builder.append(*batch_of(3, 100), 0, EVERYTHING)
    assert (small.num_rows, large.num_rows, builder.rows) == (3, 100, 0)
    assert offsets([small, large]) == list(range(103))
    assert builder.append(*batch_of(103, 100), 150, 150) == []
    large.validate(full=True)


def test_a_large_batch_is_cut_into_max_rows(kernel: ModuleType) -> None:
    builder = ColumnBuilder("topic", 5, kernel=kernel, max_rows=40)
    got = builder.append(*batch_of(0, 100), 5, EVERYTHING)
    assert [batch.num_rows for batch in got] == [40, 40, 15]
    for batch in got:
        batch.validate(full=True)
        assert set(batch.column("topic").to_pylist()) == {"topic"}
        assert set(batch.column("value").to_pylist()) == {b"v" * 100}
    assert offsets(got) == list(range(5, 100))


def test_rows_closed_by_a_malformed_batch_are_not_lost(kernel: ModuleType) -> None:
    head, records = batch_of(0, 10)
    for target_bytes in (len(records), len(records) - 1):
        builder = ColumnBuilder("t", 0, kernel=kernel, target_bytes=max(target_bytes, 1))
        got = builder.append(head, records, 0, EVERYTHING)
        for _ in range(2):
            with pytest.raises(CorruptSegment):
                builder.append(broken(head), records, 0, EVERYTHING)
            assert builder.rows == 10 - sum(batch.num_rows for batch in got)
        got += builder.append(*batch_of(10, 10), 0, EVERYTHING)
        assert offsets(got + flushed(builder)) == list(range(20))


def test_flush_after_a_malformed_batch_returns_pending_rows(kernel: ModuleType) -> None:
    head, records = batch_of(0, 10)
    builder = ColumnBuilder("t", 0, kernel=kernel, target_bytes=len(records))
    builder.append(head, records, 0, EVERYTHING)
    with pytest.raises(CorruptSegment):
        builder.append(broken(head), records, 0, EVERYTHING)
    assert builder.rows == 10
    assert offsets(flushed(builder)) == list(range(10))
    assert builder.flush() is None


def test_an_area_of_two_gigabytes_is_refused_before_memory_is_taken() -> None:
    head, _ = batch_of(0, 1)
    before = pa.total_allocated_bytes()
    with mmap.mmap(-1, 2**31) as untouched, memoryview(untouched) as area:
        builder = ColumnBuilder("t", 0)
        with pytest.raises(DecompressionLimit, match="2147483648 bytes"):
            builder.append(head, area, 0, EVERYTHING)
    assert pa.total_allocated_bytes() == before


def test_hostile_counts_take_no_memory(kernel: ModuleType) -> None:
    head, records = batch_of(0, 1)
    builder = ColumnBuilder("t", 0, kernel=kernel, target_bytes=1000, max_rows=100)
    builder.append(head, records, 0, EVERYTHING)
    before = pa.total_allocated_bytes()
    for count in (2**31 - 1, 10**6):
        with pytest.raises(CorruptSegment, match="record count"):
            builder.append(head._replace(record_count=count), records, 0, EVERYTHING)
    assert pa.total_allocated_bytes() == before


def test_memory_is_bounded_by_target_and_batch(kernel: ModuleType) -> None:
    before = pa.total_allocated_bytes()
    builder = ColumnBuilder("t", 0, COLUMNS, kernel=kernel, target_bytes=MIB // 4, max_rows=1000)
    builder.append(*batch_of(0, 3), 0, EVERYTHING)
    usual = pa.total_allocated_bytes() - before
    assert usual < 10 * MIB // 4
    head, records = batch_of(3, 500, b"v" * 4000)
    with pytest.raises(CorruptSegment):
        builder.append(broken(head), records, 0, EVERYTHING)
    assert pa.total_allocated_bytes() - before <= usual + MIB // 4
    got = builder.append(head, records, 0, EVERYTHING)
    assert pa.total_allocated_bytes() - before < usual + 2 * len(records)
    assert sum(batch.nbytes for batch in got) < 1.1 * len(records)
    del got
    assert pa.total_allocated_bytes() - before <= usual + MIB // 4


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(0, 40), max_size=12),
    target_bytes=st.integers(1, 4000),
    max_rows=st.integers(1, 60),
    bad=st.sets(st.integers(0, 11)),
)
def test_whatever_the_sizes_every_record_comes_once_and_in_order(
    kernel: ModuleType, counts: list[int], target_bytes: int, max_rows: int, bad: set[int]
) -> None:
    builder = ColumnBuilder("t", 0, kernel=kernel, target_bytes=target_bytes, max_rows=max_rows)
    got: list[pa.RecordBatch] = []
    taken = 0
    for index, count in enumerate(counts):
        if count == 0:
            continue
        head, records = batch_of(taken, count, b"v" * (index * 7))
        if index in bad:
            with pytest.raises(CorruptSegment):
                builder.append(broken(head), records, 0, EVERYTHING)
        got += builder.append(head, records, 0, EVERYTHING)
        taken += count
        assert sum(batch.num_rows for batch in got) + builder.rows == taken
    got += flushed(builder)
    assert offsets(got) == list(range(taken))
    for batch in got:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= max_rows


def test_a_flush_gives_the_buffers_back(kernel: ModuleType) -> None:
    """Who has read a partition keeps its builder for a while: hundreds of them must not keep their buffers."""
    before = pa.total_allocated_bytes()
    builder = ColumnBuilder("t", 0, COLUMNS, kernel=kernel)
    builder.append(*batch_of(0, 3), 0, EVERYTHING)
    assert pa.total_allocated_bytes() > before + MIB
    assert offsets(flushed(builder)) == [0, 1, 2]
    assert pa.total_allocated_bytes() < before + MIB
    builder.append(*batch_of(3, 2), 0, EVERYTHING)
    assert offsets(flushed(builder)) == [3, 4]
