"""Framing: batches come out whole, in order and only once, or an error says where they do not."""

from __future__ import annotations

import gzip
import re
import zlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from struct import pack

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.batches import BatchFramer, BatchHeader, FramedBatch, check_crc, read_header, sequence_at
from remote_fetch.model import TimestampType
from remote_fetch.testing.records import Record, encode_batch
from tests.searches import examples

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
DUMPED = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) baseSequence: (?P<sequence>-?\d+) .*"
    r"producerId: (?P<pid>-?\d+) producerEpoch: (?P<epoch>-?\d+) partitionLeaderEpoch: (?P<leader>\d+) "
    r"isTransactional: (?P<tx>\w+) isControl: (?P<control>\w+) .* position: (?P<position>\d+) "
    r"(?P<type>\w+): (?P<max>\d+) size: (?P<size>\d+) magic: (?P<magic>\d) compresscodec: (?P<codec>\w+) "
    r"crc: (?P<crc>\d+) isvalid: true"
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def v2_batch(
    *, base_offset: int = 7, last_offset_delta: int = 0, attributes: int = 0, record_count: int = 1, body: bytes = b"r"
) -> bytes:
    covered = pack(
        ">hiqqqhii", attributes, last_offset_delta, 1_000, 2_000, 41, 3, 5, record_count
    ) + body  # fmt: skip
    return pack(">qiibI", base_offset, len(covered) + 9, 12, 2, crc32c(covered)) + covered


def message(magic: int, *, offset: int = 7, attributes: int = 0, timestamp_ms: int = 1_000, body: bytes = b"") -> bytes:
    covered = (
        pack(">bb", magic, attributes) + (pack(">q", timestamp_ms) if magic else b"") + (body or pack(">ii", -1, -1))
    )
    return pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def frame(data: bytes, *, position: int = 0) -> list[FramedBatch]:
    framer = BatchFramer(position)
    framer.feed(memoryview(data))
    batches = drain(framer)
    framer.finish()
    return batches


def frame_and_check(data: bytes) -> None:
    for batch in frame(data):
        check_crc(batch)


def drain(framer: BatchFramer) -> list[FramedBatch]:
    batches = []
    while batch := framer.next_batch():
        batches.append(batch)
    return batches


def golden_logs() -> list[Path]:
    return sorted(GOLDEN.glob("*/remote/**/*.log"))


def dumped(golden_set: str) -> dict[tuple[str, str], list[dict[str, str]]]:
    """The output of Kafka's dump tool for each batch, by topic-partition and segment file."""
    batches: dict[tuple[str, str], list[dict[str, str]]] = {}
    partition = segment = ""
    text = gzip.decompress((GOLDEN / golden_set / "dump.txt.gz").read_bytes()).decode()
    for line in text.splitlines():
        if line.startswith("#####"):
            partition = line.split()[1]
        elif line.startswith("Dumping"):
            segment = line.split()[1]
        elif found := DUMPED.match(line):
            batches.setdefault((partition, segment), []).append(found.groupdict())
    return batches


def as_dumped(batch: FramedBatch) -> dict[str, str]:
    header = batch.header
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return {
        "base": str(header.base_offset),
        "last": str(header.last_offset),
        "count": str(header.record_count),
        "sequence": str(header.base_sequence),
        "pid": str(header.producer_id),
        "epoch": str(header.producer_epoch),
        "leader": str(header.leader_epoch),
        "tx": str(header.is_transactional).lower(),
        "control": str(header.is_control).lower(),
        "position": str(batch.position),
        "type": "LogAppendTime" if append_time else "CreateTime",
        "max": str(header.max_timestamp_ms),
        "size": str(header.size_bytes),
        "magic": str(header.magic),
        "codec": CODECS[header.codec],
        "crc": str(header.crc),
    }


@pytest.mark.parametrize("golden_set", ["local-3.9", "local-4.1"])
def test_headers_equal_those_of_kafkas_dump_tool(golden_set: str) -> None:
    compared = 0
    for (partition, segment), expected in dumped(golden_set).items():
        (log,) = (GOLDEN / golden_set / "remote").glob(f"*/{partition}-*/{segment.removesuffix('.log')}-*.log")
        assert [as_dumped(batch) for batch in frame(log.read_bytes())] == expected
        compared += len(expected)
    assert compared > 50


def test_every_golden_batch_passes_its_checksum() -> None:
    logs = golden_logs()
    assert logs
    for log in logs:
        batches = frame(log.read_bytes())
        assert sum(batch.header.size_bytes for batch in batches) == log.stat().st_size
        for batch in batches:
            check_crc(batch)


def test_v2_fields() -> None:
    (batch,) = frame(v2_batch(last_offset_delta=4, attributes=0x7C), position=900)
    assert batch.position == 900
    assert batch.header == BatchHeader(
        base_offset=7, size_bytes=62, leader_epoch=12, magic=2, crc=batch.header.crc, attributes=0x7C, last_offset=11,
        base_timestamp_ms=1_000, max_timestamp_ms=2_000, producer_id=41, producer_epoch=3, base_sequence=5,
        record_count=1,
    )  # fmt: skip
    assert batch.header.next_offset == 12
    assert batch.header.codec == 4
    assert batch.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.header.is_transactional
    assert batch.header.is_control
    check_crc(batch)


@pytest.mark.parametrize(
    ("magic", "attributes", "timestamp_type", "timestamp_ms"),
    [
        (0, 0x08, TimestampType.NO_TIMESTAMP_TYPE, -1),
        (1, 0, TimestampType.CREATE_TIME, 1_000),
        (1, 0x08, TimestampType.LOG_APPEND_TIME, 1_000),
    ],
)
def test_legacy_fields(magic: int, attributes: int, timestamp_type: TimestampType, timestamp_ms: int) -> None:
    (batch,) = frame(message(magic, attributes=attributes | 0x30 | 1))
    header = batch.header
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 7, 8)
    assert (header.magic, header.codec, header.size_bytes) == (magic, 1, len(batch.data))
    assert header.timestamp_type is timestamp_type
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (timestamp_ms, timestamp_ms)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1, -1)
    assert header.record_count == -1
    assert not header.is_transactional
    assert not header.is_control
    check_crc(batch)


def test_a_message_too_short_for_its_timestamp_has_none() -> None:
    covered = pack(">bbii", 1, 0, -1, -1)
    (batch,) = frame(pack(">qiI", 0, len(covered) + 4, zlib.crc32(covered)) + covered)
    assert batch.header.max_timestamp_ms == -1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_batches_of_a_foreign_writer(magic: int) -> None:
    if magic == 2:
        builder = DefaultRecordBatchBuilder(2, 0, 1, 9, 0, 0, 1 << 16)
        for offset in range(3):
            builder.append(offset, 5_000 + offset, b"key", b"value", [])
    else:
        builder = LegacyRecordBatchBuilder(magic, 0, 1 << 16)
        for offset in range(3):
            builder.append(offset, 5_000 + offset, b"key", b"value")
    batches = frame(bytes(builder.build()))
    for batch in batches:
        check_crc(batch)
    assert batches[-1].header.last_offset == 2
    assert len(batches) == (1 if magic == 2 else 3)
    assert batches[-1].header.max_timestamp_ms == (-1 if magic == 0 else 5_002)


# Cutting

entries = st.one_of(
    st.builds(lambda body: v2_batch(body=body), st.binary(max_size=200)),
    st.builds(
        lambda magic, body: message(magic, body=body), st.sampled_from([0, 1]), st.binary(min_size=8, max_size=90)
    ),
)


@given(st.lists(entries, max_size=6), st.lists(st.integers(0, 1_500), max_size=12), st.integers(0, 1 << 40))
@examples(150)
def test_any_cut_into_ranges_gives_the_same_batches(written: list[bytes], cuts: list[int], position: int) -> None:
    stream = b"".join(written)
    borders = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    framer = BatchFramer(position)
    batches = []
    for start, stop in pairwise(borders):
        framer.feed(memoryview(stream)[start:stop])
        batches += drain(framer)
        assert framer.position + framer.pending_bytes == position + stop
    framer.finish()
    assert [bytes(batch.data) for batch in batches] == written
    assert batches == frame(stream, position=position)
    assert framer.position == position + len(stream)


def test_ranges_of_one_byte() -> None:
    written = [v2_batch(body=b"x" * 40), message(1), v2_batch(), message(0)]
    framer = BatchFramer(0)
    batches = []
    for byte in b"".join(written):
        framer.feed(memoryview(bytes([byte])))
        batches += drain(framer)
    framer.finish()
    assert [bytes(batch.data) for batch in batches] == written


def test_a_batch_inside_one_range_is_a_view_of_it() -> None:
    data = v2_batch() + v2_batch()
    framer = BatchFramer(0)
    framer.feed(memoryview(data)[:70])
    first = framer.next_batch()
    assert first is not None
    assert first.data.obj is data
    assert framer.next_batch() is None
    framer.feed(memoryview(data)[70:])
    second = framer.next_batch()
    assert second is not None
    assert second.data.obj is not data


def test_a_batch_does_not_change_when_more_is_fed() -> None:
    data = v2_batch(body=b"a" * 50) + v2_batch(body=b"b" * 50)
    framer = BatchFramer(0)
    framer.feed(memoryview(data)[:30])
    assert framer.next_batch() is None
    framer.feed(memoryview(data)[30:130])
    first = framer.next_batch()
    assert framer.next_batch() is None
    framer.feed(memoryview(data)[130:])
    assert first is not None
    assert bytes(first.data) == data[:111]
    second = framer.next_batch()
    assert second is not None
    assert bytes(second.data) == data[111:]


@pytest.mark.parametrize("entry", [v2_batch(body=b"abc"), message(0), message(1)], ids=["v2", "v0", "v1"])
def test_every_cut_end_asks_for_more_and_finishing_there_is_an_error(entry: bytes) -> None:
    for size_bytes in range(1, len(entry)):
        framer = BatchFramer(500)
        framer.feed(memoryview(entry + entry[:size_bytes]))
        assert len(drain(framer)) == 1
        assert framer.pending_bytes == size_bytes
        with pytest.raises(CorruptSegment, match=f"{size_bytes} bytes are left over") as raised:
            framer.finish()
        assert raised.value.position == 500 + len(entry)


def test_no_bytes_at_all_are_no_batches() -> None:
    assert frame(b"") == []


@pytest.mark.parametrize("entry", [v2_batch(body=b"abc"), message(0), message(1)], ids=["v2", "v0", "v1"])
def test_the_number_of_bytes_needed(entry: bytes) -> None:
    data = memoryview(b"??" + entry)
    for available in range(len(entry) + 1):
        found = read_header(data[: 2 + available], 2, position=0)
        if available < 17:
            assert found == 17
        elif available < len(entry):
            assert found == len(entry)
        else:
            assert isinstance(found, BatchHeader)


# Damage

V2_UNCOVERED = {*range(8), *range(12, 16)}
"""The base offset and the leader epoch: brokers write them after the producer's checksum was taken."""


@pytest.mark.parametrize(
    ("entry", "uncovered"),
    [(v2_batch(body=b"abc"), V2_UNCOVERED), (message(0), set(range(8))), (message(1), set(range(8)))],
    ids=["v2", "v0", "v1"],
)
def test_every_flipped_bit_is_noticed(entry: bytes, uncovered: set[int]) -> None:
    for at in range(len(entry)):
        for bit in range(8):
            damaged = bytearray(entry)
            damaged[at] ^= 1 << bit
            if at in uncovered:
                continue
            with pytest.raises((CorruptSegment, UnsupportedFormat)):
                frame_and_check(bytes(damaged))


def test_the_checksum_error_says_where() -> None:
    damaged = bytearray(v2_batch())
    damaged[-1] ^= 1
    (batch,) = frame(bytes(damaged), position=333)
    with pytest.raises(CorruptSegment, match="checksum mismatch") as raised:
        check_crc(batch)
    assert (raised.value.position, raised.value.offset) == (333, 7)


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic(magic: int) -> None:
    entry = bytearray(v2_batch())
    entry[16] = magic
    with pytest.raises(UnsupportedFormat, match=f"magic {magic}") as raised:
        frame(bytes(entry), position=44)
    assert (raised.value.position, raised.value.offset) == (44, 7)


@pytest.mark.parametrize(
    ("magic", "length"), [(2, 48), (2, 0), (2, -1), (2, -(2**31)), (1, 13), (0, 13), (0, -13)]
)  # fmt: skip
def test_a_length_below_the_minimum(magic: int, length: int) -> None:
    entry = pack(">qiib", 7, length, 0, magic) + bytes(80)
    with pytest.raises(CorruptSegment, match="below the minimum") as raised:
        frame(entry, position=44)
    assert (raised.value.position, raised.value.offset) == (44, 7)


def test_the_smallest_lengths() -> None:
    assert frame(v2_batch(body=b""))[0].header.size_bytes == 61
    assert frame(message(0))[0].header.size_bytes == 26


def test_a_length_is_bounded_before_anybody_waits_for_the_bytes() -> None:
    head = memoryview(v2_batch(body=bytes(39)))[:17]
    framer = BatchFramer(44, max_batch_bytes=99)
    framer.feed(head)
    with pytest.raises(CorruptSegment, match="more than the bound of 99") as raised:
        framer.next_batch()
    assert (raised.value.position, raised.value.offset) == (44, 7)
    framer = BatchFramer(44, max_batch_bytes=100)
    framer.feed(head)
    assert framer.next_batch() is None


def test_a_bad_batch_across_a_border_is_an_error_too() -> None:
    entry = bytearray(v2_batch())
    entry[16] = 9
    framer = BatchFramer(0)
    framer.feed(memoryview(entry)[:10])
    assert framer.next_batch() is None
    framer.feed(memoryview(entry)[10:])
    with pytest.raises(UnsupportedFormat, match="magic 9"):
        framer.next_batch()


@pytest.mark.parametrize(
    "entry",
    [
        v2_batch(base_offset=-1),
        v2_batch(last_offset_delta=-1),
        v2_batch(record_count=-1),
        v2_batch(base_offset=2**63 - 1, last_offset_delta=1),
        message(0, offset=-1),
        message(1, offset=-(2**63)),
    ],
)
def test_a_field_no_broker_writes(entry: bytes) -> None:
    with pytest.raises(CorruptSegment, match=r"out of range|negative") as raised:
        frame(entry, position=44)
    assert raised.value.position == 44


def test_the_largest_offset() -> None:
    assert frame(v2_batch(base_offset=2**63 - 2, last_offset_delta=1))[0].header.last_offset == 2**63 - 1


@given(st.binary(max_size=300))
@examples(300)
def test_no_bytes_break_the_framer(data: bytes) -> None:
    framer = BatchFramer(0)
    framer.feed(memoryview(data))
    with suppress(CorruptSegment, UnsupportedFormat):
        for batch in drain(framer):
            check_crc(batch)
        framer.finish()


def test_skip_passes_batches_that_the_caller_has_read() -> None:
    one, two, three = (encode_batch(at, [Record(0)]) for at in range(3))
    framer = BatchFramer(100)
    framer.feed(memoryview(one + two + three[:20]))
    data, at = framer.unread
    assert bytes(data[at:]) == one + two + three[:20]
    framer.skip(len(one))
    assert framer.position == 100 + len(one)
    batch = framer.next_batch()
    assert batch is not None
    assert (batch.header.base_offset, batch.position) == (1, 100 + len(one))
    data, at = framer.unread
    assert bytes(data[at:]) == three[:20]
    assert framer.next_batch() is None
    framer.feed(memoryview(three[20:] + one))
    assert framer.unread == (memoryview(b""), 0)  # a batch is being joined
    assert framer.next_batch() is not None
    data, at = framer.unread
    assert bytes(data[at:]) == one


def test_the_delete_horizon_is_in_the_place_of_the_base_timestamp() -> None:
    records = [Record(0, 0, b"k", None)]
    (plain,) = frame(encode_batch(0, records, base_timestamp_ms=5))
    (marked,) = frame(encode_batch(0, records, base_timestamp_ms=5, delete_horizon_ms=900))
    (old,) = frame(message(1, attributes=0x40))
    assert [batch.header.delete_horizon_ms for batch in (plain, marked, old)] == [None, 900, None]


def test_sequence_numbers_begin_again() -> None:
    assert [sequence_at(2**31 - 2, delta) for delta in range(4)] == [2**31 - 2, 2**31 - 1, 0, 1]
    assert [sequence_at(1, -delta) for delta in range(3)] == [1, 0, 2**31 - 1]
