"""Parses the arguments of a bounded read: the isolation level, the partitions, and the bounds of each partition.

Rules of the file:

- Pure.
- A wrong argument raises a ConfigError that names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from remote_fetch.errors import ConfigError, UnknownTopic
from remote_fetch.model import MAX_OFFSET, IsolationLevel, TopicIdPartition
from remote_fetch.prepare.bounds import Bound, UserBound, as_int, parse_bound

__all__ = [
    "bounds_by_partition",
    "check_bounds",
    "check_observer",
    "check_topic",
    "choose_partitions",
    "in_order",
    "parse_isolation",
    "parse_log_starts",
    "parse_numbers",
]


_KEY = "isolation.level"


def check_topic(topic: object) -> None:
    """Raise ConfigError if this is no name of a topic. None would stand for all topics."""
    if not isinstance(topic, str) or not topic:
        raise ConfigError(f"topic={topic!r}: give a topic's name", key="topic")


def check_observer(observer: object) -> None:
    """Raise ConfigError if this cannot be called with one event, such as a class in place of an object of it."""
    try:
        inspect.signature(observer).bind(None)  # type: ignore[arg-type]
    except TypeError:
        given = f"the class {observer.__qualname__}" if isinstance(observer, type) else repr(observer)
        raise ConfigError(
            f"observer is {given}: give a function, or an object, that can be called with one event", key="observer"
        ) from None
    except ValueError:
        return  # some functions that are written in C do not tell their signature


def parse_isolation(value: object, config: object = None, option: str | None = None) -> IsolationLevel:
    """The isolation level that `value` names, spelled as in Kafka. None: that of `config`, or read_committed.

    A `config` names it in upper or lower case, as librdkafka takes it. One that is no dict names none: `Config.parse`
    refuses it.

    Raises ConfigError for any other value. The error names the key, or the `option` of the command line that has the
    value. None: the argument `isolation`.
    """
    level: object
    if value is None:
        named = config.get(_KEY) if isinstance(config, Mapping) else None
        level = IsolationLevel.READ_COMMITTED.value if named is None else str(named).lower()
        key, given = _KEY, f"{_KEY}={named}"
    else:
        level, key = value, option or "isolation"
        given = f"isolation={value!r}" if option is None else f"{option} {value}"
    try:
        return IsolationLevel(str(level))
    except ValueError:
        levels = " or ".join(known.value for known in IsolationLevel)
        raise ConfigError(f"{given}: choose {levels}", key=key) from None


def parse_numbers(wanted: Iterable[int] | None) -> list[int] | None:
    """The numbers of the wanted partitions, sorted, each once; None for all partitions."""
    if wanted is None:
        return None
    is_list = isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes))
    numbers = {as_int(number) for number in wanted} if is_list else {None}
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        raise ConfigError(f"partitions={wanted!r}: give partition numbers", key="partitions")
    return sorted(known)


def choose_partitions(
    found: tuple[TopicIdPartition, ...], topic: str, numbers: Sequence[int] | None
) -> tuple[TopicIdPartition, ...]:
    """The found partitions with these numbers, in the order of the numbers. Raises UnknownTopic if one is missing."""
    if numbers is None:
        return found
    known = {partition.partition: partition for partition in found}
    missing = [number for number in numbers if number not in known]
    if missing:
        raise UnknownTopic(
            f"topic {topic!r}: no partition {', '.join(map(str, missing))} was found; "
            f"there are {', '.join(map(str, known))}",
            topic=topic,
        )
    return tuple(known[number] for number in numbers)


def bounds_by_partition(value: UserBound, name: str, default: str, numbers: Iterable[int]) -> dict[int, Bound]:
    """A bound for each partition. If `value` is a mapping, the partitions that it leaves out get the default."""
    if not isinstance(value, Mapping):
        bound = parse_bound(value, name)
        return dict.fromkeys(numbers, bound)
    known = set(numbers)
    strangers = [key for key in value if key not in known]
    if strangers:
        raise ConfigError(f"{name} names partitions that are not read: {strangers}", key=name)
    return {number: parse_bound(value.get(number, default), f"{name}[{number}]") for number in known}


def check_bounds(
    start: UserBound, end: UserBound, log_start: int | Mapping[int, int] | None, wanted: Collection[int] | None
) -> None:
    """Raise ConfigError if one of these is wrong, whichever partitions the topic has. `wanted` None: all of them."""
    for name, bound in (("start", start), ("end", end)):
        bounds_by_partition(bound, name, "latest", _possible(bound, wanted))
    parse_log_starts(log_start, _possible(log_start, wanted))


def in_order(value: Any) -> Any:
    """A bound or a log start whose text is the same for the same offsets: a mapping in order of partition, with ints.

    A mapping with a key that is no partition, or with a partition twice, is returned as it is.
    """
    if not isinstance(value, Mapping):
        offset = as_int(value)
        return value if offset is None else offset
    numbers = {as_int(key): in_order(bound) for key, bound in value.items()}
    known = [number for number in numbers if number is not None]
    return value if len(known) < len(value) else {number: numbers[number] for number in sorted(known)}


def _possible(value: object, wanted: Collection[int] | None) -> Collection[int]:
    """The partitions that the bound may name. One is enough if the bound is the same for all partitions."""
    if not isinstance(value, Mapping):
        return (0,)
    return [key for key in value if as_int(key) is not None] if wanted is None else wanted


def parse_log_starts(value: int | Mapping[int, int] | None, numbers: Collection[int]) -> dict[int, int]:
    """The log start offsets that the user gives, by partition."""
    if value is None:
        return {}
    starts = dict(value) if isinstance(value, Mapping) else dict.fromkeys(numbers, value)
    strangers = [number for number in starts if number not in numbers]
    if strangers:
        raise ConfigError(f"log_start names partitions that are not read: {strangers}", key="log_start")
    return {number: _log_start(number, offset) for number, offset in starts.items()}


def _log_start(number: int, offset: object) -> int:
    start = as_int(offset)
    if start is None or not 0 <= start <= MAX_OFFSET:
        raise ConfigError(f"log_start of partition {number} is {offset!r}: give an offset", key="log_start")
    return start
