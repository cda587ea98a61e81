"""Metadata records and indexes as the broker wrote them, against Kafka's own reading and against the bucket."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remote_fetch.formats.batches import BatchFramer, check_crc
from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.formats.metadata_records import SegmentMetadataRecord, SegmentUpdateRecord, parse_metadata_record
from remote_fetch.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from remote_fetch.session.session import Session
from tests.golden.places import each_place

if TYPE_CHECKING:
    from tests.golden.conftest import Place, Tier

pytestmark = pytest.mark.each_version

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_DUMPED_RECORD = re.compile(r"^\| offset: (\d+) .* payload: (\w+)\{(.*)\}$")
_DUMPED_ID = re.compile(r"topicIdPartition=([^:]+):(.+)-(\d+), id=([\w-]+)\}")
_DUMPED_FIELD = re.compile(r"(\w+)=(\{[^}]*\}|[^,{}]+)")


def printed(record: SegmentMetadataRecord | SegmentUpdateRecord) -> dict[str, Any]:
    """A record of ours under the names, and as the text, that Kafka prints."""
    of_segment: dict[str, str] = {}
    if isinstance(record, SegmentUpdateRecord):
        custom, state = record.custom_metadata, record.state
        event, broker, segment_id = record.event_timestamp_ms, record.broker_id, record.segment_id
    else:
        segment = record.metadata
        custom, state, segment_id = segment.custom_metadata, segment.state, segment.segment_id
        event, broker = segment.event_timestamp_ms, segment.broker_id
        epochs = ", ".join(f"{entry.epoch}={entry.start_offset}" for entry in segment.segment_leader_epochs)
        of_segment = {
            "startOffset": str(segment.start_offset),
            "endOffset": str(segment.end_offset),
            "maxTimestampMs": str(segment.max_timestamp_ms),
            "segmentLeaderEpochs": f"{{{epochs}}}",
            "segmentSizeInBytes": str(segment.segment_size_in_bytes),
            "txnIdxEmpty": str(segment.txn_index_empty).lower(),
        }
    partition = segment_id.topic_id_partition
    return {
        "id": (str(partition.topic_id), partition.topic, str(partition.partition), str(segment_id.id)),
        "customMetadata": "Optional.empty" if custom is None else repr(custom),
        "state": state.name,
        "eventTimestampMs": str(event),
        "brokerId": str(broker),
        **of_segment,
    }


def test_metadata_records_are_read_as_kafka_reads_them(tier: Tier) -> None:
    kafkas: dict[tuple[int, int], dict[str, Any]] = {}
    partition = -1
    for text in tier.text("metadata.dump.txt.gz").splitlines():
        if text.startswith("#####"):
            partition = int(text.rpartition("-")[2])
        elif (match := _DUMPED_RECORD.match(text)) is not None:
            offset, _, body = match.groups()
            segment_id = _DUMPED_ID.search(body)
            assert segment_id is not None
            fields = _DUMPED_FIELD.findall(body[segment_id.end() :])
            kafkas[partition, int(offset)] = {"id": segment_id.groups(), **dict(fields)}
    for line in tier.lines("metadata"):
        record = parse_metadata_record(base64.b64decode(line["value"]))
        assert isinstance(record, SegmentMetadataRecord | SegmentUpdateRecord)
        ours, theirs = printed(record), kafkas.pop((line["partition"], line["offset"]))
        if "txnIdxEmpty" not in theirs:  # 3.9 knows no such field
            assert ours.pop("txnIdxEmpty", "false") == "false"
        assert ours == theirs
    assert kafkas == {}


def facts_of(segment: RemoteLogSegmentMetadata) -> tuple[Any, ...]:
    """The fields of a segment that a listing can know."""
    return segment.segment_id, segment.start_offset, segment.end_offset, segment.segment_size_in_bytes


@each_place
def test_a_listing_finds_what_the_metadata_says(place: Place) -> None:
    """Ids, offsets and sizes agree. The last segment's end is in no name, and was read from its last batch.

    Timestamps, brokers and leader epochs stay unknown, because only metadata has them.
    """
    known = place.tier.timelines[place.topic_id_partition]
    with Session.open(place.config) as session:
        assert place.topic_id_partition in session.locator.partitions(place.topic)
        listed = session.locator.timeline(place.topic_id_partition)
    assert [facts_of(segment) for segment in listed.segments] == [facts_of(segment) for segment in known.segments]
    assert listed.end_offset == place.stop
    assert {segment.max_timestamp_ms for segment in listed.segments} == {-1}
    if place.tier.name == "local-4.1":  # 3.9 writes no such field
        empty = [segment.txn_index_empty for segment in known.segments]
        assert [segment.txn_index_empty for segment in listed.segments] == empty


def test_a_listing_finds_no_partition_that_the_metadata_has_not(tier: Tier) -> None:
    readable = [partition for partition, timeline in tier.timelines.items() if timeline.segments]
    with Session.open({"remote.storage.url": tier.url}) as session:
        assert sorted(session.locator.partitions(None)) == sorted(readable)
    assert sorted(place.topic_id_partition for place in tier.places) == sorted(readable)
    assert "gone" not in {partition.topic for partition in readable}
    assert "gone" in {partition.topic for partition in tier.timelines}


def test_uploads_that_failed_are_not_readable(tier: Tier) -> None:
    """The first uploads of the topic `retried` failed. The same offsets were uploaded again with other segment ids."""
    (place,) = (place for place in tier.places if place.topic == "retried")
    timeline = tier.timelines[place.topic_id_partition]
    started = set()
    for line in tier.lines("metadata"):
        record = parse_metadata_record(base64.b64decode(line["value"]))
        if isinstance(record, SegmentMetadataRecord) and record.metadata.topic_id_partition == timeline.partition:
            assert record.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
            started.add(record.metadata.segment_id)
    finished = {segment.segment_id for segment in timeline.segments}
    assert finished < started
    # 4.1 deletes what it failed to upload, and says so; 3.9 leaves the start of the copy there for ever.
    left = {"local-4.1": set(), "local-3.9": started - finished}[tier.name]
    assert {segment.segment_id for segment in timeline.unfinished} == left


def test_transaction_indexes_are_the_brokers(tier: Tier) -> None:
    fields = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    found = [
        (place.topic, place.partition, int(path.name[:20]), *(getattr(entry, name) for name in fields))
        for place in tier.places
        for path in place.folder.glob("*.txnindex")
        for entry in parse_transaction_index(path.read_bytes())
    ]
    names = ("topic", "partition", "txnindex_of", *fields)
    recorded = [tuple(line[name] for name in names) for line in tier.lines("aborted")]
    assert sorted(found) == sorted(recorded)
    assert len(found) == 63


def test_batches_are_framed_as_kafka_prints_them(tier: Tier) -> None:
    compared = 0
    for place in tier.places:
        batches = iter(tier.dumped.get((place.topic, place.partition), []))
        for path in sorted(place.folder.glob("*.log")):
            framer = BatchFramer(0)
            framer.feed(memoryview(path.read_bytes()))
            while (batch := framer.next_batch()) is not None:
                header, theirs = batch.header, next(batches, None)
                if theirs is None:
                    break
                check_crc(batch)
                ours = {
                    "baseOffset": header.base_offset,
                    "lastOffset": header.last_offset,
                    "count": header.record_count,
                    "producerId": header.producer_id,
                    "partitionLeaderEpoch": header.leader_epoch,
                    "isTransactional": str(header.is_transactional).lower(),
                    "isControl": str(header.is_control).lower(),
                    "position": batch.position,
                    "size": header.size_bytes,
                    "magic": header.magic,
                    "compresscodec": CODECS[header.codec],
                    "isvalid": "true",
                    ("CreateTime", "LogAppendTime")[header.timestamp_type]: header.max_timestamp_ms,
                }
                assert {name: str(value) for name, value in ours.items()}.items() <= theirs.fields.items()
                assert int(path.name[:20]) == int(Path(theirs.file).stem)
                compared += 1
    assert compared == sum(map(len, tier.dumped.values())) > 100
