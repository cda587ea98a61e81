"""The observer that logs events, one line an event, for the logger `remote_fetch`.

Rules of the file:

- An event that may come often has a line once in a while.
- Lines hold no secrets, as events do not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import (
    MOST_NOTICES,
    SIZE_ANSWERS,
    Event,
    Fallback,
    MetadataUnusable,
    Notice,
    RangeReread,
    ReadEnds,
    ReadPlanned,
    SegmentScanned,
    SizeAsked,
    TimestampsSaturated,
    unusable_text,
)

__all__ = ["LogObserver"]

_LOG = logging.getLogger("remote_fetch")
_QUIET_S = 60.0
"""How long a repeated event is not logged again."""


class LogObserver:
    """The observer that logs to `remote_fetch`: every notice, retry, fallback and other problem.

    Rules of the log, one line an event:

    - A line names the partition as TOPIC-NUMBER. The first line about it is preceded by a DEBUG line with its topic id.
    - A repetition (same partition, same reason) within a minute of the last line at its level is logged at DEBUG.
      `clock` gives the time. The next line, or `close`, has the number of repetitions.
    - A notice is logged once. After `MOST_NOTICES` others it may be logged again. Its record has the attribute
      `is_notice`, by which a handler tells it from other lines.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._named: set[TopicIdPartition] = set()
        self._notices: set[str] = set()
        self._said: dict[tuple[str, str], _Said] = {}

    def __call__(self, event: Event) -> None:
        """Log an event, if it has a line."""
        if isinstance(event, Notice):
            with self._lock:
                is_new = event.text not in self._notices
                if len(self._notices) >= MOST_NOTICES:
                    self._notices.clear()
                self._notices.add(event.text)
            level = logging.WARNING if event.is_warning else logging.INFO
            _LOG.log(level if is_new else logging.DEBUG, "%s", event.text, extra={"is_notice": True})
            return
        if isinstance(event, ReadEnds):
            _LOG.info("%s", event)
            return
        words = _words(event)
        if words is None or isinstance(event, ReadPlanned):
            return
        what, line = words
        name = event.partition.topic_partition
        with self._lock:
            is_new = event.partition not in self._named
            self._named.add(event.partition)
            said = self._said.setdefault((name, what), _Said())
            is_due = said.at_s is None or self._clock() - said.at_s >= _QUIET_S
            unsaid, said.unsaid = said.unsaid, 0 if is_due else said.unsaid + 1
            said.at_s = self._clock() if is_due else said.at_s
        if is_new:
            _LOG.debug("%s: topic id %s", name, event.partition.topic_id)
        if is_due:
            _LOG.warning("%s: %s%s", name, line, f"; {unsaid} more since the last such line" if unsaid else "")
        else:
            _LOG.debug("%s: %s", name, line)

    def close(self) -> None:
        """Log the number of repetitions that had no line of their own. May be called twice."""
        with self._lock:
            left = [(name, what, said.unsaid) for (name, what), said in self._said.items() if said.unsaid]
            self._said.clear()
        for name, what, count in left:
            _LOG.warning("%s: %s: %d more since the last such line", name, what, count)


@dataclass(slots=True)
class _Said:
    """When an event last had a line (None: never), and its repetitions since then."""

    at_s: float | None = None
    unsaid: int = 0


def _words(event: Event) -> tuple[str, str] | None:
    """The text that is equal for all repetitions, and the full line. None for an event without a line."""
    match event:
        case Fallback():
            what = f"not read from the store ({event.reason})"
            why = f"{event.reason}: {event.detail}" if event.detail else event.reason
            where = f"offsets {event.first_offset} to {event.last_offset} are " if event.last_offset >= 0 else ""
            return what, f"{where}not read from the store ({why})"
        case RangeReread():
            return f"read again ({event.reason})", f"read again from position {event.position} ({event.reason})"
        case SegmentScanned():
            what = f"read without its {event.index_type} index ({event.reason})"
            return what, what
        case SizeAsked() if event.reason not in SIZE_ANSWERS:
            what = f"the store did not give the size of a segment ({event.reason})"
            return what, what
        case MetadataUnusable():
            return "unusable metadata", unusable_text(event.orphan_updates, event.malformed_records)
        case TimestampsSaturated():
            what = "timestamps beyond what microseconds hold"
            return what, f"{what}: {event.records}; the column timestampMs has them"
        case _:
            return None
