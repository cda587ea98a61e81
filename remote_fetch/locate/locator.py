"""`Locator`, the port through which a read finds segments, and the locators over timelines that are already known.

Rules of the file:

- A locator answers only for the segments that it has seen.
- A locator never reads records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, runtime_checkable
from weakref import WeakValueDictionary

from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.topics import one_topic, sorted_partitions, split_topic, unknown_topic
from remote_fetch.model import IsolationLevel, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = [
    "KnownTimelines",
    "Locator",
    "LocatorOver",
    "PlannedLocator",
    "SharedLocator",
    "SharedStepwiseLocator",
    "StepwiseLocator",
]


class Locator(Protocol):
    """Finds the segments of partitions. Unless it overrides the last three methods, it knows where segments end.

    Several threads may call it at once, each about another partition, beside one call of `partitions`. A
    `StepwiseLocator` and a `PlannedLocator` are called by one thread at a time.
    """

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """The partitions of a topic (NAME or NAME:ID; None: of all topics). Raises UnknownTopic.

        The caller wants only the partitions of `numbers` (None: all). The answer may name more of them, and these may
        have no segments.
        """

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition that `partitions` has named."""

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `timeline`, after a new lookup. For a read that missed an object."""

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether a segment's end offset is a guess. A listing guesses it from where the next segment starts."""
        return False

    def measure(self, partition: TopicIdPartition, segments: Sequence[RemoteLogSegmentMetadata]) -> Timeline:
        """The timeline with the real ends of some segments whose ends are guesses."""
        return self.timeline(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """The timeline after a search for a segment that reaches `offset`. For a segment that ended too early."""
        return self.refresh(partition)


@runtime_checkable
class StepwiseLocator(Locator, Protocol):
    """A locator that learns a segment only by asking for an offset of it. A plan asks for the offsets that it needs."""

    def reach(
        self, partition: TopicIdPartition, first_offset: int, stop_offset: int, *, isolation: IsolationLevel, most: int
    ) -> Timeline:
        """The timeline from `first_offset` up to `stop_offset` (exclusive), of at most `most` segments.

        It replaces what was known of the partition. Under read_committed it has the lists of aborted transactions.
        """


class KnownTimelines(Locator):
    """A locator over given timelines, such as those that a driver sends to a worker."""

    def __init__(self, timelines: Iterable[Timeline]) -> None:
        self._timelines = {timeline.partition: timeline for timeline in timelines}

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """As `Locator.partitions`."""
        if topic is None:
            return sorted_partitions(self._timelines)
        name, topic_id = split_topic(topic)
        named = [partition for partition in self._timelines if partition.topic == name]
        found = [partition for partition in named if topic_id in (None, partition.topic_id)]
        return one_topic(topic, found, lambda: unknown_topic(topic, (known.topic for known in self._timelines)))

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.timeline`. An unknown partition has no segments."""
        return self._timelines.get(partition) or Timeline(partition, (), ())

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.refresh`. The timelines never change."""
        return self.timeline(partition)


class LocatorOver:
    """Puts questions about a partition to another locator. A subclass tells the partitions and their timelines."""

    def _asked(self, partition: TopicIdPartition) -> AbstractContextManager[Locator]:
        """The locator for a question about a partition, as long as the question is asked."""
        raise NotImplementedError

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.refresh`."""
        with self._asked(partition) as locator:
            return locator.refresh(partition)

    def recheck(self, partition: TopicIdPartition, offset: int) -> Timeline:
        """As `Locator.recheck`."""
        with self._asked(partition) as locator:
            return locator.recheck(partition, offset)

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """As `Locator.end_is_inferred`."""
        with self._asked(segment.topic_id_partition) as locator:
            return locator.end_is_inferred(segment)

    def measure(self, partition: TopicIdPartition, segments: Sequence[RemoteLogSegmentMetadata]) -> Timeline:
        """As `Locator.measure`."""
        with self._asked(partition) as locator:
            return locator.measure(partition, segments)


class PlannedLocator(LocatorOver, KnownTimelines):
    """Serves the timelines of a plan. Opens a full locator on demand, for example if an object is missing.

    `inferred` are the segments whose end is a guess. `open_rest` makes the full locator; it is called at most once.
    """

    def __init__(
        self, timelines: Iterable[Timeline], inferred: Collection[RemoteLogSegmentId], open_rest: Callable[[], Locator]
    ) -> None:
        super().__init__(timelines)
        self._inferred = inferred
        self._open_rest = open_rest
        self._rest: Locator | None = None

    def end_is_inferred(self, segment: RemoteLogSegmentMetadata) -> bool:
        """As `Locator.end_is_inferred`."""
        if self._rest is not None and self._rest.end_is_inferred(segment):
            return True
        return segment.segment_id in self._inferred

    def _asked(self, partition: TopicIdPartition) -> AbstractContextManager[Locator]:
        """The full locator, after it has looked the partition up."""
        if self._rest is None:
            self._rest = self._open_rest()
        self._rest.partitions(f"{partition.topic}:{partition.topic_id}", (partition.partition,))
        return nullcontext(self._rest)


class SharedLocator(LocatorOver):
    """A locator for several threads. One call at a time reaches `locator`.

    With `by_partition` it is one call at a time about each partition, and one of `partitions`.
    """

    def __init__(self, locator: Locator, *, by_partition: bool = False) -> None:
        self._locator = locator
        self._by_partition = by_partition
        self._locks: WeakValueDictionary[TopicIdPartition | None, threading.Lock] = WeakValueDictionary()
        self._choosing = threading.Lock()  # for `_locks`

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """As `Locator.partitions`."""
        with self._asked(None) as locator:
            return locator.partitions(topic, numbers)

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """As `Locator.timeline`."""
        with self._asked(partition) as locator:
            return locator.timeline(partition)

    @contextmanager
    def _asked(self, partition: TopicIdPartition | None) -> Iterator[Locator]:
        with self._choosing:  # no lock outlives its calls: a consumer may meet any number of partitions
            lock = self._locks.setdefault(partition if self._by_partition else None, threading.Lock())
        with lock:
            yield self._locator


class SharedStepwiseLocator(SharedLocator):
    """A stepwise locator for several threads."""

    def __init__(self, locator: StepwiseLocator) -> None:
        super().__init__(locator)
        self._stepwise = locator

    def reach(
        self, partition: TopicIdPartition, first_offset: int, stop_offset: int, *, isolation: IsolationLevel, most: int
    ) -> Timeline:
        """As `StepwiseLocator.reach`."""
        with self._asked(partition):
            return self._stepwise.reach(partition, first_offset, stop_offset, isolation=isolation, most=most)
