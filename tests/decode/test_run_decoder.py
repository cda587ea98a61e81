"""Runs of batches, natively and in plain Python: the rows, the place and the status with which a run ends.

Rules of the file: every test runs with each decoder. Without the native one these tests are skipped, unless the machine
has a Rust compiler: then the build has failed, and so does the test.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from remote_fetch.decode.columns import COLUMNS, schema_for
from remote_fetch.decode.run_decoder import Bounds, DecodedRun, RunReader, Start, is_native
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.errors import ConfigError
from remote_fetch.testing.compression import compress
from remote_fetch.testing.records import (
    HEADER_BYTES,
    Record,
    encode_batch,
    encode_legacy,
    encode_marker,
    encode_varint,
    rewrite_crc,
)
from tests.cases import each_of
from tools.fuzz_memory import peak_bytes, reset_peak

EVERYTHING = 2**63 - 1


def batch(offset: int, count: int = 2, **options: Any) -> bytes:
    return encode_batch(offset, [Record(at, at, b"k", b"value") for at in range(count)], **options)


def of(offset: int, producer: int) -> bytes:
    """A batch of two records of a producer's transaction."""
    return batch(offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def read(
    engine: ModuleType,
    batches: Sequence[bytes],
    *,
    columns: Sequence[str] = COLUMNS,
    at: int = 0,
    last_offset: int = -1,
    first_offset: int = 0,
    epoch: int = 0,
    epoch_stop: int = EVERYTHING,
    **bounds: Any,
) -> DecodedRun:
    every = Bounds(**{"segment_start": 0, "segment_end": 10_000, "stop_offset": EVERYTHING, **bounds})
    start = Start(last_offset, first_offset, epoch, epoch_stop)
    return RunReader("topic", 3, columns, every, engine=engine).read(memoryview(b"".join(batches)), at, start)


def column(run: DecodedRun, name: str) -> list[Any]:
    return [value for one in run.rows.to_arrow() for value in one.column(name).to_pylist()]


LAST = batch(9000)
"""The batch that confirms the place of the one before it."""


def test_every_column_of_every_codec(engine: ModuleType) -> None:
    records = [
        Record(0, 5, b"key", None, (("h", b"1"), ("", None))),
        Record(2, -7, None, b""),
        Record(3, 2**33, b"", b"v" * 300, (("h", b""),)),
    ]
    batches = [
        encode_batch(10 * codec, records, codec=codec, base_timestamp_ms=1000, leader_epoch=4) for codec in range(5)
    ]
    run = read(engine, [b"abc", *batches, batch(60, leader_epoch=4)], at=3, epoch=4)
    assert (run.taken, run.status, run.last_offset, run.position) == (5, RunStatus.END, 43, 3 + sum(map(len, batches)))
    (rows,) = run.rows.to_arrow()
    rows.validate(full=True)
    assert rows.schema.names == list(COLUMNS)
    assert column(run, "offset") == [10 * codec + delta for codec in range(5) for delta in (0, 2, 3)]
    assert column(run, "timestampMs") == [1005, 993, 1000 + 2**33] * 5
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [1005_000, 993_000, (1000 + 2**33) * 1000] * 5
    assert column(run, "key") == [b"key", None, b""] * 5
    assert column(run, "value") == [None, b"", b"v" * 300] * 5
    assert column(run, "headers") == [
        [{"key": "h", "value": b"1"}, {"key": "", "value": None}], [], [{"key": "h", "value": b""}],
    ] * 5  # fmt: skip
    assert set(column(run, "leaderEpoch")) == {4}
    assert set(column(run, "timestampType")) == {0}
    assert set(column(run, "topic")) == {"topic"}
    assert set(column(run, "partition")) == {3}


def test_what_the_broker_stamped(engine: ModuleType) -> None:
    run = read(engine, [batch(0, log_append_time_ms=777), batch(5, base_timestamp_ms=2**62), LAST])
    assert column(run, "timestampMs") == [777, 777, 2**62, 2**62 + 1]
    assert column(run, "timestampType") == [1, 1, 0, 0]
    assert run.rows.to_arrow()[0].column("timestamp").cast(pa.int64()).to_pylist()[2:] == [2**63 - 1] * 2


@each_of("columns", [("offset",), ("partition", "value"), ("headers", "topic"), ("topic",), ("timestampMs", "key")])
def test_only_the_columns_that_are_wanted(engine: ModuleType, columns: tuple[str, ...]) -> None:
    run = read(engine, [batch(0), LAST], columns=columns)
    assert run.rows.to_arrow()[0].schema == schema_for(columns)
    assert run.rows.to_arrow()[0].equals(read(engine, [batch(0), LAST]).rows.to_arrow()[0].select(columns))


def test_unknown_columns_are_refused(engine: ModuleType) -> None:
    with pytest.raises(ConfigError, match="unknown column 'colour'"):
        read(engine, [LAST], columns=["colour"])


def test_header_keys_that_are_no_text(engine: ModuleType) -> None:
    keys = [b"good", b"\xff\xfe", b"\xed\xa0\x80x", b"\xed\xa0", b"\xe2\x82", "\u00fc".encode(), b""]
    body = b"".join(encode_varint(len(key)) + key + encode_varint(-1) for key in keys)
    record = b"\0" + encode_varint(0) * 2 + encode_varint(-1) * 2 + encode_varint(len(keys)) + body
    area = encode_varint(len(record)) + record
    data = batch(0, 1)[:HEADER_BYTES] + area
    run = read(engine, [rewrite_crc(data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]), LAST])
    run.rows.to_arrow()[0].validate(full=True)
    found = [pair["key"] for pair in column(run, "headers")[0]]
    assert found == ["good", "\ufffd\ufffd", "\ufffdx", "\ufffd", "\ufffd", "\u00fc", ""]


def test_the_wanted_offsets(engine: ModuleType) -> None:
    batches = [batch(0), batch(2), batch(4), batch(6), LAST]
    run = read(engine, batches, first_offset=3, stop_offset=5)
    assert (column(run, "offset"), run.taken, run.status) == ([3, 4], 3, RunStatus.SPECIAL)
    broken = bytearray(batch(0))
    broken[HEADER_BYTES] = 0xFF
    run = read(engine, [rewrite_crc(bytes(broken)), *batches[1:]], first_offset=2)
    assert column(run, "offset") == [*range(2, 8)]  # what is not wanted is not looked into


def changed(data: bytes, at: int, value: int, size: int) -> bytes:
    """The batch with one field changed, and its checksum right."""
    return rewrite_crc(data[:at] + value.to_bytes(size, "big", signed=True) + data[at + size :])


def with_area(area: bytes, count: int, codec: int = 0, whole: bytes | None = None) -> bytes:
    """The batch `whole` with these records, or one from offset 2 to 4."""
    head = bytearray((batch(2, 3) if whole is None else whole)[:HEADER_BYTES])
    head[8:12] = (HEADER_BYTES - 12 + len(area)).to_bytes(4, "big")
    head[22] |= codec
    head[57:61] = count.to_bytes(4, "big")
    return rewrite_crc(bytes(head) + area)


GOOD = batch(2)
RECORD = bytes([0, 0, 0, 1, 1, 0])
"""Attributes, two deltas, no key, no value, no headers."""
ENDED_BEFORE: dict[str, tuple[bytes, dict[str, Any], RunStatus]] = {
    "a wrong checksum": (GOOD[:-1] + b"\xff", {}, RunStatus.BAD_CHECKSUM),
    "another epoch": (batch(2, leader_epoch=1), {}, RunStatus.SPECIAL),
    "no epoch": (batch(2, leader_epoch=-1), {}, RunStatus.SPECIAL),
    "the end of an epoch": (GOOD, {"epoch_stop": 2}, RunStatus.SPECIAL),
    "the end of what is wanted": (GOOD, {"stop_offset": 2}, RunStatus.SPECIAL),
    "a codec that does not exist": (changed(GOOD, 21, 5, 2), {}, RunStatus.SPECIAL),
    "a marker without a producer": (encode_marker(2, -1, commit=True), {"aborted": []}, RunStatus.SPECIAL),
    "a compressed marker": (changed(encode_marker(2, 7, commit=True), 21, 0x31, 2), {"aborted": []}, RunStatus.SPECIAL),
    "a transaction without a producer": (changed(GOOD, 21, 0x10, 2), {"aborted": []}, RunStatus.SPECIAL),
    "no zstd": (with_area(b"no zstd at all", 1, 4), {}, RunStatus.BAD_STREAM),
    "a bomb": (with_area(compress(4, bytes(1 << 16)), 1, 4), {"max_decompressed_bytes": 65_535}, RunStatus.BAD_STREAM),
    "too many records": (with_area(bytes([12, *RECORD]), 2), {}, RunStatus.BAD_COUNT),
    "a record too few": (with_area(bytes([28, *RECORD, *bytes(8)]), 2), {}, RunStatus.BAD_END),
    "a number without end": (with_area(b"\xff" * 9, 1), {}, RunStatus.BAD_VARINT),
    "a record too short": (with_area(bytes([10, *RECORD]), 1), {}, RunStatus.BAD_LENGTH),
    "a record too long": (with_area(bytes([14, *RECORD]), 1), {}, RunStatus.BAD_LENGTH),
    "an offset again": (with_area(bytes([12, *RECORD, 12, *RECORD]), 2), {}, RunStatus.BAD_OFFSET),
    "an offset past the batch": (with_area(bytes([12, 0, 0, 6, 1, 1, 0]), 1), {}, RunStatus.BAD_OFFSET),
    "a key past the record": (with_area(bytes([12, 0, 0, 0, 20, 1, 0]), 1), {}, RunStatus.BAD_FIELD),
    "too many headers": (with_area(bytes([12, 0, 0, 0, 1, 1, 2]), 1), {}, RunStatus.BAD_HEADER_COUNT),
    "a header without key": (with_area(bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]), 1), {}, RunStatus.BAD_HEADER_KEY),
    "more than the records": (with_area(bytes([12, *RECORD, 0]), 1), {}, RunStatus.BAD_REST),
}
AREA = bytes([12, *RECORD, 12, 0, 0, 2, 1, 1, 0])
"""Two records, at the first offset of their batch and at the next."""
ODD_STREAMS: dict[str, tuple[int, bytes]] = {
    "gzip and zeros": (1, compress(1, AREA) + bytes(40)),
    "gzip and garbage": (1, compress(1, AREA) + b"garbage"),
    "gzip members and zeros": (1, compress(1, AREA[:5]) + compress(1, AREA[5:]) + bytes(4)),
    "xerial streams": (
        2,
        compress(2, AREA[:5], snappy_framing="xerial") + compress(2, AREA[5:], snappy_framing="xerial"),
    ),
    "lz4 and zeros": (3, compress(3, AREA) + bytes(6)),
    "lz4 and an empty frame": (3, compress(3, AREA) + compress(3, b"")),
}
CUT_STREAMS: dict[str, tuple[int, bytes]] = {
    "a gzip header": (1, compress(1, AREA) + b"\x1f\x8b"),
    "a gzip member": (1, compress(1, AREA) + compress(1, b"")[:-1]),
    "a xerial header": (2, compress(2, AREA, snappy_framing="xerial") + b"\x82SNAPPY\0"),
    "a xerial length": (2, compress(2, AREA, snappy_framing="xerial") + b"\x82SN"),
    "an lz4 end mark": (3, compress(3, AREA)[:-1]),
}


@each_of("name", ODD_STREAMS)
def test_streams_that_java_reads(engine: ModuleType, name: str) -> None:
    codec, area = ODD_STREAMS[name]
    run = read(engine, [with_area(area, 2, codec), LAST])
    assert (column(run, "offset"), run.taken, run.status) == ([2, 3], 1, RunStatus.END)


@each_of("name", CUT_STREAMS)
def test_cut_streams(engine: ModuleType, name: str) -> None:
    codec, area = CUT_STREAMS[name]
    run = read(engine, [with_area(area, 2, codec), LAST])
    assert (run.taken, run.status) == (0, RunStatus.BAD_STREAM)


MISPLACED: dict[str, tuple[bytes, dict[str, Any], RunStatus]] = {
    "a damaged length": (GOOD[:8] + b"\0\0\0\x10" + GOOD[12:], {}, RunStatus.MISPLACED),
    "a negative length": (GOOD[:8] + b"\xff\0\0\0" + GOOD[12:], {}, RunStatus.MISPLACED),
    "a batch too large": (batch(2, 100), {"max_batch_bytes": 200}, RunStatus.MISPLACED),
    "a legacy message": (encode_legacy(2, [Record(0, 0, None, b"v" * 60)], magic=1), {}, RunStatus.SPECIAL),
    "an offset again": (batch(1), {}, RunStatus.MISPLACED),
    "an offset past the segment": (GOOD, {"segment_end": 2}, RunStatus.MISPLACED),
    "an index entry inside": (batch(2, 3), {"entries": (3, -1)}, RunStatus.MISPLACED),
    "the other index entry inside": (batch(2, 3), {"entries": (-1, 3)}, RunStatus.MISPLACED),
    "a negative delta": (changed(GOOD, 23, -1, 4), {}, RunStatus.MISPLACED),
    "a negative count": (changed(GOOD, 57, -1, 4), {}, RunStatus.MISPLACED),
    "a cut header": (GOOD[:60], {}, RunStatus.END),
}


@each_of("name", ENDED_BEFORE)
def test_a_run_ends_before(engine: ModuleType, name: str) -> None:
    special, options, status = ENDED_BEFORE[name]
    run = read(engine, [batch(0, 1), batch(1, 1), special, LAST], **options)
    assert (run.status, column(run, "offset"), run.last_offset) == (status, [0, 1], 1)
    assert run.position == 2 * len(batch(0, 1))


@each_of("name", MISPLACED)
def test_where_the_place_of_a_batch_is_in_doubt_so_is_the_one_before_it(engine: ModuleType, name: str) -> None:
    special, options, status = MISPLACED[name]
    tail = [] if status is RunStatus.END else [LAST]
    run = read(engine, [batch(0, 1), batch(1, 1), special, *tail], **options)
    assert (run.status, column(run, "offset"), run.position) == (status, [0], len(batch(0, 1)))
    alone = read(engine, [special, *tail], last_offset=1, **options)
    assert (alone.status, alone.taken, alone.rows.to_arrow()) == (status, 0, [])


@each_of("end", [HEADER_BYTES, len(GOOD) - 1])
def test_the_header_of_a_batch_that_is_cut_off_confirms_the_one_before_it(engine: ModuleType, end: int) -> None:
    run = read(engine, [batch(0, 1), batch(1, 1), GOOD[:end]])
    assert (run.status, column(run, "offset"), run.position) == (RunStatus.END, [0, 1], 2 * len(batch(0, 1)))
    longer = GOOD[:8] + b"\0\1\0\0" + GOOD[12:]
    run = read(engine, [batch(0, 1), batch(1, 1), longer, LAST])
    assert (run.status, column(run, "offset"), run.position) == (RunStatus.END, [0, 1], 2 * len(batch(0, 1)))
    alone = read(engine, [GOOD[:end]], last_offset=1)
    assert (alone.status, alone.taken, alone.rows.to_arrow()) == (RunStatus.END, 0, [])


def test_no_bytes_are_no_run(engine: ModuleType) -> None:
    assert read(engine, []).status is RunStatus.END
    assert read(engine, [batch(0)], at=1000).status is RunStatus.END


def test_read_committed_hides_what_was_aborted(engine: ModuleType) -> None:
    batches = [of(0, 7), of(2, 8), batch(4), of(6, 7), of(8, 7), LAST]
    aborted = [(8, 2, 3), (7, 6, 7), (7, 0, 1), (9, 0, 20)]
    run = read(engine, batches, aborted=aborted)
    assert (column(run, "offset"), run.taken) == ([4, 5, 8, 9], 5)
    assert run.shown == {7: 8}
    everything = read(engine, batches)
    assert (column(everything, "offset"), everything.shown) == ([*range(10)], {})
    marker = read(engine, [batch(0), encode_marker(2, 7, commit=False), LAST])
    assert (column(marker, "offset"), marker.taken) == ([0, 1], 2)


def test_aborted_transactions_of_several_producers(engine: ModuleType) -> None:
    batches = [of(2 * at, producer) for at, producer in enumerate([7, 8, 7, 6, 7, 9, 8])]
    batches += [batch(14, producer_id=7, producer_epoch=0, base_sequence=0), LAST]
    run = read(engine, batches, aborted=[(7, 0, 2), (7, 8, 20), (8, 12, 13), (9, 11, 30)])
    # Producer 9 began its aborted transaction after the batch at 10. Read_committed shows every batch that is not
    # transactional.
    assert column(run, "offset") == [2, 3, 4, 5, 6, 7, 10, 11, 14, 15]
    assert (run.taken, run.shown) == (8, {8: 2, 7: 4, 6: 6, 9: 10})
    everything = read(engine, batches, aborted=[])
    assert (column(everything, "offset"), everything.shown) == ([*range(16)], {7: 0, 8: 2, 6: 6, 9: 10})
    late = read(engine, batches, aborted=[], first_offset=6)
    assert late.shown == {6: 6, 7: 8, 9: 10, 8: 12}


def test_batches_without_rows_are_walked_over(engine: ModuleType) -> None:
    """Of an aborted batch only the checksum is looked at, and a cleaner leaves batches without records."""
    aborted = bytearray(batch(2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    aborted[HEADER_BYTES] = 0xFF
    empty = batch(4, 0, last_offset_delta=3)
    run = read(engine, [batch(0), rewrite_crc(bytes(aborted)), empty, LAST], aborted=[(7, 2, 3)])
    assert (column(run, "offset"), run.taken, run.last_offset) == ([0, 1], 3, 7)
    run = read(engine, [batch(0), bytes(aborted), LAST], aborted=[(7, 2, 3)])
    assert (run.status, run.taken) == (RunStatus.BAD_CHECKSUM, 1)
    run = read(engine, [rewrite_crc(bytes(aborted)), LAST], aborted=[])
    assert (run.status, run.taken) == (RunStatus.BAD_LENGTH, 0)


@each_of("bounds", [Bounds(0, 10_000, EVERYTHING, max_rows=4), Bounds(0, 10_000, EVERYTHING, target_bytes=20)])
def test_a_run_ends_when_the_columns_are_full(engine: ModuleType, bounds: Bounds) -> None:
    reader = RunReader("topic", 3, COLUMNS, bounds, engine=engine)
    data, at, last, found = memoryview(b"".join([*(batch(2 * at) for at in range(7)), LAST])), 0, -1, list[Any]()
    while True:
        run = reader.read(data, at, Start(last, 0, 0, EVERYTHING))
        at, last = run.position, run.last_offset
        found.append(column(run, "offset"))
        if run.status is not RunStatus.FULL:
            break
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]


def test_headers_without_bytes_fill_the_columns(engine: ModuleType) -> None:
    """Their offsets take memory: 8 bytes a header. A producer can write millions of them in a small batch."""
    bare = tuple(("", None) for _ in range(100))
    batches = [encode_batch(at, [Record(0, headers=bare)]) for at in range(5)]
    for columns, taken in [(COLUMNS, 2), (["offset", "value"], 5)]:
        run = read(engine, [*batches, batch(5)], columns=columns, target_bytes=1_600)
        assert (run.taken, run.rows.num_rows) == (taken, taken)
        assert (run.status is RunStatus.FULL) == (taken == 2)
    assert read(engine, [*batches, batch(5)], target_bytes=1_601).taken == 3


def test_a_batch_with_more_rows_than_an_arrow_batch_may_have(engine: ModuleType) -> None:
    run = read(engine, [batch(0, 10), LAST], max_rows=4)
    assert [one.num_rows for one in run.rows.to_arrow()] == [4, 4, 2]
    assert column(run, "offset") == [*range(10)]


def test_a_damaged_batch_leaves_no_trace(engine: ModuleType) -> None:
    """A fault in the last record of a batch with nulls and headers: all columns go back, and the next run is right."""
    records = [
        Record(at, 0, (None, b"k")[at % 2], (b"v", None)[at % 2], (("h", None), ("i", b"x"))) for at in range(13)
    ]
    good, bad = encode_batch(0, records), bytearray(encode_batch(20, records))
    bad[-1:] = b"y"  # only the checksum will be wrong
    broken = rewrite_crc(bytes(bad[:-4]) + b"\xff\xff\xff\xff")
    reader = RunReader("topic", 3, COLUMNS, Bounds(0, 10_000, EVERYTHING), engine=engine)
    start = Start(-1, 0, 0, EVERYTHING)
    damaged = reader.read(memoryview(good + broken + LAST), 0, start)
    assert damaged.status > RunStatus.BAD_STREAM
    sound = reader.read(memoryview(good + LAST), 0, start)
    for one in (*damaged.rows.to_arrow(), *sound.rows.to_arrow()):
        one.validate(full=True)
    assert damaged.rows.to_arrow() == sound.rows.to_arrow()
    assert column(sound, "key") == [record.key for record in records]


def test_timestamps_that_microseconds_cannot_hold_are_counted(engine: ModuleType) -> None:
    """Those of a batch that is damaged are not."""
    late_ms = 2**62
    odd = encode_batch(0, [Record(0), Record(1), Record(2, -late_ms)], base_timestamp_ms=late_ms)
    early = encode_batch(3, [Record(0, -(2**62)), Record(1, 5)], base_timestamp_ms=-(2**61))
    broken = rewrite_crc(encode_batch(5, [Record(0)], base_timestamp_ms=late_ms)[:-1] + b"\xff")
    run = read(engine, [odd, early, broken, LAST])
    assert (run.taken, run.saturated, len(column(run, "offset"))) == (2, 4, 5)
    assert read(engine, [odd, early, LAST], first_offset=1).saturated == 3
    assert read(engine, [odd, LAST], columns=["offset", "timestampMs"]).saturated == 0
    assert read(engine, [batch(0), LAST]).saturated == 0


def test_the_rows_outlive_bytes_and_reader(native_engine: ModuleType) -> None:
    run = read(native_engine, [batch(0, 100), LAST])
    expected = [b"value"] * 100
    gc.collect()
    read(native_engine, [batch(0, 100), LAST])
    value = run.rows.to_arrow()[0].column("value")
    del run
    gc.collect()
    assert value.to_pylist() == expected


def test_memory_comes_back(native_engine: ModuleType) -> None:
    data = [encode_batch(0, [Record(0, 0, b"k", bytes(8 << 20))]), LAST]
    read(native_engine, data)
    reset_peak()
    before = peak_bytes()
    for _ in range(40):
        assert read(native_engine, data).rows.to_arrow()[0].num_rows == 1
    assert peak_bytes() - before < 100 << 20  # of 320 that went through


def test_only_wanted_columns_take_memory(native_engine: ModuleType) -> None:
    data = [encode_batch(0, [Record(at, 0, b"k", bytes(1 << 20)) for at in range(64)]), LAST]
    reset_peak()
    before = peak_bytes()
    run = read(native_engine, data, columns=["offset", "key", "headers"])
    assert run.rows.to_arrow()[0].num_rows == 64
    assert peak_bytes() - before < 100 << 20  # the bytes of the log are joined, and no value is copied


def test_a_small_run_after_a_large_one_keeps_little_memory(native_engine: ModuleType) -> None:
    large = memoryview(encode_batch(0, [Record(at, 0, b"k", bytes(80_000)) for at in range(100)]) + LAST)
    small = memoryview(encode_batch(200, [Record(at, 0, b"k", bytes(8000)) for at in range(75)]) + LAST)
    reader = RunReader("topic", 3, COLUMNS, Bounds(0, 10_000, EVERYTHING), engine=native_engine)
    start = Start(-1, 0, 0, EVERYTHING)
    reader.read(large, 0, start)
    reset_peak()
    before, kept = peak_bytes(), list[pa.RecordBatch]()
    for _ in range(30):
        reader.read(large, 0, start)
        kept += reader.read(small, 0, start).rows.to_arrow()
    assert peak_bytes() - before < 80 << 20  # 18 MiB of columns are kept


def test_the_interpreter_runs_meanwhile(native_engine: ModuleType) -> None:
    """With a switch interval of an hour another thread runs only if the lock is given away."""
    data = [encode_batch(at, [Record(0, 0, b"k", bytes(1 << 20))], codec=1) for at in range(20)]
    joined = memoryview(b"".join([*data, LAST]))
    bounds = Bounds(0, 10_000, EVERYTHING, target_bytes=1 << 30)
    reader = RunReader("topic", 3, COLUMNS, bounds, engine=native_engine)
    turn, ran = threading.Lock(), list[int]()

    def other() -> None:
        with turn:
            ran.append(1)

    thread = threading.Thread(target=other)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    try:
        with turn:
            thread.start()
        before = len(ran)
        run = reader.read(joined, 0, Start(-1, 0, 0, EVERYTHING))
        assert (before, len(ran), run.taken) == (0, 1, 20)
        thread.join(60)
    finally:
        sys.setswitchinterval(interval)


def test_bytes_that_may_change_are_refused(native_engine: ModuleType) -> None:
    reader = RunReader("topic", 3, COLUMNS, Bounds(0, 10_000, EVERYTHING), engine=native_engine)
    for data in (memoryview(bytearray(batch(0))), memoryview(batch(0))[::2]):
        with pytest.raises(BufferError, match="contiguous bytes that are read only"):
            reader.read(data, 0, Start(-1, 0, 0, EVERYTHING))


def test_a_run_ends_where_the_caller_has_confirmed_the_place(engine: ModuleType) -> None:
    data = memoryview(b"".join([batch(0), batch(2), batch(4)]))
    reader = RunReader("topic", 3, COLUMNS, Bounds(0, 10_000, EVERYTHING), engine=engine)
    start = Start(-1, 0, 0, EVERYTHING)
    for taken in (1, 2, 3):
        stop = taken * len(batch(0))
        run = reader.read(data, 0, start, stop)
        assert (run.taken, run.position, run.status, run.last_offset) == (taken, stop, RunStatus.END, 2 * taken - 1)
        assert column(run, "offset") == [*range(2 * taken)]
    assert reader.read(data, 0, start).taken == 2


def test_is_native_tells_which_decoder_is_in_use() -> None:
    assert is_native() == (importlib.util.find_spec("remote_fetch.decode._native") is not None)
