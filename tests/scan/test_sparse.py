"""Reads of a segment larger than 4 GiB (KIP-1333) fetch only the bytes that they need.

This holds whether or not the metadata has the segment's size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remote_fetch.config import Config
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import UNKNOWN_SIZE, RemoteLogSegmentMetadata
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import encode_offset_index
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.bucket import COMMITTED, UNCOMMITTED, Outcome, read, snapshot_config
from tests.scan.sparse import SparseTier
from tests.stores.range_server import RangeServer

RANGE_BYTES = {"fetch.remote.range.bytes": str(64 << 10)}


@pytest.fixture
def tier(tmp_path: Path) -> SparseTier:
    """A bucket of its own, with a segment of 4.5 GiB."""
    return SparseTier(tmp_path)


def read_from(tier: SparseTier, start: int, known: RemoteLogSegmentMetadata | None = None) -> Outcome:
    """Read from `start`: by a listing, or by saved metadata."""
    config = {"remote.storage.url": str(tier.directory), **RANGE_BYTES}
    if known is not None:
        config |= snapshot_config([tier.before, known], tier.directory)
    return read(load_fetcher(Config.parse(config)), start=start, isolation=COMMITTED, config=config)


def test_by_way_of_a_listing(tier: SparseTier) -> None:
    """The last batch is fetched twice: to see where the tier ends, and to be read."""
    outcome = read_from(tier, 1504)
    assert [row.value for row in outcome.fine()] == [b"last1", b"last2"]
    assert outcome.report.remote_bytes == tier.last_bytes + tier.end_bytes
    assert outcome.report.remote_gets == 2
    assert outcome.report.scans == {}


def test_where_metadata_knows_the_size(tier: SparseTier) -> None:
    outcome = read_from(tier, 1503, tier.metadata)
    assert [row.value for row in outcome.fine()] == [b"last0", b"last1", b"last2"]
    assert (outcome.report.remote_gets, outcome.report.remote_bytes) == (1, tier.end_bytes)


@pytest.mark.parametrize("size_bytes", [UNKNOWN_SIZE, 0, -(2**31)])
def test_where_the_size_is_too_large_for_its_field(tier: SparseTier, size_bytes: int) -> None:
    """The store knows it, so that no range is asked past the end."""
    outcome = read_from(tier, 1503, replace(tier.metadata, segment_size_in_bytes=size_bytes))
    assert [row.value for row in outcome.fine()] == [b"last0", b"last1", b"last2"]
    assert outcome.report.sizes == {"learned": 1}
    assert (outcome.report.remote_gets, outcome.report.remote_bytes) == (1, tier.end_bytes)


def test_both_ends_of_the_index_are_used(tier: SparseTier) -> None:
    """The last index entry has the last offset of its batch. A read of that offset begins at that entry's position."""
    outcome = read_from(tier, 1505, tier.metadata)
    assert [row.value for row in outcome.fine()] == [b"last2"]
    assert (outcome.report.remote_gets, outcome.report.remote_bytes) == (1, tier.last_bytes)


def test_both_index_formats_in_one_topic(tier: SparseTier, tmp_path: Path) -> None:
    """Older segments have index entries of 8 bytes, and newer segments of 12 bytes, as after an upgrade."""
    config = {"remote.storage.url": str(tier.directory), **RANGE_BYTES, **tier.clamped(tmp_path)}
    for start, end, values in (
        (752, 1005, [*(b"small%d" % n for n in range(752, 755)), *(b"first%d" % n for n in range(5))]),
        (1502, 1504, [b"near2", b"last0"]),
    ):
        outcome = read(load_fetcher(Config.parse(config)), start=start, end=end, isolation=UNCOMMITTED, config=config)
        assert [row.value for row in outcome.fine()] == values
        assert outcome.report.scans == {}


def test_a_tie_that_the_bytes_settle_for_large_entries(tmp_path: Path) -> None:
    """Of 8-byte entries this index would have (1, 1), (2, 5) and (3, 100): only the bytes at 100 tell."""
    log = LogBuilder()
    for records in (1, 1, 4):
        log.append_batch([Record(n, value=b"v%d" % n) for n in range(records)])
    log.roll()
    (built,) = log.segments()
    positions = (0, (1 << 32) + 2, (3 << 32) + 100)
    index = encode_offset_index([(1, positions[1]), (5, positions[2])], entry_bytes=12)
    (path,) = write_kafka_local(tmp_path, [replace(built, offset_index=index)]).rglob("*.log")
    with path.open("r+b") as file:
        file.truncate(0)
        for position, batch in zip(positions, log.batches, strict=True):
            file.seek(position)
            file.write(batch.data)
    known = replace(built.metadata, segment_size_in_bytes=UNKNOWN_SIZE)
    config = {"remote.storage.url": str(tmp_path), **snapshot_config([known], tmp_path)}
    outcome = read(load_fetcher(Config.parse(config)), start=5, isolation=UNCOMMITTED, config=config)
    assert [(row.offset, row.value) for row in outcome.fine()] == [(5, b"v3")]
    assert (outcome.report.ties, outcome.report.scans) == ({"12-byte": 1}, {})


def test_over_http(tier: SparseTier, tmp_path: Path) -> None:
    """The headers of ranges have positions beyond 2^32, and one of them gives the size."""
    with RangeServer(dict(tier.files())) as server:
        config = {"remote.storage.url": f"{server.url}/kafka-tiered-storage", **RANGE_BYTES, **tier.clamped(tmp_path)}
        outcome = read(load_fetcher(Config.parse(config)), start=1503, isolation=UNCOMMITTED, config=config)
    assert [row.value for row in outcome.fine()] == [b"last0", b"last1", b"last2"]
    assert outcome.report.sizes == {"learned": 1}
    assert max(asked.start for asked in server.asked) > 1 << 32
    assert all(
        asked.end <= tier.metadata.segment_size_in_bytes for asked in server.asked if asked.name.endswith(".log")
    )
