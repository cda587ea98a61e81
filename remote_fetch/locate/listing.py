"""The listing locator: a topic's segments from the bucket alone, without any broker.

Rules of the file:

- A listing does not tell everything. The missing facts are looked up or left unknown. No record is given, or
  left out, by a guess.
- A segment's name gives its start. The start of the next segment bounds its end. The end of the last segment is read
  from its last batch (`last_offset.py`).
- A measured end is believed only up to a gap in which, or right behind which, another segment begins. The object may go
  on with bytes of another segment.
- An object without a batch is a gap, which compaction may have left. It is never taken for the end of the tier.
- There is no log start and no access check: a log that exists counts as a finished upload.
- A segment without its log is in no timeline. It is reported if it lies before or behind the timeline.
- One listing is made at a time. The ends of several partitions are read at once, and so are those of several segments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from remote_fetch.errors import UnknownTopic, Unlocatable
from remote_fetch.locate.last_offset import SegmentBytes, last_offset_of
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.topics import (
    SHOWN_TOPICS,
    logless_topic,
    of_real_ids,
    one_topic,
    sorted_partitions,
    split_topic,
    unknown_topic,
)
from remote_fetch.locate.uploads import FINISHED
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, Survey, TopicIdPartition, Uuid
from remote_fetch.observe import Notice, Observer, ignore

__all__ = ["GAP_HINT", "AllAtOnce", "ListingLocator", "Listings", "topic_names"]

GAP_HINT = (
    "If the topic was compacted before it was tiered, compaction may have left this gap, and a listing cannot tell "
    "that from a missing object: set bootstrap.servers, or read around it, with an end before it and a start behind it"
)
"""The hint of an error about offsets that no object has."""

_RECHECKED_SEGMENTS = 16
"""How many segments before an uncovered offset are measured, because they may reach further than the listing shows."""

_NAMED_PARTITIONS = 1_000
"""How many partitions are listed to name existing topics in an error."""

AllAtOnce = Callable[
    [Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata], Sequence[RemoteLogSegmentMetadata]],
    Iterable[RemoteLogSegmentMetadata],
]
"""Calls a function with each segment, with several at once. Returns the results in order, or raises the first error."""

_Segments = dict[TopicIdPartition, list[RemoteLogSegmentMetadata]]


@dataclass(frozen=True, slots=True)
class Listings:
    """The ways in which a storage can be listed. All raise the errors of a fetcher.

    - `segments` lists all segments of a topic (None: of every topic).
    - `partitions` names the partitions of a topic. It returns None if that needs a listing of all segments.
    - `of_partition` lists the segments of one partition. None: the storage cannot do that.
    - `survey` describes the storage if nothing was found.
    """

    segments: Callable[[str | None], Iterable[RemoteLogSegmentMetadata]]
    partitions: Callable[[str | None], Iterable[TopicIdPartition] | None] = lambda topic: None
    of_partition: Callable[[TopicIdPartition], Iterable[RemoteLogSegmentMetadata]] | None = None
    survey: Callable[[], Survey | None] = lambda: None


def topic_names(listings: Listings) -> set[str]:
    """The names of some topics in the storage, without a full listing. Raises the errors of a fetcher."""
    names: set[str] = set()
    named = listings.partitions(None)
    if named is None:
        named = (segment.topic_id_partition for segment in listings.segments(None))
    for partition in islice(named, _NAMED_PARTITIONS):
        names.add(partition.topic)
        if len(names) > SHOWN_TOPICS:
            break
    return names


class ListingLocator:
    """Timelines of the partitions of one storage, by listing it.

    Several threads may call it at once, each about another partition, beside one call of `partitions`. `all_at_once`
    reads the ends of several segments. `remark` gets a notice about each partition that lacks logs at an end.
    """

    def __init__(
        self, listings: Listings, reader: SegmentBytes, all_at_once: AllAtOnce = map, remark: Observer = ignore
    ) -> None:
        self._listings = listings
        self._reader = reader
        self._all_at_once = all_at_once
        self._remark = remark
        self._listing = threading.Lock()  # for a listing
        self._keeping = threading.Lock()  # for `_listed`, `_known`
        self._listed: _Segments = {}
        self._known: dict[TopicIdPartition, Timeline] = {}
        self._inferred: dict[TopicIdPartition, set[tuple[RemoteLogSegmentId, int]]] = {}

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether the segment's end is taken from the start of the next one. The segment may then end before a hole."""
        return (segment.segment_id, segment.end_offset) in self._inferred.get(segment.topic_id_partition, ())

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """The partitions of a topic (NAME or NAME:ID; None: of all topics), sorted, by a new listing.

        Lists the segments of the partitions `numbers` (None: all), and only the names of the rest if the storage can.
        Raises UnknownTopic if nothing is found, or if the name stands for several topic ids (of any partitions).
        """
        name, topic_id = (None, None) if topic is None else split_topic(topic)
        with self._listing:
            found, named_only = self._list(name, topic_id, numbers)
            logless = [one for one, listed in found.items() if not _readable(listed)]
            for partition in logless:
                lost = found.pop(partition)
                if numbers is None or partition.partition in numbers:
                    self._tell_lost(_timeline_of(partition, ()), lost)
            with self._keeping:
                for partition, listed in found.items():
                    self._take(partition, listed)
            if topic is None and (found or named_only):
                return sorted_partitions([*found, *named_only])
            every = of_real_ids(found, named_only, lambda one: _readable(self._list_partition(one)))
        return one_topic(topic or "", every, lambda: self._unknown(topic, is_logless=bool(logless)))

    def _list(
        self, name: str | None, topic_id: Uuid | None, numbers: Collection[int] | None
    ) -> tuple[_Segments, list[TopicIdPartition]]:
        """The wanted partitions with their segments, and the partitions of which only the name is known."""
        found: _Segments = {}
        named_only: list[TopicIdPartition] = []
        named = None if numbers is None else self._listings.partitions(name)
        if named is None:
            for segment in self._listings.segments(name):
                if topic_id in (None, segment.topic_id_partition.topic_id):
                    found.setdefault(segment.topic_id_partition, []).append(segment)
            return found, named_only
        for partition in named:
            if topic_id not in (None, partition.topic_id):
                continue
            if numbers is not None and partition.partition not in numbers:
                named_only.append(partition)
            elif segments := self._list_partition(partition):
                found[partition] = segments
        return found, named_only

    def _list_partition(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        if self._listings.of_partition is not None:
            return list(self._listings.of_partition(partition))
        segments = self._listings.segments(partition.topic)
        return [segment for segment in segments if segment.topic_id_partition == partition]

    def _unknown(self, topic: str | None, *, is_logless: bool) -> UnknownTopic:
        """The error for a topic that was not found. It names some topics that exist, without a full listing."""
        if topic is not None and is_logless:
            return logless_topic(topic, self._listings.survey())
        with self._listing:
            names = topic_names(self._listings)
        return unknown_topic(topic, names, self._listings.survey())

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition, by its listing. Raises the errors of a fetcher."""
        known = self._known.get(partition)
        if known is not None:
            return known
        listed = self._listed_of(partition)
        timeline = self._timeline(partition, listed)
        self._tell_lost(timeline, listed)
        return self._keep(listed, timeline)

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """List the partition again, because segments may have come or gone. Raises the errors of a fetcher."""
        self._list_again(partition)
        return self.timeline(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """Look for a segment that reaches `offset` although the next one starts before it.

        Two leaders may have uploaded the same offsets in segments with different borders. Then a segment can reach
        beyond the start of the next one. This call reads the real end of the segments that start nearest before
        `offset`.
        """
        listed, timeline = self._listed_of(partition), self.timeline(partition)
        before = [s for s in timeline.segments if s.start_offset <= offset]
        for segment in reversed(before[-_RECHECKED_SEGMENTS:]):
            if not self.end_is_inferred(segment):
                continue
            measured = self._measured(timeline, segment)
            if measured.end_offset > segment.end_offset:
                longer = [measured if s is segment else s for s in timeline.segments]
                timeline = _timeline_of(partition, longer)
                if measured.end_offset >= offset:
                    break
        return self._keep(listed, timeline)

    def measure(self, partition: TopicIdPartition, segments: Sequence[RemoteLogSegmentMetadata]) -> Timeline:
        """The timeline with the real ends of segments in place of the guesses.

        If a segment has a gap in or right behind which another one begins, the end before the gap stays a guess. If it
        ends before its guess, another segment may have the offsets behind it: see `recheck`.
        """
        listed, timeline = self._listed_of(partition), self.timeline(partition)
        measured = {one.segment_id: one for one in self._all_at_once(partial(self._measured, timeline), segments)}
        kept = [known for known in timeline.segments if known.segment_id not in measured]
        timeline = self._keep(listed, _timeline_of(partition, [*kept, *measured.values()]))
        for guessed in segments:
            behind = measured[guessed.segment_id].end_offset + 1
            if behind <= guessed.end_offset and next(timeline.found(behind, behind), None) is None:
                timeline = self.recheck(partition, behind)
        return timeline

    def _measured(self, timeline: Timeline, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """The segment with the last offset up to which its batches are believed."""
        last, first = last_offset_of(segment, self._reader), segment.start_offset
        starts = [one.start_offset for one in timeline.segments if first < one.start_offset <= last]
        end = last_offset_of(segment, self._reader, starts) if starts else last
        if end < last:
            self._guesses(segment.topic_id_partition).add((segment.segment_id, end))
        else:  # a plan that was made with a wrong guess keeps it: for that plan it stays a guess
            self._guesses(segment.topic_id_partition).discard((segment.segment_id, end))
        return replace(segment, end_offset=end)

    def _listed_of(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        listed = self._listed.get(partition)
        return self._list_again(partition) if listed is None else listed

    def _list_again(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        with self._listing:
            listed = self._list_partition(partition)
            with self._keeping:
                self._take(partition, listed)
                return self._listed[partition]

    def _take(self, partition: TopicIdPartition, listed: list[RemoteLogSegmentMetadata]) -> None:
        """Take a new listing. If it equals the last one, the ends that were measured since then are kept.

        The guesses about segments that neither of the two listings has are forgotten. A plan may still have the
        segments of the last one. Another thread may add a guess at the same time.
        """
        before = self._listed.get(partition)
        there = {segment.segment_id for segment in (*(before or ()), *listed)}
        if listed != before:
            self._listed[partition] = listed
            self._known.pop(partition, None)
        guesses = self._guesses(partition)
        guesses.difference_update([guess for guess in tuple(guesses) if guess[0] not in there])

    def _guesses(self, partition: TopicIdPartition) -> set[tuple[RemoteLogSegmentId, int]]:
        """The segments of a partition whose end is a guess, each with that end."""
        return self._inferred.setdefault(partition, set())

    def _keep(self, listed: list[RemoteLogSegmentMetadata], timeline: Timeline) -> Timeline:
        """Keep a timeline that was made of this listing, unless a newer listing has come in the meantime."""
        with self._keeping:
            if self._listed.get(timeline.partition) is listed:
                self._known[timeline.partition] = timeline
        return timeline

    def _timeline(self, partition: TopicIdPartition, listed: Iterable[RemoteLogSegmentMetadata]) -> Timeline:
        segments = sorted(_readable(listed), key=lambda s: s.start_offset)
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
            last = last_offset_of(segment, self._reader)
            if last < segment.start_offset:
                raise _empty_at_the_end(segment)
            return last
        self._guesses(segment.topic_id_partition).add((segment.segment_id, next_start - 1))
        return next_start - 1

    def _tell_lost(self, timeline: Timeline, listed: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Report the segments without a log before and behind the timeline. At a hole between segments a read fails."""
        first, stop = timeline.start_offset, timeline.end_offset
        lost = sorted((one for one in listed if one.state is not FINISHED), key=lambda one: one.start_offset)
        if first is None or stop is None:
            # A topic of the same name with another id may be read.
            self._tell(lost, f"Nothing can be read of the partition with the topic id {timeline.partition.topic_id}")
            return
        self._tell([one for one in lost if one.start_offset < first], f"What can be read begins at offset {first}")
        behind = [one for one in lost if one.start_offset >= stop]
        self._tell(behind, f"What can be read ends at offset {stop} (exclusive)")

    def _tell(self, lost: Sequence[RemoteLogSegmentMetadata], effect: str) -> None:
        if lost:
            place = lost[0].topic_id_partition.topic_partition
            first = lost[0].object_stem
            what = f"segment {first}" if len(lost) == 1 else f"{len(lost)} segments, of which the first is {first}"
            text = (
                f"{place}: the store has files of {what}, but no log: the records are lost, unless a broker is "
                f"deleting these files, or a copy of the storage is under way. {effect}"
            )
            self._remark(Notice(text, is_warning=True))


def _readable(listed: Iterable[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
    """The listed segments whose log is there."""
    return [segment for segment in listed if segment.state is FINISHED]


def _timeline_of(partition: TopicIdPartition, segments: Iterable[RemoteLogSegmentMetadata]) -> Timeline:
    """A timeline that prefers the largest of several uploads of the same offsets. A smaller one was broken off."""
    ordered = sorted(segments, key=lambda s: (s.start_offset, s.end_offset, s.segment_size_in_bytes, s.segment_id))
    return Timeline(partition, tuple(ordered), tuple(range(len(ordered))))


def _empty_at_the_end(segment: RemoteLogSegmentMetadata) -> Unlocatable:
    """The error for an empty object behind all others. Nothing tells which offsets it had."""
    text = f"the last object is empty, and does not tell which offsets from {segment.start_offset} on are missing"
    return Unlocatable(text, first=segment.start_offset, hint=GAP_HINT, **segment.place)
