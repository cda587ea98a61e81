"""The listing locator: a topic's segments from the bucket alone, without any broker.

Rules of the file: what a listing cannot tell is found out or left unknown, never guessed into the data: a name gives a
segment's start, the next segment's start bounds its end, and the last one's end is read off its last batch. There is no
log start, no access check and no state here: an object that is there counts as a finished upload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from remote_fetch.errors import CorruptSegment, FallsBackError, UnknownTopic, UnsupportedFormat
from remote_fetch.formats.batches import BatchFramer
from remote_fetch.formats.indexes import MAX_RELATIVE_OFFSET, OffsetIndex
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.topics import SHOWN_TOPICS, one_topic, sorted_partitions, split_topic, unknown_topic
from remote_fetch.model import (
    MAX_OFFSET,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    Survey,
    TopicIdPartition,
    Uuid,
)

__all__ = ["ListingLocator", "Listings", "SegmentBytes", "last_offset_of"]

_LAST_OFFSET = 2**63 - 1
_RECHECKED_SEGMENTS = 16
"""How many segments before an uncovered offset are looked into for a longer reach than the listing shows."""

_NAMED_PARTITIONS = 1_000
"""How many partitions are looked at to name the topics that there are."""

_Segments = dict[TopicIdPartition, list[RemoteLogSegmentMetadata]]


@dataclass(frozen=True, slots=True)
class Listings:
    """How a storage is listed: all of a topic's segments (None: of every topic), or, where it can, less than that.

    `partitions` names those of a topic, None where their segments would have to be listed; `of_partition` lists one of
    them. `survey` tells what stands where nothing was found. All raise the errors of a fetcher.
    """

    segments: Callable[[str | None], Iterable[RemoteLogSegmentMetadata]]
    partitions: Callable[[str | None], Iterable[TopicIdPartition] | None] = lambda topic: None
    of_partition: Callable[[TopicIdPartition], Iterable[RemoteLogSegmentMetadata]] | None = None
    survey: Callable[[], Survey | None] = lambda: None


class SegmentBytes(Protocol):
    """Reads what a listing cannot tell. Raises the errors of a fetcher."""

    def read_bytes(self, segment: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> memoryview:
        """Bytes [start_position, end_position), fewer at the end of the segment."""

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        """One index, None where there is none."""

    def read_without_index(self, segment: RemoteLogSegmentMetadata, reason: str) -> None:
        """Hear that a segment is read from its first byte, because its offset index does not help."""

    @property
    def range_bytes(self) -> int:
        """The most to ask for at once."""

    @property
    def max_batch_bytes(self) -> int:
        """The largest record batch that is believed."""


class ListingLocator:
    """Timelines of the partitions of one storage, by listing it. Not thread-safe."""

    def __init__(self, listings: Listings, reader: SegmentBytes) -> None:
        self._listings = listings
        self._reader = reader
        self._listed: _Segments = {}
        self._known: dict[TopicIdPartition, Timeline] = {}
        self._inferred: set[RemoteLogSegmentId] = set()

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether the segment's end is only where the next one starts: it may then end sooner, at a hole."""
        return segment.segment_id in self._inferred

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """The partitions of a topic (NAME or NAME:ID; None: of all topics), sorted; listed anew.

        Of `numbers` (None: all) the segments are listed; of the others only names, as far as the storage can do so.
        Raises UnknownTopic when there are none, or when the name alone stands for several topic ids.
        """
        name, topic_id = (None, None) if topic is None else split_topic(topic)
        found, others = self._list(name, topic_id, numbers)
        self._listed.update(found)
        for partition in found:
            self._known.pop(partition, None)
        if not found and others:
            return sorted_partitions(others)
        if topic is None and found:
            return sorted_partitions([*found, *others])
        chosen = one_topic(topic or "", found, lambda: self._unknown(topic))
        return sorted_partitions([*chosen, *(one for one in others if one.topic_id == chosen[0].topic_id)])

    def _list(
        self, name: str | None, topic_id: Uuid | None, numbers: Collection[int] | None
    ) -> tuple[_Segments, list[TopicIdPartition]]:
        """The segments of the wanted partitions that have some, and the partitions that are known by name alone."""
        found: _Segments = {}
        others: list[TopicIdPartition] = []
        named = None if numbers is None else self._listings.partitions(name)
        if named is None:
            for segment in self._listings.segments(name):
                if topic_id in (None, segment.topic_id_partition.topic_id):
                    found.setdefault(segment.topic_id_partition, []).append(segment)
            return found, others
        for partition in named:
            if topic_id not in (None, partition.topic_id):
                continue
            if numbers is not None and partition.partition not in numbers:
                others.append(partition)
            elif segments := self._list_one(partition):
                found[partition] = segments
        return found, others

    def _list_one(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        if self._listings.of_partition is not None:
            return list(self._listings.of_partition(partition))
        return [one for one in self._listings.segments(partition.topic) if one.topic_id_partition == partition]

    def _unknown(self, topic: str | None) -> UnknownTopic:
        """The error for a topic that is not there. Names some that are, without listing all of the storage."""
        named = self._listings.partitions(None)
        if named is None:
            named = (segment.topic_id_partition for segment in self._listings.segments(None))
        names: set[str] = set()
        for partition in islice(named, _NAMED_PARTITIONS):
            names.add(partition.topic)
            if len(names) > SHOWN_TOPICS:
                break
        return unknown_topic(topic, names, self._listings.survey())

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition; none where the listing has none. Raises the errors of a fetcher."""
        if partition not in self._known:
            if partition not in self._listed:
                self._listed[partition] = self._list_one(partition)
            self._known[partition] = self._timeline(partition, self._listed[partition])
        return self._known[partition]

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """List the partition again: segments may have come or gone. Raises the errors of a fetcher."""
        self._listed[partition] = self._list_one(partition)
        self._known.pop(partition, None)
        return self.timeline(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """Look for a segment that reaches `offset` although the next one starts before it.

        Uploads of two leaders overlap with other borders, so "ends where the next one starts" can be too short. The
        segments that start nearest before the offset are asked for their real end.
        """
        timeline = self.timeline(partition)
        before = [s for s in timeline.segments if s.start_offset <= offset]
        for segment in reversed(before[-_RECHECKED_SEGMENTS:]):
            if not self.end_is_inferred(segment):
                continue
            end = last_offset_of(segment, self._reader)
            if end > segment.end_offset:
                longer = [replace(s, end_offset=end) if s is segment else s for s in timeline.segments]
                timeline = _timeline_of(partition, longer)
                if end >= offset:
                    break
        self._known[partition] = timeline
        return timeline

    def measure(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata) -> Timeline:
        """The timeline with the real end of a segment, which is then no guess any more."""
        timeline = self.timeline(partition)
        measured = replace(segment, end_offset=last_offset_of(segment, self._reader))
        self._inferred.discard(segment.segment_id)
        others = [one for one in timeline.segments if one.segment_id != segment.segment_id]
        self._known[partition] = _timeline_of(partition, [*others, measured])
        return self._known[partition]

    def _timeline(self, partition: TopicIdPartition, listed: Iterable[RemoteLogSegmentMetadata]) -> Timeline:
        segments = sorted(listed, key=lambda s: s.start_offset)
        ended: list[RemoteLogSegmentMetadata] = []
        next_start: int | None = None
        for at in range(len(segments) - 1, -1, -1):
            segment = segments[at]
            if at + 1 < len(segments) and segments[at + 1].start_offset > segment.start_offset:
                next_start = segments[at + 1].start_offset
            if segment.end_offset < 0:
                segment = replace(segment, end_offset=self._infer_end(segment, next_start))
            if segment.end_offset >= segment.start_offset:
                ended.append(segment)
        return _timeline_of(partition, ended)

    def _infer_end(self, segment: RemoteLogSegmentMetadata, next_start: int | None) -> int:
        if next_start is None:
            return last_offset_of(segment, self._reader)
        self._inferred.add(segment.segment_id)
        return next_start - 1


def _timeline_of(partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]) -> Timeline:
    """A timeline that prefers the largest of the uploads of the same offsets: a smaller one was broken off."""
    ordered = sorted(segments, key=lambda s: (s.start_offset, s.end_offset, s.segment_size_in_bytes, s.segment_id))
    return Timeline(partition, tuple(ordered), tuple(range(len(ordered))))


def last_offset_of(segment: RemoteLogSegmentMetadata, reader: SegmentBytes) -> int:
    """The last offset of the last batch of a segment, by reading its end; `start_offset - 1` when it has no batch.

    The offset index says where to begin; without a usable one the segment is read whole. Raises CorruptSegment for a
    segment that is cut, and what reading raises.
    """
    try:
        if segment.segment_size_in_bytes == 0:
            raise CorruptSegment("the object is empty, and brokers upload no empty segments", position=0)
        position = _last_indexed_position(segment, reader)
        try:
            return _scan_to_end(segment, reader, position)
        except (CorruptSegment, UnsupportedFormat):
            if position:
                reader.read_without_index(segment, "misleading")
        return _scan_to_end(segment, reader, 0)  # the whole segment tells; or what was damaged on its way comes well
    except FallsBackError as error:
        partition = segment.topic_id_partition
        raise error.at(
            topic=partition.topic,
            partition=partition.partition,
            object_name=f"{segment.start_offset:020d}-{segment.segment_id.id}",
        ) from error.__cause__


def _scan_to_end(segment: RemoteLogSegmentMetadata, reader: SegmentBytes, position: int) -> int:
    framer = BatchFramer(position, max_batch_bytes=reader.max_batch_bytes)
    last = segment.start_offset - 1
    most = min(segment.start_offset + MAX_RELATIVE_OFFSET, MAX_OFFSET)
    size_bytes = segment.known_size_bytes
    while True:
        start = framer.position + framer.pending_bytes
        stop = start + reader.range_bytes
        if size_bytes is not None:
            stop = max(min(stop, size_bytes + 1), start + 1)  # a byte more, so that the store confirms the end
        data = reader.read_bytes(segment, start, stop)
        framer.feed(data)
        while (batch := framer.next_batch()) is not None:
            header = batch.header
            if header.base_offset <= last or header.last_offset > most:
                raise CorruptSegment(
                    f"batch with offsets {header.base_offset} to {header.last_offset} behind offset {last}, in a "
                    f"segment that begins at offset {segment.start_offset}",
                    position=batch.position,
                    offset=header.base_offset,
                )
            last = header.last_offset
        if size_bytes is not None and start + len(data) > size_bytes:
            size_bytes = None  # there is more than was listed
        elif len(data) < stop - start:
            framer.finish()
            _check_size(size_bytes, start + len(data))
            return last


def _check_size(size_bytes: int | None, end: int) -> None:
    if size_bytes is not None and end < size_bytes:
        raise CorruptSegment(f"the object ends at byte {end}, but was listed with {size_bytes} bytes", position=end)


def _last_indexed_position(segment: RemoteLogSegmentMetadata, reader: SegmentBytes) -> int:
    data = reader.read_index(segment, IndexType.OFFSET)
    if data is None:
        reader.read_without_index(segment, "missing")
        return 0
    size_bytes = segment.known_size_bytes
    try:
        index = OffsetIndex.parse(data, segment.start_offset, size_bytes=size_bytes)
    except CorruptSegment:
        _check_is_whole(segment, data)
        reader.read_without_index(segment, "corrupt")
        return 0
    return 0 if index.ambiguous else index.start_position(_LAST_OFFSET)


def _check_is_whole(segment: RemoteLogSegmentMetadata, data: memoryview) -> None:
    """Raise CorruptSegment where an index is sound but for batches behind the end of its segment."""
    try:
        index = OffsetIndex.parse(data, segment.start_offset)
    except CorruptSegment:
        return
    if not index.ambiguous:
        raise CorruptSegment(
            f"the object has {segment.segment_size_in_bytes} bytes, but its offset index knows a batch at "
            f"{index.start_position(_LAST_OFFSET)}",
            position=segment.segment_size_in_bytes,
        )
