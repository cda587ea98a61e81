"""Tiers of Aiven's plug-in: a read of the bucket gives the records that a broker gave a consumer.

Rules of the file:

- The oracle is the broker's own recording. For the bytes below the records it is the checksums of the broker's files.
- One test reads every partition of a set, because no test is about a single partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fetchers.layouts.aiven import AivenLayout
from remote_fetch import Counters, read_arrow
from remote_fetch.config import Config
from remote_fetch.errors import CorruptSegment, StorageDenied, UnsupportedFormat
from remote_fetch.fetch.broker_file import complete
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata, Uuid
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    from tests.golden.conftest import AivenTier, Line

LinesOf = Callable[[Iterable[pa.RecordBatch]], "list[Line]"]
INDEX_SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
}


def read_all(
    tier: AivenTier, isolation: str, lines_of: LinesOf, **more: Any
) -> Iterator[tuple[list[Line], list[Line]]]:
    """Of each topic what was read of it, and what the broker had read."""
    topics: dict[str, list[Any]] = {}
    for place in tier.places:
        topics.setdefault(place.topic, []).append(place)
    for topic, places in topics.items():
        log_start = {place.partition: place.log_start for place in places}
        arguments: dict[str, Any] = {"config": tier.config, "isolation": isolation, "log_start": log_start, **more}
        yield (
            lines_of(read_arrow(topic, **arguments)),
            [line for place in places for line in place.recorded(isolation)],
        )


def compare(tier: AivenTier, isolation: str, lines_of: LinesOf, **more: Any) -> None:
    compared = 0
    for rows, recorded in read_all(tier, isolation, lines_of, **more):
        assert rows == recorded
        compared += len(rows)
    assert compared == tier.facts["counts"][isolation] - 10  # the last ten records of topic tail are not in the tier


@pytest.mark.slow
def test_the_bucket_alone(aiven_tier: AivenTier, isolation: str, lines_of: LinesOf) -> None:
    counters = Counters()
    compare(aiven_tier, isolation, lines_of, observer=counters)
    report = counters.report()
    assert [report.fallbacks, report.rereads, report.retries, report.scans] == [{}, {}, {}, {}]


@pytest.mark.slow
def test_by_way_of_the_metadata_records(
    aiven_tier: AivenTier, isolation: str, lines_of: LinesOf, tmp_path: Path
) -> None:
    """Custom metadata comes with them, where the plug-in wrote any."""
    file = tmp_path / "timelines"
    origin = SnapshotOrigin("recorded", Uuid(bytes(16)), 5, ())
    file.write_bytes(dump_timelines(tuple(aiven_tier.timelines.values()), origin=origin))
    config = {**aiven_tier.config, "remote.locator": "snapshot", "remote.locator.snapshot.file": str(file)}
    counters = Counters()
    compare(aiven_tier, isolation, lines_of, config=config, observer=counters)
    assert counters.report().fallbacks == {}


@pytest.mark.slow
def test_in_ranges_smaller_than_a_chunk(aiven_tier: AivenTier, isolation: str, lines_of: LinesOf) -> None:
    config = {**aiven_tier.config, "fetch.remote.range.bytes": 1024, "fetch.remote.max.bytes": 4096}
    compare(aiven_tier, isolation, lines_of, config=config)


def segments_of(tier: AivenTier) -> list[RemoteLogSegmentMetadata]:
    return [segment for timeline in tier.timelines.values() for segment in timeline.segments]


def test_the_size_in_the_store_is_that_of_the_objects(aiven_tier: AivenTier) -> None:
    """If it is configured so, the plug-in writes the size of log, indexes and manifest to REMOTE_SIZE (KIP-917)."""
    fields = aiven_tier.facts["broker_properties"].get("rsm.config.custom.metadata.fields.include", "")
    layout = AivenLayout()
    for segment in segments_of(aiven_tier):
        stem = f"{segment.start_offset:020d}-{segment.segment_id.id}"
        stored = sum(path.stat().st_size for path in Path(aiven_tier.url).rglob(f"{stem}.*"))
        assert layout.stored_size(segment) == (stored if "REMOTE_SIZE" in fields else None)


def test_segments_and_indexes_are_the_files_the_broker_had(aiven_tier: AivenTier) -> None:
    originals = {(line["topic"], line["partition"], line["file"]): line for line in aiven_tier.lines("original_files")}
    fetcher = load_fetcher(Config.parse(aiven_tier.config))
    compared = 0
    for segment in segments_of(aiven_tier):
        place = segment.topic_id_partition
        files = {f"{segment.start_offset:020d}.log": fetcher.fetch_log_segment(segment, 0)}
        for index_type, suffix in INDEX_SUFFIXES.items():
            is_state = index_type is IndexType.PRODUCER_SNAPSHOT  # its name is that of the next segment
            offset = segment.end_offset + 1 if is_state else segment.start_offset
            data = fetcher.fetch_index(segment, index_type)
            if data is not None:
                files[f"{offset:020d}{suffix}"] = data
            else:
                assert (index_type, segment.txn_index_empty) == (IndexType.TRANSACTION, True)
        epochs = fetcher.fetch_index(segment, IndexType.LEADER_EPOCH)
        assert epochs is not None
        assert bytes(epochs).startswith(b"0\n")
        for name, data in files.items():
            original = originals[place.topic, place.partition, name]
            assert (len(data), hashlib.sha256(data).hexdigest()) == (original["size"], original["sha256"]), name
            compared += 1
    assert compared > 300


def test_a_listing_knows_what_the_metadata_says(aiven_tier: AivenTier) -> None:
    """Everything but the size of what is stored: the manifests have it from the same broker."""
    with Session.open(aiven_tier.config) as session:
        partitions = session.locator.partitions(None)
        listed = [segment for one in partitions for segment in session.locator.timeline(one).segments]
    fields = [
        name for name in RemoteLogSegmentMetadata.__slots__ if name not in ("custom_metadata", "event_timestamp_ms")
    ]
    known = sorted([getattr(segment, name) for name in fields] for segment in segments_of(aiven_tier))
    assert sorted([getattr(segment, name) for name in fields] for segment in listed) == known
    assert known


def test_the_brokers_own_file_is_all_that_is_needed(encrypted_tier: AivenTier, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)  # paths in it are as seen from there
    file = encrypted_tier.data / encrypted_tier.name / "server.properties"
    found = complete(Config.parse({"remote.storage.broker.properties": str(file)}))
    paths = {name: value for name, value in found.config.ours().items() if name in found.from_file}
    places = {
        name: str(root / value) if isinstance(value, str) and value.startswith("tests/") else value
        for name, value in paths.items()
    }
    assert places == encrypted_tier.config
    assert found.unmapped == ()


def test_without_its_key_a_segment_says_which_it_needs(encrypted_tier: AivenTier) -> None:
    keys = {name: value for name, value in encrypted_tier.config.items() if name.endswith("private.key.file")}
    assert len(keys) == 2
    segment = segments_of(encrypted_tier)[0]
    without = {name: value for name, value in encrypted_tier.config.items() if name not in keys}
    with pytest.raises(UnsupportedFormat, match="private key is not configured") as caught:
        load_fetcher(Config.parse(without)).fetch_log_segment(segment, 0)
    assert "encryption.key.pairs.key1.private.key.file" in str(caught.value)
    exchanged = without | dict(zip(keys, reversed(keys.values()), strict=True))
    with pytest.raises(StorageDenied, match="does not open the segment's data key"):
        load_fetcher(Config.parse(exchanged)).fetch_log_segment(segment, 0)


def test_a_damaged_tier_is_noticed(aiven_tier: AivenTier, tmp_path: Path) -> None:
    """One byte of an object is another one, or missing: never other records than the broker's."""
    place = next(place for place in aiven_tier.places if place.topic == "big.topic_1-0")
    log = max(
        Path(aiven_tier.url).rglob(f"*{place.topic}-*/{place.partition}/*.log"), key=lambda one: one.stat().st_size
    )
    copy = tmp_path / log.relative_to(aiven_tier.url)
    copy.parent.mkdir(parents=True)
    for other in log.parent.iterdir():
        (copy.parent / other.name).write_bytes(other.read_bytes())
    data = log.read_bytes()
    config = {**aiven_tier.config, "remote.storage.url": str(tmp_path)}
    for damaged in (data[:-1], data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]):
        copy.write_bytes(damaged)
        with pytest.raises(CorruptSegment):
            read_arrow(place.topic, partitions=[place.partition], config=config).read_all()
