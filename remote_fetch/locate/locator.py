"""The port behind which every way of finding segments stands, and the simplest ones: timelines that are already known.

Rules of the file: a locator answers for what it has seen and says nothing else; it never reads records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.topics import one_topic, sorted_partitions, split_topic, unknown_topic
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["KnownTimelines", "Locator", "PlannedLocator", "SharedLocator"]


class Locator(Protocol):
    """Where the segments of a partition are. Not called from several threads at once."""

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """The partitions of a topic (NAME or NAME:ID; None: of all topics). Raises UnknownTopic.

        Only those of `numbers` (None: all) are asked for. Others may be named too, and may then turn out to be empty.
        """

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition that `partitions` has named."""

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """The same, found out anew: an object was missing."""

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """The same, looking for a segment that reaches `offset`: one ended before it was expected to."""

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether a segment's end offset is a guess from where the next one starts."""

    def measure(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata) -> Timeline:
        """The timeline with the real end of a segment whose end is a guess."""


class KnownTimelines:
    """A locator over timelines that somebody else has found: a snapshot that was shipped to a worker."""

    def __init__(self, timelines: Iterable[Timeline]) -> None:
        self._timelines = {timeline.partition: timeline for timeline in timelines}

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """As `Locator.partitions`."""
        if topic is None:
            return sorted_partitions(self._timelines)
        name, topic_id = split_topic(topic)
        found = [one for one in self._timelines if one.topic == name and topic_id in (None, one.topic_id)]
        return one_topic(topic, found, lambda: unknown_topic(topic, (one.topic for one in self._timelines)))

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.timeline`; of a partition that is not known nothing is in the tier."""
        return self._timelines.get(partition) or Timeline(partition, (), ())

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.refresh`: nothing newer is known here."""
        return self.timeline(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """As `Locator.recheck`: nothing newer is known here."""
        return self.timeline(partition)

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """As `Locator.end_is_inferred`: metadata records tell where segments end."""
        return False

    def measure(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata) -> Timeline:
        """As `Locator.measure`: there is nothing to find out."""
        return self.timeline(partition)


class PlannedLocator:
    """What a plan already says of segments; whoever needs more, as an object is missing, gets it from another locator.

    `inferred` are the segments whose end is a guess. `open_rest` makes the other locator, once, when it is needed.
    """

    def __init__(
        self, timelines: Iterable[Timeline], inferred: Collection[RemoteLogSegmentId], open_rest: Callable[[], Locator]
    ) -> None:
        self._known = KnownTimelines(timelines)
        self._inferred = inferred
        self._open_rest = open_rest
        self._rest: Locator | None = None

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """As `Locator.partitions`: those of the plan."""
        return self._known.partitions(topic, numbers)

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.timeline`: what the plan says."""
        return self._known.timeline(partition)

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.refresh`."""
        return self._found(partition).refresh(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """As `Locator.recheck`."""
        return self._found(partition).recheck(partition, offset)

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """As `Locator.end_is_inferred`."""
        if self._rest is not None and self._rest.end_is_inferred(segment):
            return True
        return segment.segment_id in self._inferred

    def measure(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata) -> Timeline:
        """As `Locator.measure`."""
        return self._found(partition).measure(partition, segment)

    def _found(self, partition: TopicIdPartition) -> Locator:
        """The other locator, having found the partition itself."""
        if self._rest is None:
            self._rest = self._open_rest()
        self._rest.partitions(f"{partition.topic}:{partition.topic_id}", (partition.partition,))
        return self._rest


class SharedLocator:
    """A locator for several threads: one at a time is let through to the other."""

    def __init__(self, locator: Locator) -> None:
        self._locator = locator
        self._lock = threading.Lock()

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """As `Locator.partitions`."""
        with self._lock:
            return self._locator.partitions(topic, numbers)

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.timeline`."""
        with self._lock:
            return self._locator.timeline(partition)

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.refresh`."""
        with self._lock:
            return self._locator.refresh(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """As `Locator.recheck`."""
        with self._lock:
            return self._locator.recheck(partition, offset)

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """As `Locator.end_is_inferred`."""
        with self._lock:
            return self._locator.end_is_inferred(segment)

    def measure(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata) -> Timeline:
        """As `Locator.measure`."""
        with self._lock:
            return self._locator.measure(partition, segment)
