"""The records of single batches, natively and in plain Python, against a slow decoder that shares no line with them."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remote_fetch.decode import run_reference
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.batches import BatchHeader
from remote_fetch.testing.records import Record, encode_records, encode_varint
from tests.cases import each_of
from tests.decoded import ArrowReader
from tests.searches import examples

Row = tuple[Any, ...]
EVERYTHING = 2**63 - 1
LOG_APPEND_BIT = 0x08


def header(
    count: int,
    *,
    base_offset: int = 0,
    last_delta: int = 1000,
    attributes: int = 0,
    base_ms: int = 0,
    max_ms: int = 0,
    leader_epoch: int = 0,
) -> BatchHeader:
    """A header of which only what the decoder looks at is filled in."""
    return BatchHeader(
        base_offset, 0, leader_epoch, 2, 0, attributes, base_offset + last_delta, base_ms, max_ms, -1, -1, -1, count
    )


class Malformed(Exception):
    """The reference decoder's verdict."""


class Reader:
    """The reference: a cursor over bytes that says no to everything out of bounds."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            raise Malformed
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, bits: int) -> int:
        """A zigzag varint with no more bytes than `bits` bits can need. Bits above them are lost, as in Java."""
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= bits:
                raise Malformed
        raw %= 1 << bits
        return (raw >> 1) ^ -(raw & 1)

    def nullable(self) -> bytes | None:
        """A length and as many bytes; any negative length is null."""
        size = self.number(32)
        return None if size < 0 else self.take(size)


def in_64_bits(number: int) -> int:
    """A sum as Java's long holds it."""
    return int.from_bytes((number % 2**64).to_bytes(8, "big"), "big", signed=True)


def reference(head: BatchHeader, area: bytes, start: int, stop: int) -> list[Row]:
    """The rows of a batch, in the order of COLUMNS without topic and partition; timestamps in microseconds."""
    rows = []
    reader = Reader(area)
    previous = head.base_offset - 1
    for _ in range(head.record_count):
        record = Reader(reader.take(reader.number(32)))
        record.take(1)
        timestamp_ms = head.base_timestamp_ms + record.number(64)
        offset = head.base_offset + record.number(32)
        key, value = record.nullable(), record.nullable()
        headers = []
        count = record.number(32)
        if count < 0:
            raise Malformed
        for _ in range(count):
            name, content = record.nullable(), record.nullable()
            if name is None:
                raise Malformed
            headers.append((name, content))
        if record.at != len(record.data) or not previous < offset <= head.last_offset:
            raise Malformed
        previous = offset
        if head.attributes & LOG_APPEND_BIT:
            timestamp_ms = head.max_timestamp_ms
        if start <= offset < stop:
            ms = in_64_bits(timestamp_ms)
            times = (min(max(ms * 1000, -(2**63)), 2**63 - 1), head.timestamp_type)
            rows.append((key, value, offset, *times, headers, head.leader_epoch, ms))
    if reader.at != len(area):
        raise Malformed
    return rows


def rows_of(batches: list[pa.RecordBatch]) -> list[Row]:
    """The rows of Arrow batches in the form of `reference`. Each batch is validated in full."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
        headers = [
            [(entry["key"].encode(), entry["value"]) for entry in entries] for entries in columns["headers"].to_pylist()
        ]
        rows += zip(
            columns["key"].to_pylist(),
            columns["value"].to_pylist(),
            columns["offset"].to_pylist(),
            columns["timestamp"].cast(pa.int64()).to_pylist(),
            columns["timestampType"].to_pylist(),
            headers,
            columns["leaderEpoch"].to_pylist(),
            columns["timestampMs"].to_pylist(),
            strict=True,
        )
    return rows


def decode(
    engine: ModuleType, head: BatchHeader, area: bytes, start: int = 0, stop: int = EVERYTHING, **options: Any
) -> list[Row]:
    """The rows that a reader with this decoder gives for one batch."""
    reader = ArrowReader("topic", 0, COLUMNS, engine=engine, **options)
    return rows_of(reader.read(head, memoryview(area), start, stop))


def outcome(engine: ModuleType, head: BatchHeader, area: bytes, start: int, stop: int) -> list[Row] | str:
    """The rows, or the text of the error."""
    try:
        return decode(engine, head, area, start, stop)
    except CorruptSegment as error:
        return str(error)


NULLABLE = st.none() | st.binary(max_size=20) | st.builds(lambda size: b"v" * size, st.integers(60, 9000))
HEADERS = st.lists(st.tuples(st.sampled_from(["", "a", "a", "größe"]), st.none() | st.binary(max_size=9)), max_size=4)


@st.composite
def batches(draw: st.DrawFn) -> tuple[BatchHeader, bytes, int, int]:
    """A batch with gaps, and a window that may clip it at either end."""
    steps = draw(st.lists(st.integers(1, 5), max_size=12))
    deltas = [sum(steps[: index + 1]) - 1 for index in range(len(steps))]
    records = [
        Record(delta, draw(st.integers(-(2**40), 2**40)), draw(NULLABLE), draw(NULLABLE), tuple(draw(HEADERS)))
        for delta in deltas
    ]
    head = header(
        len(records),
        base_offset=draw(st.sampled_from([0, 7, 2**40])),
        last_delta=sum(steps) + draw(st.integers(0, 2)),
        attributes=draw(st.sampled_from([0, LOG_APPEND_BIT])),
        base_ms=draw(st.integers(-1, 2**41)),
        max_ms=draw(st.integers(-1, 2**41)),
        leader_epoch=draw(st.integers(-1, 9)),
    )
    start = head.base_offset + draw(st.integers(-3, 20))
    return head, encode_records(records), start, start + draw(st.integers(0, 60))


@settings(examples(120), suppress_health_check=list(HealthCheck))
@given(batch=batches())
def test_rows_are_those_of_the_reference(engine: ModuleType, batch: tuple[BatchHeader, bytes, int, int]) -> None:
    assert decode(engine, *batch) == reference(*batch)


@settings(examples(40), suppress_health_check=list(HealthCheck))
@given(given_batches=st.lists(batches(), max_size=6))
def test_batches_pile_up(engine: ModuleType, given_batches: list[tuple[BatchHeader, bytes, int, int]]) -> None:
    builder = ArrowReader("topic", 0, COLUMNS, engine=engine, target_bytes=20_000, max_rows=40)
    got = []
    for head, area, start, stop in given_batches:
        got += builder.append(head, memoryview(area), start, stop)
    wanted = [row for batch in given_batches for row in reference(*batch)]
    assert rows_of([*got, *builder.drain()]) == wanted


@settings(examples(150), suppress_health_check=list(HealthCheck))
@given(
    batch=batches(),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3),
    cut=st.integers(0, 2),
)
def test_damaged_batches_give_the_reference_s_verdict_in_both(
    native_engine: ModuleType,
    batch: tuple[BatchHeader, bytes, int, int],
    edits: list[tuple[float, int]],
    cut: int,
) -> None:
    head, area, start, stop = batch
    damaged = bytearray(area[: len(area) - cut])
    for place, byte in edits:
        if damaged:
            damaged[int(place * len(damaged))] = byte
    check_agreement(native_engine, head, bytes(damaged), start, stop)


def check_agreement(native_engine: ModuleType, head: BatchHeader, area: bytes, start: int, stop: int) -> None:
    """Both variants say the same, and refuse exactly what the reference refuses."""
    one = outcome(native_engine, head, area, start, stop)
    assert one == outcome(run_reference, head, area, start, stop)
    try:
        wanted = reference(head, area, start, stop)
    except Malformed:
        assert isinstance(one, str)
    else:
        # Header keys that are not UTF-8 are repaired; the reference leaves them as they are.
        assert not isinstance(one, str)
        assert [row[:5] for row in one] == [row[:5] for row in wanted]


def test_random_bytes_and_numbers_at_the_edge_give_one_verdict(native_engine: ModuleType) -> None:
    rng = random.Random(20)
    numbers = [0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 9223372036854775, -9223372036854775]
    for _ in range(1500):
        count = rng.randint(0, 3)
        area = bytearray()
        for index in range(count):
            body = bytearray(1) + encode_varint(rng.choice(numbers)) + encode_varint(rng.choice([index, *numbers]))
            body += rng.choice([b"\x01\x01\x00", b"\x02k\x04vv\x00", b"\x01\x01\x02\x00\x01", rng.randbytes(4)])
            area += encode_varint(len(body)) + body
        if rng.random() < 0.2:
            area += rng.randbytes(2)
        head = header(
            count,
            base_offset=rng.choice([0, 2**62, 2**63 - 1002]),
            attributes=rng.choice([0, LOG_APPEND_BIT]),
            base_ms=rng.choice(numbers),
            max_ms=rng.choice(numbers),
        )
        check_agreement(native_engine, head, bytes(area), rng.choice([0, 1, 2**62]), rng.choice([0, EVERYTHING]))


def record(*, attributes: bytes = b"\0", timestamp: bytes = b"\0", offset: bytes = b"\0", rest: bytes = b"") -> bytes:
    """One record with its length in front, out of encoded pieces; `rest` is key, value and headers."""
    body = attributes + timestamp + offset + (rest or b"\x01\x01\x00")
    return encode_varint(len(body)) + body


GOOD = record()
NULL = b"\x01"

MALFORMED = {
    "more records than bytes": (GOOD, 2, "too short for its record count"),
    "a hostile record count": (GOOD, 2**31 - 1, "too short for its record count"),
    "a negative record count": (GOOD, -1, "too short for its record count"),
    "a record missing": (record(rest=b"\x01\x10" + b"v" * 8 + b"\0"), 2, "too short for its record count"),
    "bytes left over": (GOOD + b"\0", 1, "left after the last record"),
    "bytes and no records": (b"\0", 0, "left after the last record"),
    "a length of six bytes": (b"\x8c\x80\x80\x80\x80\x00" + GOOD[1:], 1, "cut off or too long"),
    "a length above 35 bits": (b"\x8c\x80\x80\x80\x80" + GOOD[1:], 1, "cut off or too long"),
    "a length cut off": (GOOD + b"\x80" * 7, 2, "cut off or too long"),
    "a negative length": (b"\x01" + GOOD[1:], 1, "length is too small or goes past"),
    "a length below the minimum": (b"\x0a" + GOOD[1:], 1, "length is too small or goes past"),
    "a length past the batch": (b"\x0e" + GOOD[1:], 1, "length is too small or goes past"),
    "a huge length": (encode_varint(2**31 - 1) + GOOD[1:] * 3, 1, "length is too small or goes past"),
    "a timestamp of eleven bytes": (record(timestamp=b"\x80" * 10 + b"\0"), 1, "cut off or too long"),
    "a timestamp above 70 bits": (record(timestamp=b"\xff" * 9 + b"\x80"), 1, "cut off or too long"),
    "an offset delta above 35 bits": (record(offset=b"\xff" * 4 + b"\x8f"), 1, "cut off or too long"),
    "a negative offset delta": (record(offset=b"\x01"), 1, "does not follow"),
    "an offset past the last offset": (record(offset=encode_varint(1001)), 1, "does not follow"),
    "an offset twice": (GOOD + GOOD, 2, "does not follow"),
    "an offset going back": (record(offset=b"\x04") + record(offset=b"\x02"), 2, "does not follow"),
    "a key past the record": (record(rest=b"\x06kk"), 1, "key or value goes past"),
    "a value past the record": (record(rest=NULL + b"\x06vv"), 1, "key or value goes past"),
    "a value of two gigabytes": (record(rest=NULL + encode_varint(2**31 - 1)), 1, "key or value goes past"),
    "no header count": (record(rest=NULL + b"\x02v"), 1, "cut off or too long"),
    "a negative header count": (record(rest=NULL + NULL + b"\x01"), 1, "header count"),
    "a hostile header count": (record(rest=NULL + NULL + encode_varint(2**31 - 1)), 1, "header count"),
    "more headers than bytes": (record(rest=NULL + NULL + b"\x04\x00\x01"), 1, "header count"),
    "a null header key": (record(rest=NULL + NULL + b"\x02\x01\x01"), 1, "header key is null"),
    "a header key past the record": (record(rest=NULL + NULL + b"\x02\x08h\x01"), 1, "key or value goes past"),
    "a header value past the record": (record(rest=NULL + NULL + b"\x02\x00\x08h"), 1, "key or value goes past"),
    "a header key cut off": (record(rest=NULL + NULL + b"\x02\x80\x80"), 1, "cut off or too long"),
    "a body that goes on": (record(rest=NULL + NULL + b"\0\0"), 1, "does not end where its length says"),
    "headers that end early": (record(rest=NULL + NULL + b"\x02\x00\x01\x00"), 1, "does not end where"),
}


@each_of("name", MALFORMED)
@each_of("columns", [COLUMNS, ("offset",)], ids=["all columns", "one column"])
@each_of("start", [0, 500], ids=["wanted", "not wanted"])
def test_a_malformed_batch_delivers_nothing(
    engine: ModuleType, name: str, columns: tuple[str, ...], start: int
) -> None:
    area, count, message = MALFORMED[name]
    builder = ArrowReader("topic", 3, columns, engine=engine)
    good = encode_records([Record(delta, 0, b"k", b"v", (("h", b"x"),)) for delta in range(3)])
    assert builder.append(header(3), memoryview(good), 0, EVERYTHING) == []
    with pytest.raises(CorruptSegment, match=message) as caught:
        builder.append(header(count, base_offset=100), memoryview(area), start, EVERYTHING)
    assert (caught.value.topic, caught.value.partition) == ("topic", 3)
    assert caught.value.offset is not None
    assert 100 <= caught.value.offset <= 102
    assert builder.rows == 3
    # What comes after is as if the malformed batch had never been.
    assert builder.append(header(3, base_offset=200), memoryview(good), 0, EVERYTHING) == []
    (batch,) = builder.drain()
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == [0, 1, 2, 200, 201, 202]
    if "key" in columns:
        assert batch.column("key").to_pylist() == [b"k"] * 6
        assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]] * 6


def test_an_error_names_the_record_and_its_offset(engine: ModuleType) -> None:
    area = GOOD + record(offset=b"\x06", rest=b"\x06kk")
    with pytest.raises(CorruptSegment, match="record 1 of 2") as caught:
        decode(engine, header(2, base_offset=100), area)
    assert caught.value.offset == 103


def test_numbers_may_be_longer_than_needed(engine: ModuleType) -> None:
    area = record(timestamp=b"\x80" * 9 + b"\x00", offset=b"\x84\x80\x80\x80\x00", rest=b"\x81\x00\x80\x00\x80\x00")
    assert decode(engine, header(1), area) == [(None, b"", 2, 0, 0, [], 0, 0)]


@pytest.mark.parametrize("above", [0x10, 0x70])
def test_bits_above_those_of_a_number_are_lost_as_in_java(engine: ModuleType, above: int) -> None:
    size, offset, null = (bytes((low, 0x80, 0x80, 0x80, above)) for low in (0x80 | 23 * 2, 0x82, 0x81))
    area = size + b"\0" + b"\x84" + b"\x80" * 8 + b"\x7e" + offset + null + b"\0\0"
    assert decode(engine, header(1), area) == [(None, b"", 1, 2000, 0, [], 0, 2)]
    least = record(timestamp=b"\xff" * 9 + b"\x7f", rest=b"\xff\xff\xff\xff\x7f\x01\x00")
    assert decode(engine, header(1), least) == [(None, None, 0, -(2**63), 0, [], 0, -(2**63))]


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_any_negative_length_is_null_as_in_java(engine: ModuleType, length: int) -> None:
    null = encode_varint(length)
    area = record(rest=null + null + b"\x02\x00" + null)
    assert decode(engine, header(1), area) == [(None, None, 0, 0, 0, [(b"", None)], 0, 0)]


def test_an_empty_batch_is_legal(engine: ModuleType) -> None:
    assert decode(engine, header(0), b"") == []


FIRST_MS, LAST_MS = -9223372036854775, 9223372036854775


@each_of(
    ("base_ms", "delta", "microseconds"),
    [
        (0, LAST_MS, LAST_MS * 1000),
        (0, LAST_MS + 1, 2**63 - 1),
        (0, FIRST_MS, FIRST_MS * 1000),
        (0, FIRST_MS - 1, -(2**63)),
        (LAST_MS, 0, LAST_MS * 1000),
        (LAST_MS, 1, 2**63 - 1),
        (FIRST_MS, -1, -(2**63)),
        (2**63 - 1, 0, 2**63 - 1),
        (2**63 - 1, LAST_MS - (2**63 - 1), LAST_MS * 1000),
        (2**63 - 1, -(2**63), -1000),
        (-(2**63), 0, -(2**63)),
        (-(2**63), 2**63 - 1, -1000),
        (-(2**63), LAST_MS - 2**63, LAST_MS * 1000),
        # Sums that leave 64 bits: a producer in Java has taken the difference alike, and the sum is its timestamp.
        (LAST_MS, 2**63 - 1, -(2**63)),
        (FIRST_MS, -(2**63), 2**63 - 1),
        (2**63 - 1, 2**63 - 1, -2000),
        (-(2**63), -(2**63), 0),
        (-5, in_64_bits(2**63 - 1 + 5), 2**63 - 1),
        (2**63 - 1, in_64_bits(-7 - (2**63 - 1)), -7000),
    ],
)
def test_any_timestamp_is_given_and_one_past_the_microseconds_is_saturated(
    engine: ModuleType, base_ms: int, delta: int, microseconds: int
) -> None:
    area = record(timestamp=encode_varint(delta), offset=b"\x02")
    (row,) = decode(engine, header(1, base_ms=base_ms, base_offset=10), area)
    assert (row[3], row[7]) == (microseconds, in_64_bits(base_ms + delta))


def test_timestamps_past_the_microseconds_are_counted_as_their_rows_leave(engine: ModuleType) -> None:
    reader, area = ArrowReader("topic", 0, COLUMNS, engine=engine), memoryview(encode_records([Record(0), Record(1)]))
    for base_offset, base_ms, counted in ((0, LAST_MS, 0), (10, LAST_MS + 1, 2), (20, FIRST_MS - 1, 4)):
        reader.append(header(2, base_ms=base_ms, base_offset=base_offset), area, 0, EVERYTHING)
        reader.drain()
        assert reader.saturated == counted


def test_log_append_time_is_the_batch_s_for_every_record(engine: ModuleType) -> None:
    area = encode_records([Record(0, 5), Record(1, -(2**62))])
    head = header(2, attributes=LOG_APPEND_BIT, base_ms=2**62, max_ms=1234)
    assert [row[3:5] for row in decode(engine, head, area)] == [(1_234_000, 1)] * 2
    (early, late) = decode(engine, head._replace(max_timestamp_ms=LAST_MS + 1), area)
    assert early[3:5] == late[3:5] == (2**63 - 1, 1)


def test_validity_bits_are_right_across_bytes_and_after_a_rollback(engine: ModuleType) -> None:
    pattern = [b"x" if index % 3 else None for index in range(37)]
    area = encode_records([Record(index, 0, value, value) for index, value in enumerate(pattern)])
    builder = ArrowReader("t", 0, ["key", "value"], engine=engine)
    for _ in range(3):
        builder.append(header(37), memoryview(area), 0, EVERYTHING)
        with pytest.raises(CorruptSegment):
            builder.append(header(37), memoryview(area.replace(b"x", b"") + GOOD), 0, EVERYTHING)
    (batch,) = builder.drain()
    batch.validate(full=True)
    assert batch.column("key").to_pylist() == batch.column("value").to_pylist() == pattern * 3
