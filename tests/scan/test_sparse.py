"""A segment of more than 4 GiB (KIP-1333), of which only a few bytes are on the disk: reads touch what they need.

The middle of the file is a hole: a reader that goes into it finds gigabytes of zeros and no batch.
"""

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
from tests.scan.bucket import COMMITTED, Outcome, read, snapshot_config

FAR = 9 << 29
"""Where the last two batches lie: 4.5 GiB."""
RANGE_BYTES = 64 << 10


class Tier:
    """A bucket with one segment: offsets 0 to 499 at its start, two batches of three records at its end."""

    def __init__(self, directory: Path) -> None:
        log = LogBuilder()
        log.append_batch([Record(n, value=b"first%d" % n) for n in range(5)], last_offset_delta=499)
        for name in (b"near%d", b"last%d"):
            log.append_batch([Record(n, value=name % n) for n in range(3)])
        log.roll()
        first, near, last = (len(batch.data) for batch in log.batches)
        (built,) = log.segments()
        index = encode_offset_index([(502, FAR), (505, FAR + near)], entry_bytes=12)
        (path,) = write_kafka_local(directory, [replace(built, offset_index=index)]).rglob("*.log")
        with path.open("r+b") as file:
            file.truncate(first)
            file.seek(FAR)
            file.write(built.log[first:])
        assert path.stat().st_blocks * 512 < 1 << 20
        self.directory = directory
        self.last_bytes = last
        self.end_bytes = near + last
        self.metadata = replace(built.metadata, segment_size_in_bytes=path.stat().st_size)

    def read(self, start: int, known: RemoteLogSegmentMetadata | None = None) -> Outcome:
        """Read from `start`: by a listing, or by saved metadata."""
        config = {"remote.storage.url": str(self.directory), "fetch.remote.range.bytes": str(RANGE_BYTES)}
        if known is not None:
            config |= snapshot_config([known], self.directory)
        return read(load_fetcher(Config.parse(config)), start=start, isolation=COMMITTED, config=config)


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    """A bucket of its own."""
    return Tier(tmp_path)


def test_by_way_of_a_listing(tier: Tier) -> None:
    """The last batch is fetched twice: to see where the tier ends, and to be read."""
    outcome = tier.read(504)
    assert [row.value for row in outcome.fine()] == [b"last1", b"last2"]
    assert outcome.report.remote_bytes == tier.last_bytes + tier.end_bytes
    assert outcome.report.remote_gets == 2
    assert outcome.report.scans == {}


def test_where_metadata_knows_the_size(tier: Tier) -> None:
    outcome = tier.read(503, tier.metadata)
    assert [row.value for row in outcome.fine()] == [b"last0", b"last1", b"last2"]
    assert (outcome.report.remote_gets, outcome.report.remote_bytes) == (1, tier.end_bytes)


def test_where_the_size_is_too_large_for_its_field(tier: Tier) -> None:
    """The end of the object is not known: a range past the end may be asked for, and gives nothing."""
    outcome = tier.read(503, replace(tier.metadata, segment_size_in_bytes=UNKNOWN_SIZE))
    assert [row.value for row in outcome.fine()] == [b"last0", b"last1", b"last2"]
    assert outcome.report.remote_bytes == tier.end_bytes
    assert outcome.report.remote_gets <= 1 + 2 * 16  # one, and all that may be under way behind it


def test_both_ends_of_the_index_are_used(tier: Tier) -> None:
    """An offset that the last entry holds itself is looked up before it, as a broker does."""
    outcome = tier.read(505, tier.metadata)
    assert [row.value for row in outcome.fine()] == [b"last2"]
    assert (outcome.report.remote_gets, outcome.report.remote_bytes) == (1, tier.last_bytes)
