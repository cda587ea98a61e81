"""The contract of a fetcher, kept by every built-in one over the same real tree.

Rules of the file:

- Nothing here knows how a fetcher works.
- Each promise of the port is one test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import fsspec
import pytest

from fetchers._composed import ComposedFetcher
from fetchers.local import LocalFetcher
from fetchers.memory import MemoryFetcher
from remote_fetch.errors import RemoteFetchError, SegmentNotFound
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentLister, SegmentSizer
from remote_fetch.model import UNKNOWN_SIZE, IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, Uuid
from tests.at_once import at_once

REMOTE = Path(__file__).parents[1] / "golden" / "data" / "local-4.1" / "remote"
SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
}


class Tier(NamedTuple):
    """A configured fetcher over the tree, and the tree itself by the path below its root."""

    fetcher: ComposedFetcher
    url: str
    files: dict[str, bytes]


@pytest.fixture(scope="session")
def golden_files() -> dict[str, bytes]:
    """Every file that a real broker's LocalTieredStorage wrote, by its path below the tier's directory."""
    found = {path.relative_to(REMOTE).as_posix(): path.read_bytes() for path in REMOTE.rglob("*") if path.is_file()}
    assert found
    return found


@pytest.fixture(scope="session")
def memory_url(golden_files: dict[str, bytes]) -> Iterator[str]:
    """The URL of the same tree in a filesystem in memory."""
    filesystem = fsspec.filesystem("memory")
    root = "/tier-of-the-fetchers-tests"
    filesystem.pipe({f"{root}/{name}": data for name, data in golden_files.items()})
    yield f"memory:/{root}"
    filesystem.rm(root, recursive=True)


@pytest.fixture(params=["local", "memory"])
def tier(request: pytest.FixtureRequest, golden_files: dict[str, bytes], memory_url: str) -> Iterator[Tier]:
    """A fetcher of each kind over the tree."""
    kinds = {"local": (LocalFetcher(), REMOTE.as_uri()), "memory": (MemoryFetcher(), memory_url)}
    fetcher, url = kinds[request.param]
    fetcher.configure({"remote.storage.url": url})
    yield Tier(fetcher, url, golden_files)
    fetcher.close()


def listed(tier: Tier) -> dict[str, RemoteLogSegmentMetadata]:
    """The listed segments by the path of their log without its suffix."""
    found = {}
    for segment in tier.fetcher.list_segments():
        place = segment.topic_id_partition
        folder = f"{place.topic}-{place.partition}-{place.topic_id}"
        stem = f"kafka-tiered-storage/{folder}/{segment.start_offset:020d}-{segment.segment_id.id}"
        assert stem not in found
        found[stem] = segment
    return found


def test_ports(tier: Tier) -> None:
    assert isinstance(tier.fetcher, RemoteStorageFetcher)
    assert isinstance(tier.fetcher, SegmentLister)


def test_every_segment_of_the_tree_is_listed_as_it_is(tier: Tier) -> None:
    segments = listed(tier)
    logs = {str(PurePosixPath(name).with_suffix("")) for name in tier.files if name.endswith(".log")}
    assert set(segments) == logs
    for stem, segment in segments.items():
        assert segment.segment_size_in_bytes == len(tier.files[f"{stem}.log"])
        assert segment.end_offset == -1
        assert segment.segment_leader_epochs == ()
        assert segment.txn_index_empty is (f"{stem}.txnindex" not in tier.files)
    assert {segment.txn_index_empty for segment in segments.values()} == {True, False}


def test_one_topic_is_listed_alone(tier: Tier) -> None:
    segments = list(listed(tier).values())
    topics = {segment.topic_id_partition.topic for segment in segments}
    assert "tx-roll" in topics
    for topic in topics:
        wanted = [segment for segment in segments if segment.topic_id_partition.topic == topic]
        assert sorted(map(repr, tier.fetcher.list_segments(topic))) == sorted(map(repr, wanted))
    assert list(tier.fetcher.list_segments("tx-rol")) == []
    assert list(tier.fetcher.list_segments("")) == []


def test_whole_segments(tier: Tier) -> None:
    for stem, segment in listed(tier).items():
        assert bytes(tier.fetcher.fetch_log_segment(segment, 0)) == tier.files[f"{stem}.log"]


def test_sizes(tier: Tier) -> None:
    assert isinstance(tier.fetcher, SegmentSizer)
    for stem, segment in listed(tier).items():
        unknown = dataclasses.replace(segment, segment_size_in_bytes=UNKNOWN_SIZE)
        assert tier.fetcher.size(unknown) == len(tier.files[f"{stem}.log"])
    gone = dataclasses.replace(segment, segment_id=RemoteLogSegmentId(segment.topic_id_partition, Uuid(b"g" * 16)))
    with pytest.raises(SegmentNotFound):
        tier.fetcher.size(gone)


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (0, 61), (1, -1), (61, 200), (-1, -1), (0, 0), (7, 7), (-2, 10**9), (10**6, 10**6 + 1), (10**15, -1)],
    ids=str,
)
def test_ranges(tier: Tier, start: int, end: int) -> None:
    stem, segment = max(listed(tier).items(), key=lambda item: item[1].segment_size_in_bytes)
    log = tier.files[f"{stem}.log"]
    start = start if start >= 0 else len(log) + start + 1  # -1 is the very end
    wanted = log[start:] if end < 0 else log[start:end]
    data = memoryview(tier.fetcher.fetch_log_segment(segment, start, end))
    assert data.contiguous
    assert bytes(data) == wanted


def test_indexes(tier: Tier) -> None:
    for stem, segment in listed(tier).items():
        for index_type, suffix in SUFFIXES.items():
            data = tier.fetcher.fetch_index(segment, index_type)
            assert (None if data is None else bytes(data)) == tier.files.get(f"{stem}{suffix}")


def test_a_segment_that_is_not_there(tier: Tier) -> None:
    segment = next(iter(listed(tier).values()))
    gone = dataclasses.replace(segment, segment_id=RemoteLogSegmentId(segment.topic_id_partition, Uuid(b"g" * 16)))
    with pytest.raises(SegmentNotFound) as caught:
        tier.fetcher.fetch_log_segment(gone, 0, 10)
    assert str(gone.segment_id.id) in (caught.value.object_name or "")
    for index_type in IndexType:
        assert tier.fetcher.fetch_index(gone, index_type) is None


def test_several_threads(tier: Tier) -> None:
    segments = listed(tier)
    wrong: list[object] = []

    def read() -> None:
        for stem, segment in segments.items():
            data = tier.fetcher.fetch_log_segment(segment, 10, 300)
            if bytes(data) != tier.files[f"{stem}.log"][10:300]:
                wrong.append(stem)

    at_once([read] * 4)
    assert not wrong


def test_calls_after_close_raise(tier: Tier) -> None:
    segment = next(iter(listed(tier).values()))
    tier.fetcher.close()
    with pytest.raises(RemoteFetchError):
        tier.fetcher.fetch_log_segment(segment, 0)
    with pytest.raises(RemoteFetchError):
        tier.fetcher.fetch_index(segment, IndexType.OFFSET)
    with pytest.raises(RemoteFetchError):
        tier.fetcher.list_segments()
    tier.fetcher.close()


def test_two_of_them_do_not_meet(tier: Tier) -> None:
    other = type(tier.fetcher)()
    other.configure({"remote.storage.url": f"{tier.url}/nothing-here"})
    assert list(other.list_segments()) == []
    other.close()
    assert listed(tier)


def test_metadata_that_a_broker_wrote_finds_its_objects(tier: Tier) -> None:
    """Metadata from another source than a listing gives the same objects."""
    for stem, segment in listed(tier).items():
        known = dataclasses.replace(segment, end_offset=10**9, segment_size_in_bytes=UNKNOWN_SIZE)
        assert bytes(tier.fetcher.fetch_log_segment(known, 5, 9)) == tier.files[f"{stem}.log"][5:9]
