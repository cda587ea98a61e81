"""Control batches: the type of a marker, and an error for other bytes."""

from __future__ import annotations

import gzip
import re
from contextlib import suppress
from pathlib import Path
from struct import pack

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, DecompressionLimit, UnsupportedFormat
from remote_fetch.formats.batches import BatchFramer, FramedBatch
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import ControlRecord, ControlType, control_record, control_type
from tests.searches import examples

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
CONTROL_BIT = 0x20


def varint(value: int) -> bytes:
    """Zigzag, for numbers of up to 14 bits."""
    zigzag = value << 1 if value >= 0 else -2 * value - 1
    return bytes([zigzag]) if zigzag < 128 else bytes([zigzag & 127 | 128, zigzag >> 7])


def record(key: bytes | None, *, front: bytes = b"\x00\x00\x00", value: bytes = b"\x00\x00\x00\x00\x00\x07") -> bytes:
    sized_key = varint(-1) if key is None else varint(len(key)) + key
    body = front + sized_key + varint(len(value)) + value + b"\x00"
    return varint(len(body)) + body


def batch(body: bytes, *, record_count: int = 1, codec: int = 0) -> FramedBatch:
    covered = pack(">hiqqqhii", CONTROL_BIT | codec, 0, 5, 5, 4, 0, -1, record_count) + body
    framer = BatchFramer(600)
    framer.feed(memoryview(pack(">qiibI", 70, len(covered) + 9, 0, 2, 0) + covered))
    framed = framer.next_batch()
    assert framed is not None
    assert framed.header.is_control
    return framed


@pytest.mark.parametrize("value", range(7))
def test_the_types(value: int) -> None:
    found = control_type(batch(record(pack(">hh", 0, value))), Codecs())
    assert found is ControlType(value)
    assert found is not ControlType.UNKNOWN


@pytest.mark.parametrize("value", [7, 100, 2**15 - 1, -1, -5])
def test_types_of_later_versions_are_unknown(value: int) -> None:
    assert control_type(batch(record(pack(">hh", 0, value))), Codecs()) is ControlType.UNKNOWN


def test_longer_keys_and_later_key_versions_are_read() -> None:
    assert control_type(batch(record(pack(">hh", 3, 1) + b"more")), Codecs()) is ControlType.COMMIT


def test_an_emptied_batch_has_no_type() -> None:
    assert control_type(batch(b"", record_count=0), Codecs()) is None
    assert control_type(batch(b"", record_count=0, codec=4), Codecs()) is None


def test_only_the_first_record_counts() -> None:
    body = record(pack(">hh", 0, 4)) + record(pack(">hh", 0, 0))
    assert control_type(batch(body, record_count=2), Codecs()) is ControlType.SNAPSHOT_FOOTER


def test_deltas_of_any_width() -> None:
    front = b"\x00" + b"\xff" * 9 + b"\x01" + b"\xff" * 4 + b"\x0f"
    assert control_type(batch(record(pack(">hh", 0, 1), front=front)), Codecs()) is ControlType.COMMIT


def test_a_compressed_control_batch() -> None:
    body = record(pack(">hh", 0, 1))
    assert control_type(batch(zstandard.compress(body), codec=4), Codecs()) is ControlType.COMMIT
    assert control_type(batch(gzip.compress(body), codec=1), Codecs()) is ControlType.COMMIT


@pytest.mark.parametrize("golden_set", ["local-3.9", "local-4.1"])
def test_golden_markers_equal_those_of_kafkas_dump_tool(golden_set: str) -> None:
    expected = {}
    partition = segment = ""
    for line in gzip.decompress((GOLDEN / golden_set / "dump.txt.gz").read_bytes()).decode().splitlines():
        if line.startswith("#####"):
            partition = line.split()[1]
        elif line.startswith("Dumping"):
            segment = line.split()[1].removesuffix(".log")
        elif marker := re.search(r"offset: (\d+) .* endTxnMarker: (\w+)", line):
            expected[partition, segment, int(marker[1])] = marker[2]
    found = {}
    for partition, segment in {(partition, segment) for partition, segment, _ in expected}:
        (log,) = (GOLDEN / golden_set / "remote").glob(f"*/{partition}-*/{segment}-*.log")
        framer = BatchFramer(0)
        framer.feed(memoryview(log.read_bytes()))
        while framed := framer.next_batch():
            if framed.header.is_control:
                kind = control_type(framed, Codecs())
                assert kind is not None
                found[partition, segment, framed.header.base_offset] = kind.name
    assert found == expected
    assert set(found.values()) == {"ABORT", "COMMIT"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "ends inside a number"),
        (b"\x80" * 6, "too long"),
        (b"\x00", "of 0 bytes"),
        (b"\x01", "of -1 bytes"),
        (record(pack(">hh", 0, 1))[:-1], "control record of 16 bytes where 15 are left"),
        (record(None), "key of -1 bytes where 8 are left"),
        (record(b""), "key of 0 bytes, not 4"),
        (record(b"\0\0\0"), "key of 3 bytes, not 4"),
        (record(pack(">hh", -1, 1)), "version -1"),
        (b"\x0c\x00\x00\x00\x08\x00\x00", "key of 4 bytes where 2 are left"),
        (b"\x08\x00\x00\x00\x08\x00\x00", "key of 4 bytes where 0 are left"),
        (b"\x04\x00\x00\x00", "ends inside a number"),
        (record(pack(">hh", 0, 1), front=b"\x00" + b"\x80" * 10 + b"\x00\x00"), "too long"),
        (record(pack(">hh", 0, 1), front=b"\x00\x00" + b"\x80" * 5 + b"\x00"), "too long"),
    ],
)
def test_a_malformed_control_record_is_an_error(body: bytes, says: str) -> None:
    with pytest.raises(CorruptSegment, match=says) as raised:
        control_type(batch(body), Codecs())
    assert (raised.value.position, raised.value.offset) == (600, 70)


def test_errors_of_the_codecs_have_the_position() -> None:
    body = record(pack(">hh", 0, 1))
    with pytest.raises(CorruptSegment, match="zstd") as corrupt:
        control_type(batch(b"abcd", codec=4), Codecs())
    with pytest.raises(UnsupportedFormat, match="codec 5") as unsupported:
        control_type(batch(body, codec=5), Codecs())
    with pytest.raises(DecompressionLimit) as limit:
        control_type(batch(zstandard.compress(body), codec=4), Codecs(max_bytes=1))
    for raised in (corrupt, unsupported, limit):
        assert (raised.value.position, raised.value.offset) == (600, 70)


def test_every_cut_of_the_record_is_an_error() -> None:
    body = record(pack(">hh", 0, 1))
    for size_bytes in range(len(body)):
        with pytest.raises(CorruptSegment):
            control_type(batch(body[:size_bytes]), Codecs())


@given(st.binary(max_size=40), st.integers(0, 7))
@examples(300)
def test_no_bytes_raise_anything_else(body: bytes, codec: int) -> None:
    with suppress(CorruptSegment, UnsupportedFormat, DecompressionLimit):
        assert isinstance(control_type(batch(body, codec=codec), Codecs()), ControlType)


def test_the_content_of_a_control_record() -> None:
    assert control_record(pack(">hh", 0, 1), pack(">hi", 0, 7)) == ControlRecord(ControlType.COMMIT, 1, 7)
    assert control_record(pack(">hh", 0, 0), pack(">hi", 0, -1)) == ControlRecord(ControlType.ABORT, 0, -1)
    assert control_record(pack(">hh", 0, 2), None) == ControlRecord(ControlType.LEADER_CHANGE, 2, None)
    assert control_record(pack(">hh", 0, 99), b"") == ControlRecord(ControlType.UNKNOWN, 99, None)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (None, b"", "key of 0 bytes"),
        (b"\x00\x00\x00", b"", "key of 3 bytes"),
        (pack(">hh", -1, 0), b"", "version -1"),
        (pack(">hh", 0, 1), None, "value of 0 bytes"),
        (pack(">hh", 0, 1), bytes(5), "value of 5 bytes"),
    ],
)
def test_a_control_record_that_is_too_short(key: bytes | None, value: bytes | None, says: str) -> None:
    with pytest.raises(CorruptSegment, match=says):
        control_record(key, value)
