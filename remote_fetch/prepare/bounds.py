"""Turns the bounds of a read, as users write them, into offsets.

Rules of the file:

- Ends are exclusive.
- A time stands for the first record, in offset order, whose timestamp is not before it. A broker's ListOffsets gives
  the same answer. Control records count too.
- A time without a zone is UTC.
- An offset outside the log is an error. It is not clipped in silence.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeAlias

from remote_fetch.errors import ConfigError, OffsetOutOfRange
from remote_fetch.prepare.view import OpenPartition

__all__ = ["Bound", "Edge", "LookUp", "Timestamp", "UserBound", "as_int", "offset_of", "parse_bound", "resolve"]

UserBound: TypeAlias = "int | str | datetime | Mapping[int, int | str | datetime]"
"""A bound as users write it. A mapping has one for each partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_SPECIAL = {"earliest": -2, "beginning": -2, "latest": -1, "end": -1}


class Edge(Enum):
    """The two ends of the readable log, with the numbers of Kafka's ListOffsets."""

    EARLIEST = -2
    LATEST = -1


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record at or after this moment, in milliseconds since 1970 (UTC)."""

    timestamp_ms: int

    def __str__(self) -> str:
        return f"{self.timestamp_ms} ms"


Bound: TypeAlias = "int | Edge | Timestamp"
LookUp: TypeAlias = Callable[[OpenPartition, int], "int | None"]


def parse_bound(value: object, name: str) -> Bound:
    """Parse a user's bound: an offset, `earliest`, `latest`, a datetime, or an ISO 8601 string.

    -2 and -1 stand for earliest and latest, as in Kafka. A Timestamp is taken as it is, because a datetime ends with
    the year 9999. Raises a ConfigError with the argument's `name`.
    """
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, str):
        value = _parse_text(value.strip(), name)
    if isinstance(value, datetime):
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return Timestamp(-((_EPOCH - aware) // _MILLISECOND))  # rounded up; timestamp() would not be exact
    offset = as_int(value)
    if offset is not None and offset >= -2:
        return Edge(offset) if offset < 0 else offset
    raise ConfigError(
        f"{name}={value!r} is no bound",
        key=name,
        hint="Give an offset, 'earliest', 'latest', a datetime, an ISO 8601 string, or a dict of these by partition",
    )


def as_int(value: object) -> int | None:
    """A whole number as an `int`, also one of another library, such as NumPy's. None for a boolean and all else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _parse_text(text: str, name: str) -> int | datetime:
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}={text!r} is neither 'earliest', 'latest', an offset nor an ISO 8601 time", key=name
        ) from None


def resolve(opened: OpenPartition, start: Bound, end: Bound, look_up: LookUp) -> tuple[int, int]:
    """The offsets [start, stop) of two bounds in one partition. Both are equal if there is nothing to read.

    `look_up` returns the first offset at or after a time in milliseconds, or None if there is none.

    Raises OffsetOutOfRange for a start outside the readable log, ConfigError for a start after the end, and, if a time
    is looked up, the errors of reading.
    """
    if isinstance(start, Timestamp) and isinstance(end, Timestamp) and end.timestamp_ms < start.timestamp_ms:
        raise ConfigError(
            f"start={start.timestamp_ms} lies after end={end.timestamp_ms} (milliseconds since 1970)", key="start"
        )
    first = offset_of(opened, start, look_up)
    stop = offset_of(opened, end, look_up)
    if isinstance(start, int):
        if isinstance(end, int) and end < start:
            raise ConfigError(f"start={start} lies after end={end}", key="start")
        if not opened.first_offset <= first <= opened.last_start:
            what = (
                f"the tier, which has offsets {opened.first_offset} to {opened.last_start} (exclusive)"
                if opened.log.end_offset is None
                else f"what can be read: the log starts at offset {opened.first_offset}, and {opened.end_text}"
            )
            raise OffsetOutOfRange(
                f"start={start} lies outside {what}",
                offset=first,
                hint="A start that fits one partition may not fit another: give each its own, by a mapping or -p",
                **opened.partition.place,
            )
    return first, max(first, stop)


def offset_of(opened: OpenPartition, bound: Bound, look_up: LookUp) -> int:
    """The offset of a bound. An offset that was given is not checked. A time that no record has is the end."""
    if isinstance(bound, Edge):
        return opened.first_offset if bound is Edge.EARLIEST else opened.end_offset
    if isinstance(bound, int):
        return bound
    found = look_up(opened, bound.timestamp_ms)
    return opened.end_offset if found is None else min(found, opened.end_offset)
