"""kcat's `-o` in terms of a bounded read.

Rules of the file:

- An offset means the same as in kcat. The error of a wrong one has kcat's words.
- Offsets from the end count from the end of the log, if a broker names it. Otherwise they count from the last offset
  of the tier that the isolation level lets a reader see.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from remote_fetch.cli.options import check_distinct, partitions_from, topics_from
from remote_fetch.errors import ConfigError
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.bounds import Timestamp, parse_bound
from remote_fetch.prepare.job import plan_job, planned_read
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.session import Session

__all__ = ["bounds_of", "isolation_of", "plans_from"]

_COUNT = re.compile(r"-[0-9]{1,19}")
_MILLISECONDS = re.compile(r"[0-9]{1,19}")
_TIME = "TIME is milliseconds since 1970 or ISO 8601, such as 2026-01-31T12:00"
_FORMS = f"Give beginning, end, an offset, -N (N before the end), s@TIME or e@TIME; {_TIME}"


def _bounds(
    arguments: argparse.Namespace, before_the_end: Callable[[int], Any], default_end: str = "latest"
) -> tuple[Any, Any]:
    """The start and end of `-o` and `--end`, as `read_arrow` takes them. Raises ConfigError.

    `before_the_end` gives the start for a number of offsets before the end. `--end` may also be `default_end`.
    """
    start: Any = "earliest"
    end: Any = default_end
    if arguments.end not in (None, default_end):
        names = "latest" if default_end == "latest" else f"{default_end}, latest"
        end = _checked(arguments.end, f"--end {arguments.end}", f"Give {names}, an offset or a TIME; {_TIME}")
    ends = [text for text in arguments.offsets if text.startswith("e@")]
    if len(ends) + (arguments.end is not None) > 1 or len(arguments.offsets) - len(ends) > 1:
        raise ConfigError("-o: give one start and one end", key="-o")
    for text in arguments.offsets:
        if text.startswith("s@"):
            start = _time(text)
        elif text.startswith("e@"):
            end = _time(text)
        elif text == "stored":
            raise ConfigError("-o stored: there are no committed offsets without a consumer group", key="-o")
        elif _COUNT.fullmatch(text):
            start = before_the_end(int(text[1:]))
        else:
            start = _checked(text, f"-o {text}", _FORMS)
    return start, end


def bounds_of(arguments: argparse.Namespace, default_end: str) -> tuple[Any, Any]:
    """The start and end for a read without a session: `-o -N` is refused. Without an end: `default_end`.

    Raises ConfigError.
    """

    def refuse(count: int) -> Any:
        raise ConfigError("-o -N: an export begins at an offset or a time, not at a distance from the end", key="-o")

    if not arguments.quiet:
        _note_seconds(arguments)
    return _bounds(arguments, refuse, default_end)


def plans_from(arguments: argparse.Namespace, session: Session) -> tuple[PartitionPlan, ...]:
    """The plans of the wanted records, topic by topic. Raises the errors of planning."""
    _note_seconds(arguments)
    topics = topics_from(arguments) if "topics" in arguments else [arguments.topic]
    found = [_plans_of(arguments, session, topic) for topic in topics]
    check_distinct(topics, ([plan.opened.partition for plan in of_topic] for of_topic in found))
    plans = tuple(plan for of_topic in found for plan in of_topic)
    if len(topics) > 1:
        session.observe(planned_read(plans))  # of all topics together
    return plans


def _plans_of(arguments: argparse.Namespace, session: Session, topic: str) -> tuple[PartitionPlan, ...]:
    start, end = _bounds(arguments, lambda count: _before_the_end(arguments, session, topic, count))
    return plan_job(
        session,
        topic,
        start=start,
        end=end,
        partitions=partitions_from(arguments),
        isolation=isolation_of(arguments, session.config.librdkafka),
        log_start=arguments.log_start,
    )


def _time(text: str) -> datetime | Timestamp | str:
    """A time of `-o`. A Timestamp lies behind the last year of a datetime."""
    moment = text[2:]
    if not _MILLISECONDS.fullmatch(moment):
        return _checked(moment, f"-o {text}", _FORMS, is_time=True)
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(moment))
    except OverflowError:
        pass
    if int(moment) >= 2**63:
        raise ConfigError(f"-o {text}: the milliseconds do not fit Kafka's 64 bits", key="-o")
    return Timestamp(int(moment))


def _note_seconds(arguments: argparse.Namespace) -> None:
    """Print that a time of ten digits is milliseconds. `date +%s` prints seconds, which mean a day of 1970 then."""
    for text in arguments.offsets:
        if re.fullmatch(r"[se]@[1-9][0-9]{9}", text):
            moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(text[2:]))
            print(f"% note: -o {text} is {moment:%Y-%m-%d %H:%M}: TIME is milliseconds, not seconds", file=sys.stderr)


def _checked(bound: str, given: str, hint: str, *, is_time: bool = False) -> str:
    """The bound, if `read_arrow` takes it. It takes -1 and -2 too, as in Kafka, which are counts in kcat's terms."""
    try:
        place = parse_bound(bound, given)
    except ConfigError:
        place = None
    if place is None or bound.strip().startswith("-") or (is_time and not isinstance(place, Timestamp)):
        raise ConfigError(f"{given}: this is no place in a log", key=given.split(maxsplit=1)[0], hint=hint)
    return bound


def isolation_of(arguments: argparse.Namespace, config: Mapping[str, Any]) -> IsolationLevel:
    """The level of `--isolation`, or of the configuration, or read_committed. Raises ConfigError."""
    return parse_isolation(arguments.isolation, config, "--isolation")


def _before_the_end(arguments: argparse.Namespace, session: Session, topic: str, count: int) -> Mapping[int, int]:
    """N offsets before the end of each partition, as in kcat, but never before its start."""
    wanted = partitions_from(arguments)
    isolation = isolation_of(arguments, session.config.librdkafka)

    def start(partition: TopicIdPartition) -> int:
        if session.brokers is None:
            # Under read_committed a read ends where the tier does not tell more, which may be before its end.
            opened = Planner(session, isolation).open_timeline(session.locator.timeline(partition), LogBounds())
            first, stop = opened.first_offset, opened.end_offset
        else:
            log = session.brokers.cluster.log_bounds(partition, isolation)
            first, stop = log.log_start_offset or 0, log.end_offset or 0
        return max(stop - count, first, arguments.log_start or 0)

    found = [one for one in session.locator.partitions(topic, wanted) if wanted is None or one.partition in wanted]
    return dict(zip((partition.partition for partition in found), all_at_once(start, found), strict=True))
