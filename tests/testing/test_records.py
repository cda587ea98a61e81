"""The record writer, judged by the record readers of kafka-python and aiokafka and by single bytes."""

from __future__ import annotations

import struct
import warnings
import zlib
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AIOKAFKA
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.testing.compression import SnappyFraming
from remote_fetch.testing.records import (
    HEADER_BYTES,
    Record,
    encode_batch,
    encode_legacy,
    encode_marker,
    encode_records,
    encode_varint,
    rewrite_crc,
)
from tests.searches import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how kafka-python loads its own schemas
    from kafka.record.memory_records import MemoryRecords as KAFKA_PYTHON

BASE_MS = 1_700_000_000_000

RECORDS = [
    Record(0),
    Record(1, 5, b"", b""),
    Record(3, -7, b"key", b"v" * 1000, (("h", None), ("h", b""), ("ü", b"x"))),
    Record(4, 2**33, None, b"v" * 70_000),
]
HEADER_FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp",
    "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip
PLAIN = [Record(r.offset_delta, r.timestamp_delta_ms, r.key, r.value) for r in RECORDS]

# What each library reads without the optional packages it may use.
V2_READERS = [(KAFKA_PYTHON, codec, "raw") for codec in (0, 1, 4)] + [
    (AIOKAFKA, codec, framing) for codec in range(5) for framing in ("raw", "xerial")
]
LEGACY_READERS = [(KAFKA_PYTHON, magic, codec) for magic in (0, 1) for codec in (0, 1)] + [
    (AIOKAFKA, magic, codec) for magic in (0, 1) for codec in range(4) if (magic, codec) != (0, 3)
]


def read(reader: Any, data: bytes) -> list[Any]:
    """Every record of `data` by a foreign reader, which also checks the checksums."""
    found, batches = [], reader(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += list(batch)
    return found


@pytest.mark.parametrize(("reader", "codec", "framing"), V2_READERS)
def test_foreign_readers_read_every_codec(reader: Any, codec: int, framing: SnappyFraming) -> None:
    data = encode_batch(100, RECORDS, codec=codec, base_timestamp_ms=BASE_MS, snappy_framing=framing)
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in read(reader, data)] == [
        (100 + r.offset_delta, BASE_MS + r.timestamp_delta_ms, r.key, r.value, r.headers) for r in RECORDS
    ]


@pytest.mark.parametrize(("reader", "magic", "codec"), LEGACY_READERS)
def test_foreign_readers_read_message_sets(reader: Any, magic: int, codec: int) -> None:
    data = encode_legacy(100, PLAIN, magic=magic, codec=codec, base_timestamp_ms=BASE_MS, snappy_framing="xerial")
    assert [(r.offset, r.timestamp, r.key, r.value) for r in read(reader, data)] == [
        (100 + r.offset_delta, BASE_MS + r.timestamp_delta_ms if magic else None, r.key, r.value) for r in PLAIN
    ]


@examples(50)
@given(
    st.lists(
        st.builds(
            Record,
            offset_delta=st.just(0),
            timestamp_delta_ms=st.integers(-(2**40), 2**40),
            key=st.none() | st.binary(max_size=200),
            value=st.none() | st.binary(max_size=200),
            headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 4),
)
def test_any_record_comes_back(records: list[Record], codec: int) -> None:
    data = encode_batch(0, records, codec=codec, base_timestamp_ms=BASE_MS)
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in read(AIOKAFKA, data)] == [
        (BASE_MS + r.timestamp_delta_ms, r.key, r.value, r.headers) for r in records
    ]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (63, "7e"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def header(data: bytes) -> dict[str, int]:
    """The header of a v2 batch, read by the table of the format."""
    return dict(zip(HEADER_FIELDS, struct.unpack_from(">qiibIhiqqqhii", data), strict=True))


class TestHeader:
    def test_every_field(self) -> None:
        data = encode_batch(
            7,
            RECORDS,
            codec=4,
            leader_epoch=3,
            producer_id=2**40,
            producer_epoch=5,
            base_sequence=11,
            transactional=True,
            base_timestamp_ms=BASE_MS,
        )
        assert header(data) == {
            "base_offset": 7,
            "length": len(data) - 12,
            "leader_epoch": 3,
            "magic": 2,
            "crc": crc32c(data[21:]),
            "attributes": 0x14,
            "last_offset_delta": 4,
            "base_timestamp": BASE_MS,
            "max_timestamp": BASE_MS + 2**33,
            "producer_id": 2**40,
            "producer_epoch": 5,
            "base_sequence": 11,
            "count": 4,
        }

    def test_without_a_producer(self) -> None:
        found = header(encode_batch(0, RECORDS))
        assert (found["producer_id"], found["producer_epoch"], found["base_sequence"]) == (-1, -1, -1)

    def test_log_append_time(self) -> None:
        found = header(encode_batch(0, RECORDS, base_timestamp_ms=BASE_MS, log_append_time_ms=BASE_MS + 1))
        assert (found["attributes"], found["base_timestamp"], found["max_timestamp"]) == (8, BASE_MS, BASE_MS + 1)

    def test_a_cleaned_batch_keeps_its_end(self) -> None:
        found = header(encode_batch(0, RECORDS[:2], last_offset_delta=9))
        assert (found["last_offset_delta"], found["count"]) == (9, 2)

    def test_an_empty_batch_is_a_bare_header_without_a_codec(self) -> None:
        data = encode_batch(5, [], codec=3, last_offset_delta=4, transactional=True, max_timestamp_ms=BASE_MS)
        found = header(data)
        assert len(data) == HEADER_BYTES
        assert (found["attributes"], found["count"], found["base_timestamp"]) == (0x10, 0, -1)
        assert found["max_timestamp"] == BASE_MS

    def test_an_empty_batch_has_no_timestamp_of_its_own(self) -> None:
        assert header(encode_batch(5, [], last_offset_delta=4))["max_timestamp"] == -1

    def test_an_empty_batch_must_say_where_it_ends(self) -> None:
        with pytest.raises(ValueError, match="last_offset_delta"):
            encode_batch(0, [])

    def test_a_delete_horizon_moves_the_base_and_not_the_timestamps(self) -> None:
        data = encode_batch(0, RECORDS, base_timestamp_ms=BASE_MS, delete_horizon_ms=BASE_MS + 500)
        found = header(data)
        assert (found["attributes"], found["base_timestamp"]) == (0x40, BASE_MS + 500)
        assert [r.timestamp for r in read(KAFKA_PYTHON, data)] == [BASE_MS + r.timestamp_delta_ms for r in RECORDS]


class TestMarker:
    # Bytes 21 to 35 and the record are those of markers that a 4.1 broker wrote.
    @pytest.mark.parametrize(
        ("commit", "record"),
        [(False, "2000000008000000000c00000000000000"), (True, "2000000008000000010c00000000000000")],
    )
    def test_the_bytes_of_a_broker(self, commit: bool, record: str) -> None:
        data = encode_marker(9, 5, commit=commit, timestamp_ms=BASE_MS)
        found = header(data)
        assert len(data) == 78
        assert data[HEADER_BYTES:].hex() == record
        assert (found["attributes"], found["base_sequence"], found["count"]) == (0x30, -1, 1)
        assert found["base_timestamp"] == found["max_timestamp"] == BASE_MS

    def test_epochs(self) -> None:
        data = encode_marker(9, 5, commit=True, producer_epoch=2, leader_epoch=3, coordinator_epoch=4)
        assert (header(data)["producer_epoch"], header(data)["leader_epoch"]) == (2, 3)
        assert data.endswith(b"\x00\x00\x00\x00\x00\x04\x00")

    def test_a_foreign_reader_sees_a_control_batch(self) -> None:
        assert KAFKA_PYTHON(encode_marker(9, 5, commit=True)).next_batch().is_control_batch


class TestLegacy:
    def test_without_a_codec_each_record_is_a_message(self) -> None:
        data = encode_legacy(5, PLAIN[:2], magic=1, base_timestamp_ms=BASE_MS)
        first = encode_legacy(5, PLAIN[:1], magic=1, base_timestamp_ms=BASE_MS)
        assert data[: len(first)] == first
        assert first == (
            struct.pack(">qiIbbqii", 5, 22, zlib.crc32(first[16:]), 1, 0, BASE_MS, -1, -1)  # two nulls
        )

    def test_log_append_time_stands_in_every_bare_message(self) -> None:
        data = encode_legacy(5, PLAIN, magic=1, base_timestamp_ms=BASE_MS, log_append_time_ms=77)
        assert [(r.timestamp, r.timestamp_type) for r in read(KAFKA_PYTHON, data)] == [(77, 1)] * len(PLAIN)

    def test_log_append_time_stands_in_the_wrapper_alone(self) -> None:
        data = encode_legacy(5, PLAIN, magic=1, codec=1, base_timestamp_ms=BASE_MS, log_append_time_ms=77)
        assert [(r.timestamp, r.timestamp_type) for r in read(KAFKA_PYTHON, data)] == [(77, 1)] * len(PLAIN)
        assert zlib.decompress(data[34:], 31)[17] == 0  # attributes of the first message inside

    def test_the_wrapper_has_the_last_offset_and_the_largest_timestamp(self) -> None:
        data = encode_legacy(5, PLAIN, magic=1, codec=1, base_timestamp_ms=BASE_MS)
        assert struct.unpack_from(">q", data) == (9,)
        assert struct.unpack_from(">q", data, 18) == (BASE_MS + 2**33,)

    @pytest.mark.parametrize(("magic", "first_inside"), [(0, 5), (1, 0)])
    def test_inner_offsets_are_absolute_only_in_format_0(self, magic: int, first_inside: int) -> None:
        data = encode_legacy(5, PLAIN, magic=magic, codec=1)
        inner = zlib.decompress(data[26 + 8 * magic :], 31)
        assert struct.unpack_from(">q", inner) == (first_inside,)

    @pytest.mark.parametrize(
        ("records", "options", "message"),
        [
            (PLAIN, {"magic": 2}, "magic 2"),
            ([], {"magic": 1}, "without messages"),
            (PLAIN, {"magic": 1, "codec": 4}, "codec 4"),
            (RECORDS, {"magic": 1}, "headers"),
            (PLAIN, {"magic": 0, "log_append_time_ms": 1}, "timestamps"),
        ],
    )
    def test_records_that_the_formats_cannot_hold(
        self, records: list[Record], options: dict[str, int], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            encode_legacy(0, records, **options)  # type: ignore[arg-type]


class TestRewriteCrc:
    @pytest.mark.parametrize(
        "data", [encode_batch(0, RECORDS), encode_legacy(0, PLAIN[:1], magic=0), encode_legacy(0, PLAIN[:1], magic=1)]
    )
    def test_it_repairs_a_changed_batch(self, data: bytes) -> None:
        changed = data[:-1] + bytes((data[-1] ^ 1,))
        assert not KAFKA_PYTHON(changed).next_batch().validate_crc()
        assert KAFKA_PYTHON(rewrite_crc(changed)).next_batch().validate_crc()
        assert rewrite_crc(data) == data


def test_the_record_area_can_be_made_alone() -> None:
    assert encode_batch(0, RECORDS)[HEADER_BYTES:] == encode_records(RECORDS)
