"""Records of the remote log metadata topic: those of real brokers, Kafka's own vectors, random and broken ones."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.metadata_records import (
    MetadataRecord,
    PartitionDeleteRecord,
    RemotePartitionDeleteState,
    SegmentMetadataRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
    parse_metadata_record,
    topic_id_of,
)
from remote_fetch.model import (
    MAX_OFFSET,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record, encode_tagged_fields
from remote_fetch.testing.strategies import partitions
from tests.searches import examples

GOLDENS = Path(__file__).parents[1] / "golden" / "data"
VECTORS = {
    name: bytes.fromhex(text)
    for name, text in json.loads(Path(__file__).with_name("metadata_records_vectors.json").read_text())[
        "records"
    ].items()
}

PARTITION = TopicIdPartition(Uuid.parse("MWJ6FHTfRYy67jzwZdeqSQ"), "orders", 7)
SEGMENT_ID = RemoteLogSegmentId(PARTITION, Uuid.parse("tqimKeZwStOEOwRzT3L5oQ"))
EPOCHS = (LeaderEpoch(3, 1234), LeaderEpoch(5, 1500))
STARTED = RemoteLogSegmentMetadata(
    segment_id=SEGMENT_ID,
    start_offset=1234,
    end_offset=1999,
    segment_size_in_bytes=1048576,
    max_timestamp_ms=1700000000123,
    event_timestamp_ms=1700000001000,
    broker_id=101,
    segment_leader_epochs=EPOCHS,
    state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
)
FINISHED = SegmentUpdateRecord(
    SEGMENT_ID, 101, 1700000002000, bytes.fromhex("deadbeef"), RemoteLogSegmentState.COPY_SEGMENT_FINISHED
)
MARKED = PartitionDeleteRecord(PARTITION, 101, 1700000003000, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
SNAPSHOT = SegmentSnapshotRecord(
    SEGMENT_ID.id,
    1234,
    1999,
    101,
    1700000000123,
    1700000001000,
    EPOCHS,
    1048576,
    bytes.fromhex("deadbeef"),
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    txn_index_empty=True,
)
EXPECTED: dict[str, MetadataRecord] = {
    "seg_v0_started": SegmentMetadataRecord(STARTED),
    "seg_v0_started_txnEmpty": SegmentMetadataRecord(replace(STARTED, txn_index_empty=True)),
    "upd_v0_finished": FINISHED,
    "upd_v0_finished_nullcm": replace(FINISHED, custom_metadata=None),
    "upd_v0_finished_emptycm": replace(FINISHED, custom_metadata=b""),
    "del_v0_marked": MARKED,
    "snap_v0": SNAPSHOT,
    "seg_v1_draft": SegmentMetadataRecord(replace(STARTED, txn_index_empty=True), broker_leader_epoch=5, version=1),
    "upd_v1_draft": replace(FINISHED, custom_metadata=None, broker_leader_epoch=5, end_offset=1999, version=1),
    "del_v1_draft": replace(
        MARKED,
        state=RemotePartitionDeleteState.DELETE_PARTITION_STARTED,
        broker_leader_epoch=5,
        end_offset=1999,
        version=1,
    ),
    "seg_v1_seedliteral": SegmentMetadataRecord(STARTED, broker_leader_epoch=5, version=1),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str) -> None:
    value = VECTORS[name]
    assert parse_metadata_record(value) == EXPECTED[name]
    assert parse_metadata_record(memoryview(value)) == EXPECTED[name]
    assert topic_id_of(value) == (None if name == "snap_v0" else PARTITION.topic_id.raw)


@pytest.mark.parametrize("name", [name for name in VECTORS if name != "seg_v1_seedliteral"])
def test_vectors_are_written_byte_for_byte(name: str) -> None:
    assert encode_metadata_record(EXPECTED[name]) == VECTORS[name]


def test_the_other_draft_is_written_as_the_first() -> None:
    encoded = encode_metadata_record(EXPECTED["seg_v1_seedliteral"])
    assert encoded == VECTORS["seg_v1_seedliteral"][:-7] + bytes.fromhex("01 01 04 00000005")
    assert parse_metadata_record(encoded) == EXPECTED["seg_v1_seedliteral"]


def dumped(name: str) -> Iterator[tuple[int, int, str]]:
    """Metadata partition, offset and text of each record as Kafka's own tool prints it."""
    partition = -1
    with gzip.open(GOLDENS / name / "metadata.dump.txt.gz", "rt") as lines:
        for line in lines:
            if line.startswith("#####"):
                partition = int(line.rsplit("-", 1)[1])
            elif match := re.match(r"\| offset: (\d+) .* payload: (.*)", line):
                yield partition, int(match[1]), match[2]


def printed(record: MetadataRecord) -> str:
    """The record as Kafka's classes print themselves, without custom metadata."""
    if isinstance(record, SegmentMetadataRecord):
        segment = record.metadata
        epochs = ", ".join(f"{entry.epoch}={entry.start_offset}" for entry in segment.segment_leader_epochs)
        flag = f", txnIdxEmpty={str(segment.txn_index_empty).lower()}"
        return (
            f"RemoteLogSegmentMetadata{{remoteLogSegmentId={printed_id(segment.segment_id)}, "
            f"startOffset={segment.start_offset}, endOffset={segment.end_offset}, brokerId={segment.broker_id}, "
            f"maxTimestampMs={segment.max_timestamp_ms}, eventTimestampMs={segment.event_timestamp_ms}, "
            f"segmentLeaderEpochs={{{epochs}}}, segmentSizeInBytes={segment.segment_size_in_bytes}, "
            f"customMetadata=Optional.empty, state={segment.state.name}{flag}}}"
        )
    assert isinstance(record, SegmentUpdateRecord)
    assert record.custom_metadata is None
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={printed_id(record.segment_id)}, "
        f"customMetadata=Optional.empty, state={record.state.name}, "
        f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
    )


def printed_id(segment_id: RemoteLogSegmentId) -> str:
    user = segment_id.topic_id_partition
    return f"RemoteLogSegmentId{{topicIdPartition={user.topic_id}:{user.topic}-{user.partition}, id={segment_id.id}}}"


@pytest.mark.parametrize("name", ["local-3.9", "local-4.1"])
def test_goldens_read_as_kafka_reads_them(name: str) -> None:
    texts = {(partition, offset): text for partition, offset, text in dumped(name)}
    count = 0
    with gzip.open(GOLDENS / name / "metadata.jsonl.gz") as lines:
        for line in map(json.loads, lines):
            value = base64.b64decode(line["value"])
            record = parse_metadata_record(value)
            text = texts.pop((line["partition"], line["offset"]))
            assert printed(record).replace(", txnIdxEmpty=false", "") == text.replace(", txnIdxEmpty=false", "")
            assert encode_metadata_record(record) == value
            assert (topic_id := topic_id_of(value)) is not None
            assert str(Uuid(topic_id)) in text
            count += 1
    assert count > 200
    assert not texts


@pytest.mark.parametrize("name", VECTORS)
def test_a_cut_value_is_corrupt(name: str) -> None:
    value = VECTORS[name]
    for length in range(len(value)):
        with pytest.raises(CorruptSegment):
            parse_metadata_record(value[:length])


@pytest.mark.parametrize("name", [name for name in VECTORS if "_v0_" in name or name == "snap_v0"])
def test_version_0_ends_where_it_ends(name: str) -> None:
    with pytest.raises(CorruptSegment, match=rf"of \d+ bytes should end at byte {len(VECTORS[name])}"):
        parse_metadata_record(VECTORS[name] + b"\0")


@pytest.mark.parametrize("name", [name for name in VECTORS if "_v1_" in name])
def test_newer_versions_may_go_on(name: str) -> None:
    assert parse_metadata_record(VECTORS[name] + b"more") == EXPECTED[name]


@pytest.mark.parametrize(
    ("value", "message"),
    [("00 00 00", "frame of version 0"), ("02 00 00", "frame of version 2"), ("01 04 00", "api key 4")],
)
def test_unknown_frames_and_api_keys(value: str, message: str) -> None:
    with pytest.raises(UnsupportedFormat, match=message):
        parse_metadata_record(bytes.fromhex(value))
    assert topic_id_of(bytes.fromhex(value) + VECTORS["upd_v0_finished"][3:]) is None


@pytest.mark.parametrize(("start", "end"), [(-1, 10), (10, 9), (5, 2**63 - 1)])
def test_impossible_offsets(start: int, end: int) -> None:
    for record in (
        SegmentMetadataRecord(replace(STARTED, start_offset=start, end_offset=end)),
        replace(SNAPSHOT, start_offset=start, end_offset=end),
    ):
        with pytest.raises(CorruptSegment, match=f"from offset {start} to {end}"):
            parse_metadata_record(encode_metadata_record(record))


@pytest.mark.parametrize(("name", "at"), [("seg_v0_started", -2), ("upd_v0_finished", -2), ("del_v0_marked", -2)])
def test_unknown_states(name: str, at: int) -> None:
    value = bytearray(VECTORS[name])
    value[at] = 4
    with pytest.raises(CorruptSegment, match="state 4"):
        parse_metadata_record(value)


def test_announced_epochs_are_counted_before_they_are_read() -> None:
    value = bytearray(VECTORS["seg_v0_started"])
    at = value.index(bytes.fromhex("03 00000003"))
    value[at : at + 1] = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptSegment, match="4294967294 leader epochs announced"):
        parse_metadata_record(value)


def test_epochs_are_sorted_and_may_be_absent() -> None:
    shuffled = (LeaderEpoch(5, 1500), LeaderEpoch(3, 1), LeaderEpoch(3, 1234))
    value = encode_metadata_record(SegmentMetadataRecord(replace(STARTED, segment_leader_epochs=shuffled)))
    assert parse_metadata_record(value) == SegmentMetadataRecord(STARTED)
    none = SegmentMetadataRecord(replace(STARTED, segment_leader_epochs=()))
    value = encode_metadata_record(none)
    assert parse_metadata_record(value) == none
    at = len(VECTORS["seg_v0_started"]) - 2 * 13 - 8
    assert value[at] == 1
    assert parse_metadata_record(value[:at] + b"\0" + value[at + 1 :]) == none


@pytest.mark.parametrize(
    ("fields", "txn_index_empty", "broker_leader_epoch"),
    [
        ({}, False, None),
        ({0: b"\1"}, True, None),
        ({0: b"\0"}, False, None),
        ({0: bytes([0, 0, 0, 9])}, False, 9),
        ({1: bytes([0, 0, 0, 0])}, False, 0),
        ({0: bytes([0, 0, 0, 9]), 1: bytes([0, 0, 0, 0])}, False, 0),
        ({1: b"\xff\xff\xff\xff"}, False, None),
        ({0: b"\1", 1: bytes([0, 0, 0, 7]), 9: b"what comes"}, True, 7),
        ({0: b"ab", 1: b"ab"}, False, None),
    ],
)
def test_tagged_fields_are_known_by_number_and_size(
    fields: dict[int, bytes], txn_index_empty: bool, broker_leader_epoch: int | None
) -> None:
    value = VECTORS["seg_v0_started"][:-1] + encode_tagged_fields(fields)
    assert parse_metadata_record(value) == SegmentMetadataRecord(
        replace(STARTED, txn_index_empty=txn_index_empty), broker_leader_epoch
    )


def test_tagged_fields_inside_the_ids_are_skipped() -> None:
    value = VECTORS["upd_v0_finished"]
    extra = encode_tagged_fields({3: b"later"})
    partition_end = 3 + 7 + 16 + 4
    assert value[partition_end] == value[partition_end + 17] == 0
    changed = (
        value[:partition_end]
        + extra
        + value[partition_end + 1 : partition_end + 17]
        + extra
        + value[partition_end + 18 :]
    )
    assert parse_metadata_record(changed) == FINISHED


LONG = TopicIdPartition(PARTITION.topic_id, "t" * 249, 0)


def test_topic_id_behind_a_long_name_or_version() -> None:
    value = encode_metadata_record(replace(FINISHED, segment_id=RemoteLogSegmentId(LONG, SEGMENT_ID.id)))
    assert topic_id_of(value) == PARTITION.topic_id.raw
    assert topic_id_of(encode_metadata_record(replace(FINISHED, version=200))) == PARTITION.topic_id.raw


@pytest.mark.parametrize("value", [b"", b"\1\0", b"\1\0\0", b"\1\0\0\0" + bytes(20), b"\1\0\0\3ab", b"\1\0\0\x80\1ab"])
def test_no_topic_id(value: bytes) -> None:
    assert topic_id_of(value) is None


uuids = st.binary(min_size=16, max_size=16).map(Uuid)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
segment_ids = st.builds(RemoteLogSegmentId, partitions(), uuids)
bounds = st.tuples(st.integers(0, MAX_OFFSET), st.integers(0, MAX_OFFSET)).map(sorted)
epochs = st.dictionaries(st.integers(0, 2**31 - 1), int64s, max_size=4).map(
    lambda found: tuple(LeaderEpoch(epoch, found[epoch]) for epoch in sorted(found))
)
custom = st.none() | st.binary(max_size=200)
states = st.sampled_from(RemoteLogSegmentState)


@st.composite
def records(draw: st.DrawFn) -> MetadataRecord:
    version = draw(st.integers(0, 3))
    drafts = (
        (draw(st.none() | st.integers(0, 2**31 - 1)), draw(st.none() | st.integers(0, 2**63 - 1))) if version else ()
    )
    common = (draw(int32s), draw(int64s))
    start, end = draw(bounds)
    match draw(st.integers(0, 3)):
        case 0:
            metadata = RemoteLogSegmentMetadata(
                draw(segment_ids), start, end, draw(int32s), draw(int64s), common[1], common[0], draw(epochs),
                draw(custom), draw(states), draw(st.booleans()),
            )  # fmt: skip
            return SegmentMetadataRecord(metadata, drafts[0] if drafts else None, version)
        case 1:
            update = SegmentUpdateRecord(draw(segment_ids), *common, draw(custom), draw(states), *drafts)
            return replace(update, version=version)
        case 2:
            delete_states = st.sampled_from(RemotePartitionDeleteState)
            deletion = PartitionDeleteRecord(draw(partitions()), *common, draw(delete_states), *drafts)
            return replace(deletion, version=version)
        case _:
            return SegmentSnapshotRecord(
                draw(uuids), start, end, common[0], draw(int64s), common[1], draw(epochs), draw(int32s), draw(custom),
                draw(states), draw(st.booleans()), version,
            )  # fmt: skip


@examples(150)
@given(records())
def test_encoded_records_are_read_again(record: MetadataRecord) -> None:
    value = encode_metadata_record(record)
    assert parse_metadata_record(value) == record
    topic_id = topic_id_of(value)
    match record:
        case SegmentMetadataRecord():
            assert topic_id == record.metadata.topic_id_partition.topic_id.raw
        case SegmentUpdateRecord():
            assert topic_id == record.segment_id.topic_id_partition.topic_id.raw
        case PartitionDeleteRecord():
            assert topic_id == record.topic_id_partition.topic_id.raw
        case SegmentSnapshotRecord():
            assert topic_id is None


@examples(300)
@given(
    value=st.sampled_from(sorted(VECTORS.values())),
    changes=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=3),
    rest=st.binary(max_size=4),
)
def test_damaged_values_raise_only_our_errors(value: bytes, changes: list[tuple[int, int]], rest: bytes) -> None:
    damaged = bytearray(value + rest)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    topic_id_of(damaged)
    try:
        parse_metadata_record(damaged)
    except (CorruptSegment, UnsupportedFormat):
        return


def test_a_leader_epoch_below_0_is_refused() -> None:
    """A segment of such an epoch would count as one of a lost branch, and its records would be left out."""
    segment = replace(STARTED, segment_leader_epochs=(LeaderEpoch(-1, 1234), LeaderEpoch(5, 1500)))
    with pytest.raises(CorruptSegment, match=r"leader epoch -1 from offset 1234 on \(SegmentLeaderEpochs\)"):
        parse_metadata_record(encode_metadata_record(SegmentMetadataRecord(segment)))
