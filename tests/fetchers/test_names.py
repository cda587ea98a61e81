"""Names from outside: a fetcher opens nothing that does not lie below its root, whatever metadata says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fetchers._composed import ComposedFetcher
from fetchers._store import below_root
from fetchers.any_fsspec import FsspecFetcher
from fetchers.local import LocalFetcher
from fetchers.memory import MemoryFetcher
from remote_fetch import read_arrow
from remote_fetch.errors import CorruptSegment, RemoteFetchError, UnknownTopic
from remote_fetch.formats.metadata_records import SegmentMetadataRecord, parse_metadata_record
from remote_fetch.locate.snapshot import load_timelines
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid, is_topic_name
from remote_fetch.plan.ranges import BrokerRange
from remote_fetch.plan.saved import dump_plan, load_plan
from remote_fetch.testing.metadata_records import encode_metadata_record
from tests.scan.bucket import plain_log, snapshot_config

OUTSIDE = ("../outside/x", "..", ".", "", "a/b", "a b", "a\0b", "täglich", "a" * 250, "/etc/passwd", "%2e%2e/x")
ID = Uuid(bytes(range(16)))


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_kafka_calls_no_topic(name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(ValueError, match="not a topic name"):
        TopicIdPartition.parsed(ID, name, 0)


@pytest.mark.parametrize("name", ["orders", "__remote_log_metadata", "-dash", "a.b-c_d", "...", "a" * 249])
def test_what_kafka_calls_a_topic(name: str) -> None:
    assert TopicIdPartition.parsed(ID, name, 2**31 - 1).topic == name


@pytest.mark.parametrize("number", [-1, -5, 2**31])
def test_numbers_that_no_partition_has(number: int) -> None:
    with pytest.raises(ValueError, match="partitions are 0 to"):
        TopicIdPartition.parsed(ID, "orders", number)


def segment_of(topic: str, number: int = 0) -> RemoteLogSegmentMetadata:
    """A segment of a partition that may not exist."""
    return RemoteLogSegmentMetadata(RemoteLogSegmentId(TopicIdPartition(ID, topic, number), ID), 0, 9, 100)


@pytest.mark.parametrize("name", ["../outside/x", "a/../../x"])
def test_every_door_refuses_a_name_that_leads_elsewhere(name: str, tmp_path: Path) -> None:
    record = encode_metadata_record(SegmentMetadataRecord(segment_of(name)))
    with pytest.raises(CorruptSegment, match="not a topic name"):
        parse_metadata_record(record)
    saved = Path(snapshot_config([segment_of(name)], tmp_path)["remote.locator.snapshot.file"])
    with pytest.raises(CorruptSegment, match="not a topic name"):
        load_timelines(saved.read_bytes())
    with pytest.raises(CorruptSegment, match="not a topic name"):
        load_plan(dump_plan([BrokerRange(TopicIdPartition(ID, name, 0), 0, 9, "hole")]))
    with pytest.raises(UnknownTopic, match="not a topic name"):
        read_arrow(name, config={"remote.storage.url": str(tmp_path)})


def test_a_saved_plan_with_a_partition_that_cannot_be() -> None:
    with pytest.raises(CorruptSegment, match="partitions are 0 to"):
        load_plan(dump_plan([BrokerRange(TopicIdPartition(ID, "orders", -5), 0, 9, "hole")]))


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "..", "./x", "a\\..\\x", "a\0b"])
@pytest.mark.parametrize("kind", [LocalFetcher, FsspecFetcher, MemoryFetcher])
def test_a_store_opens_nothing_outside_its_root(kind: type[ComposedFetcher], name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    root = tmp_path / "tier"
    root.mkdir()
    urls: dict[type[ComposedFetcher], str] = {
        LocalFetcher: str(root),
        FsspecFetcher: f"file://{root}",
        MemoryFetcher: "memory://tier",
    }
    fetcher = kind()
    fetcher.configure({
        "remote.storage.url": urls[kind],
        "remote.storage.layout": "plain",
        "remote.storage.layout.template": "{topic}-{partition}/{start_offset}.{file}",
        "fetch.remote.connect.timeout.ms": "1000",
        "fetch.remote.read.timeout.ms": "5000",
    })  # fmt: skip
    _, store = fetcher._opened()
    for ask in (lambda: store.get(name), lambda: list(store.list(name)), lambda: list(store.folders(name))):
        with pytest.raises(CorruptSegment, match="leads out of the storage"):
            ask()
    fetcher.close()


@pytest.mark.parametrize("name", ["a/b", "...", "a..b/..c", "a//b", "%2e%2e/x", "~/x"])
def test_names_that_stay_below(name: str) -> None:
    assert below_root(name) == name


def test_a_saved_timeline_does_not_read_beside_the_tier(tmp_path: Path) -> None:
    """The metadata names a topic whose folder lies beside the configured root."""
    (built,) = plain_log(segments=1).segments()
    inside = built.metadata
    place = TopicIdPartition(inside.topic_id_partition.topic_id, "../outside/x", 0)
    lying = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(place, inside.segment_id.id), inside.start_offset, inside.end_offset, len(built.log)
    )
    outside = tmp_path / "outside" / f"x-0-{place.topic_id}"
    outside.mkdir(parents=True)
    (outside / f"{inside.start_offset:020d}-{inside.segment_id.id}.log").write_bytes(built.log)
    (tmp_path / "tier").mkdir()
    config = snapshot_config([lying], tmp_path) | {"remote.storage.url": str(tmp_path / "tier")}
    with pytest.raises(RemoteFetchError, match="not a topic name"):
        read_arrow("../outside/x", config=config)
    with pytest.raises(RemoteFetchError, match="not a topic name"):
        read_arrow("x", config=config)
