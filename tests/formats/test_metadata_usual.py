"""The short cut through metadata records against the parser that is the truth: all that it takes, it reads alike."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.metadata_records import (
    MetadataRecord,
    SegmentMetadataRecord,
    SegmentUpdateRecord,
    parse_metadata_record,
)
from remote_fetch.formats.metadata_usual import (
    build_usual_segment,
    head_of,
    is_usual_head,
    read_usual,
)
from remote_fetch.model import MAX_OFFSET, LeaderEpoch, RemoteLogSegmentId, TopicIdPartition, Uuid
from remote_fetch.testing.metadata_records import encode_metadata_record, encode_tagged_fields
from remote_fetch.testing.strategies import partitions
from tests.formats.test_metadata_records import (
    EXPECTED,
    FINISHED,
    PARTITION,
    SEGMENT_ID,
    STARTED,
    VECTORS,
    int32s,
    int64s,
    records,
    states,
    uuids,
)
from tests.searches import examples

GOLDENS = Path(__file__).parents[1] / "golden" / "data"
USUAL = [
    "seg_v0_started",
    "seg_v0_started_txnEmpty",
    "upd_v0_finished",
    "upd_v0_finished_nullcm",
    "upd_v0_finished_emptycm",
]


def partition_of(record: MetadataRecord) -> TopicIdPartition | None:
    match record:
        case SegmentMetadataRecord():
            return record.metadata.topic_id_partition
        case SegmentUpdateRecord():
            return record.segment_id.topic_id_partition
    return None


def by_short_cut(value: bytes, heads: dict[bytes, TopicIdPartition]) -> MetadataRecord | None:
    """The record, if it is usual behind one of the heads that are known."""
    head = head_of(value)
    found = read_usual(value, len(head)) if head in heads else None
    if found is None:
        return None
    raw_id, state, said = found
    if isinstance(said, tuple):
        same_state, broker_id, event_timestamp_ms, custom_metadata = said
        assert same_state is state
        segment_id = RemoteLogSegmentId(heads[head], Uuid(raw_id))
        return SegmentUpdateRecord(segment_id, broker_id, event_timestamp_ms, custom_metadata, state)
    segment = build_usual_segment(said, heads[head], None)
    assert (segment.segment_id.id.raw, segment.state) == (raw_id, state)
    return SegmentMetadataRecord(segment)


def heads_of(*values: bytes) -> dict[bytes, TopicIdPartition]:
    """The usual heads of records that can be read."""
    found = {}
    for value in values:
        partition = partition_of(parse_metadata_record(value))
        if partition is not None and is_usual_head(head_of(value)):
            found[head_of(value)] = partition
    return found


def parsed(value: bytes) -> MetadataRecord | None:
    try:
        return parse_metadata_record(value)
    except (CorruptSegment, UnsupportedFormat):
        return None


@pytest.mark.parametrize("name", VECTORS)
def test_encoded_records_are_usual(name: str) -> None:
    value = VECTORS[name]
    heads = heads_of(value)
    assert bool(heads) == (name in USUAL)
    assert by_short_cut(value, heads) == (EXPECTED[name] if name in USUAL else None)


@pytest.mark.parametrize("name", ["local-3.9", "local-4.1"])
def test_records_of_real_brokers_are_usual(name: str) -> None:
    with gzip.open(GOLDENS / name / "metadata.jsonl.gz") as lines:
        values = [base64.b64decode(json.loads(line)["value"]) for line in lines]
    heads = heads_of(*values)
    for value in values:
        assert by_short_cut(value, heads) == parse_metadata_record(value)


def test_an_update_changes_its_fields() -> None:
    change = (FINISHED.state, 5, 99, b"where")
    expected = replace(STARTED, state=FINISHED.state, broker_id=5, event_timestamp_ms=99, custom_metadata=b"where")
    assert build_usual_segment(VECTORS["seg_v0_started"], PARTITION, change) == expected
    with pytest.raises(ValueError, match="not a usual record"):
        build_usual_segment(VECTORS["seg_v1_draft"], PARTITION, change)


LONG = TopicIdPartition(PARTITION.topic_id, "t" * 127, 0)


@pytest.mark.parametrize(
    "record",
    [
        replace(FINISHED, custom_metadata=b"x" * 127),
        replace(FINISHED, version=1),
        replace(FINISHED, segment_id=RemoteLogSegmentId(LONG, SEGMENT_ID.id)),
        SegmentMetadataRecord(replace(STARTED, custom_metadata=b"x" * 127)),
        SegmentMetadataRecord(replace(STARTED, segment_leader_epochs=())),
        SegmentMetadataRecord(
            replace(STARTED, segment_leader_epochs=tuple(LeaderEpoch(number, number) for number in range(127)))
        ),
    ],
)
def test_longer_or_newer_records_are_left_to_the_parser(record: MetadataRecord) -> None:
    value = encode_metadata_record(record)
    assert by_short_cut(value, heads_of(value)) is None


@pytest.mark.parametrize("at", [-1, 3 + 7 + 16 + 4, 3 + 7 + 16 + 4 + 1 + 16])
@pytest.mark.parametrize("name", ["seg_v0_started", "upd_v0_finished"])
def test_other_tagged_fields_are_left_to_the_parser(name: str, at: int) -> None:
    at %= len(VECTORS[name])
    assert VECTORS[name][at] == 0
    changed = VECTORS[name][:at] + encode_tagged_fields({3: b"later"}) + VECTORS[name][at + 1 :]
    assert parse_metadata_record(changed) == EXPECTED[name]
    assert by_short_cut(changed, heads_of(VECTORS[name], changed)) is None


def test_the_head_of_a_long_varint_is_not_usual() -> None:
    """The frame has its version 1 in two bytes, so bytes that look like the usual head are not the head."""
    value = b"\x81\x00" + VECTORS["upd_v0_finished"][1:]
    assert parse_metadata_record(value) == FINISHED
    assert heads_of(value) == {}


@pytest.mark.parametrize("name", USUAL)
def test_no_cut_value_is_usual(name: str) -> None:
    heads = heads_of(VECTORS[name])
    for length in range(len(VECTORS[name])):
        assert by_short_cut(VECTORS[name][:length], heads) is None
    assert by_short_cut(VECTORS[name] + b"\0", heads) is None


short_custom = st.none() | st.binary(max_size=126)
usual_ids = st.builds(RemoteLogSegmentId, partitions().filter(lambda found: len(found.topic) < 127), uuids)
usual_epochs = st.dictionaries(st.integers(0, 2**31 - 1), int64s, min_size=1, max_size=126).map(
    lambda found: tuple(LeaderEpoch(epoch, found[epoch]) for epoch in sorted(found))
)
usual_updates = st.builds(SegmentUpdateRecord, usual_ids, int32s, int64s, short_custom, states)


@st.composite
def usual_segments(draw: st.DrawFn) -> SegmentMetadataRecord:
    start, end = sorted((draw(st.integers(0, MAX_OFFSET)), draw(st.integers(0, MAX_OFFSET))))
    return SegmentMetadataRecord(
        replace(
            STARTED, segment_id=draw(usual_ids), start_offset=start, end_offset=end, segment_size_in_bytes=draw(int32s),
            max_timestamp_ms=draw(int64s), event_timestamp_ms=draw(int64s), broker_id=draw(int32s),
            segment_leader_epochs=draw(usual_epochs), custom_metadata=draw(short_custom), state=draw(states),
            txn_index_empty=draw(st.booleans()),
        )
    )  # fmt: skip


@examples(150)
@given(record=usual_updates | usual_segments())
def test_every_usual_record_takes_the_short_cut(record: MetadataRecord) -> None:
    value = encode_metadata_record(record)
    assert by_short_cut(value, heads_of(value)) == record == parse_metadata_record(value)


@examples(100)
@given(shuffled=st.lists(st.builds(LeaderEpoch, st.integers(0, 5), int64s), min_size=1, max_size=8))
def test_epochs_that_are_in_no_order(shuffled: list[LeaderEpoch]) -> None:
    value = encode_metadata_record(SegmentMetadataRecord(replace(STARTED, segment_leader_epochs=tuple(shuffled))))
    assert by_short_cut(value, heads_of(value)) == parse_metadata_record(value)


@examples(400)
@given(
    record=records() | usual_updates | usual_segments(),
    changes=st.lists(st.tuples(st.integers(0, 400), st.sampled_from("=+-"), st.integers(0, 255)), max_size=3),
    rest=st.binary(max_size=3),
)
def test_damaged_values_are_read_alike_or_left_to_the_parser(
    record: MetadataRecord, changes: list[tuple[int, str, int]], rest: bytes
) -> None:
    """The heads of the intact and of the damaged value are known, as they are to a builder that has met both."""
    value = encode_metadata_record(record)
    damaged = bytearray(value + rest)
    for at, how, byte in changes:
        start = at % len(damaged)
        damaged[start : start + (how != "+")] = b"" if how == "-" else bytes([byte])
    heads = heads_of(*(one for one in (value, bytes(damaged)) if parsed(one) is not None))
    found = by_short_cut(bytes(damaged), heads)
    assert found is None or found == parse_metadata_record(damaged)


@examples(300)
@given(name=st.sampled_from(USUAL), rest=st.binary(max_size=90))
def test_any_bytes_behind_a_known_head(name: str, rest: bytes) -> None:
    heads = heads_of(VECTORS[name])
    value = head_of(VECTORS[name]) + rest
    found = by_short_cut(value, heads)
    assert found is None or found == parse_metadata_record(value)
    assert by_short_cut(rest, heads) is None


def test_a_leader_epoch_below_0_is_left_to_the_parser() -> None:
    """The short cut returns None for a negative leader epoch. The full parser then raises the error."""
    epochs = (LeaderEpoch(3, 1), LeaderEpoch(-1, 5))
    value = encode_metadata_record(SegmentMetadataRecord(replace(STARTED, segment_leader_epochs=epochs)))
    assert by_short_cut(value, {head_of(value): STARTED.topic_id_partition}) is None
