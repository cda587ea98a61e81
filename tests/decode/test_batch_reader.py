"""Single batches to Arrow: the columns, when Arrow batches are returned, and the state after an error.

Rules of the file: each test runs with both decoders, unless it is about plain Python around them.
"""

from __future__ import annotations

import mmap
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remote_fetch.decode import run_reference
from remote_fetch.decode.columns import COLUMNS, DEFAULT_COLUMNS, schema_for
from remote_fetch.errors import CorruptSegment, DecompressionLimit
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, read_header
from remote_fetch.testing.records import Record, encode_batch
from tests.cases import each_of
from tests.decoded import ArrowReader
from tests.searches import examples
from tools.fuzz_memory import peak_bytes, reset_peak

EVERYTHING = 2**63 - 1
MIB = 1 << 20


def reader(engine: ModuleType = run_reference, columns: Any = DEFAULT_COLUMNS, **options: Any) -> ArrowReader:
    return ArrowReader("t", 0, columns, engine=engine, **options)


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


def test_every_column(engine: ModuleType) -> None:
    data = encode_batch(
        40,
        [Record(0, 0, b"k", b"v", (("a", b"1"), ("a", None))), Record(3, -5, None, None)],
        leader_epoch=6,
        base_timestamp_ms=1_700_000_000_000,
    )
    head = read_header(memoryview(data), 0, position=0)
    assert isinstance(head, BatchHeader)
    builder = ArrowReader("orders", 2, COLUMNS, engine=engine)
    assert builder.append(head, memoryview(data)[HEADER_BYTES:], 0, EVERYTHING) == []
    (batch,) = builder.drain()
    batch.validate(full=True)
    assert batch.schema == schema_for(COLUMNS)
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


@each_of("column", COLUMNS)
def test_a_column_alone_equals_the_same_column_among_all(engine: ModuleType, column: str) -> None:
    head, records = batch_of(7, 20)
    alone, among = reader(engine, [column]), reader(engine, COLUMNS)
    for builder in (alone, among):
        builder.append(head, records, 9, 25)
    (one,), (all_of_them,) = alone.drain(), among.drain()
    assert one.num_columns == 1
    assert one.column(0) == all_of_them.column(column)
    assert one.num_rows == 16


def test_a_legacy_batch_has_no_timestamp_type(engine: ModuleType) -> None:
    head, records = batch_of(0, 1)
    builder = reader(engine, ["timestampType"])
    builder.append(head._replace(magic=0), records, 0, EVERYTHING)
    assert builder.drain()[0].column(0).to_pylist() == [-1]


@pytest.mark.parametrize(
    ("start", "stop", "wanted"),
    [(0, 99, 3), (-5, 2**70, 3), (11, 99, 2), (0, 11, 1), (11, 12, 1), (12, 12, 0), (12, 11, 0), (0, -1, 0)],
)
def test_the_window_clips_at_both_ends(engine: ModuleType, start: int, stop: int, wanted: int) -> None:
    head, records = batch_of(10, 3)
    builder = reader(engine)
    builder.append(head, records, start, stop)
    assert builder.rows == wanted


@pytest.mark.parametrize(("base", "last"), [(-1, 5), (7, 6), (2**63 - 2, 2**63 - 1), (0, 2**63)])
def test_offsets_outside_the_log_are_corrupt(base: int, last: int) -> None:
    head, records = batch_of(0, 1)
    with pytest.raises(CorruptSegment, match=f"from offset {base} to {last}") as caught:
        reader().append(head._replace(base_offset=base, last_offset=last), records, 0, EVERYTHING)
    assert caught.value.offset == base


def test_an_arrow_batch_ends_with_the_batch_that_fills_it(engine: ModuleType) -> None:
    by_size = reader(engine, target_bytes=2000)
    got = [by_size.append(*batch_of(base, 10), 0, EVERYTHING) for base in range(0, 50, 10)]
    assert [[batch.num_rows for batch in batches] for batches in got] == [[], [20], [], [20], []]
    assert offsets([*got[1], *got[3], *by_size.drain()]) == list(range(50))
    by_rows = reader(engine, ["offset"], max_rows=25)
    full = [batch for base in range(0, 60, 10) for batch in by_rows.append(*batch_of(base, 10), 0, EVERYTHING)]
    assert [batch.num_rows for batch in full] == [25, 5, 25, 5]
    assert offsets(full) == list(range(60))


def test_what_does_not_fit_beside_pending_rows_closes_them(engine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column has offsets of 32 bits. The test makes that limit small for the plain decoder only."""
    monkeypatch.setattr(run_reference, "MAX_COLUMN_BYTES", 1300)
    taken_by = reader(engine)
    taken_by.append(*batch_of(0, 3), 0, EVERYTHING)
    got = taken_by.append(*batch_of(3, 10), 0, EVERYTHING)
    assert [batch.num_rows for batch in got] == ([3] if engine is run_reference else [])
    assert offsets([*got, *taken_by.drain()]) == list(range(13))


def test_a_closed_arrow_batch_survives_a_malformed_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_reference, "MAX_COLUMN_BYTES", 1300)
    taken_by = reader()
    taken_by.append(*batch_of(0, 3), 0, EVERYTHING)
    head, records = batch_of(3, 10)
    for _ in range(2):
        with pytest.raises(CorruptSegment):
            taken_by.append(broken(head), records, 0, EVERYTHING)
        assert taken_by.rows == 3
    assert offsets(taken_by.append(head, records, 0, EVERYTHING) + taken_by.drain()) == list(range(13))


def test_nothing_pending_gives_nothing(engine: ModuleType) -> None:
    taken_by = reader(engine)
    assert (taken_by.rows, taken_by.drain()) == (0, [])
    head, records = batch_of(0, 3)
    assert taken_by.append(head, records, 3, 9) == []
    assert (taken_by.rows, taken_by.drain()) == (0, [])
    taken_by.append(head, records, 0, 9)
    assert taken_by.rows == 3
    assert offsets(taken_by.drain()) == [0, 1, 2]
    assert (taken_by.rows, taken_by.drain()) == (0, [])


def test_hostile_counts_take_no_memory(engine: ModuleType) -> None:
    head, records = batch_of(0, 1)
    taken_by = reader(engine)
    reset_peak()
    before = peak_bytes()
    for count in (2**31 - 1, 10**6, -1):
        with pytest.raises(CorruptSegment, match="record count"):
            taken_by.append(head._replace(record_count=count), records, 0, EVERYTHING)
    assert peak_bytes() - before < MIB


def test_a_large_batch_is_cut_into_max_rows(engine: ModuleType) -> None:
    builder = ArrowReader("topic", 5, DEFAULT_COLUMNS, engine=engine, max_rows=40)
    got = builder.append(*batch_of(0, 100), 5, EVERYTHING)
    assert [batch.num_rows for batch in got] == [40, 40, 15]
    for batch in got:
        batch.validate(full=True)
        assert set(batch.column("topic").to_pylist()) == {"topic"}
        assert set(batch.column("value").to_pylist()) == {b"v" * 100}
    assert offsets(got) == list(range(5, 100))


def test_rows_closed_by_a_malformed_batch_are_not_lost(engine: ModuleType) -> None:
    head, records = batch_of(0, 10)
    for target_bytes in (len(records), len(records) - 1):
        builder = reader(engine, target_bytes=max(target_bytes, 1))
        got = builder.append(head, records, 0, EVERYTHING)
        for _ in range(2):
            with pytest.raises(CorruptSegment):
                builder.append(broken(head), records, 0, EVERYTHING)
            assert builder.rows == 10 - sum(batch.num_rows for batch in got)
        got += builder.append(*batch_of(10, 10), 0, EVERYTHING)
        assert offsets(got + builder.drain()) == list(range(20))


def test_flush_after_a_malformed_batch_returns_pending_rows(engine: ModuleType) -> None:
    head, records = batch_of(0, 10)
    builder = reader(engine, target_bytes=len(records))
    builder.append(head, records, 0, EVERYTHING)
    with pytest.raises(CorruptSegment):
        builder.append(broken(head), records, 0, EVERYTHING)
    assert builder.rows == 10
    assert offsets(builder.drain()) == list(range(10))
    assert builder.drain() == []


MAX_BYTES = run_reference.MAX_COLUMN_BYTES


@pytest.mark.parametrize("size_bytes", [2**31, MAX_BYTES + 1])
def test_an_area_that_fits_no_column_is_refused_before_memory_is_taken(engine: ModuleType, size_bytes: int) -> None:
    head, _ = batch_of(0, 1)
    reset_peak()
    before = peak_bytes()
    with mmap.mmap(-1, size_bytes) as untouched, memoryview(untouched) as area:
        with pytest.raises(DecompressionLimit, match=f"{size_bytes} bytes of records; {MAX_BYTES} fit") as caught:
            reader(engine).append(head, area, 0, EVERYTHING)
        assert caught.value.offset == 0
    assert peak_bytes() - before < MIB


def test_an_area_that_fits_alone_closes_the_rows_before_it(engine: ModuleType) -> None:
    head, records = batch_of(0, 3)
    builder = reader(engine)
    builder.append(head, records, 0, EVERYTHING)
    with mmap.mmap(-1, MAX_BYTES) as untouched, memoryview(untouched) as area:
        for _ in range(2):
            with pytest.raises(CorruptSegment, match="record 0 of 3 in its batch: the record's length"):
                builder.append(head._replace(base_offset=3, last_offset=5), area, 0, EVERYTHING)
            assert builder.rows == 3
    small, large = builder.append(*batch_of(3, 3), 0, EVERYTHING), builder.drain()
    assert (offsets(small), offsets(large)) == ([0, 1, 2], [3, 4, 5])


def test_arrays_that_were_returned_are_never_written_again(engine: ModuleType) -> None:
    builder = reader(engine, COLUMNS)
    first = builder.read(*batch_of(0, 10, b"v" * 100), 0, EVERYTHING)
    second = builder.read(*batch_of(10, 10, b"w" * 100), 0, EVERYTHING)
    for letter, base, (batch,) in ((b"v", 0, first), (b"w", 10, second)):
        batch.validate(full=True)
        assert batch.column("value").to_pylist() == [letter * 100] * 10
        assert offsets([batch]) == list(range(base, base + 10))


@pytest.mark.parametrize("target_bytes", [MIB, 1])
def test_a_drained_reader_keeps_no_buffers(engine: ModuleType, target_bytes: int) -> None:
    """A partition that was read keeps its reader for a while: hundreds of them must not keep their buffers."""
    count = 2 if engine is run_reference else 100
    head, records = batch_of(0, 64, b"v" * (12 << 10))
    readers = [reader(engine, COLUMNS, target_bytes=target_bytes) for _ in range(count)]
    assert offsets(readers[0].read(head, records, 0, EVERYTHING)) == list(range(64))
    reset_peak()
    before = peak_bytes()
    for builder in (*readers, *readers):
        full = builder.append(head, records, 0, EVERYTHING)
        assert bool(full) == (target_bytes == 1)
        assert offsets([*full, *builder.drain()]) == list(range(64))
    assert peak_bytes() - before < 16 * MIB  # one of them takes 0.75 MiB


@settings(examples(60), suppress_health_check=list(HealthCheck))
@given(
    counts=st.lists(st.integers(0, 40), max_size=12),
    target_bytes=st.integers(1, 4000),
    max_rows=st.integers(1, 60),
    bad=st.sets(st.integers(0, 11)),
)
def test_whatever_the_sizes_every_record_comes_once_and_in_order(
    engine: ModuleType, counts: list[int], target_bytes: int, max_rows: int, bad: set[int]
) -> None:
    builder = reader(engine, target_bytes=target_bytes, max_rows=max_rows)
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
    got += builder.drain()
    assert offsets(got) == list(range(taken))
    for batch in got:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= max_rows
