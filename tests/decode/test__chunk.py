"""The buffers behind the inner loop: which become arrays, which are kept, and the repair of header keys."""

from __future__ import annotations

from types import ModuleType

import pyarrow as pa

from remote_fetch.decode._chunk import Chunk
from remote_fetch.decode.batch_table import NEED_ROOM, row_of
from remote_fetch.formats.batches import BatchHeader
from remote_fetch.testing.records import Record, encode_records, encode_varint
from tests.cases import each_of

ALL = ("key", "value", "offset", "timestamp", "timestampType", "leaderEpoch", "headers")


def fill(chunk: Chunk, area: bytes, count: int) -> None:
    """Decode one batch that has to fit."""
    header = BatchHeader(0, 0, 4, 2, 0, 0, 1000, 0, 0, -1, -1, -1, count)
    assert status_of(chunk, area, header) == 0


def status_of(chunk: Chunk, area: bytes, header: BatchHeader) -> int:
    """The arrays of one batch."""
    columns = chunk.columns
    taken = columns.decode(memoryview(area), row_of(header, len(area)), 0, 1, 0, 2000)
    assert taken == (columns.status == 0)
    return columns.status


def values(size: int, count: int, fill_byte: bytes = b"v") -> bytes:
    """`count` records with values of that size."""
    return encode_records([Record(delta, 0, b"k", fill_byte * size) for delta in range(count)])


def test_only_wanted_columns_take_memory(kernel: ModuleType) -> None:
    before = pa.total_allocated_bytes()
    chunk = Chunk(kernel, ("offset", "topic"), 1000, 1 << 20)
    assert chunk.rows == 0
    fill(chunk, values(100, 10), 10)
    assert pa.total_allocated_bytes() - before == 8000
    arrays = chunk.take()
    assert list(arrays) == ["offset"]
    assert arrays["offset"].to_pylist() == list(range(10))


def test_a_taken_chunk_is_empty_and_its_arrays_are_never_written_again(kernel: ModuleType) -> None:
    area = values(100, 10)
    # One chunk that a batch fills, so that buffers are handed over, and one that it hardly touches.
    for chunk in (Chunk(kernel, ALL, 10, len(area)), Chunk(kernel, ALL, 1000, 100 * len(area))):
        fill(chunk, area, 10)
        first = chunk.take()
        assert chunk.rows == 0
        fill(chunk, values(100, 10, b"w"), 10)
        second = chunk.take()
        assert first["value"].to_pylist() == [b"v" * 100] * 10
        assert second["value"].to_pylist() == [b"w" * 100] * 10
        for arrays in (first, second):
            assert set(arrays) == set(ALL)
            assert arrays["key"].to_pylist() == [b"k"] * 10
            assert arrays["leaderEpoch"].to_pylist() == [4] * 10
            for array in arrays.values():
                array.validate(full=True)


def test_an_array_holds_at_most_twice_its_memory(kernel: ModuleType) -> None:
    area = values(100, 50)
    chunk = Chunk(kernel, ALL, 10_000, 1 << 20)
    fill(chunk, area, 50)
    before = pa.total_allocated_bytes()
    arrays = chunk.take()
    assert 0 < pa.total_allocated_bytes() - before < 2 * len(area)
    del arrays
    assert pa.total_allocated_bytes() == before


def test_a_batch_too_large_is_not_touched(kernel: ModuleType) -> None:
    area = values(10, 10)
    header = BatchHeader(0, 0, 4, 2, 0, 0, 1000, 0, 0, -1, -1, -1, 10)
    too_few = {
        "rows": Chunk(kernel, ALL, 9, len(area)),
        "bytes": Chunk(kernel, ALL, 10, len(area) - 1),
        "header bytes": Chunk(kernel, ("headers",), 10, len(area) - 1),
        "key bytes": Chunk(kernel, ("key",), 10, len(area) - 1),
    }
    for name, chunk in too_few.items():
        assert status_of(chunk, area, header) == NEED_ROOM, name
        assert chunk.rows == 0
    exact = Chunk(kernel, ALL, 10, len(area))
    fill(exact, area, 10)
    assert exact.rows == 10


def test_header_room_is_counted(kernel: ModuleType) -> None:
    """Empty headers fill the buffer of their offsets long before the buffer of their data."""
    body = b"\0\0\0\x01\x01" + encode_varint(50) + b"\x00\x00" * 50
    area = encode_varint(len(body)) + body
    chunk = Chunk(kernel, ("headers",), 100, len(area) + 60)
    fill(chunk, area, 1)
    header = BatchHeader(0, 0, 4, 2, 0, 0, 1000, 0, 0, -1, -1, -1, 1)
    assert status_of(chunk, area, header) == NEED_ROOM
    assert chunk.take()["headers"].to_pylist() == [[{"key": "", "value": b""}] * 50]


# What Java 17's `new String(bytes, UTF_8)` gives, U+FFFD written as ?. Surrogates are where Python differs.
JAVA_STRINGS = [
    (b"plain", "plain"),
    ("größe €".encode(), "größe €"),
    (b"a\x80b", "a?b"),
    (b"\xc0\xaf", "??"),
    (b"\xe2\x82", "?"),
    (b"\xe2\x82A", "?A"),
    (b"\xe0\x80\x80", "???"),
    (b"\xf0\x9f\x98", "?"),
    (b"\xf0\x80\x80\x80", "????"),
    (b"\xf4\x90\x80\x80", "????"),
    (b"\xff\xfe", "??"),
    (b"\xed\xa0\x80", "?"),
    (b"\xed\xbf\xbf!", "?!"),
    (b"\xed\xa0", "?"),
    (b"\xed\xa0A", "?A"),
    (b"\xed\xa0\x80\xed\xb0\x80", "??"),
    (b"\xe2\x82\xed\xa0\x80", "??"),
]


@each_of(("raw", "text"), JAVA_STRINGS)
def test_header_keys_are_repaired_as_java_does(kernel: ModuleType, raw: bytes, text: str) -> None:
    body = b"\0\0\0\x01\x01\x04" + encode_varint(len(raw)) + raw + b"\x02x" + b"\x06key\x01"
    chunk = Chunk(kernel, ("headers",), 10, 100)
    fill(chunk, encode_varint(len(body)) + body, 1)
    headers = chunk.take()["headers"]
    headers.validate(full=True)
    wanted = text.replace("?", "\N{REPLACEMENT CHARACTER}")
    assert headers.to_pylist() == [[{"key": wanted, "value": b"x"}, {"key": "key", "value": None}]]
