"""The primitives of the flexible encoding: known bytes, round trips, and every way of ending too early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.tagged_fields import (
    encode_compact_bytes,
    encode_compact_string,
    encode_uvarint,
    read_compact_bytes,
    read_compact_string,
    read_tagged_fields,
    read_uvarint,
    read_varlong,
    skip_tagged_fields,
)
from remote_fetch.testing.metadata_records import encode_tagged_fields
from remote_fetch.testing.records import encode_varint
from tests.searches import examples


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")]
)
def test_uvarint(value: int, encoded: str) -> None:
    assert encode_uvarint(value) == bytes.fromhex(encoded)
    assert read_uvarint(bytes.fromhex("aa" + encoded + "aa"), 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        (1_000_000_777, "92b4d6b907"),
        (-(2**31), "ffffffff0f"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varlong(value: int, encoded: str) -> None:
    assert encode_varint(value) == bytes.fromhex(encoded)
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_longer_forms_of_a_number_are_read_too() -> None:
    assert read_uvarint(b"\x85\x80\x00", 0) == (5, 3)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff"])
def test_cut_varint(data: bytes) -> None:
    for read in (read_uvarint, read_varlong):
        with pytest.raises(CorruptSegment, match="the bytes end inside a varint at byte 0"):
            read(data, 0)


def test_varint_too_large() -> None:
    for data in (b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"):
        with pytest.raises(CorruptSegment, match="varint of more than 32 bits at byte 0"):
            read_uvarint(data, 0)
    for data in (b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00"):
        with pytest.raises(CorruptSegment, match="varint of more than 64 bits at byte 0"):
            read_varlong(data, 0)


def test_compact_bytes() -> None:
    assert read_compact_bytes(b"\x00x", 0) == (None, 1)
    assert read_compact_bytes(b"\x01x", 0) == (b"", 1)
    assert read_compact_bytes(memoryview(b"\x03xyz"), 0) == (b"xy", 3)
    with pytest.raises(CorruptSegment, match="3 bytes announced at byte 0, 2 are there"):
        read_compact_bytes(b"\x04xy", 0)


def test_compact_string() -> None:
    assert read_compact_string(encode_compact_string("größe"), 0) == ("größe", 8)
    with pytest.raises(CorruptSegment, match="null instead of a string at byte 1"):
        read_compact_string(b"\x05\x00", 1)
    with pytest.raises(CorruptSegment, match="a string at byte 0 is not UTF-8"):
        read_compact_string(b"\x02\xff", 0)


def test_tagged_fields() -> None:
    section = bytes.fromhex("02 05 02 aabb 07 00 ff")
    assert read_tagged_fields(section, 0) == ({5: b"\xaa\xbb", 7: b""}, 7)
    assert skip_tagged_fields(section, 0) == 7
    assert skip_tagged_fields(b"\x00\x01", 0) == 1
    assert encode_tagged_fields({7: b"", 5: b"\xaa\xbb"}) == section[:-1]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("", "end inside a varint"),
        ("02 00 00", "2 tagged fields announced at byte 0, 2 bytes are there"),
        ("01 05 03 aabb", "tagged field 5 at byte 1: 3 bytes, 2 are there"),
        ("02 05 00 05 00", "tagged field 5 stands twice, again at byte 3"),
        ("ffffffff0f", "4294967295 tagged fields announced"),
    ],
)
def test_corrupt_tagged_fields(section: str, message: str) -> None:
    for read in (read_tagged_fields, skip_tagged_fields):
        with pytest.raises(CorruptSegment, match=message):
            read(bytes.fromhex(section), 0)


@examples(100)
@given(
    number=st.integers(0, 2**32 - 1),
    wide=st.integers(-(2**63), 2**63 - 1),
    raw=st.none() | st.binary(max_size=300),
    text=st.text(max_size=50),
    fields=st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=200), max_size=5),
)
def test_encoded_values_are_read_again(
    number: int, wide: int, raw: bytes | None, text: str, fields: dict[int, bytes]
) -> None:
    data = (
        encode_uvarint(number)
        + encode_varint(wide)
        + encode_compact_bytes(raw)
        + encode_compact_string(text)
        + encode_tagged_fields(fields)
    )
    found = []
    at = 0
    for read in (read_uvarint, read_varlong, read_compact_bytes, read_compact_string, read_tagged_fields):
        value, at = read(data, at)
        found.append(value)
    assert found == [number, wide, raw, text, fields]
    assert at == len(data)


@examples(200)
@given(data=st.binary(max_size=40), at=st.integers(0, 45))
def test_any_bytes_raise_only_our_errors(data: bytes, at: int) -> None:
    for read in (read_uvarint, read_varlong, read_compact_bytes, read_compact_string, read_tagged_fields):
        try:
            _, end = read(data, at)
        except CorruptSegment:
            continue
        assert at < end <= len(data)
