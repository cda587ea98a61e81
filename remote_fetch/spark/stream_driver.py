"""The driver of a streaming query: where the query begins, how far the next micro-batch goes, and its tasks.

Rules of the file:

- The offsets that Spark keeps are all that a query remembers.
- A batch between two offsets is planned from the tier and the broker of now. So a batch that is done again has the same
  rows, whether the store or the broker has them by then, and whichever partitions the options name by then.
- `failOnDataLoss` decides about lost records: an error, or a warning. A topic that is deleted while the driver asks
  about it is lost like one that was deleted before.
- One session serves the query to its end. A query outlives brokers that are away for some minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from confluent_kafka import KafkaException

from remote_fetch.deadline import Deadline
from remote_fetch.errors import ConfigError, RemoteFetchError, UnknownTopic
from remote_fetch.failures.broker_errors import is_of_no_topic
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid
from remote_fetch.observe import Notice
from remote_fetch.plan.ranges import PlanStep, plan_offsets
from remote_fetch.prepare.bounds import Edge, Timestamp
from remote_fetch.prepare.planner import Planner, say_end
from remote_fetch.prepare.subscribed import topic_name
from remote_fetch.prepare.true_sizes import with_true_sizes
from remote_fetch.prepare.view import OpenPartition, untiered
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.session import Session
from remote_fetch.spark.limits import LimitRules, check_covered, lose, start_of
from remote_fetch.spark.options import SourceOptions
from remote_fetch.spark.patience import ask_patiently
from remote_fetch.spark.planning import subscribed, tasks_of
from remote_fetch.spark.stream_limits import (
    Positions,
    TriggerLimits,
    share_limit,
    size_of,
    stop_after_bytes,
    stop_after_offsets,
)
from remote_fetch.tables.planning import open_partitions
from remote_fetch.tables.tasks import Task

__all__ = ["StreamDriver"]

T = TypeVar("T")

_AGREE_S = 30.0
"""How long brokers may disagree about a topic. A broker that is behind the controller learns of a deletion late."""
_AWAY_S = 300.0
"""How long the brokers of a query may be away, also when it starts, as in the middle of a read."""
_PAUSE_S = 0.2
_SHOWN = 20
_GONE = "the partition is gone, or no option names it any more"


class StreamDriver:
    """The driver's side of one query. Pickles as long as it has not been asked anything."""

    def __init__(
        self, options: SourceOptions, limits: TriggerLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        _check_stream(options)
        self._options = options
        self._limits = limits
        self._clock = clock
        self._session: Session | None = None
        self._ids: dict[str, Uuid] = {}
        self._places: set[tuple[str, int]] = set()
        self._seen: frozenset[TopicIdPartition] = frozenset()
        self._target: Positions | None = None
        self._ends: Positions | None = None
        self._went_at_s: float | None = None
        self._began_at: Positions | None = None
        self._held: frozenset[tuple[str, int]] = frozenset()
        self._has_begun = False
        self._has_initial = False

    def initial(self) -> Positions:
        """Where a query begins that has no checkpoint; at the end of the log, if no option says otherwise."""
        self._has_initial = True
        return self._of_those_left(self._initial)

    def _initial(self) -> Positions:
        start = Edge.LATEST if self._options.start is None else self._options.start
        rules = LimitRules(self._options.latest_if_unmatched, self._options.fail_on_data_loss)
        session, partitions = self._survey()
        check_covered(start, {(partition.topic, partition.partition) for partition in partitions}, "startingOffsets")
        found: Positions = {}
        planner = Planner(session, self._options.isolation)
        held = set()
        for opened in open_partitions(planner, partitions):
            at = _place(opened.partition)
            found[at] = start_of(planner, opened, start, rules)
            limit = start[at] if isinstance(start, Mapping) else start
            # A time that no record reaches is the end of the log, too, and so is an offset past it.
            is_late = found[at] == opened.end_offset if isinstance(limit, Timestamp) else limit is Edge.LATEST
            if is_late or (isinstance(limit, int) and found[at] < limit):
                held.add(at)
        if (start is Edge.LATEST or held) and not self._has_begun:  # Spark asks once more when the first batch runs
            self._began_at, self._held = found, frozenset(held)
        if self._target is not None:  # which Spark has fixed before; the log and the topic may have grown since
            self._target = found | {at: max(end, found.get(at, end)) for at, end in self._target.items()}
        return found

    def fix_target(self) -> None:
        """Go no further than the ends of now (Trigger.AvailableNow)."""
        self._target = {place: end for place, (_, end) in self._of_those_left(self._bounds).items()}

    def latest(self) -> Positions | None:
        """The ends of the log when they were last asked for; None: they were not yet."""
        return self._ends

    def next_stop(self, start: Positions, *, is_limited: bool) -> Positions:
        """The end of the micro-batch that begins at `start`; `start` itself if there is nothing for it yet.

        Raises OffsetOutOfRange if partitions or offsets are gone and that may not pass.
        """
        # Spark keeps the end of each batch, but no beginning of a query, and after a crash "latest" is another offset.
        # So the first batch must have no record of a partition that begins there: it would be done again with others.
        is_first = start == self._begin()
        if is_first and self._held == start.keys():
            return start
        bounds = self._of_those_left(self._bounds)
        if self._target is not None:
            bounds = {at: (low, min(end, self._target[at])) for at, (low, end) in bounds.items() if at in self._target}
        if is_first:
            bounds = {at: bounds[at] for at in start if at in bounds}
            bounds |= {at: (bounds[at][0], start[at]) for at in self._held if at in bounds}
        self._check_lost(start, bounds)
        if not bounds:  # as Spark's source: if all topics come back, an end without them would give every record again
            return start
        firsts = {at: start.get(at, low) for at, (low, _) in bounds.items()}
        wanted = {at: max(end - firsts[at], 0) for at, (_, end) in bounds.items()}
        stops = {at: end for at, (_, end) in bounds.items()}
        if not is_limited:
            self._went_at_s = self._clock()
            return stops
        if self._waits(sum(wanted.values())):
            return start
        for limit, size, cut in (
            (self._limits.max_offsets, _offsets, stop_after_offsets),
            (self._limits.max_bytes, size_of, stop_after_bytes),
        ):
            if limit is not None:
                stops |= self._limited(firsts, stops, limit, size, cut)
        return stops

    def tasks(self, start: Positions, end: Positions) -> tuple[Task, ...]:
        """The tasks of the micro-batch [start, end). Raises as `next_stop`, and what planning finds wrong."""
        self._begin()
        if all(start.get(at) == stop for at, stop in end.items()):
            return ()
        return self._of_those_left(lambda: self._tasks(start, end))

    def _tasks(self, start: Positions, end: Positions) -> tuple[Task, ...]:
        session, partitions = self._survey()
        moved = {at for at, stop in end.items() if start.get(at) != stop}
        chosen = [partition for partition in partitions if _place(partition) in moved]
        left_out = moved.difference(map(_place, chosen))
        if self._has_initial:  # of the first batch, whose beginning is that of the partitions that the options name now
            left_out &= start.keys()
        chosen += self._left_out(session, left_out)
        known = {_place(partition) for partition in chosen}
        for topic, number in sorted(at for at in moved - known if end[at] > start.get(at, 0)):
            self._lose(topic, number, _GONE, end[topic, number])
        planner = Planner(session, self._options.isolation)
        plans = []
        for opened in open_partitions(planner, chosen):
            first, stop = self._clipped(opened, start, end)
            say_end(planner.observe, opened, stop)
            plans.append(planner.outline(opened, first, stop))
        return tasks_of(plans, self._options, session.locator.end_is_inferred)

    def _left_out(self, session: Session, places: set[tuple[str, int]]) -> Iterator[TopicIdPartition]:
        """Those of these partitions that exist. The options have left them out since the batch was begun."""
        named = {topic_name(name): name for name in self._options.subscription.topics}  # perhaps with the topic's id
        for topic in sorted({topic for topic, _ in places}):
            with suppress(UnknownTopic):
                numbers = [number for name, number in places if name == topic]
                there = session.locator.partitions(named.get(topic, topic), numbers)
                yield from (partition for partition in there if _place(partition) in places)

    def _begin(self) -> Positions | None:
        """Where the query begins, if that is still to be kept by a batch: the first, and no other."""
        began_at, self._began_at, self._has_begun = self._began_at, None, True
        return began_at

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _of_those_left(self, ask: Callable[[], T]) -> T:
        """The answer to a question that begins with a survey. If a topic is deleted in between, it is asked again.

        Raises the errors of the survey and of the question. Brokers learn of a deletion one after another. So a broker
        may not know a topic that another one still describes: UnknownTopic, if they do not agree in time.
        """
        until = Deadline.after(_AGREE_S)
        while True:
            try:
                return self._patiently(ask)
            except (KafkaException, UnknownTopic) as error:
                if isinstance(error, KafkaException) and not is_of_no_topic(error):
                    raise
                seen = self._seen
                _, left = self._patiently(self._survey)
                if seen <= set(left):
                    if until.is_over:
                        if isinstance(error, UnknownTopic):
                            raise
                        raise _disagreement(seen, error) from error
                    time.sleep(_PAUSE_S)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer to a question that is asked again while no broker answers. Raises BrokerUnavailable in the end."""

        def say(text: str) -> None:
            if self._session is not None:
                self._session.observe(Notice(text, is_warning=True, is_wait=True))

        return ask_patiently(ask, say, away_s=_AWAY_S)

    def _survey(self) -> tuple[Session, tuple[TopicIdPartition, ...]]:
        """The session, and the partitions that there are now. Reports a topic that was created again."""
        if self._session is None:
            self._session = Session.open(self._options.config)
        partitions = self._subscribed(self._session)
        for partition in partitions:
            known = self._ids.setdefault(partition.topic, partition.topic_id)
            if known != partition.topic_id:
                self._ids[partition.topic] = partition.topic_id
                self._lose(partition.topic, partition.partition, "the topic was deleted and made again", 0)
        places = {_place(partition) for partition in partitions}
        if self._session.brokers is not None and self._places:
            for topic in sorted({topic for topic, _ in places - self._places}):
                self._session.brokers.cluster.learn_partitions(topic, self._options.isolation)
        self._places |= places
        self._seen = frozenset(partitions)
        return self._session, partitions

    def _subscribed(self, session: Session) -> tuple[TopicIdPartition, ...]:
        """The partitions that there are. If data loss may pass, those that are gone are left out.

        `_check_lost` and `_tasks` tell what is lost, by the query's offsets.
        """
        wanted = self._options.subscription
        if wanted.pattern is not None or self._options.fail_on_data_loss:
            return subscribed(session, wanted)
        found: list[TopicIdPartition] = []
        for topic in wanted.topics:
            try:
                found += subscribed(session, replace(wanted, topics=(topic,)))
            except UnknownTopic:
                if topic_name(topic) not in self._ids:
                    raise
                if wanted.partitions is not None:  # the topic may have others of them
                    numbers = wanted.partitions[topic]
                    with suppress(UnknownTopic):
                        there = session.locator.partitions(topic, numbers)
                        found += (partition for partition in there if partition.partition in numbers)
        return tuple(found)

    def _bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Of each partition the first offset that can be read now, and the end (exclusive)."""
        session, partitions = self._survey()
        if session.brokers is None:
            opened = open_partitions(Planner(session, self._options.isolation), partitions)
            found = {_place(one.partition): (one.first_offset, one.end_offset) for one in opened}
        else:
            guard = session.brokers.guard
            for partition in partitions:
                guard.authorise(partition)
            logs = all_at_once(lambda partition: guard.bounds(partition, self._options.isolation), partitions)
            ends = ((log.log_start_offset or 0, log.end_offset or 0) for log in logs)
            found = dict(zip(map(_place, partitions), ends, strict=True))
        self._ends = {place: end for place, (_, end) in found.items()}
        return found

    def _clipped(self, opened: OpenPartition, start: Positions, end: Positions) -> tuple[int, int]:
        at = _place(opened.partition)
        first, stop = start.get(at, 0), end[at]  # a partition that is new begins at offset 0
        if first < opened.first_offset and first < stop:
            gone = min(opened.first_offset, stop)
            self._lose(*at, f"offsets {first} to {gone - 1} are gone", first)
            first = gone
        if stop > opened.last_start:
            self._lose(*at, f"{opened.end_text}, before {stop}", stop)
            stop = opened.last_start
        return first, stop

    def _waits(self, offsets: int) -> bool:
        """Whether so few new offsets are not worth a batch yet; never of a query that ends with what is there."""
        if self._limits.min_offsets is not None and self._target is None and self._went_at_s is not None:
            waited_s = self._clock() - self._went_at_s
            if offsets < self._limits.min_offsets and waited_s < self._limits.max_delay_ms / 1000:
                return True
        self._went_at_s = self._clock()
        return False

    def _limited(
        self,
        firsts: Positions,
        stops: Positions,
        limit: int,
        size: Callable[[tuple[PlanStep, ...]], int],
        cut: Callable[[tuple[PlanStep, ...], int], int],
    ) -> Positions:
        """The stops of those partitions that a limit stops earlier."""
        wanted = [at for at, stop in stops.items() if stop > firsts[at]]
        planned = all_at_once(lambda at: self._steps(at, firsts[at], stops[at]), wanted)
        steps = dict(zip(wanted, planned, strict=True))
        if size is size_of:  # metadata does not have each segment's size (KIP-1333)
            assert self._session is not None
            steps = {at: with_true_sizes(self._session.storage, each) for at, each in steps.items()}
        sizes = {at: size(each) for at, each in steps.items()}
        if sum(sizes.values()) <= limit:
            return {}
        return {at: cut(steps[at], share) for at, share in share_limit(sizes, limit).items()}

    def _steps(self, at: tuple[str, int], first: int, stop: int) -> tuple[PlanStep, ...]:
        """About how a stretch will be read: by the segments as they are listed, whatever their lineage.

        If the locator fails and the broker may read the stretch, or the topic was deleted, no segment is known. The
        plan of the batch reports it.
        """
        session = self._session
        assert session is not None
        partition = TopicIdPartition(self._ids[at[0]], *at)
        opened = untiered(partition, self._options.isolation, LogBounds(None))
        try:
            if session.stepwise is None:
                timeline = session.locator.timeline(partition)
            else:
                level, most = IsolationLevel.READ_UNCOMMITTED, stop - first
                timeline = session.stepwise.reach(partition, first, stop, isolation=level, most=most)
        except RemoteFetchError as error:
            if not isinstance(error, UnknownTopic) and not session.fallback.allows(error):
                raise
            timeline = opened.timeline
        return plan_offsets(opened.with_timeline(timeline), first, stop)

    def _check_lost(self, start: Positions, bounds: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        for (topic, number), first in sorted(start.items()):
            if (topic, number) not in bounds:
                self._lose(topic, number, _GONE, first)
            elif first > bounds[topic, number][1]:
                end = bounds[topic, number][1]
                self._lose(topic, number, f"offset was changed from {first} to {end}", first)
        fresh = [at for at in bounds if at not in start]
        for topic, number in sorted(at for at in fresh if bounds[at][0] > 0):
            low = bounds[topic, number][0]
            self._lose(topic, number, f"the partition is new and starts at offset {low}, not 0", low)

    def _lose(self, topic: str, partition: int, what: str, offset: int) -> None:
        assert self._session is not None
        lose(self._session.observe, topic, partition, what, offset, fails=self._options.fail_on_data_loss)


def _check_stream(options: SourceOptions) -> None:
    """Raise ConfigError for options that only a batch may have."""
    if options.end is not None:
        by_offset = "endingoffsets" in options.given
        what, key = ("offset", "endingOffsets") if by_offset else ("timestamp", "endingTimestamp")
        raise ConfigError(f"ending {what} not valid in streaming queries", key=key)


def _disagreement(seen: Iterable[TopicIdPartition], error: KafkaException) -> UnknownTopic:
    """The error of a broker that does not know one of these topics, which another broker describes."""
    names = ", ".join(sorted({partition.topic for partition in seen})[:_SHOWN])
    return UnknownTopic(
        f"brokers do not agree whether each of these topics exists: {names} ({error.args[0].str()})",
        hint="Start the query again when all brokers know the same topics",
    )


def _place(partition: TopicIdPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def _offsets(steps: Iterable[PlanStep]) -> int:
    return sum(step.offsets for step in steps)
