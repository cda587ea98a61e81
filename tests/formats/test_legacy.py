"""Message sets v0 and v1: a foreign reader reads the rewritten v2 record area, and gets the same records."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from struct import pack
from typing import NamedTuple

import cramjam
import pytest
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, DecompressionLimit, FallsBackError, UnsupportedFormat
from remote_fetch.formats.batches import BatchFramer, BatchHeader, FramedBatch, check_crc
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.legacy import messages_of, to_v2
from remote_fetch.model import TimestampType
from tests.cases import each_of
from tests.searches import examples

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LOG_APPEND_TIME = 0x08
POSITION = 4_000


class Row(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


ROWS = [
    Row(0, 1_700_000_000_000, b"key", b"value"),
    Row(1, 1_700_000_000_007, None, b"no key"),
    Row(2, 1_699_999_999_000, b"no value", None),
    Row(3, -1, b"", b""),
    Row(4, 1_700_000_000_005, None, None),
    Row(5, 1_700_000_000_006, b"k" * 100, b"v" * 20_000),
]


def message(
    magic: int,
    offset: int = 0,
    timestamp_ms: int = -1,
    key: bytes | None = None,
    value: bytes | None = None,
    *,
    attributes: int = 0,
) -> bytes:
    """One entry, by hand."""
    body = b"".join(pack(">i", -1) if field is None else pack(">i", len(field)) + field for field in (key, value))
    return entry(offset, pack(">bb", magic, attributes) + (pack(">q", timestamp_ms) if magic else b"") + body)


def entry(offset: int, covered: bytes) -> bytes:
    return pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def wrapper(
    magic: int, inner: bytes, *, offset: int, codec: int = GZIP, timestamp_ms: int = 0, attributes: int = 0
) -> bytes:
    packed = {GZIP: gzip.compress, SNAPPY: snappy, LZ4: lz4_v0, ZSTD: zstandard.compress}[codec](inner)
    return message(magic, offset, timestamp_ms, None, packed, attributes=attributes | codec)


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_v0(data: bytes) -> bytes:
    """With the header checksum over the wrong bytes, as the writers of message format 0 computed it."""
    frame = bytearray(cramjam.lz4.compress(data))
    frame[6] ^= 0x55
    return bytes(frame)


def foreign(magic: int, rows: list[Row], *, codec: int = 0, base_offset: int = 0) -> bytes:
    """A message set by aiokafka's writer, as a producer sends it."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for row in rows:
        # The first must be 0 for this writer; what is written are the offsets given.
        builder.append(base_offset + row.offset, row.timestamp_ms, row.key, row.value)
    return bytes(builder.build())


def framed(data: bytes) -> list[FramedBatch]:
    framer = BatchFramer(POSITION)
    framer.feed(memoryview(data))
    batches = []
    while batch := framer.next_batch():
        check_crc(batch)
        batches.append(batch)
    framer.finish()
    return batches


def convert(data: bytes, *, codecs: Codecs | None = None) -> tuple[BatchHeader, list[Row]]:
    (batch,) = framed(data)
    header, records = to_v2(batch, codecs or Codecs())
    assert records.readonly
    return header, read_v2(header, records)


def read_v2(header: BatchHeader, records: memoryview) -> list[Row]:
    """Read a record area with aiokafka's reader, behind a v2 header made for it."""
    covered = pack(
        ">hiqqqhii",
        header.attributes,
        header.last_offset - header.base_offset,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        -1,
        -1,
        -1,
        header.record_count,
    )
    whole = pack(">qiibI", header.base_offset, len(covered) + len(records) + 9, -1, 2, 0) + covered + bytes(records)
    batch = MemoryRecords(whole).next_batch()
    assert isinstance(batch, DefaultRecordBatch)
    rows = list(batch)
    assert all(not row.headers for row in rows)
    # kafka-python adds without end, Java in 64 bits.
    return [Row(row.offset, (row.timestamp + 2**63) % 2**64 - 2**63, row.key, row.value) for row in rows]


def assert_header(header: BatchHeader, magic: int, rows: list[Row], size_bytes: int) -> None:
    assert header.magic == magic
    assert header.size_bytes == size_bytes
    assert header.codec == 0
    assert (header.base_offset, header.last_offset) == (rows[0].offset, rows[-1].offset)
    assert header.record_count == len(rows)
    assert header.base_timestamp_ms == rows[0].timestamp_ms
    assert header.max_timestamp_ms == max(row.timestamp_ms for row in rows)
    assert (header.leader_epoch, header.producer_id) == (-1, -1)


# What is converted


@pytest.mark.parametrize("magic", [0, 1])
def test_uncompressed_messages_of_a_foreign_writer(magic: int) -> None:
    batches = framed(foreign(magic, ROWS))
    assert len(batches) == len(ROWS)
    for batch, row in zip(batches, ROWS, strict=True):
        expected = row if magic else row._replace(timestamp_ms=-1)
        header, records = to_v2(batch, Codecs())
        assert read_v2(header, records) == [expected]
        assert_header(header, magic, [expected], len(batch.data))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_v1_wrappers_of_a_foreign_writer(codec: int) -> None:
    data = bytearray(foreign(1, ROWS, codec=codec))
    data[:8] = pack(">q", 1_005)  # the broker's: the offset of the last record
    header, rows = convert(bytes(data))
    expected = [row._replace(offset=1_000 + row.offset) for row in ROWS]
    assert rows == expected
    assert_header(header, 1, expected, len(data))
    assert header.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_v0_wrappers_of_a_foreign_writer(codec: int) -> None:
    data = bytearray(foreign(0, ROWS, codec=codec))
    data[:8] = pack(">q", 5)
    header, rows = convert(bytes(data))
    expected = [row._replace(timestamp_ms=-1) for row in ROWS]
    assert rows == expected
    assert_header(header, 0, expected, len(data))
    assert header.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE
    assert header.attributes == 0


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_v0_wrappers_hold_absolute_offsets_with_gaps(codec: int) -> None:
    offsets = [2**40, 2**40 + 7, 2**40 + 70_000]
    inner = b"".join(message(0, offset, key=b"k", value=b"v") for offset in offsets)
    header, rows = convert(wrapper(0, inner, offset=offsets[-1], codec=codec))
    assert rows == [Row(offset, -1, b"k", b"v") for offset in offsets]
    assert (header.base_offset, header.last_offset) == (offsets[0], offsets[-1])


def test_v1_wrappers_hold_relative_offsets_with_gaps() -> None:
    inner = b"".join(message(1, offset, 50, b"k", b"v") for offset in (3, 4, 9))
    header, rows = convert(wrapper(1, inner, offset=109))
    assert [row.offset for row in rows] == [103, 104, 109]
    assert (header.base_offset, header.last_offset, header.next_offset) == (103, 109, 110)


def test_a_v1_wrapper_with_offset_0_counts_from_0() -> None:
    inner = b"".join(message(1, offset, 50, b"k", b"v") for offset in (0, 1, 2))
    header, rows = convert(wrapper(1, inner, offset=0))
    assert [row.offset for row in rows] == [0, 1, 2]
    assert (header.base_offset, header.last_offset) == (0, 2)


@pytest.mark.parametrize("inner_attributes", [0, LOG_APPEND_TIME])
def test_log_append_time_is_the_wrappers_for_all(inner_attributes: int) -> None:
    inner = b"".join(message(1, at, 50 + at, b"k", b"v", attributes=inner_attributes) for at in range(3))
    header, rows = convert(wrapper(1, inner, offset=2, timestamp_ms=999, attributes=LOG_APPEND_TIME))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (999, 999)
    assert [row.timestamp_ms for row in rows] == [999] * 3


@pytest.mark.parametrize("inner_attributes", [0, LOG_APPEND_TIME])
def test_create_time_is_each_messages_own(inner_attributes: int) -> None:
    inner = b"".join(message(1, at, 50 - at, b"k", b"v", attributes=inner_attributes) for at in range(3))
    header, rows = convert(wrapper(1, inner, offset=2, timestamp_ms=999))
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (50, 50)
    assert [row.timestamp_ms for row in rows] == [50, 49, 48]


def test_log_append_time_of_a_message_alone() -> None:
    header, rows = convert(message(1, 9, 77, b"k", b"v", attributes=LOG_APPEND_TIME))
    assert header.attributes == LOG_APPEND_TIME
    assert rows == [Row(9, 77, b"k", b"v")]


def test_the_bit_of_the_timestamp_type_means_nothing_in_v0() -> None:
    header, rows = convert(message(0, 9, key=b"k", value=b"v", attributes=LOG_APPEND_TIME))
    assert header.attributes == 0
    assert rows == [Row(9, -1, b"k", b"v")]


nullable = st.none() | st.binary(max_size=40)
timestamps = st.integers(-1, 2**62) | st.integers(-(2**63), 2**63 - 1)


@given(
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from([0, GZIP, SNAPPY]),
    first=st.integers(1, 2**60),
    gaps=st.lists(st.integers(1, 100_000), min_size=1, max_size=12),
    data=st.data(),
)
@examples(150)
def test_any_message_set(magic: int, codec: int, first: int, gaps: list[int], data: st.DataObject) -> None:
    offsets = [first + sum(gaps[:number]) for number in range(len(gaps))]
    rows = [Row(offset, data.draw(timestamps), data.draw(nullable), data.draw(nullable)) for offset in offsets]
    expected = [row if magic else row._replace(timestamp_ms=-1) for row in rows]
    if codec:
        inner_offsets = [offset - first if magic else offset for offset in offsets]
        inner = b"".join(
            message(magic, inner_offset, *row[1:]) for inner_offset, row in zip(inner_offsets, rows, strict=True)
        )
        whole = wrapper(magic, inner, offset=offsets[-1], codec=codec)
        header, found = convert(whole)
        assert found == expected
        assert_header(header, magic, expected, len(whole))
    else:
        assert [convert(message(magic, *row))[1] for row in rows] == [[row] for row in expected]


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -2, 2**63 - 1])
def test_timestamps_at_the_ends_of_their_field(timestamp_ms: int) -> None:
    assert convert(message(1, 9, timestamp_ms, b"k", b"v"))[1] == [Row(9, timestamp_ms, b"k", b"v")]


# What is refused


def refused(data: bytes, says: str, *, codecs: Codecs | None = None) -> FallsBackError:
    (batch,) = framed(data)
    with pytest.raises(FallsBackError, match=says) as raised:
        to_v2(batch, codecs or Codecs())
    assert raised.value.position == POSITION
    assert raised.value.offset == batch.header.base_offset
    return raised.value


@each_of(
    ("data", "says"),
    [
        (entry(7, pack(">bbq", 1, 0, 5)), "at byte 14 does not fit"),
        (entry(7, pack(">bbii", 1, 0, -1, -1)), "at byte 14 does not fit"),
        (entry(7, pack(">bbii", 0, 0, -2, -1)), "at byte 6 does not fit"),
        (entry(7, pack(">bbii", 0, 0, 5, -1)), "at byte 6 does not fit"),
        (entry(7, pack(">bbii", 0, 0, -1, 1)), "at byte 10 does not fit"),
        (entry(7, pack(">bbiib", 0, 0, -1, -1, 0)), "1 bytes follow the value"),
        (entry(7, pack(">bbii", 0, 0, 2**31 - 1, -1)), "at byte 6 does not fit"),
        (message(0, 7, attributes=GZIP), "null value"),
        (message(1, 7, 5, attributes=GZIP), "null value"),
        (message(1, 7, 5, None, b"", attributes=GZIP), "gzip data"),
        (message(1, 7, 5, None, b"abc", attributes=SNAPPY), "snappy "),
        (wrapper(1, b"", offset=7), "no messages inside"),
        (wrapper(0, message(0, 7), offset=7, codec=ZSTD), "zstd in a message with magic 0"),
        (wrapper(1, message(1, 7), offset=7, codec=ZSTD), "zstd in a message with magic 1"),
        (wrapper(1, message(1, 0, value=b"x") * 2, offset=7), "offset 7 inside a compressed message, after 7"),
        (wrapper(0, message(0, 7) + message(0, 6), offset=6), "offset 6 inside a compressed message, after 7"),
        (wrapper(0, message(0, 0) + message(0, 2**31), offset=2**31), "offset 2147483648 inside"),
        (wrapper(0, message(0, 5) + message(0, 6), offset=7), "last inner offset is 6"),
        (wrapper(1, message(1, 5) + message(1, 7), offset=5), "offset 5, and offset 7 inside"),
        (wrapper(0, message(0, 5) + message(0, 8), offset=7), "last inner offset is 8"),
        (wrapper(1, message(0, 0), offset=7), "magic 0 inside one with magic 1"),
        (wrapper(0, message(1, 7), offset=7), "magic 1 inside one with magic 0"),
        (wrapper(0, wrapper(0, message(0, 7), offset=7), offset=7), "inside a compressed message"),
        (wrapper(1, message(1, 0) + b"\0" * 11, offset=7), "at byte 34 of its 45"),
        (wrapper(1, message(1, 0)[:-1], offset=7), "is cut, or breaks its sizes, at byte 0"),
        (wrapper(1, pack(">qi", 0, 5) + bytes(5), offset=7), "is cut, or breaks its sizes, at byte 0"),
        (wrapper(1, pack(">qi", 0, -1) + bytes(50), offset=7), "is cut, or breaks its sizes, at byte 0"),
        (wrapper(1, pack(">qiIbb", 0, 6, 0, 1, 0), offset=7), "too short for magic 1"),
    ],
)
def test_a_malformed_entry_is_an_error(data: bytes, says: str) -> None:
    assert isinstance(refused(data, says), CorruptSegment)


def test_a_v1_message_without_room_for_its_timestamp() -> None:
    data = entry(7, pack(">bbii", 1, 0, -1, -1)[:10])
    assert isinstance(refused(data, "too short for magic 1|does not fit"), CorruptSegment)


def test_inner_checksums_are_checked() -> None:
    good = message(1, 0, 5, b"key", b"value")
    for at in range(12, len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x40
        refused(
            wrapper(1, bytes(bad) + message(1, 1, 5), offset=7), "checksum mismatch inside|magic|does not fit|follow"
        )
    bad = bytearray(good)
    bad[-1] ^= 1
    refused(wrapper(1, bytes(bad), offset=7), "checksum mismatch inside")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec: int) -> None:
    data = message(1, 7, 5, None, b"abc", attributes=codec)
    assert isinstance(refused(data, f"codec {codec}"), UnsupportedFormat)


def test_the_bound_on_the_output() -> None:
    inner = message(1, 0, 5, b"key", bytes(5_000))
    data = wrapper(1, inner, offset=7)
    assert len(convert(data, codecs=Codecs(max_bytes=len(inner)))[1]) == 1
    assert isinstance(refused(data, "inflates", codecs=Codecs(max_bytes=len(inner) - 1)), DecompressionLimit)


def test_the_records_are_never_larger_than_the_decompressed_bytes() -> None:
    rows = [message(1, at, 2**62 * (at % 2), b"", b"") for at in range(200)]
    (batch,) = framed(wrapper(1, b"".join(rows), offset=1_000))
    _, records = to_v2(batch, Codecs())
    assert len(records) <= sum(map(len, rows))


def test_lz4_header_checksums_may_be_wrong_in_v0_only() -> None:
    inner = message(0, 7, value=b"v")
    assert len(convert(wrapper(0, inner, offset=7, codec=LZ4))[1]) == 1
    refused(wrapper(1, message(1, 7, value=b"v"), offset=7, codec=LZ4), "checksum")


@given(magic=st.sampled_from([0, 1]), codec=st.sampled_from([0, GZIP, SNAPPY]), inner=st.binary(max_size=120))
@examples(200)
def test_no_bytes_raise_anything_else(magic: int, codec: int, inner: bytes) -> None:
    data = wrapper(magic, inner, offset=7, codec=codec) if codec else entry(7, bytes([magic, 0]) + inner + bytes(8))
    (batch,) = framed(data)
    with suppress(CorruptSegment, UnsupportedFormat, DecompressionLimit):
        to_v2(batch, Codecs())


@given(at=st.integers(0, 10_000), mask=st.integers(1, 255), tail=st.integers(0, 20))
@examples(200)
def test_damage_inside_raises_nothing_else(at: int, mask: int, tail: int) -> None:
    inner = bytearray(message(1, 0, 5, b"key", b"value") + message(1, 1, 6, None, None))
    inner[at % len(inner)] ^= mask
    (batch,) = framed(wrapper(1, bytes(inner[: len(inner) - tail]), offset=7))
    with suppress(CorruptSegment):
        header, _ = to_v2(batch, Codecs())
        assert header.record_count > 0


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_messages_with_their_own_checksums(magic: int, codec: int) -> None:
    inner = [message(magic, at, 1_000 + at, b"k", None if at else b"v") for at in range(3)]
    data = wrapper(magic, b"".join(inner), offset=2, timestamp_ms=1_002) if codec else b"".join(inner)
    found = [one for batch in framed(data) for one in messages_of(batch, Codecs())]
    assert [one.crc for one in found] == [zlib.crc32(one[16:]) for one in inner]
    assert [one.offset for one in found] == [0, 1, 2]
    assert [one.timestamp_ms for one in found] == ([-1] * 3 if magic == 0 else [1_000, 1_001, 1_002])
    assert [None if one.value is None else bytes(one.value) for one in found] == [b"v", None, None]


def test_messages_before_a_fault_are_given() -> None:
    inner = bytearray(message(1, 0, 5, b"k", b"v") + message(1, 1, 5, b"k", b"w"))
    inner[-1] ^= 1
    (batch,) = framed(wrapper(1, bytes(inner), offset=1))
    messages = messages_of(batch, Codecs())
    assert bytes(next(messages).value or b"") == b"v"
    with pytest.raises(CorruptSegment, match="checksum mismatch inside") as caught:
        next(messages)
    assert (caught.value.position, caught.value.offset) == (POSITION, 1)
