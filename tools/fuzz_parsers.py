"""Calls the parsers of foreign bytes for `tools.fuzz`, as the product calls them, and uses each result completely.

Rules of the file:

- Each call parses bytes and then makes every call on the result that the product makes.
- A bound that does not hold is an AssertionError, which no parser may raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from remote_fetch.errors import RemoteFetchError, SegmentNotFound
from remote_fetch.fetch.spi import Layout, ObjectInfo
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.indexes import OffsetIndex, TimeIndex
from remote_fetch.formats.metadata_records import (
    SegmentMetadataRecord,
    SegmentUpdateRecord,
    parse_metadata_record,
    topic_id_of,
)
from remote_fetch.formats.metadata_usual import SegmentChange, build_usual_segment, head_of, is_usual_head, read_usual
from remote_fetch.formats.service_answers import (
    SegmentsPage,
    parse_locations,
    parse_refusal,
    parse_segments,
    parse_storage,
)
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.saved_replay import load_replay
from remote_fetch.locate.snapshot import load_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import (
    IndexType,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.cost import estimate
from remote_fetch.plan.ranges import SegmentSlice, narrow
from remote_fetch.plan.saved import dump_plan, load_plan
from tools.fuzz_reading import MAX_INFLATED_BYTES

__all__ = [
    "ShortCut",
    "full_segment",
    "inflate",
    "list_names",
    "read_answer",
    "read_metadata",
    "read_offset_index",
    "read_plan",
    "read_replay",
    "read_time_index",
    "read_timelines",
]

_END_OFFSET = 1_000_000
_MAX_BODY_BYTES = 4 << 20


def full_segment() -> RemoteLogSegmentMetadata:
    """A segment's metadata with every field filled."""
    partition = TopicIdPartition(Uuid(bytes(range(16))), "topic", 3)
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid(bytes(range(1, 17)))),
        0,
        _END_OFFSET,
        1 << 30,
        max_timestamp_ms=1_700_000_000_000,
        event_timestamp_ms=1_700_000_000_001,
        broker_id=1,
        segment_leader_epochs=(LeaderEpoch(0, 0), LeaderEpoch(3, 500)),
        custom_metadata=b"\x00custom",
    )


def inflate(data: bytes) -> memoryview:
    """Inflate: the first byte has the codec's number and a flag for the lz4 of magic 0, and the stream follows."""
    codecs = Codecs(max_bytes=MAX_INFLATED_BYTES)
    number = data[0] if data else 0
    out = codecs.decompress(number & 7, memoryview(data)[1:], lz4_v0=bool(number & 8))
    if len(out) > max(MAX_INFLATED_BYTES, len(data)):
        raise AssertionError(f"{len(out)} bytes came out, the bound is {MAX_INFLATED_BYTES}")
    return out


def read_offset_index(data: bytes) -> object:
    """Parse it without and with the bounds of its segment, then look up offsets in it and plan with it."""
    segment = full_segment()
    OffsetIndex.parse(data, 0)
    index = OffsetIndex.parse(data, 0, end_offset=2**31 - 1, size_bytes=segment.segment_size_in_bytes << 4)
    for candidate in index.candidates():
        for entry in candidate.entries():
            candidate.start_position(entry.offset)
            narrow(SegmentSlice(segment, entry.offset, entry.offset), candidate)
    return index


def read_time_index(data: bytes) -> object:
    """Parse it, and look up times in it."""
    index = TimeIndex.parse(data, 0)
    return [index.start_offset(entry.timestamp_ms) for entry in index.entries()]


def read_metadata(known: Sequence[bytes], data: bytes) -> object:
    """Parse a record alone, and in a builder of timelines, which counts unreadable records and never raises.

    The builder has read the `known` records before, so it takes the fast path for a record that begins like one.
    """
    builder = TimelineBuilder()
    for offset, value in enumerate((*known, data)):
        builder.apply(value, offset=offset)
    for partition in builder.partitions():
        builder.build(partition)
    topic_id_of(data)
    return parse_metadata_record(data)


class ShortCut:
    """Metadata records by the fast path. Its result has to equal that of the parser.

    The heads of `values` are known, as in a builder of timelines.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        heads = ((head_of(value), value) for value in values)
        self._heads = {head: _partition_of(value) for head, value in heads if head and is_usual_head(head)}

    def __call__(self, data: bytes) -> object:
        """Raises the errors of the parser, and AssertionError if the fast path differs."""
        head = head_of(data)
        usual = read_usual(data, len(head)) if head in self._heads else None
        try:
            record = parse_metadata_record(data)
        except RemoteFetchError as error:
            if usual is not None:
                raise AssertionError(f"the short cut takes what the parser refuses: {error}") from error
            raise
        if usual is not None:
            self._compare(record, usual, self._heads[head])
        return record

    @staticmethod
    def _compare(
        record: object, usual: tuple[bytes, object, SegmentChange | bytes], partition: TopicIdPartition
    ) -> None:
        raw_id, state, said = usual
        if isinstance(said, bytes):
            segment = build_usual_segment(said, partition, None)
            if not isinstance(record, SegmentMetadataRecord) or record.metadata != segment:
                raise AssertionError(f"parser: {record}, short cut: {segment}")
        elif not isinstance(record, SegmentUpdateRecord) or (
            (record.segment_id.id.raw, record.state) != (raw_id, state)
            or said != (record.state, record.broker_id, record.event_timestamp_ms, record.custom_metadata)
        ):
            raise AssertionError(f"parser: {record}, short cut: {said}")


def _partition_of(value: bytes) -> TopicIdPartition:
    record = parse_metadata_record(value)
    if isinstance(record, SegmentMetadataRecord):
        return record.metadata.topic_id_partition
    if isinstance(record, SegmentUpdateRecord):
        return record.segment_id.topic_id_partition
    raise ValueError(f"a record of another kind has no usual head: {record}")


def read_timelines(data: bytes) -> object:
    """Load timelines, then make the calls of planning."""
    origin, timelines = load_timelines(data, max_body_bytes=_MAX_BODY_BYTES)
    for timeline in timelines:
        for segment in timeline.segments:
            timeline.next_start(segment.end_offset, Lineage.unknown())
            timeline.covering(segment.start_offset, Lineage.unknown())
    return origin


def read_answer(data: bytes) -> object:
    """Parse the bytes as each answer of a service about the full segment, then plan with it."""
    segment = full_segment()
    partition = segment.topic_id_partition
    found: list[object] = [parse_refusal(data)]
    errors: list[RemoteFetchError] = []
    asks: tuple[Callable[[], object], ...] = (
        lambda: parse_storage(data),
        lambda: parse_locations(data, segment),
        lambda: _planned_with(parse_segments(data, partition), partition),
    )
    for ask in asks:
        try:
            found.append(ask())
        except RemoteFetchError as error:
            errors.append(error)
    if len(errors) == len(asks):
        raise errors[-1]
    return found


def _planned_with(page: SegmentsPage, partition: TopicIdPartition) -> object:
    rows = zip(page.segments, page.finish_order, page.upload_epochs, strict=True)
    timeline = Timeline.of_finished(partition, rows)
    for segment in timeline.segments:
        timeline.covering(segment.start_offset, Lineage.unknown())
    return timeline


def read_replay(data: bytes) -> object:
    """Load a saved replay, then go on from it."""
    saved = load_replay(data, max_body_bytes=_MAX_BODY_BYTES)
    builder = TimelineBuilder()
    for timeline, rest in zip(saved.timelines, saved.rests, strict=True):
        builder.restore(timeline, rest)
    return [builder.build(partition) for partition in builder.partitions()]


def read_plan(data: bytes) -> object:
    """Load a plan, estimate its cost, and dump it. The dump has to be the same plan."""
    steps = load_plan(data.decode("utf-8", "surrogateescape"))
    estimate([steps], 1 << 20)
    if load_plan(dump_plan(steps)) != steps:
        raise AssertionError(f"the plan is another one after it was saved: {steps}")
    return steps


class _Names:
    """An object store that has only names, one a line."""

    def __init__(self, data: bytes) -> None:
        self._names = [line for line in data.decode("utf-8", "surrogateescape").split("\n") if line]

    def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
        """As `ObjectStore.get`."""
        if name not in self._names:
            raise SegmentNotFound("no such object", object_name=name)
        return b""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`."""
        inside = f"{prefix}/" if prefix else ""
        return (ObjectInfo(name, len(name)) for name in self._names if name.startswith(inside))

    def folders(self, prefix: str = "") -> Iterator[str]:
        """As `ObjectStore.folders`."""
        inside = f"{prefix}/" if prefix else ""
        rest = (name.removeprefix(inside) for name in self._names if name.startswith(inside))
        return iter(dict.fromkeys(name.partition("/")[0] for name in rest if "/" in name))


def list_names(make_layout: Callable[[], Layout], data: bytes) -> object:
    """List every segment among the names, and find its bytes and indexes by the same layout.

    A segment of another state than COPY_SEGMENT_FINISHED has lost its log.
    """
    layout, store = make_layout(), _Names(data)
    found = list(layout.list_segments(store, None))
    for segment in found:
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            layout.read_segment(store, segment, 0, -1)
        for index_type in IndexType:
            layout.read_index(store, segment, index_type)
    return found
