"""The broker locator: asks the partition's leader, offset by offset, where the tier has it (KIP-1254 with KIP-1248).

Rules of the file:

- A timeline has what the leader told for the offsets that were asked. It grows from one segment to the next: behind the
  last offset of a segment the next offset is asked for.
- The newest answer wins. If the leader names another segment for an offset, the earlier one ends before that offset.
- Where a segment ends is what the leader tells, or the last offset for which it names the segment. Either is a guess:
  the bytes decide, and a segment that ends sooner makes the reader ask again (`recheck`).
- If the leader would serve an offset itself, it serves all offsets behind it too. There the timeline ends.
- Brokers that do not know the request turn the locator off, with one line. Then it locates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from remote_fetch.errors import Unlocatable
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.described import described_partitions
from remote_fetch.locate.locations import Answer, Location, Locations, LocationsUnsupported
from remote_fetch.locate.locator import Locator
from remote_fetch.locate.timeline import AbortedLists, Timeline
from remote_fetch.model import (
    MAX_OFFSET,
    UNKNOWN_SIZE,
    IsolationLevel,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)

__all__ = ["BrokerLocator"]

_FIRST_STEP = 1024
_NO_LIMIT = 2**63 - 1


@dataclass(slots=True)
class _Answers:
    """The answers of a leader about one partition, under one isolation level."""

    partition: TopicIdPartition
    isolation: IsolationLevel
    segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = field(default_factory=dict)
    aborted: dict[tuple[RemoteLogSegmentId, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def add(self, segment: RemoteLogSegmentMetadata, offset: int, answer: Answer) -> None:
        """Take the answer for an offset. Other segments no longer reach it."""
        for known in list(self.segments.values()):
            if known.segment_id != segment.segment_id and known.start_offset <= offset <= known.end_offset:
                del self.segments[known.segment_id]
                if known.start_offset < offset:
                    self.segments[known.segment_id] = replace(known, end_offset=offset - 1)
        self.segments.pop(segment.segment_id, None)
        self.segments[segment.segment_id] = segment
        self.aborted[segment.segment_id, offset] = answer.aborted

    def timeline(self) -> Timeline:
        """The timeline of the answers so far. A later answer counts as finished later."""
        order = {segment_id: at for at, segment_id in enumerate(self.segments)}
        segments = sorted(self.segments.values(), key=lambda segment: (segment.start_offset, segment.end_offset))
        orders = tuple(order[segment.segment_id] for segment in segments)
        lists: AbortedLists | None = dict(self.aborted) if self.isolation is IsolationLevel.READ_COMMITTED else None
        return Timeline(self.partition, tuple(segments), orders, is_leaders=True, listed_aborts=lists)


class BrokerLocator(Locator):
    """Timelines from the answers of partition leaders of `cluster`, which `locations` asks. Its owner closes that.

    `say` is called once, with the reason, if the brokers do not know the request.
    """

    def __init__(self, cluster: Cluster, locations: Locations, *, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self.locations = locations
        self._say = say
        self._is_off = False
        self._has_located = False
        self._answers: dict[TopicIdPartition, _Answers] = {}

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """All partitions of an existing topic (NAME or NAME:ID), tiered or not, for any `numbers`.

        Raises UnknownTopic if the topic does not exist or has another id, KafkaException if the broker refuses, and
        Unlocatable for all topics (None): brokers are asked about one partition at a time.
        """
        if topic is None:
            raise Unlocatable("remote.locator=broker locates the segments of one topic: name it")
        return described_partitions(self._cluster, topic)

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.timeline`: what was told so far. If nothing was asked, the whole log is asked for first.

        Raises Unlocatable if no leader answers, and KafkaException if the broker refuses.
        """
        answers = self._answers.get(partition)
        if answers is not None:
            return answers.timeline()
        isolation = IsolationLevel.READ_UNCOMMITTED
        log = self._cluster.log_bounds(partition, isolation)
        return self.reach(partition, log.log_start_offset or 0, log.end_offset or 0, isolation=isolation)

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.refresh`: every offset that was asked is asked again. Raises what `timeline` raises."""
        answers = self._answers.get(partition)
        if answers is None:
            return self.timeline(partition)
        again = self._answers[partition] = _Answers(partition, answers.isolation)
        for segment_id, offset in answers.aborted:
            known = answers.segments.get(segment_id)
            answer = self._ask(again, offset)
            if answer is None or answer.location is None:
                continue
            if known is not None and answer.location.segment_id == segment_id.id:
                segment = _segment_of(partition, answer.location, known.start_offset, known.end_offset)
            else:
                stop = known.end_offset + 1 if known is not None else offset + 1
                segment = self._segment(again, offset, answer, floor=offset, stop=stop)
            again.add(segment, offset, answer)
        return again.timeline()

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """As `Locator.recheck`. Asks the leader which segment has `offset`.

        Raises Unlocatable if no leader answers.
        """
        answers = self._answers.setdefault(partition, _Answers(partition, IsolationLevel.READ_UNCOMMITTED))
        answer = self._ask(answers, offset)
        if answer is not None and answer.location is not None:
            stop = max((segment.end_offset for segment in answers.segments.values()), default=offset) + 1
            segment = self._segment(answers, offset, answer, floor=offset, stop=stop)
            answers.add(answers.segments.get(segment.segment_id, segment), offset, answer)
        return answers.timeline()

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """As `Locator.end_is_inferred`: always. No metadata record confirms an end, and `measure` asks for none."""
        return True

    def reach(
        self,
        partition: TopicIdPartition,
        first_offset: int,
        stop_offset: int,
        *,
        isolation: IsolationLevel,
        most: int = _NO_LIMIT,
    ) -> Timeline:
        """As `StepwiseLocator.reach`. Raises Unlocatable if the leader has no usable answer for the first offset."""
        answers = self._answers[partition] = _Answers(partition, isolation)
        offset, stop = first_offset, stop_offset
        while offset < stop and len(answers.segments) < most:
            try:
                answer = self._ask(answers, offset)
                if answer is None or answer.location is None:
                    break
                if isolation is IsolationLevel.READ_COMMITTED and answer.last_stable_offset >= 0:
                    stop = min(stop, answer.last_stable_offset)
                if offset >= stop:
                    break
                floor = offset if answers.segments else max(answer.log_start_offset, 0)
                segment = self._segment(answers, offset, answer, floor=floor, stop=stop)
            except Unlocatable:
                if not answers.segments:
                    raise
                break
            answers.add(segment, offset, answer)
            offset = segment.end_offset + 1
        return answers.timeline()

    def _ask(self, answers: _Answers, offset: int) -> Answer | None:
        """The leader's answer about one offset. None: the locator is off. Raises Unlocatable."""
        if self._is_off:
            return None
        try:
            answer = self.locations.ask(answers.partition, offset, answers.isolation)
            if answer.location is not None:
                self._has_located = True
            elif answer.has_records and not self._has_located and self._is_ignored(answers, offset):
                raise LocationsUnsupported(
                    "a leader answers with records what only the tier has: it ignores the request, or does not have "
                    "the segments in a format of SupportedStorageFormatVersions"
                )
        except LocationsUnsupported as error:
            self._is_off = True
            self._say(f"remote.locator=broker is off, and the brokers give all records: {error} (KIP-1254)")
            return None
        self._cluster.answered()
        return answer

    def _is_ignored(self, answers: _Answers, offset: int) -> bool:
        """Whether a leader gives records of an offset that it does not have on its own disk.

        The start of the local log only grows. So it is asked for before the answer that it is compared with.
        """
        earliest_local = self.locations.earliest_local(answers.partition)
        if earliest_local is None or offset >= earliest_local:
            return False
        again = self.locations.ask(answers.partition, offset, answers.isolation)
        return again.location is None and again.has_records

    def _segment(
        self, answers: _Answers, offset: int, answer: Answer, *, floor: int, stop: int
    ) -> RemoteLogSegmentMetadata:
        """The segment of an answer for `offset`. If the leader does not tell its ends, they are looked for.

        `floor` is the smallest offset that the segment may start at, and offsets from `stop` on are of no interest.
        Raises Unlocatable for ends without the offset, and for an end that no segment can have.
        """
        location = answer.location
        assert location is not None
        start, end = location.start_offset, location.end_offset

        def holds(probed: int) -> bool:
            found = self._ask(answers, probed)
            return found is not None and found.location is not None and found.location.segment_id == location.segment_id

        if start is None:
            start = offset - _farthest(lambda distance: holds(offset - distance), offset - min(floor, offset))
        if end is None:
            end = offset + _farthest(lambda distance: holds(offset + distance), max(stop - 1, offset) - offset)
        if not start <= offset <= end <= MAX_OFFSET:
            raise Unlocatable(
                f"the leader names a segment of offsets {start} to {end} for offset {offset}",
                first=offset,
                offset=offset,
                **answers.partition.place,
            )
        return _segment_of(answers.partition, location, start, end)


def _segment_of(
    partition: TopicIdPartition, location: Location, start_offset: int, end_offset: int
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, location.segment_id),
        start_offset,
        end_offset,
        location.size_bytes or UNKNOWN_SIZE,
        custom_metadata=location.custom_metadata,
    )


def _farthest(holds: Callable[[int], bool], limit: int) -> int:
    """The largest distance up to `limit` that `holds`, if all up to some distance do. Distance 0 does."""
    low, high, step = 0, limit + 1, _FIRST_STEP
    while low < limit and high > limit:
        probed = min(low + step, limit)
        if holds(probed):
            low, step = probed, 2 * step
        else:
            high = probed
    while high - low > 1:
        probed = (low + high) // 2
        if holds(probed):
            low = probed
        else:
            high = probed
    return low
