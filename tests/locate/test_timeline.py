"""Timelines: real metadata topics, the drafts' scenarios, random event streams against a slow model of the rules."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.metadata_records import (
    MetadataRecord,
    PartitionDeleteRecord,
    RemotePartitionDeleteState,
    SegmentMetadataRecord,
    SegmentSnapshotRecord,
    SegmentUpdateRecord,
    parse_metadata_record,
)
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.saved_replay import SavedReplay, dump_replay, load_replay
from remote_fetch.locate.snapshot import SnapshotOrigin
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import (
    Buffer,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record
from tests.locate.timelines import timeline_of
from tests.searches import examples

GOLDENS = Path(__file__).parents[1] / "golden" / "data"
STATES = list(RemoteLogSegmentState)
STARTED, FINISHED, DELETE_STARTED, DELETED = STATES
ORDERS = TopicIdPartition(Uuid(b"orders----------"), "orders", 0)
ORDERS_1 = replace(ORDERS, partition=1)
OTHER = TopicIdPartition(Uuid(b"other-----------"), "other", 0)
PARTITIONS = (ORDERS, ORDERS_1, OTHER)
UNKNOWN = Lineage.unknown()


class Event(NamedTuple):
    """One record of the metadata topic; `value` None is a tombstone."""

    value: bytes | None
    key: bytes | None = None


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def segment(
    number: int, first: int, last: int, *entries: tuple[int, int], partition: TopicIdPartition = ORDERS
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, uuid(number)),
        first,
        last,
        1000,
        event_timestamp_ms=number,
        segment_leader_epochs=tuple(LeaderEpoch(*entry) for entry in entries),
    )


def base(metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState = STARTED) -> bytes:
    return encode_metadata_record(SegmentMetadataRecord(replace(metadata, state=state)))


def update(
    metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, custom_metadata: bytes | None = None
) -> bytes:
    return encode_metadata_record(SegmentUpdateRecord(metadata.segment_id, 5, 99, custom_metadata, state))


def built(events: Iterable[Event], partition: TopicIdPartition = ORDERS) -> Timeline:
    builder = TimelineBuilder()
    for offset, event in enumerate(events):
        builder.apply(event.value, key=event.key, offset=offset)
    return builder.build(partition)


def readable(timeline: Timeline) -> list[int]:
    return [int.from_bytes(found.segment_id.id.raw, "big") for found in timeline.segments]


A = segment(1, 0, 99, (1, 0))
B = segment(2, 0, 99, (2, 0))
C = segment(3, 100, 199, (2, 100))


@pytest.mark.parametrize("name", ["local-3.9", "local-4.1"])
def test_golden_timelines_end_with_the_segments_of_the_store(name: str) -> None:
    builder = TimelineBuilder()
    with gzip.open(GOLDENS / name / "metadata.jsonl.gz") as lines:
        for line in map(json.loads, lines):
            builder.apply(base64.b64decode(line["value"]), key=line["key"], offset=line["offset"])
    found = set()
    for partition in builder.partitions():
        timeline = builder.build(partition)
        assert (timeline.orphan_updates, timeline.malformed_records, timeline.partition_deleted) == (0, 0, False)
        assert any(one.txn_index_empty for one in timeline.segments) == (
            name == "local-4.1" and bool(timeline.segments)
        )
        for metadata in timeline.segments:
            found.add(
                f"{partition.topic}-{partition.partition}-{partition.topic_id}/"
                f"{metadata.start_offset:020d}-{metadata.segment_id.id}.log"
            )
    stored = {f"{path.parent.name}/{path.name}" for path in (GOLDENS / name).glob("remote/**/*.log")}
    assert found == stored


def test_a_finished_update_completes_its_base() -> None:
    timeline = built([Event(base(A)), Event(update(A, FINISHED, b"where"))])
    assert timeline.segments == (
        replace(A, state=FINISHED, custom_metadata=b"where", broker_id=5, event_timestamp_ms=99),
    )
    assert timeline.finish_order == (1,)
    assert (timeline.next_metadata_offset, timeline.unfinished) == (2, ())


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([STARTED], []),
        ([STARTED, FINISHED], [1]),
        ([STARTED, FINISHED, FINISHED], [1]),
        ([STARTED, DELETE_STARTED], []),
        ([STARTED, FINISHED, DELETE_STARTED], []),
        ([STARTED, FINISHED, DELETED], []),
        ([STARTED, DELETED, FINISHED], []),
        ([STARTED, DELETE_STARTED, FINISHED], []),
        ([STARTED, FINISHED, STARTED], [1]),
        ([FINISHED], [1]),
        ([FINISHED, DELETE_STARTED], []),
        ([DELETED, FINISHED], []),
    ],
)
def test_states_only_move_forward(states: list[RemoteLogSegmentState], expected: list[int]) -> None:
    events = [Event(base(A, states[0])), *(Event(update(A, state)) for state in states[1:])]
    assert readable(built(events)) == expected


def test_a_second_base_replaces_the_first_unless_it_steps_back() -> None:
    longer = replace(A, end_offset=150)
    assert built([Event(base(A)), Event(base(longer, FINISHED))]).segments == (longer,)
    repeated = built([Event(base(A)), Event(update(A, FINISHED, b"x")), Event(base(longer, FINISHED))])
    assert (repeated.segments, repeated.finish_order) == ((longer,), (2,))
    assert repeated.segments[0].custom_metadata is None
    kept = built([Event(base(A, FINISHED)), Event(base(longer, STARTED))])
    assert kept.segments == (A,)
    assert readable(built([Event(base(A)), Event(update(A, DELETED)), Event(base(A, STARTED))])) == []


def test_an_update_waits_for_its_base() -> None:
    parked = [Event(update(A, FINISHED, b"x"))]
    assert (readable(built(parked)), built(parked).orphan_updates) == ([], 1)
    timeline = built([*parked, Event(base(A))])
    assert (readable(timeline), timeline.orphan_updates) == ([1], 0)
    assert timeline.segments[0].custom_metadata == b"x"
    assert timeline.finish_order == (0,)
    assert readable(built([Event(update(A, DELETE_STARTED)), Event(base(A))])) == []
    assert built([Event(update(A, DELETE_STARTED))]).orphan_updates == 0


def test_updates_replace_custom_metadata_with_none_too() -> None:
    timeline = built([Event(base(A)), Event(update(A, FINISHED, b"x")), Event(update(A, FINISHED))])
    assert timeline.segments[0].custom_metadata is None
    assert timeline.finish_order == (2,)


def test_bad_records_are_counted_and_the_rest_is_read() -> None:
    snapshot = SegmentSnapshotRecord(uuid(9), 0, 1, 1, 1, 1, (), 1, None, FINISHED)
    events = [Event(b""), Event(base(A)[:-1]), Event(b"\1\7\0"), Event(encode_metadata_record(snapshot))]
    timeline = built([*events, Event(base(A)), Event(None), Event(None, b"no such key"), Event(update(A, FINISHED))])
    assert readable(timeline) == [1]
    assert timeline.malformed_records == 3


def test_topic_filter() -> None:
    other = segment(9, 0, 9, partition=OTHER)
    builder = TimelineBuilder([ORDERS.topic_id])
    for offset, value in enumerate([base(A, FINISHED), base(other, FINISHED), b"", base(other)[:-1]]):
        builder.apply(value, offset=offset)
    assert builder.partitions() == (ORDERS,)
    assert builder.build(OTHER) == Timeline(OTHER, (), (), malformed_records=1)


def test_a_segment_keeps_the_topic_name_of_its_own_record() -> None:
    renamed = [segment(number, 0, 9, partition=replace(ORDERS, topic="renamed")) for number in (1, 2)]
    timeline = built([Event(base(C, FINISHED)), *(Event(base(one, FINISHED)) for one in (*renamed, segment(4, 0, 9)))])
    assert {one.segment_id for one in timeline.segments} == {
        C.segment_id, segment(4, 0, 9).segment_id, *(one.segment_id for one in renamed)
    }  # fmt: skip


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_values_may_be_any_bytes_and_are_kept_as_they_were(kind: type[Buffer]) -> None:
    builder = TimelineBuilder([ORDERS.topic_id])
    values = [bytearray(base(one, FINISHED)) for one in (C, A)]
    for offset, value in enumerate(values):
        builder.apply(kind(value), offset=offset)
        value[:] = bytes(len(value))
    assert builder.build(ORDERS).segments == (A, C)


@pytest.mark.parametrize("state", RemotePartitionDeleteState)
def test_a_partition_being_deleted_has_nothing_readable(state: RemotePartitionDeleteState) -> None:
    deletion = encode_metadata_record(PartitionDeleteRecord(ORDERS, 1, 1, state))
    elsewhere = segment(7, 0, 9, partition=ORDERS_1)
    events = [Event(base(A, FINISHED)), Event(deletion), Event(base(B, FINISHED)), Event(base(elsewhere, FINISHED))]
    timeline = built(events)
    assert (timeline.segments, timeline.partition_deleted, timeline.next_metadata_offset) == ((), True, 3)
    assert readable(built(events, ORDERS_1)) == [7]


# The scenarios of KIP-1266, with the keys of its text (shared by base and update) and of its pull request.
KEY_1, KEY_2 = b"topic:0:99:1", b"topic:0:99:2"


def keyed(metadata: RemoteLogSegmentMetadata, key: bytes, *states: RemoteLogSegmentState, suffix: bytes) -> list[Event]:
    return [Event(base(metadata), key), *(Event(update(metadata, state), key + suffix) for state in states)]


def compacted(events: Sequence[Event]) -> list[Event]:
    last = {event.key: at for at, event in enumerate(events)}
    return [event for at, event in enumerate(events) if event.key is None or last[event.key] == at]


@pytest.mark.parametrize(
    ("suffix", "compact", "expected"),
    [(b"", False, [1, 2]), (b"", True, []), (b":UPDATE", False, [1, 2]), (b":UPDATE", True, [1, 2])],
)
def test_leadership_change(suffix: bytes, compact: bool, expected: list[int]) -> None:
    events = keyed(A, KEY_1, FINISHED, suffix=suffix) + keyed(B, KEY_2, FINISHED, suffix=suffix)
    timeline = built(compacted(events) if compact else events)
    assert readable(timeline) == expected
    assert timeline.orphan_updates == 2 - len(expected)


@pytest.mark.parametrize("suffix", [b"", b":UPDATE"])
def test_a_retry_supersedes_the_unfinished_upload_under_its_key(suffix: bytes) -> None:
    events = keyed(A, KEY_1, suffix=suffix) + keyed(B, KEY_1, FINISHED, suffix=suffix)
    timeline = built(events)
    assert (readable(timeline), timeline.unfinished) == ([2], ())
    assert readable(built([*events, Event(update(A, FINISHED), KEY_1 + suffix)])) == [2]


@pytest.mark.parametrize("suffix", [b"", b":UPDATE"])
def test_late_records_of_a_superseded_upload_leave_the_retry_alone(suffix: bytes) -> None:
    events = keyed(A, KEY_1, STARTED, suffix=suffix) + keyed(B, KEY_1, suffix=suffix)
    events += [Event(update(A, DELETE_STARTED), KEY_1 + suffix), Event(update(B, FINISHED), KEY_1 + suffix)]
    assert readable(built(events)) == [2]
    assert readable(built([*events[:2], Event(update(A, FINISHED), KEY_1 + suffix)])) == [1]


def test_a_finished_upload_is_not_superseded() -> None:
    events = keyed(A, KEY_1, FINISHED, suffix=b"") + keyed(B, KEY_1, FINISHED, suffix=b"")
    assert readable(built(events)) == [1, 2]
    assert readable(built([*events, Event(None, KEY_1)])) == []


@pytest.mark.parametrize("suffix", [b"", b":UPDATE"])
@pytest.mark.parametrize("compact", [False, True])
def test_tombstones_delete_orphaned_uploads(suffix: bytes, compact: bool) -> None:
    events = keyed(A, KEY_1, FINISHED, suffix=suffix) + keyed(B, KEY_2, FINISHED, DELETED, suffix=suffix)
    for key in (KEY_1, KEY_2):
        events += [Event(None, key + suffix), Event(None, key)]
    timeline = built(compacted(events) if compact else events)
    assert (readable(timeline), timeline.orphan_updates) == ([], 0)
    late = built([*events, Event(update(A, FINISHED), KEY_1)])
    assert (readable(late), late.orphan_updates) == ([], 0)


def test_compaction_over_the_middle_of_a_life() -> None:
    events = compacted(keyed(A, KEY_1, FINISHED, DELETE_STARTED, DELETED, suffix=b":UPDATE"))
    assert len(events) == 2
    assert readable(built(events)) == []


def test_keys_with_state_and_segment_id_bind_nothing_together() -> None:
    events = []
    for metadata in (A, B):
        for value, state in ((base(metadata), STARTED), (update(metadata, FINISHED), FINISHED)):
            events.append(Event(value, b"\0" + ORDERS.topic_id.raw + metadata.segment_id.id.raw + bytes([state])))
    assert readable(built(events)) == [1, 2]


def test_a_tombstone_of_a_deleted_partition_finds_nothing() -> None:
    deletion = encode_metadata_record(
        PartitionDeleteRecord(ORDERS, 1, 1, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
    )
    started = [Event(base(A), KEY_1), Event(deletion, b"topic:0"), Event(None, KEY_1), Event(None, b"topic:0")]
    timeline = built(started)
    assert (timeline.segments, timeline.partition_deleted, timeline.next_metadata_offset) == ((), True, 3)
    # A retry elsewhere under the key of an upload that went with its partition.
    moved = segment(5, 0, 99, partition=ORDERS_1)
    assert readable(built([*started[:2], Event(base(moved, FINISHED), KEY_1)], ORDERS_1)) == [5]


# ------------------------------------------------------------------------------------------------ random event streams


@st.composite
def lives(draw: st.DrawFn, number: int) -> list[Event]:
    """All records of one upload, keyed in one of the known ways, perhaps with tombstones at the end."""
    first = draw(st.integers(0, 20))
    metadata = segment(
        number, first, first + draw(st.integers(0, 20)), (1, first), partition=draw(st.sampled_from(PARTITIONS))
    )
    key = f"{metadata.topic_id_partition}:{metadata.end_offset // 10}:{draw(st.integers(0, 1))}".encode()
    style = draw(st.sampled_from(["null", "text", "suffix", "binary"]))
    records = [(base(metadata, draw(st.sampled_from([STARTED, STARTED, STARTED, FINISHED]))), b"")]
    for state in STATES[1:]:
        times = draw(st.sampled_from([0, 1, 1, 2]))
        records += [(update(metadata, state, custom), b":UPDATE") for custom in (None, b"x")[:times]]
        if draw(st.integers(0, 4)) == 0:
            records.append((base(replace(metadata, segment_size_in_bytes=7), state), b""))
    records = records[draw(st.sampled_from([0, 0, 0, 1])) : draw(st.integers(1, len(records)))]
    events = []
    for value, suffix in records:
        keys = {"null": None, "text": key, "suffix": key + suffix, "binary": bytes([0, number, value[1], value[-2]])}
        events.append(Event(value, keys[style]))
    if style != "null" and draw(st.integers(0, 3)) == 0:
        events += [Event(None, kept) for kept in dict.fromkeys(event.key for event in reversed(events))]
    return events


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Several lives in one topic: interleaved, now and then compacted, swapped, damaged, with whole partitions gone."""
    queues = [draw(lives(number)) for number in range(1, draw(st.integers(1, 7)) + 1)]
    events: list[Event] = []
    while queues := [queue for queue in queues if queue]:
        events.append(queues[draw(st.integers(0, len(queues) - 1))].pop(0))
    if draw(st.booleans()):
        events = compacted(events)
    for at in draw(st.lists(st.integers(0, max(len(events) - 2, 0)), max_size=3)):
        events[at : at + 2] = reversed(events[at : at + 2])
    for at in draw(st.lists(st.integers(0, len(events)), max_size=1)):
        events.insert(at, Event(b"\1\0\0 damaged"))
    if draw(st.integers(0, 9)) == 0:
        deletion = PartitionDeleteRecord(ORDERS, 1, 1, draw(st.sampled_from(RemotePartitionDeleteState)))
        events.insert(draw(st.integers(0, len(events))), Event(encode_metadata_record(deletion)))
    return events


class Model:
    """A slow model of the rules: the state of each segment is computed from all its records, each time."""

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.said: dict[RemoteLogSegmentId, list[tuple[int, MetadataRecord | None]]] = {}
        self.keys: list[tuple[bytes, RemoteLogSegmentId]] = []
        self.malformed = 0
        self.deleted_at: int | None = None
        self.touched = [-1]

    def read(self, offset: int, event: Event, record: MetadataRecord | None) -> None:
        key = (event.key or b"").removesuffix(b":UPDATE")
        if event.value is None:
            for known, segment_id in self.keys:
                if known == key:
                    self.end(segment_id, offset)
            self.keys = [pair for pair in self.keys if pair[0] != key]
        elif record is None:
            self.malformed += 1
        elif isinstance(record, PartitionDeleteRecord):
            self.touch(record.topic_id_partition, offset)
            if record.topic_id_partition == self.partition and self.deleted_at is None:
                self.deleted_at = offset
        elif isinstance(record, SegmentMetadataRecord | SegmentUpdateRecord):
            self.hear(offset, event.key and key, record)

    def hear(self, offset: int, key: bytes | None, record: SegmentMetadataRecord | SegmentUpdateRecord) -> None:
        segment_id = record.metadata.segment_id if isinstance(record, SegmentMetadataRecord) else record.segment_id
        self.touch(segment_id.topic_id_partition, offset)
        if segment_id.topic_id_partition == self.partition and self.deleted_at is not None:
            return
        self.said.setdefault(segment_id, []).append((offset, record))
        if key is not None and (key, segment_id) not in self.keys:
            for known, other in self.keys:
                if known == key and self.judge(other)[0] is STARTED:
                    self.said[other].append((offset, None))
            self.keys.append((key, segment_id))

    def touch(self, partition: TopicIdPartition, offset: int) -> None:
        if partition == self.partition:
            self.touched.append(offset)

    def end(self, segment_id: RemoteLogSegmentId, offset: int) -> None:
        self.touch(segment_id.topic_id_partition, offset)
        self.said[segment_id].append((offset, None))

    def judge(
        self, segment_id: RemoteLogSegmentId
    ) -> tuple[RemoteLogSegmentState, RemoteLogSegmentMetadata | None, int]:
        """State, metadata and finish of a segment: the furthest state counts, and who said it last."""
        state, finish = STARTED, -1
        known: RemoteLogSegmentMetadata | None = None
        latest: SegmentUpdateRecord | None = None
        for offset, record in self.said[segment_id]:
            if record is None or state is DELETED:
                state = DELETED
                continue
            if isinstance(record, SegmentMetadataRecord):
                says = record.metadata.state
                if known is None or says >= state:
                    known = record.metadata
                if says >= state:
                    latest = None
            else:
                assert isinstance(record, SegmentUpdateRecord)
                says = record.state
                if says >= state:
                    latest = record
            if says >= state:
                state = says
                finish = offset if says is FINISHED else finish
        if known is not None and latest is not None:
            known = replace(
                known,
                state=latest.state,
                broker_id=latest.broker_id,
                event_timestamp_ms=latest.event_timestamp_ms,
                custom_metadata=latest.custom_metadata,
            )
        return state, known, finish

    def timeline(self) -> Timeline:
        finished, unfinished, orphans = [], [], 0
        for segment_id in self.said:
            if segment_id.topic_id_partition == self.partition and self.deleted_at is None:
                state, known, finish = self.judge(segment_id)
                if state is FINISHED and known is None:
                    orphans += 1
                elif state is FINISHED and known is not None:
                    finished.append((known.start_offset, known.end_offset, finish, known.segment_id, known))
                elif state is STARTED and known is not None:
                    unfinished.append((known.start_offset, known.end_offset, known.segment_id, known))
        return Timeline(
            self.partition,
            tuple(entry[-1] for entry in sorted(finished, key=lambda entry: entry[:4])),
            tuple(entry[2] for entry in sorted(finished, key=lambda entry: entry[:4])),
            next_metadata_offset=max(self.touched) + 1,
            orphan_updates=orphans,
            malformed_records=self.malformed,
            partition_deleted=self.deleted_at is not None,
            unfinished=tuple(entry[-1] for entry in sorted(unfinished, key=lambda entry: entry[:3])),
        )


def parsed(value: bytes | None) -> MetadataRecord | None:
    try:
        return None if value is None else parse_metadata_record(value)
    except RemoteFetchError:
        return None


@examples(300)
@given(events=streams())
def test_random_streams_end_as_the_rules_say(events: list[Event]) -> None:
    builder = TimelineBuilder()
    models = [Model(partition) for partition in PARTITIONS]
    for offset, event in enumerate(events):
        builder.apply(event.value, key=event.key, offset=offset)
        for model in models:
            model.read(offset, event, parsed(event.value))
    for model in models:
        assert builder.build(model.partition) == model.timeline()
    assert set(builder.partitions()) == {model.partition for model in models if len(model.touched) > 1}


@examples(300)
@given(
    events=streams(),
    damages=st.lists(st.tuples(st.integers(0, 30), st.integers(30, 120), st.integers(0, 255)), max_size=6),
)
def test_damaged_streams_end_as_the_rules_say(events: list[Event], damages: list[tuple[int, int, int]]) -> None:
    """Damaged and whole records of the same partition: the fast path must not confuse them.

    Frames and partitions are never damaged, because the model distinguishes partitions by their names too, and
    segments with the same id in different partitions.
    """
    for number, at, byte in damages:
        event = events[number % len(events)] if events else Event(None)
        if event.value is not None:
            value = bytearray(event.value)
            value[min(at, len(value) - 1)] = byte
            events.insert(number, Event(bytes(value), event.key))
    builder = TimelineBuilder()
    models = [Model(partition) for partition in PARTITIONS]
    for offset, event in enumerate(events):
        builder.apply(event.value, key=event.key, offset=offset)
        for model in models:
            model.read(offset, event, parsed(event.value))
    for model in models:
        assert builder.build(model.partition) == model.timeline()


@examples(100)
@given(events=streams())
def test_timelines_on_the_way_change_nothing(events: list[Event]) -> None:
    asked, unasked = TimelineBuilder(), TimelineBuilder()
    for offset, event in enumerate(events):
        for builder in (asked, unasked):
            builder.apply(event.value, key=event.key, offset=offset)
        for partition in PARTITIONS:
            asked.build(partition)
    for partition in PARTITIONS:
        assert asked.build(partition) == unasked.build(partition)


@examples(100)
@given(events=streams(), data=st.data())
def test_a_topic_filter_leaves_the_other_topics_alone(events: list[Event], data: st.DataObject) -> None:
    whole, filtered = TimelineBuilder(), TimelineBuilder([OTHER.topic_id])
    for offset, event in enumerate(events):
        for builder in (whole, filtered):
            builder.apply(event.value, key=event.key, offset=offset)
    assert filtered.build(OTHER) == whole.build(OTHER)
    assert set(filtered.partitions()) <= {OTHER}


def handed_over(builder: TimelineBuilder) -> TimelineBuilder:
    """Another builder, restored from the saved replay of the first."""
    partitions = builder.partitions()
    rests = builder.rest(partitions)
    origin = SnapshotOrigin("cluster", uuid(1), 1, ((0, 7),))
    timelines = tuple(builder.build(partition) for partition in partitions)
    saved = SavedReplay(
        origin, None, -1, builder.malformed_of(0), timelines, tuple(rests[partition] for partition in partitions)
    )
    loaded = load_replay(dump_replay(saved))
    assert loaded == saved
    second = TimelineBuilder()
    second.count_malformed(0, loaded.malformed_records)
    for timeline, rest in zip(loaded.timelines, loaded.rests, strict=True):
        second.restore(timeline, rest)
    return second


@examples(200)
@given(events=streams(), data=st.data())
def test_a_builder_goes_on_from_a_saved_replay(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    first = TimelineBuilder()
    for offset, event in enumerate(events[:cut]):
        first.apply(event.value, key=event.key, offset=offset)
    second = handed_over(first)
    assert second.partitions() == first.partitions()
    for offset, event in enumerate([*events[cut:], *events], cut):
        first.apply(event.value, key=event.key, offset=offset)
        second.apply(event.value, key=event.key, offset=offset)
        assert [second.build(partition) for partition in PARTITIONS] == [first.build(each) for each in PARTITIONS]


# ------------------------------------------------------------------------------------------------------------- look-ups


def listed(*segments: RemoteLogSegmentMetadata) -> Timeline:
    return timeline_of(ORDERS, segments)


def test_an_empty_timeline() -> None:
    timeline = listed()
    assert (timeline.start_offset, timeline.end_offset) == (None, None)
    assert timeline.covering(0, UNKNOWN) is None
    assert timeline.next_start(-1, UNKNOWN) is None


def test_end_offset_is_that_of_the_segment_that_reaches_furthest() -> None:
    timeline = listed(segment(1, 0, 500), segment(2, 100, 200))
    assert timeline.end_offset == 501
    assert readable(timeline) == [1, 2]


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        # the higher epoch at the offset
        ([segment(1, 0, 99, (1, 0)), segment(2, 40, 60, (2, 40))], 2),
        ([segment(1, 0, 99, (1, 0), (3, 60)), segment(2, 40, 60, (2, 40))], 2),
        ([segment(1, 0, 99), segment(2, 40, 60, (0, 40))], 2),
        # then the one that reaches further
        ([segment(2, 0, 99, (1, 0)), segment(1, 40, 120, (1, 40))], 1),
        # then the one finished last
        ([segment(2, 0, 99, (1, 0)), segment(1, 40, 99, (1, 40))], 2),
        ([segment(1, 0, 99, (1, 0)), segment(2, 0, 99, (1, 0))], 2),
        # a shorter upload that starts nearer, or was finished last, hides nothing
        ([segment(1, 0, 99, (1, 0)), segment(2, 10, 20, (2, 10))], 1),
        ([segment(1, 0, 99, (1, 0)), segment(2, 0, 9, (1, 0))], 1),
    ],
)
def test_preferred_of_several(segments: list[RemoteLogSegmentMetadata], expected: int) -> None:
    found = listed(*segments).covering(50, UNKNOWN)
    assert found is not None
    assert found.segment_id.id == uuid(expected)


def test_the_lineage_decides_between_branches() -> None:
    lost = segment(1, 50, 199, (7, 50))
    kept = segment(2, 50, 149, (6, 50))
    timeline = listed(A, lost, kept)
    lineage = Lineage((LeaderEpoch(1, 0), LeaderEpoch(6, 50), LeaderEpoch(8, 150)))
    assert timeline.covering(120, lineage) == kept
    assert timeline.covering(120, UNKNOWN) == lost
    assert timeline.covering(150, lineage) is None
    assert timeline.next_start(-1, lineage) == 50
    assert timeline.next_start(-1, UNKNOWN) == 0
    assert timeline.next_start(50, lineage) is None


@examples(200)
@given(
    bounds=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(0, 2)), max_size=10),
    offset=st.integers(0, 60),
    turn=st.integers(0, 40),
)
def test_look_ups_by_asking_every_segment(bounds: list[tuple[int, int, int]], offset: int, turn: int) -> None:
    segments = [
        segment(number, first, first + length, (epoch, first)) for number, (first, length, epoch) in enumerate(bounds)
    ]
    timeline = listed(*segments)
    for lineage in (UNKNOWN, Lineage((LeaderEpoch(0, 0), LeaderEpoch(1, turn)))):
        accepted = [found for found in segments if lineage.accepts(found)]
        candidates = [found for found in accepted if found.start_offset <= offset <= found.end_offset]
        candidates.sort(
            key=lambda found: (found.segment_leader_epochs[0].epoch, found.end_offset, found.event_timestamp_ms)
        )
        assert timeline.covering(offset, lineage) == (candidates[-1] if candidates else None)
        above = [found.start_offset for found in accepted if found.start_offset > offset]
        assert timeline.next_start(offset, lineage) == min(above, default=None)


class CountingLineage(Lineage):
    """Accepts everything and counts how often it was asked."""

    asked = 0

    def accepts(self, segment: RemoteLogSegmentMetadata) -> bool:
        type(self).asked += 1
        return True


def test_a_look_up_in_a_long_timeline_looks_at_few_segments() -> None:
    timeline = listed(*(segment(number, number * 10, number * 10 + 9) for number in range(5000)))
    lineage = CountingLineage(())
    for offset in range(0, 50_000, 500):
        found = timeline.covering(offset, lineage)
        assert found is not None
        assert found.start_offset == offset
    assert CountingLineage.asked == 100


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=8), st.integers(0, 60), st.integers(0, 30))
def test_within_keeps_the_segments_that_cover_the_offsets(
    spans: list[tuple[int, int]], first: int, length: int
) -> None:
    found = [
        RemoteLogSegmentMetadata(RemoteLogSegmentId(ORDERS, uuid(at)), start, start + more, 10, event_timestamp_ms=at)
        for at, (start, more) in enumerate(spans)
    ]
    whole = timeline_of(ORDERS, found)
    part = whole.within(first, first + length)
    assert list(part.segments) == [
        one for one in whole.segments if one.end_offset >= first and one.start_offset <= first + length
    ]
    for offset in range(first, first + length + 1):
        assert part.covering(offset, UNKNOWN) == whole.covering(offset, UNKNOWN)


# ------------------------------------------------------------------------------------------------- what it may cost


def copied_and_deleted(first: int, count: int) -> Iterator[bytes]:
    """The records of segments that were copied and deleted."""
    for number in range(first, first + count):
        one = segment(number, number, number)
        yield from (base(one), update(one, FINISHED), update(one, DELETE_STARTED), update(one, DELETED))


def test_the_memory_of_deleted_segments_is_bounded() -> None:
    builder = TimelineBuilder()
    for offset, value in enumerate(copied_and_deleted(1, 40_000)):
        builder.apply(value, offset=offset)
    assert len(builder._gone) == 32_768
    late = segment(40_000, 40_000, 40_000)
    builder.apply(base(late, FINISHED), offset=160_000)
    builder.apply(update(late, FINISHED), offset=160_001)
    timeline = builder.build(ORDERS)
    assert (timeline.segments, timeline.orphan_updates, timeline.next_metadata_offset) == ((), 0, 160_002)


def test_a_timeline_is_built_once_until_a_record_speaks_of_its_partition() -> None:
    builder = TimelineBuilder()
    builder.apply(base(segment(1, 0, 9), FINISHED), key=KEY_1, offset=0)
    first = builder.build(ORDERS)
    builder.apply(base(segment(2, 0, 9, partition=OTHER), FINISHED), offset=1)
    assert builder.build(ORDERS) is first
    builder.apply(b"?", offset=2)
    assert builder.build(ORDERS) == replace(first, malformed_records=1)
    builder.apply(base(segment(3, 10, 19), FINISHED), offset=3)
    assert readable(builder.build(ORDERS)) == [1, 3]
    builder.apply(None, key=KEY_1, offset=4)
    assert readable(builder.build(ORDERS)) == [3]
