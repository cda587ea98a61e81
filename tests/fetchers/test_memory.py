"""The memory fetcher: one store for the whole process, under as many roots as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from fetchers.memory import MemoryFetcher
from remote_fetch.errors import SegmentNotFound
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

PARTITION = TopicIdPartition(Uuid(b"m" * 16), "of-the-memory-test", 0)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"s" * 16)), 5, -1, 10, txn_index_empty=True)
NAME = f"of-the-memory-test-0-{PARTITION.topic_id}/{5:020d}-{SEGMENT.segment_id.id}.log"


@pytest.fixture
def filesystem() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    before = set(filesystem.store)
    yield filesystem
    for name in set(filesystem.store) - before:
        filesystem.rm_file(name)


def opened(url: str) -> MemoryFetcher:
    fetcher = MemoryFetcher()
    fetcher.configure({"remote.storage.url": url})
    return fetcher


@pytest.mark.parametrize("url", ["memory://m-tier/a", "memory:///m-tier/a", "memory://m-tier/a/"])
def test_everybody_sees_what_was_put_there(filesystem: Any, url: str) -> None:
    fetcher = opened(url)
    assert list(fetcher.list_segments()) == []
    filesystem.pipe_file(f"/m-tier/a/{NAME}", b"0123456789")
    for reader in (fetcher, opened(url)):
        assert list(reader.list_segments()) == [SEGMENT]
        assert reader.fetch_log_segment(SEGMENT, 8, 20) == b"89"
    assert list(opened("memory://m-tier").list_segments()) == []


def test_the_root_itself(filesystem: Any) -> None:
    filesystem.pipe_file(f"/{NAME}", b"0123456789")
    fetcher = opened("memory://")
    assert list(fetcher.list_segments(PARTITION.topic)) == [SEGMENT]
    assert fetcher.fetch_log_segment(SEGMENT, 0, 2) == b"01"


def test_nothing_is_there_before_it_is_put() -> None:
    with pytest.raises(SegmentNotFound):
        opened("memory://m-nothing").fetch_log_segment(SEGMENT, 0)
