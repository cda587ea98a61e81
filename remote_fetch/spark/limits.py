"""From limits to offsets: where in each partition a Spark read begins and ends, and what counts as lost data.

Rules of the file:

- For an offset that the log does not have, `failOnDataLoss` decides: an error, or a notice and a clipped range.
- A timestamp means the first record that is not before it, as the broker's ListOffsets answers.
- Errors have the words of Spark's source, if it reports the same mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remote_fetch.errors import ConfigError, OffsetOutOfRange
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Notice, Observer
from remote_fetch.prepare.bounds import Bound, Edge, LookUp, Timestamp, offset_of
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.spark.options import ByPartition, Limit, SourceOptions

__all__ = [
    "FAIL_ON_DATA_LOSS_HINT",
    "LimitRules",
    "Restriction",
    "check_batch",
    "check_covered",
    "lose",
    "offsets_from",
    "offsets_of",
    "start_of",
]

FAIL_ON_DATA_LOSS_HINT = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed. If you don't want your "
    "query to fail on such cases, set the source option 'failOnDataLoss' to 'false'"
)


@dataclass(frozen=True, slots=True)
class LimitRules:
    """The answer to a start or an end of a Spark read that is not in the log.

    - `latest_if_unmatched`: no record is as late as the starting timestamp. True: begin at the end. False: raise
      ConfigError.
    - `fail_on_data_loss`: the log does not have the offset. True: raise OffsetOutOfRange. False: report it and clip it.
    """

    latest_if_unmatched: bool = False
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class Restriction:
    """The part of a topic that filters leave: partitions [first_partition, stop_partition) that are in `partitions`
    (None: all); offsets [first_offset, stop_offset), from the first record on that is not before `since_ms`.
    """

    partitions: frozenset[int] | None = None
    first_partition: int = 0
    stop_partition: int = 2**63 - 1
    first_offset: int = 0
    stop_offset: int = 2**63 - 1
    since_ms: int | None = None

    def takes(self, partition: int) -> bool:
        """Whether the restriction leaves any records of a partition."""
        named = self.partitions is None or partition in self.partitions
        return named and self.first_partition <= partition < self.stop_partition


def check_batch(options: SourceOptions) -> tuple[Limit, Limit]:
    """Where a batch begins and ends. Raises ConfigError for what only a stream may ask for."""
    start = Edge.EARLIEST if options.start is None else options.start
    end = Edge.LATEST if options.end is None else options.end
    if start is Edge.LATEST:
        raise ConfigError("starting offset can't be latest for batch queries on Kafka", key="startingOffsets")
    if end is Edge.EARLIEST:
        raise ConfigError("ending offset can't be earliest for batch queries on Kafka", key="endingOffsets")
    if isinstance(start, Timestamp) and isinstance(end, Timestamp) and start.timestamp_ms > end.timestamp_ms:
        raise ConfigError(
            f"start timestamp {start.timestamp_ms} is greater than end timestamp {end.timestamp_ms}",
            key="startingTimestamp",
        )
    for (topic, partition), limit in start.items() if isinstance(start, Mapping) else ():
        if limit is Edge.LATEST:
            raise ConfigError(
                f"startingOffsets for {topic}-{partition} can't be latest for batch queries on Kafka",
                key="startingOffsets",
            )
    for (topic, partition), limit in end.items() if isinstance(end, Mapping) else ():
        if limit is Edge.EARLIEST:
            raise ConfigError(
                f"ending offset for {topic}-{partition} can't be earliest for batch queries on Kafka",
                key="endingOffsets",
            )
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        _check_order(start, end)
    return start, end


def _check_order(start: ByPartition, end: ByPartition) -> None:
    kinds = [{isinstance(limit, Timestamp) for limit in limits.values()} for limits in (start, end)]
    if kinds[0] != kinds[1]:
        return
    if start.keys() != end.keys():
        only = ", ".join(sorted(f"{topic}-{partition}" for topic, partition in start.keys() ^ end.keys()))
        raise ConfigError(
            f"Mismatched topic partitions between start offset and end offset: only one of them has {only}",
            key="endingOffsets",
        )
    for at, low in start.items():
        first, stop = (bound.timestamp_ms if isinstance(bound, Timestamp) else bound for bound in (low, end[at]))
        if isinstance(first, int) and isinstance(stop, int) and first > stop:
            what = "timestamp" if isinstance(low, Timestamp) else "offset"
            raise ConfigError(
                f"Failed to resolve the range of {at[0]}-{at[1]}: start {what} {first} is greater than end {what} "
                f"{stop}",
                key="startingOffsets",
            )


def check_covered(limit: Limit, partitions: set[tuple[str, int]], name: str) -> None:
    """Raise ConfigError unless a limit by partition names every partition that is read, and no other."""
    if not isinstance(limit, Mapping) or limit.keys() == partitions:
        return
    specified, assigned = (", ".join(sorted(f"{t}-{p}" for t, p in places)) for places in (limit.keys(), partitions))
    edges = " Use -1 for latest, -2 for earliest, if you don't care."
    if any(isinstance(bound, Timestamp) for bound in limit.values()):  # times have no -1 and -2
        name, edges = f"{name}ByTimestamp", ""
    raise ConfigError(
        f"If {name} contains specific offsets, you must specify all TopicPartitions.{edges} "
        f"Specified: {specified}. Assigned: {assigned}.",
        key=name,
    )


def offsets_of(planner: Planner, opened: OpenPartition, start: Limit, end: Limit, rules: LimitRules) -> tuple[int, int]:
    """Resolve two limits to the offsets [first, stop) of one partition; both are equal if there is nothing to read.

    Raises OffsetOutOfRange for offsets that the log does not have, ConfigError for a starting timestamp that no record
    reaches or that lies past the end, and the errors of reading if a time has to be looked up.
    """
    partition = opened.partition
    low, high = _at(start, partition), _at(end, partition)
    if isinstance(low, int) and low == high:
        return low, low
    first = _first(planner, opened, low, rules)
    stop = _stop(planner, opened, high, rules)
    # As Spark's source, by the offsets that were given, also if the log does not have them.
    begin, end_offset = low if isinstance(low, int) else first, high if isinstance(high, int) else stop
    if end_offset < begin:
        raise ConfigError(
            f"The resolved start offset {begin} is greater than the resolved end offset {end_offset} for "
            f"topic-partition {partition.topic_partition}.",
            key=_key_of(low, high),
        )
    return first, max(first, stop)


def _key_of(low: Bound, high: Bound) -> str:
    """The option to look at if the start lies past the end."""
    if isinstance(low, Timestamp):
        return "startingTimestamp"
    return "endingTimestamp" if isinstance(high, Timestamp) else "startingOffsets"


def start_of(planner: Planner, opened: OpenPartition, start: Limit, rules: LimitRules) -> int:
    """Resolve where a stream begins in one partition. An offset past the end of the log is the end, if that may pass.

    Raises OffsetOutOfRange for an offset that the log does not have, ConfigError for a timestamp that no record
    reaches, and the errors of reading if a time has to be looked up.
    """
    return _first(planner, opened, _at(start, opened.partition), rules)


def offsets_from(planner: Planner, opened: OpenPartition, at: int, end: Limit, rules: LimitRules) -> tuple[int, int]:
    """As `offsets_of`, for a read that goes on at offset `at`. There is nothing to read if the end lies before it.

    It never goes back: if the log ends before `at`, and that may pass, both offsets are `at`.
    """
    first = max(at, _first(planner, opened, at, rules))
    return first, max(first, _stop(planner, opened, _at(end, opened.partition), rules))


def _at(limit: Limit, partition: TopicIdPartition) -> Bound:
    return limit[partition.topic, partition.partition] if isinstance(limit, Mapping) else limit


def _first(planner: Planner, opened: OpenPartition, limit: Bound, rules: LimitRules) -> int:
    if isinstance(limit, int) and limit < opened.first_offset:
        _lose(planner, opened.partition, f"offsets {limit} to {opened.first_offset - 1} are gone", limit, rules)
        return opened.first_offset

    def look_up(opened: OpenPartition, timestamp_ms: int) -> int | None:
        found = planner.times.first_offset_at(opened, timestamp_ms)
        if found is None and not rules.latest_if_unmatched:
            partition = opened.partition
            raise ConfigError(
                f"No offset matched from request of topic-partition {partition.topic_partition} and "
                f"timestamp {timestamp_ms}.",
                key="startingOffsetsByTimestampStrategy",
            )
        return found

    return _stop(planner, opened, limit, rules, look_up)


def _stop(
    planner: Planner, opened: OpenPartition, limit: Bound, rules: LimitRules, look_up: LookUp | None = None
) -> int:
    if isinstance(limit, int) and limit > opened.last_start:
        _lose(planner, opened.partition, f"{opened.end_text}, before {limit}", limit, rules)
        return opened.last_start
    return offset_of(opened, limit, look_up or planner.times.first_offset_at)


def lose(observe: Observer, topic: str, partition: int, what: str, offset: int, *, fails: bool) -> None:
    """Say that records from `offset` on may have been missed: as OffsetOutOfRange if that `fails`, else as a notice."""
    text = f"Partition {topic}-{partition}: {what}, some data may have been missed"
    if fails:
        raise OffsetOutOfRange(text, topic=topic, partition=partition, offset=offset, hint=FAIL_ON_DATA_LOSS_HINT)
    observe(Notice(text, is_warning=True))


def _lose(planner: Planner, partition: TopicIdPartition, what: str, offset: int, rules: LimitRules) -> None:
    lose(planner.observe, partition.topic, partition.partition, what, offset, fails=rules.fail_on_data_loss)
