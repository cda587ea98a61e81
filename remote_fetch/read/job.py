"""A bounded read from its arguments to its plans: which partitions, which offsets, which slices.

Rules of the file: everything that can be refused is refused here, before the first record; the same plans serve a
reading face and `remote-fetch plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remote_fetch.errors import ConfigError, UnknownTopic
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.observe import Notice
from remote_fetch.plan.ranges import plan_offsets
from remote_fetch.read.bounds import Bound, parse_bound, resolve
from remote_fetch.read.partition import OpenPartition, load_aborted, narrow_edges, open_partition
from remote_fetch.read.scan import PartitionPlan
from remote_fetch.read.session import Session

__all__ = ["parse_isolation", "plan_job"]


def parse_isolation(value: object) -> IsolationLevel:
    """`isolation.level` as Kafka spells it. Raises ConfigError."""
    try:
        return IsolationLevel(str(value))
    except ValueError:
        raise ConfigError(
            f"isolation={value!r}: choose {' or '.join(level.value for level in IsolationLevel)}", key="isolation"
        ) from None


def plan_job(
    session: Session,
    topic: str,
    *,
    start: Any,
    end: Any,
    partitions: Iterable[int] | None,
    isolation: IsolationLevel,
    log_start: int | Mapping[int, int] | None = None,
) -> tuple[PartitionPlan, ...]:
    """The plans of the wanted partitions, in order. Raises what planning finds wrong: see `read_arrow`."""
    chosen = _choose(session.locator.partitions(topic), topic, partitions)
    numbers = [partition.partition for partition in chosen]
    starts = _by_partition(start, "start", "earliest", numbers)
    ends = _by_partition(end, "end", "latest", numbers)
    log_starts = _log_starts(log_start, numbers)
    if not log_starts:
        session.observe(
            Notice("log start unknown: the bucket alone does not tell which records were deleted before its segments")
        )
    return tuple(
        _plan(session, partition, starts[partition.partition], ends[partition.partition], isolation, log_starts)
        for partition in chosen
    )


def _plan(
    session: Session,
    partition: TopicIdPartition,
    start: Bound,
    end: Bound,
    isolation: IsolationLevel,
    log_starts: Mapping[int, int],
) -> PartitionPlan:
    opened = open_partition(session, partition, isolation, log_start_offset=log_starts.get(partition.partition))
    first, stop = resolve(session, opened, start, end)
    stable = None if isolation is IsolationLevel.READ_UNCOMMITTED else opened.stable_stop
    steps = narrow_edges(session, plan_offsets(partition, opened, first, stop, stable_stop=stable))
    return PartitionPlan(opened, steps, _aborted(session, opened, steps, isolation))


def _aborted(session: Session, opened: OpenPartition, steps: Any, isolation: IsolationLevel) -> Any:
    return load_aborted(session, opened, steps) if isolation is IsolationLevel.READ_COMMITTED else None


def _choose(
    found: tuple[TopicIdPartition, ...], topic: str, wanted: Iterable[int] | None
) -> tuple[TopicIdPartition, ...]:
    if wanted is None:
        return found
    known = {partition.partition: partition for partition in found}
    numbers = sorted(set(wanted))
    missing = [number for number in numbers if number not in known]
    if missing:
        raise UnknownTopic(
            f"topic {topic!r} has no tiered partition {', '.join(map(str, missing))}; "
            f"there are {', '.join(map(str, known))}"
        )
    return tuple(known[number] for number in numbers)


def _by_partition(value: Any, name: str, default: str, numbers: Iterable[int]) -> dict[int, Bound]:
    """A bound for each partition; a mapping may leave partitions out, which then get the default."""
    if not isinstance(value, Mapping):
        bound = parse_bound(value, name)
        return dict.fromkeys(numbers, bound)
    known = set(numbers)
    strangers = [key for key in value if key not in known]
    if strangers:
        raise ConfigError(f"{name} names partitions that are not read: {strangers}", key=name)
    return {number: parse_bound(value.get(number, default), f"{name}[{number}]") for number in known}


def _log_starts(value: int | Mapping[int, int] | None, numbers: Iterable[int]) -> dict[int, int]:
    if value is None:
        return {}
    starts = dict(value) if isinstance(value, Mapping) else dict.fromkeys(numbers, value)
    for number, offset in starts.items():
        if not isinstance(offset, int) or offset < 0:
            raise ConfigError(f"log_start of partition {number} is {offset!r}: give an offset", key="log_start")
    return starts
