"""Compares the metadata topic with the storage: finds missing, damaged and left-over objects.

Rules of the file:

- Nothing is changed, neither in the storage nor in the metadata topic.
- The storage is listed first, and the metadata topic is read after that: an object that was listed then has an event.
- Brokers go on writing during an audit. An object that an upload or a deletion may have changed since is asked for
  again, before it is a finding.
- An object may be deleted only if it is sure that no broker reads it:
  - A record that this release does not know may be about any segment: while there is one, only objects of deleted
    topics may be deleted.
  - Brokers may have read another metadata topic, or more of it. So an object of a segment without records may not be
    deleted if records were lost. Nor may it if known segments lack offsets between the log start and that segment.
  - An object outside the folders in which the layout has segments may be of a backup, or of a copy of the cluster.
  - Two clusters may share the metadata topic: an object of a topic that this cluster does not have may be deleted only
    if a broker has begun to delete its segment.
- Memory does not grow with the number of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from remote_fetch.checks.audit_book import AuditBook
from remote_fetch.checks.audit_deep import is_told
from remote_fetch.checks.audit_rows import TopicTotals
from remote_fetch.checks.audit_rules import (
    ENTRY_BYTES,
    folder_above,
    is_one_word,
    judge_index_size,
    judge_life,
    judge_order,
    judge_size,
    of_segment,
    start_of,
)
from remote_fetch.checks.audit_segment import SegmentLife, key_of, life_of
from remote_fetch.checks.audit_sources import AuditOptions, AuditSources
from remote_fetch.checks.findings import Finding, FindingKind
from remote_fetch.errors import CorruptSegment, SegmentNotFound, UnknownTopic, UnsupportedFormat
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.locate.replay import Replay
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.locate.topics import nearest_hint, split_topic
from remote_fetch.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.progress import Position, Progressed

__all__ = ["Audit"]

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_ASKED_AGAIN = 1_000
"""How many objects are asked for one by one. If more seem to be missing, the listing is right."""


class _Records(TimelineBuilder):
    """Hands every record of the metadata topic to `take`, and keeps none."""

    def __init__(self, take: Callable[[bytes | None, bytes | None, int, int], None]) -> None:
        super().__init__()
        self._take = take

    def apply(self, value: Any, *, key: bytes | None = None, offset: int, source: int = 0) -> None:
        """As `TimelineBuilder.apply`."""
        self._take(value, key, offset, source)


class Audit:
    """One audit. `findings` makes it; `totals` and `changed` are known after that.

    `changed` counts the segments that were not judged, because they changed during the audit.
    """

    def __init__(self, sources: AuditSources, options: AuditOptions, progressed: Progressed = lambda _: None) -> None:
        self._sources = sources
        self._inventory = sources.inventory
        self._options = options
        self._topic: tuple[str | None, Uuid | None] = (
            (None, None) if options.topic is None else split_topic(options.topic)
        )
        self._progressed = progressed
        self._book = AuditBook()
        self._read_metadata: Callable[[], object] = lambda: None
        self._replay: Replay | None = None
        self._next_offsets: dict[int, int] = {}
        self._has_gap = False
        self._topics: dict[str, Uuid | None] = {}
        self._names: set[str] = set()
        self._whole: dict[TopicIdPartition, int] = {}
        self._folders: set[str] = set()
        self._asked = 0
        self.totals: tuple[TopicTotals, ...] = ()
        self.changed = 0

    def findings(self) -> Iterator[Finding]:
        """Yield the findings. May be called once.

        Raises the errors of the sources, UnknownTopic if neither of them knows the topic, CorruptSegment for a listing
        with a size that no object has, and ConfigError if the temporary database cannot be written.
        """
        with self._book:
            self._list()
            self._read_metadata = self._sources.open_records(self._new_replay)
            self._read_metadata()
            if self._options.topic is not None and self._book.is_empty():
                raise UnknownTopic(
                    "neither the metadata topic nor the storage knows this topic",
                    topic=self._options.topic,
                    hint=nearest_hint(self._topic[0] or "", self._names),
                )
            yield from self._judged_lives()
            self.totals = tuple(self._book.totals())
            yield from self._judged_objects()
            yield from self._judged_order()
            for info, segment, kind in self._book.unclaimed():
                yield from self._judged_unclaimed(info, segment, kind)
            if self._options.is_deep:
                yield from self._judged_deeply()

    # --------------------------------------------------------------------------------------------------- what there is

    def _list(self) -> None:
        for count, info in enumerate(self._inventory.list_objects(), 1):
            owner = self._inventory.segment_of(info.name)
            is_wanted = self._options.topic is None if owner is None else self._is_wanted(owner.topic_id_partition)
            if is_wanted:
                self._book.add_object(info, None if owner is None else key_of(owner))
            if count % 1_000 == 0:
                self._progressed(Position("objects listed", count))

    def _new_replay(self, topic_id: Uuid | None) -> Replay:
        if self._replay is not None:
            self._book.forget_records()
        self._next_offsets.clear()
        self._has_gap = False
        self._replay = Replay(_Records(self._take))
        return self._replay

    def _take(self, value: bytes | None, key: bytes | None, offset: int, source: int) -> None:
        known = self._next_offsets.get(source, 0)
        self._has_gap |= offset > known
        self._next_offsets[source] = max(known, offset + 1)
        self._book.add_record(value, key, offset, source, self._is_wanted)

    def _has_lost_records(self) -> bool:
        """Whether retention or compaction has deleted records of the metadata topic. Brokers may still know them."""
        ends = {} if self._replay is None else self._replay.read_to
        return self._has_gap or any(end > self._next_offsets.get(number, 0) for number, end in ends.items())

    def _is_wanted(self, partition: TopicIdPartition) -> bool:
        name, topic_id = self._topic
        self._names.add(partition.topic)
        return name in (None, partition.topic) and topic_id in (None, partition.topic_id)

    # ------------------------------------------------------------------------------------------------------- judgement

    def _judged_lives(self) -> Iterator[Finding]:
        """Judge each segment by its events, and note the objects that it should have."""
        for damaged in self._book.damaged():
            place = f"partition {damaged.source}, offset {damaged.offset} of the metadata topic"
            yield Finding(FindingKind.MALFORMED_EVENT, f"{place}: {damaged.text}")
        for count, history in enumerate(self._book.histories(), 1):
            if count % 1_000 == 0:
                self._progressed(Position("segments judged", count))
            life = life_of(history.values)
            is_replaced = history.is_replaced and life.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
            if life.is_gone or history.is_buried or history.is_partition_gone or is_replaced:
                is_sure = history.is_partition_gone or (history.is_ordered and life.is_deleted_last)
                self._book.bury(life, is_sure=is_sure)
                with suppress(CorruptSegment, UnsupportedFormat):
                    self._expected(life)
                continue
            is_topic_gone = self._is_topic_gone(life.segment_id.topic_id_partition)
            finding = judge_life(
                life,
                stale_before_ms=self._options.stale_before_ms,
                is_topic_gone=is_topic_gone,
                log_start=self._log_start,
            )
            yield from self._noted(life, history.values, finding)

    def _noted(self, life: SegmentLife, values: tuple[bytes, ...], finding: Finding | None) -> Iterator[Finding]:
        metadata = life.metadata
        stored_bytes = None if metadata is None else self._sources.stored_size(metadata)
        number = self._book.add_segment(life, values, stored_bytes)
        if metadata is None:
            if finding is not None:
                yield finding
            return
        try:
            expected = self._expected(life)
        except (CorruptSegment, UnsupportedFormat) as error:
            yield of_segment(Finding(FindingKind.WRONG_METADATA, str(error)), life)
            return
        is_deleted = finding is not None and finding.kind is FindingKind.DELETED_TOPIC
        self._book.expect(number, expected, is_finished=life.state is _FINISHED and not is_deleted)
        if finding is None:
            return
        yield finding
        if is_deleted:
            is_sure = life.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED
            why = None if is_sure else "no broker has begun to delete its segment: another cluster may have the topic"
            for info in self._book.objects_named(each.name for each in expected):
                found = replace(finding, object_name=info.name, size_bytes=info.size_bytes)
                yield self._deletable(found, "an object of a deleted topic", why)

    def _expected(self, life: SegmentLife) -> Sequence[ExpectedObject]:
        """The objects of a segment, whose folder is noted. Raises the errors of `expected_objects`."""
        expected = () if life.metadata is None else self._inventory.expected_objects(life.metadata)
        self._folders.update(folder_above(each.name, life.segment_id) for each in expected[:1])
        return expected

    def _judged_objects(self) -> Iterator[Finding]:
        for sized in self._book.wrong_objects():
            life = life_of(sized.values)
            found_bytes = self._asked_again(sized.name)
            if found_bytes is None and sized.found_bytes is None and self._is_changed(life.segment_id):
                continue
            seen = sized if found_bytes is None else sized._replace(found_bytes=found_bytes)
            if seen.found_bytes is None or seen.expected_bytes not in (None, seen.found_bytes):
                yield of_segment(judge_size(seen), life)
        for values, name in self._book.shared_objects():
            life = life_of(values)
            if self._inventory.segment_of(name) != life.segment_id:
                text = "another finished segment has this object too"
                yield of_segment(Finding(FindingKind.WRONG_METADATA, text, object_name=name), life)
        for kind, entry_bytes in ENTRY_BYTES:
            for sized in self._book.index_objects(kind, entry_bytes):
                yield of_segment(judge_index_size(sized, entry_bytes), life_of(sized.values))
        for values, stored_bytes, found_bytes in self._book.wrong_sums():
            kind = FindingKind.SHORT if found_bytes < stored_bytes else FindingKind.TOO_LONG
            text = f"its objects together have {found_bytes} bytes, and {stored_bytes} by the metadata"
            yield of_segment(Finding(kind, text), life_of(values))

    def _asked_again(self, name: str) -> int | None:
        """The size of an object, None if it is not there, or if it would be asked for too often."""
        if self._asked >= _ASKED_AGAIN:
            return None
        self._asked += 1
        with suppress(SegmentNotFound):
            return self._inventory.object_size(name)
        return None

    def _is_changed(self, segment_id: RemoteLogSegmentId) -> bool:
        """Whether the metadata topic has an event of the segment that is later than the first reading."""
        self._book.second_reading()
        if self._asked < _ASKED_AGAIN:  # after that many, another reading for each would take too long
            self._read_metadata()
        is_changed = self._book.is_touched(key_of(segment_id))
        self.changed += is_changed
        return is_changed

    def _finished(self) -> Iterator[RemoteLogSegmentMetadata]:
        for values in self._book.segments():
            metadata = life_of(values).metadata
            if metadata is not None and metadata.state is _FINISHED:
                yield metadata

    def _judged_order(self) -> Iterator[Finding]:
        """Holes and overlaps. Notes to which offset finished segments have all offsets of a log from its start on."""
        holed: set[TopicIdPartition] = set()

        def segments() -> Iterator[RemoteLogSegmentMetadata]:
            for segment in self._finished():
                partition = segment.topic_id_partition
                self._whole[partition] = max(segment.end_offset, self._whole.get(partition, -1))
                yield segment

        def log_start(partition: TopicIdPartition) -> int | None:
            start = self._log_start(partition)
            if start is None:
                holed.add(partition)
            return start

        for finding in judge_order(segments(), log_start):
            if finding.kind is FindingKind.HOLE and finding.segment_id is not None:
                holed.add(finding.segment_id.topic_id_partition)
            yield finding
        for partition in holed:
            del self._whole[partition]

    def _judged_unclaimed(self, info: ObjectInfo, segment: bytes | None, kind: str) -> Iterator[Finding]:
        owner = self._inventory.segment_of(info.name)
        found = Finding(FindingKind.UNKNOWN_OBJECT, "", owner, object_name=info.name, size_bytes=info.size_bytes)
        if owner is None or segment is None:
            yield replace(found, text="no name that the layout gives")
        elif kind == "live":
            yield replace(found, text="the segment has its objects under other names")
        elif kind in ("gone", "doubtful"):
            if self._is_there(info):
                why = None if kind == "gone" else "the last record of the segment does not say so"
                yield self._left_over(found, owner, "the segment was deleted, and this object of it is left", why)
        elif kind == "none":
            text, why = "the metadata topic knows the topic, and not this segment", None
            if self._has_lost_records():
                why = "records of the metadata topic were deleted"
            elif (start := start_of(info.name, owner)) is None or start > self._whole.get(owner.topic_id_partition, -1):
                why = "it may have offsets of the log that no known segment has"
            yield self._left_over(found, owner, text, why)
        else:
            text = "the metadata topic has no event of this topic: another cluster's, or a topic of long ago"
            yield replace(found, kind=FindingKind.UNKNOWN_TOPIC, text=text)

    def _left_over(self, found: Finding, owner: RemoteLogSegmentId, text: str, why_not: str | None) -> Finding:
        """The finding of an object that no segment has. `why_not`: the reason for which a broker may still read it."""
        if folder_above(found.object_name or "", owner) not in self._folders:
            why_not = "it is not where the segments are: a backup's, or another cluster's"
        if not self._book.is_all_known:
            why_not = "the metadata topic has records in a form that this release does not know"
        return self._deletable(replace(found, kind=FindingKind.ORPHANED), text, why_not)

    def _deletable(self, found: Finding, text: str, why_not: str | None) -> Finding:
        """The finding of an object that may be deleted, unless `why_not` or its name says otherwise."""
        name = found.object_name or ""
        if self._inventory.segment_of(name) != found.segment_id:
            why_not = "its name is none of the segment"
        elif not is_one_word(name):
            why_not = "a list would split its name"
        return replace(found, text=text if why_not is None else f"{text}. But {why_not}", may_delete=why_not is None)

    def _is_there(self, info: ObjectInfo) -> bool:
        """Whether an object is still there. It may have been deleted after it was listed."""
        return self._asked >= _ASKED_AGAIN or self._asked_again(info.name) is not None

    def _judged_deeply(self) -> Iterator[Finding]:
        total_bytes = sum(each.segment_bytes for each in self.totals)
        done_bytes = 0
        for segment in self._finished():
            found = list(self._sources.read_deeply(segment))
            if any(each.kind is FindingKind.MISSING for each in found):
                if self._is_changed(segment.segment_id):
                    found = []
                else:
                    lacking = self._book.lacking(key_of(segment.segment_id))
                    found = [each for each in found if not is_told(each, lacking)]
            yield from found
            done_bytes += segment.known_size_bytes or 0
            self._progressed(Position("bytes read", done_bytes, total_bytes, is_bytes=True))

    # --------------------------------------------------------------------------------------------------------- brokers

    def _is_topic_gone(self, partition: TopicIdPartition) -> bool:
        """Whether the cluster has no topic of this name and id. False if the brokers do not tell."""
        if partition.topic not in self._topics:
            self._topics[partition.topic] = self._sources.topic_id(partition.topic)
        return self._topics[partition.topic] not in (None, partition.topic_id)

    def _log_start(self, partition: TopicIdPartition) -> int | None:
        """The log start offset, None if the brokers do not tell it. Then the topic's id is asked for again."""
        if self._is_topic_gone(partition):
            return None
        start = self._sources.log_start(partition)
        if start is None and self._topics[partition.topic] is not None:
            del self._topics[partition.topic]
        return start
