"""Stores of built segments: the tree of LocalTieredStorage, and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote_fetch.errors import SegmentNotFound
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import IndexType
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import SegmentStore, write_kafka_local

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "local-4.1" / "remote"


@pytest.fixture
def segments() -> list[BuiltSegment]:
    """Two segments, of which the second has a transaction index."""
    log = LogBuilder("my-topic", partition=2)
    log.begin(5)
    log.append_batch([Record(0, 0, b"k", b"v" * 50)], producer_id=5)
    log.roll()
    log.abort(5)
    log.roll()
    return log.tiered()


class TestKafkaLocal:
    def test_the_tree_is_that_of_a_broker(self, tmp_path: Path, segments: list[BuiltSegment]) -> None:
        root = write_kafka_local(str(tmp_path), segments)
        first, second = (s.metadata.segment_id.id for s in segments)
        place = segments[0].metadata.topic_id_partition
        assert root == tmp_path / "kafka-tiered-storage"
        files = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()}
        folder = f"my-topic-2-{place.topic_id}"
        common = (".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")
        assert files == {
            *(f"{folder}/00000000000000000000-{first}{suffix}" for suffix in common),
            *(f"{folder}/00000000000000000001-{second}{suffix}" for suffix in (*common, ".txnindex")),
        }

    def test_the_same_suffixes_as_in_a_real_one(self, tmp_path: Path, segments: list[BuiltSegment]) -> None:
        ours = {file.suffix for file in write_kafka_local(tmp_path, segments).rglob("*.*") if file.is_file()}
        assert ours == {file.suffix for file in GOLDEN.rglob("0*-*.*")}

    def test_the_files_hold_the_built_bytes(self, tmp_path: Path, segments: list[BuiltSegment]) -> None:
        root = write_kafka_local(tmp_path, segments)
        (log,) = root.rglob("*1-*.log")
        assert log.read_bytes() == segments[1].log
        assert log.with_suffix(".txnindex").read_bytes() == segments[1].transaction_index
        assert log.with_suffix(".snapshot").read_bytes() == segments[1].producer_snapshot


class TestSegmentStore:
    def test_it_is_a_fetcher(self) -> None:
        assert isinstance(SegmentStore(), RemoteStorageFetcher)

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [(0, -1, slice(None)), (3, 9, slice(3, 9)), (60, 10**6, slice(60, None)), (10**6, -1, slice(0, 0))],
    )
    def test_ranges(self, segments: list[BuiltSegment], start: int, end: int, expected: slice) -> None:
        store = SegmentStore(segments)
        store.configure({})
        assert store.fetch_log_segment(segments[0].metadata, start, end) == segments[0].log[expected]
        store.close()

    @pytest.mark.parametrize("index_type", IndexType)
    def test_indexes(self, segments: list[BuiltSegment], index_type: IndexType) -> None:
        for segment in segments:
            assert SegmentStore(segments).fetch_index(segment.metadata, index_type) == segment.index(index_type)

    def test_segments_come_and_go(self, segments: list[BuiltSegment]) -> None:
        store = SegmentStore()
        store.add(segments[0])
        assert store.fetch_index(segments[0].metadata, IndexType.TRANSACTION) is None
        store.remove(segments[0].metadata)
        with pytest.raises(SegmentNotFound, match=r"my-topic-2, offset 0, object .{22}\]"):
            store.fetch_index(segments[0].metadata, IndexType.TRANSACTION)
        with pytest.raises(SegmentNotFound):
            store.fetch_log_segment(segments[0].metadata, 0)
        with pytest.raises(KeyError):
            store.remove(segments[0].metadata)
