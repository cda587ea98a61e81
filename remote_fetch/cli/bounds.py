"""kcat's `-o` in terms of a bounded read.

Rules of the file:

- An offset means the same as in kcat.
- Offsets from the end count from the end of the log if a broker names it, otherwise from the end of the tier.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from remote_fetch.cli.options import partitions_from
from remote_fetch.errors import ConfigError
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.session.session import Session

__all__ = ["bounds_from", "bounds_of", "plans_from"]

_COUNT = re.compile(r"-[0-9]{1,19}")
_MILLISECONDS = re.compile(r"[0-9]{1,19}")


def bounds_from(arguments: argparse.Namespace, session: Session) -> tuple[Any, Any]:
    """The start and end of `-o` and `--end`, as `read_arrow` takes them. Raises ConfigError."""
    return _bounds(arguments, session)


def _bounds(arguments: argparse.Namespace, session: Session | None) -> tuple[Any, Any]:
    start: Any = "earliest"
    end: Any = arguments.end if arguments.end is not None else "latest"
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
        elif session is not None and _COUNT.fullmatch(text):
            start = _before_the_end(arguments, session, int(text[1:]))
        else:
            start = text
    return start, end


def bounds_of(arguments: argparse.Namespace, default_end: str) -> tuple[Any, Any]:
    """As `bounds_from`, without a session: `-o -N` is refused. Without an end: `default_end`. Raises ConfigError."""
    if any(_COUNT.fullmatch(text) for text in arguments.offsets):
        raise ConfigError("-o -N: an export begins at an offset or a time, not at a distance from the end", key="-o")
    start, end = _bounds(arguments, None)
    is_given = arguments.end is not None or any(text.startswith("e@") for text in arguments.offsets)
    return start, end if is_given else default_end


def plans_from(arguments: argparse.Namespace, session: Session) -> tuple[PartitionPlan, ...]:
    """The plans of the wanted records. Raises the errors of planning."""
    start, end = bounds_from(arguments, session)
    return plan_job(
        session,
        arguments.topic,
        start=start,
        end=end,
        partitions=partitions_from(arguments),
        isolation=parse_isolation(arguments.isolation),
        log_start=arguments.log_start,
    )


def _time(text: str) -> datetime | str:
    moment = text[2:]
    if not _MILLISECONDS.fullmatch(moment):
        return moment
    try:
        return datetime.fromtimestamp(int(moment) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        raise ConfigError(f"-o {text}: the milliseconds are outside the range of a datetime", key="-o") from None


def _before_the_end(arguments: argparse.Namespace, session: Session, count: int) -> Mapping[int, int]:
    """N offsets before the end of each partition, as in kcat, but never before its start."""
    starts = {}
    wanted = partitions_from(arguments)
    for partition in session.locator.partitions(arguments.topic, wanted):
        if wanted is not None and partition.partition not in wanted:
            continue
        if session.brokers is None:
            timeline = session.locator.timeline(partition)
            first, stop = timeline.start_offset or 0, timeline.end_offset or 0
        else:
            log = session.brokers.cluster.log_bounds(partition, parse_isolation(arguments.isolation))
            first, stop = log.log_start_offset or 0, log.end_offset or 0
        starts[partition.partition] = max(stop - count, first, arguments.log_start or 0)
    return starts
