"""Few, large GETs: what a read of segments of 64 MiB asks of a store, index by index and range by range.

- A partition is opened with one small GET (its leader epochs), under read_committed with two (the transactions that are
  open at the end of the tier).
- One record then takes at most three GETs and 256 KiB: the offset index, the transaction index if there is one, and the
  batches.
- A batch is read whole. So with batches of 1 MB the rule holds for the number of GETs alone.
- The offset index is read whole. So the rule holds for the bytes in segments of up to some 400 MiB, at 16 KB a batch.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from remote_fetch.model import IndexType, IsolationLevel
from remote_fetch.testing.log_builder import FIRST_TIMESTAMP_MS, LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions
from tests.scan.bucket import COMMITTED, UNCOMMITTED, Bucket, Outcome, WatchedBucket, read, snapshot_config

KIB, MIB = 1 << 10, 1 << 20
SEGMENT_BYTES = 64 * MIB
SMALL, LARGE = 16 * KIB, MIB
OPENING: tuple[IndexType, ...] = (IndexType.LEADER_EPOCH,)
OPENING_COMMITTED: tuple[IndexType, ...] = (*OPENING, IndexType.PRODUCER_SNAPSHOT)


def log_of(batch_bytes: int, codec: int, *, aborting: bool = False) -> LogBuilder:
    """One closed segment of a little more than 64 MiB, of two records a batch that no codec makes smaller."""
    chance = random.Random(1)
    log = LogBuilder()
    values = [chance.randbytes(batch_bytes // 2 - 40) for _ in range(2)]
    for number in range(-(-SEGMENT_BYTES // batch_bytes) + 2):
        # As an aborted transaction leaves it: its entry is in the transaction index of the segment.
        in_transaction = aborting and number == 5
        if in_transaction:
            log.begin(7)
        records = [Record(at, at, b"%d-%d" % (number, at), value) for at, value in enumerate(values)]
        log.append_batch(records, codec=codec, producer_id=7 if in_transaction else -1)
        if in_transaction:
            log.abort(7)
    log.roll()
    return log


class Tier:
    """A bucket with the segment of a log, its exact metadata saved in a file, and what reads of it cost."""

    def __init__(self, log: LogBuilder, directory: Path, entry_bytes: Literal[8, 12] = 8) -> None:
        segments = log.segments(SegmentOptions(index_entry_bytes=entry_bytes))
        self.size_bytes = sum(len(segment.log) for segment in segments)
        self.index_bytes = sum(len(segment.offset_index) for segment in segments)
        assert self.size_bytes >= SEGMENT_BYTES
        self.middle = log.next_offset // 2
        self._bucket = Bucket(segments)
        self._known = snapshot_config([segment.metadata for segment in segments], directory)

    def read(
        self, start: object, end: object, isolation: IsolationLevel, *, by_listing: bool = False
    ) -> tuple[Outcome, WatchedBucket]:
        """The rows of a read, and the bucket with its counts."""
        watched = WatchedBucket(self._bucket)
        outcome = read(watched, start=start, end=end, isolation=isolation, config={} if by_listing else self._known)
        return outcome, watched


def kinds(watched: WatchedBucket) -> Counter[IndexType | None]:
    """How many GETs of each kind; None stands for ranges of the segment itself."""
    return Counter(call.index_type for call in watched.calls)


@pytest.fixture(
    scope="module",
    params=[(SMALL, 0, 8), (SMALL, 0, 12), (SMALL, 4, 8), (LARGE, 0, 12), (LARGE, 3, 8)],
    ids=["16 KB", "16 KB, 12-byte index", "16 KB zstd", "1 MB, 12-byte index", "1 MB lz4"],
)
def tier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tier, int]:
    """A tier, and the size of its batches."""
    batch_bytes, codec, entry_bytes = request.param
    return Tier(log_of(batch_bytes, codec), tmp_path_factory.mktemp("tier"), entry_bytes), batch_bytes


@pytest.fixture(scope="module")
def aborting(tmp_path_factory: pytest.TempPathFactory) -> Tier:
    """A tier whose segment has a transaction index."""
    return Tier(log_of(SMALL, 0, aborting=True), tmp_path_factory.mktemp("tier"))


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
@pytest.mark.parametrize("by_listing", [False, True])
def test_a_full_read_takes_large_ranges(tier: tuple[Tier, int], isolation: IsolationLevel, by_listing: bool) -> None:
    """At least 4 MiB a GET on average, however many small files are asked for besides."""
    known, _ = tier
    outcome, watched = known.read("earliest", "latest", isolation, by_listing=by_listing)
    assert len(outcome.fine()) == 2 * known.middle
    assert watched.returned_bytes >= known.size_bytes
    assert watched.returned_bytes / len(watched.calls) >= 4 * MIB


def test_a_full_read_begins_with_small_ranges(tier: tuple[Tier, int]) -> None:
    """So rows come before the first large range has arrived. Each range ends at a multiple of its largest size."""
    known, _ = tier
    _, watched = known.read("earliest", "latest", UNCOMMITTED)
    ranges = sorted((one.start_position, one.end_position) for one in watched.calls if one.index_type is None)
    assert [(end - start) // MIB for start, end in ranges[:6]] == [1, 1, 2, 4, 8, 8]


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_one_record_by_its_offset(tier: tuple[Tier, int], isolation: IsolationLevel) -> None:
    """The read gets the offset index, and the bytes between two or three of its entries."""
    known, batch_bytes = tier
    outcome, watched = known.read(known.middle, known.middle + 1, isolation)
    assert [row.offset for row in outcome.fine()] == [known.middle]
    opening = OPENING_COMMITTED if isolation is COMMITTED else OPENING
    assert kinds(watched) == Counter([*opening, IndexType.OFFSET, None])
    assert watched.returned_bytes <= known.index_bytes + 3 * batch_bytes + KIB
    if batch_bytes == SMALL:
        assert watched.returned_bytes <= 256 * KIB


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_one_record_by_its_time(tier: tuple[Tier, int], isolation: IsolationLevel) -> None:
    """Looking up the time takes three GETs, reading the record two more: what was looked up is not kept."""
    known, batch_bytes = tier
    start = FIRST_TIMESTAMP_MS + 1000 * known.middle
    outcome, watched = known.read(_moment(start), known.middle + 1, isolation)
    assert [row.offset for row in outcome.fine()] == [known.middle]
    opening = OPENING_COMMITTED if isolation is COMMITTED else OPENING
    assert kinds(watched) == Counter([*opening, IndexType.TIMESTAMP, *2 * (IndexType.OFFSET, None)])
    if batch_bytes == SMALL:
        assert watched.returned_bytes <= 2 * 256 * KIB


def test_one_record_beside_an_aborted_transaction(aborting: Tier) -> None:
    outcome, watched = aborting.read(aborting.middle, aborting.middle + 1, COMMITTED)
    assert [row.offset for row in outcome.fine()] == [aborting.middle]
    assert kinds(watched) == Counter([*OPENING_COMMITTED, IndexType.OFFSET, IndexType.TRANSACTION, None])
    assert watched.returned_bytes <= 256 * KIB


def test_an_aborted_transaction_is_left_out(aborting: Tier) -> None:
    """The transaction index is not only fetched."""
    outcome, _ = aborting.read(8, 16, COMMITTED)
    assert outcome.offsets == [8, 9, 13, 14, 15]


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat()
