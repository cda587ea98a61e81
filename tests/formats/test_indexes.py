"""Offset, time and transaction indexes: real ones beside their logs, random ones against their writers."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.batches import BatchFramer, BatchHeader
from remote_fetch.formats.indexes import (
    LARGE_ENTRY_BYTES,
    LEGACY_ENTRY_BYTES,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    parse_transaction_index,
)
from remote_fetch.model import AbortedTransaction
from tests.cases import each_of
from tests.searches import examples

GOLDENS = Path(__file__).parents[1] / "golden" / "data"
LOGS = sorted(GOLDENS.glob("*/remote/**/*.log"))
BASE = 1000


def legacy(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def large(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">iq", *entry) for entry in entries)


def batches_of(log: Path) -> Iterator[tuple[int, BatchHeader]]:
    data = log.read_bytes()
    framer = BatchFramer(0)
    framer.feed(memoryview(data))
    while (batch := framer.next_batch()) is not None:
        yield batch.position, batch.header


def base_offset_of(path: Path) -> int:
    return int(path.name[:20])


def golden_offset_index(log: Path) -> OffsetIndex:
    batches = list(batches_of(log))
    return OffsetIndex.parse(
        log.with_suffix(".index").read_bytes(),
        base_offset_of(log),
        end_offset=batches[-1][1].last_offset,
        size_bytes=log.stat().st_size,
    )


def test_goldens_are_there() -> None:
    assert len(LOGS) > 50


@each_of("log", LOGS, ids=lambda log: f"{log.parts[-4]}/{log.parent.name}/{log.name[:20]}")
def test_golden_offset_index_points_at_batches(log: Path) -> None:
    batches = dict(batches_of(log))
    index = golden_offset_index(log)
    assert index.entry_size_bytes == LEGACY_ENTRY_BYTES
    assert not index.ambiguous
    assert len(list(index.entries())) == len(index)
    last_offsets = {header.last_offset for header in batches.values()}
    for offset, position in index.entries():
        assert position in batches
        assert offset in last_offsets
        assert offset >= batches[position].last_offset


@each_of("log", LOGS[::5], ids=lambda log: log.name[:20])
def test_golden_byte_ranges_hold_the_batches(log: Path) -> None:
    batches = list(batches_of(log))
    index = golden_offset_index(log)
    for first, (_, first_header) in enumerate(batches):
        for last, (_, last_header) in enumerate(batches[first:], first):
            end = index.end_entry(last_header.base_offset)
            assert index.start_position(first_header.last_offset) <= batches[first][0]
            assert end is None or end.position >= batches[last][0] + last_header.size_bytes


@each_of("log", LOGS, ids=lambda log: f"{log.parts[-4]}/{log.parent.name}/{log.name[:20]}")
def test_golden_time_index_bounds_earlier_records(log: Path) -> None:
    headers = [header for _, header in batches_of(log)]
    index = TimeIndex.parse(log.with_suffix(".timeindex").read_bytes(), base_offset_of(log))
    assert len(list(index.entries())) == len(index)
    for timestamp_ms, offset in index.entries():
        before = [header.max_timestamp_ms for header in headers if header.base_offset <= offset]
        assert max(before) == timestamp_ms
        assert index.start_offset(timestamp_ms) == index.reached_offset(timestamp_ms) == offset
    newest = max(header.max_timestamp_ms for header in headers)
    assert [entry.timestamp_ms for entry in index.entries()][-1:] in ([newest], [])


@pytest.mark.parametrize("name", ["local-3.9", "local-4.1"])
def test_golden_transaction_indexes_equal_those_of_the_broker(name: str) -> None:
    expected: dict[tuple[str, int], list[AbortedTransaction]] = {}
    with gzip.open(GOLDENS / name / "aborted.jsonl.gz") as lines:
        for line in map(json.loads, lines):
            transaction = AbortedTransaction(
                line["producer_id"], line["first_offset"], line["last_offset"], line["last_stable_offset"]
            )
            expected.setdefault((f"{line['topic']}-{line['partition']}", line["txnindex_of"]), []).append(transaction)
    found = {}
    for path in (GOLDENS / name).glob("remote/**/*.txnindex"):
        if transactions := parse_transaction_index(path.read_bytes()):
            found[(path.parent.name[:-23], base_offset_of(path))] = list(transactions)
    assert found
    assert found == {key: expected[key] for key in found}


@pytest.mark.parametrize(
    ("data", "size_bytes", "entry_size_bytes"),
    [
        (b"", None, LEGACY_ENTRY_BYTES),
        (legacy((3, 500)), None, LEGACY_ENTRY_BYTES),
        (legacy((0, 0), (3, 500)), None, LEGACY_ENTRY_BYTES),
        (large((3, 500)), None, LARGE_ENTRY_BYTES),
        (large((3, 500), (4, 2**33), (5, 2**40)), None, LARGE_ENTRY_BYTES),
        # 24 bytes: with entries of 8 bytes offset 0 would follow offset 500
        (large((3, 500), (4, 600)), None, LARGE_ENTRY_BYTES),
        # 24 bytes: with entries of 12 bytes positions lie far beyond the segment
        (legacy((5, 10), (6, 20), (7, 30)), 1000, LEGACY_ENTRY_BYTES),
        # 24 bytes: with entries of 12 bytes offset 2 would follow offset 30
        (legacy((30, 1), (60, 2), (90, 3)), None, LEGACY_ENTRY_BYTES),
    ],
)
def test_entry_size_is_found(data: bytes, size_bytes: int | None, entry_size_bytes: int) -> None:
    index = OffsetIndex.parse(data, BASE, size_bytes=size_bytes)
    assert (index.entry_size_bytes, index.ambiguous) == (entry_size_bytes, False)
    assert index.candidates() == (index,)
    assert len(index) == len(data) // entry_size_bytes


AMBIGUOUS = legacy((0, 10), (20, 30), (40, 50))


def test_ambiguous_index_gives_both_readings() -> None:
    index = OffsetIndex.parse(AMBIGUOUS, BASE)
    assert index.ambiguous
    assert index.entry_size_bytes == LEGACY_ENTRY_BYTES
    small, wide = index.candidates()
    assert list(small.entries()) == [OffsetPosition(1000, 10), OffsetPosition(1020, 30), OffsetPosition(1040, 50)]
    assert list(wide.entries()) == [OffsetPosition(1000, 10 << 32 | 20), OffsetPosition(1030, 40 << 32 | 50)]
    assert wide.start_position(1035) == 40 << 32 | 50


@pytest.mark.parametrize(
    ("bounds", "ambiguous"),
    [
        ({"size_bytes": 51}, False),
        ({"size_bytes": None}, True),
        ({"end_offset": BASE + 40}, True),
        ({"size_bytes": 2**40}, True),
    ],
)
def test_bounds_of_the_segment_settle_the_entry_size(bounds: dict[str, int], ambiguous: bool) -> None:
    index = OffsetIndex.parse(AMBIGUOUS, BASE, **bounds)
    assert (index.entry_size_bytes, index.ambiguous) == (LEGACY_ENTRY_BYTES, ambiguous)


def test_end_offset_alone_can_exclude_the_smaller_entries() -> None:
    index = OffsetIndex.parse(AMBIGUOUS, BASE, end_offset=BASE + 39)
    assert (index.entry_size_bytes, index.ambiguous) == (LARGE_ENTRY_BYTES, False)


@pytest.mark.parametrize(
    ("data", "bounds", "message"),
    [
        (b"\0" * 7, {}, "multiple of neither"),
        (legacy((1, 10), (1, 20)), {}, r"\(1, 20\) follows \(1, 10\)"),
        (legacy((1, 10), (2, 10)), {}, r"\(2, 10\) follows \(1, 10\)"),
        (legacy((-1, 10)), {}, r"\(-1, 10\) follows"),
        (legacy((1, -10)), {}, r"\(1, -10\) follows"),
        (legacy((5, 10)), {"end_offset": BASE + 4}, "relative offset 5 lies past the segment's last, 4"),
        (legacy((5, 10)), {"size_bytes": 10}, "position 10 lies past the segment's last byte, 9"),
        (large((5, -1)), {}, "with 12-byte entries"),
        (legacy((1, 1), (0, 0), (0, 0)), {}, "with 8-byte entries: .*with 12-byte entries"),
    ],
)
def test_corrupt_offset_index(data: bytes, bounds: dict[str, int], message: str) -> None:
    with pytest.raises(CorruptSegment, match=message):
        OffsetIndex.parse(data, BASE, **bounds)


def test_offset_index_lookups() -> None:
    index = OffsetIndex.parse(bytearray(legacy((4, 100), (9, 300))), BASE, size_bytes=1000)
    assert [index.start_position(BASE + offset) for offset in (-5, 0, 3, 4, 8, 9, 500)] == [0, 0, 0, 100, 100, 300, 300]
    ends = [index.end_entry(BASE + offset) for offset in (-5, 0, 4, 5, 9, 500)]
    assert ends == [*[OffsetPosition(BASE + 9, 300)] * 3, None, None, None]
    assert [entry.position for entry in index.entries()] == [100, 300]
    assert (index.start_entry(BASE + 3), index.start_entry(BASE + 4)) == (None, OffsetPosition(BASE + 4, 100))


def test_empty_offset_index_knows_nothing() -> None:
    index = OffsetIndex.parse(b"", BASE, end_offset=BASE, size_bytes=0)
    assert (len(index), index.start_position(BASE), index.end_entry(BASE)) == (0, 0, None)
    assert not list(index.entries())


@st.composite
def appends(draw: st.DrawFn) -> list[list[tuple[int, int, int]]]:
    """A log as its appends, each a list of batches (base offset, last offset, size in bytes)."""
    offset = BASE
    log = []
    for batch_count in draw(st.lists(st.integers(1, 4), min_size=1, max_size=15)):
        batches = []
        for _ in range(batch_count):
            offset += draw(st.integers(0, 3))
            last = offset + draw(st.integers(0, 5))
            batches.append((offset, last, draw(st.integers(61, 400))))
            offset = last + 1
        log.append(batches)
    return log


def written_index(log: list[list[tuple[int, int, int]]], interval_bytes: int, layout: str, *, per_batch: bool) -> bytes:
    """The entries that a broker writes: for a batch (4.x) or an append (3.x), if the interval is exceeded."""
    index = b""
    position = since_last = 0
    units = [[batch] for batches in log for batch in batches] if per_batch else log
    for unit in units:
        size = sum(batch[2] for batch in unit)
        if since_last > interval_bytes:
            index += struct.pack(layout, unit[-1][1] - BASE, position)
            since_last = 0
        position += size
        since_last += size
    return index


@examples(150)
@given(
    log=appends(),
    interval_bytes=st.integers(0, 1200),
    layout=st.sampled_from([">ii", ">iq"]),
    per_batch=st.booleans(),
    data=st.data(),
)
def test_byte_range_holds_every_batch_of_the_offsets(
    log: list[list[tuple[int, int, int]]], interval_bytes: int, layout: str, per_batch: bool, data: st.DataObject
) -> None:
    batches = [batch for unit in log for batch in unit]
    size_bytes = sum(batch[2] for batch in batches)
    raw = written_index(log, interval_bytes, layout, per_batch=per_batch)
    index = OffsetIndex.parse(raw, BASE, end_offset=batches[-1][1], size_bytes=size_bytes)
    assert not raw or index.entry_size_bytes == struct.calcsize(layout)
    assert not index.ambiguous

    first = data.draw(st.integers(BASE, batches[-1][1]))
    last = data.draw(st.integers(first, batches[-1][1]))
    start, after = index.start_position(first), index.end_entry(last)
    end = None if after is None else after.position
    starts, position = [], 0
    for base_offset, last_offset, batch_bytes in batches:
        starts.append(position)
        if last_offset >= first and base_offset <= last:
            assert start <= position
            assert end is None or position + batch_bytes <= end
        position += batch_bytes
    assert start in starts
    assert end is None or end in starts
    assert {entry.position for entry in index.entries()} <= set(starts)


@examples(200)
@given(
    data=st.binary(max_size=120), end_offset=st.none() | st.integers(0, 2**40), size=st.none() | st.integers(0, 2**40)
)
def test_any_bytes_are_an_index_or_corrupt(data: bytes, end_offset: int | None, size: int | None) -> None:
    try:
        index = OffsetIndex.parse(data, 0, end_offset=end_offset, size_bytes=size)
    except CorruptSegment:
        return
    for reading in index.candidates():
        entries = list(reading.entries())
        assert entries == sorted(entries)
        assert all(position >= 0 for _, position in entries)


def test_time_index_lookups() -> None:
    raw = struct.pack(">qiqi", 100, 4, 200, 9)
    index = TimeIndex.parse(raw, BASE)
    assert len(index) == 2
    assert list(index.entries()) == [TimestampOffset(100, BASE + 4), TimestampOffset(200, BASE + 9)]
    assert [index.start_offset(timestamp_ms) - BASE for timestamp_ms in (-1, 99, 100, 199, 200, 10**15)] == [
        0, 0, 4, 4, 9, 9,
    ]  # fmt: skip
    assert TimeIndex.parse(b"", BASE).start_offset(5) == BASE


def test_time_index_tells_where_a_time_is_reached() -> None:
    index = TimeIndex.parse(struct.pack(">qiqi", 100, 4, 200, 9), BASE)
    assert [index.reached_offset(timestamp_ms) for timestamp_ms in (-1, 100, 101, 200, 201)] == [
        BASE + 4, BASE + 4, BASE + 9, BASE + 9, None,
    ]  # fmt: skip
    assert TimeIndex.parse(b"", BASE).reached_offset(5) is None


def test_time_index_tells_the_offset_of_its_last_entry() -> None:
    assert TimeIndex.parse(struct.pack(">qiqi", 100, 4, 200, 9), BASE).last_offset == BASE + 9
    empty = TimeIndex.parse(b"", BASE)
    assert (empty.max_timestamp_ms, empty.last_offset) == (-1, -1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" * 13, "not a multiple of 12"),
        (struct.pack(">qi", -1, 0), r"entry 0: \(-1 ms, 0\)"),
        (struct.pack(">qi", 5, -1), r"entry 0: \(5 ms, -1\)"),
        (struct.pack(">qiqi", 5, 1, 5, 2), r"entry 1: \(5 ms, 2\)"),
        (struct.pack(">qiqi", 5, 2, 6, 1), r"entry 1: \(6 ms, 1\)"),
    ],
)
def test_corrupt_time_index(data: bytes, message: str) -> None:
    with pytest.raises(CorruptSegment, match=message):
        TimeIndex.parse(data, BASE)


def test_no_time_lies_past_the_end_of_the_segment() -> None:
    data = struct.pack(">qiqi", 100, 4, 200, 9)
    assert len(TimeIndex.parse(data, BASE, end_offset=BASE + 9)) == 2
    with pytest.raises(CorruptSegment, match=f"offset {BASE + 9} lies past the last, {BASE + 8}"):
        TimeIndex.parse(data, BASE, end_offset=BASE + 8)


def test_transaction_index() -> None:
    raw = struct.pack(">hqqqq", 0, 7, 10, 20, 15) + struct.pack(">hqqqq", 0, 8, 15, 21, 22)
    assert parse_transaction_index(memoryview(raw)) == (
        AbortedTransaction(7, 10, 20, 15),
        AbortedTransaction(8, 15, 21, 22),
    )
    assert parse_transaction_index(b"") == ()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(0, -1, 10, 20, 15)], "producer -1"),
        ([(0, 7, -1, 20, 15)], "offsets -1 to 20"),
        ([(0, 7, 21, 20, 15)], "offsets 21 to 20"),
        ([(0, 7, 10, 20, -1)], "last stable offset -1"),
        ([(0, 7, 10, 20, 15), (0, 8, 15, 20, 21)], "entry 1: marker 20 follows marker 20"),
    ],
)
def test_corrupt_transaction_index(entries: list[tuple[int, int, int, int, int]], message: str) -> None:
    with pytest.raises(CorruptSegment, match=message):
        parse_transaction_index(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))


def test_cut_transaction_index() -> None:
    with pytest.raises(CorruptSegment, match="33 bytes: not a multiple of 34"):
        parse_transaction_index(bytes(33))


def test_transaction_index_of_another_version() -> None:
    with pytest.raises(UnsupportedFormat, match="entry 0 has version 1"):
        parse_transaction_index(struct.pack(">hqqqq", 1, 7, 10, 20, 15))
