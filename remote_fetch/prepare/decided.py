"""Finds, for readers without state files, the aborted transactions of a range and the end of what the tier decides.

Rules of the file:

- No broker is asked. A reader with brokers asks them itself to confirm the lineage.
- The caller bounds the range, because each segment in it may cost a GET of its transaction index.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import AbortedTransaction, IsolationLevel, LogBounds, TopicIdPartition
from remote_fetch.prepare.opening import open_partition
from remote_fetch.prepare.transactions import settle
from remote_fetch.recent import Recent
from remote_fetch.session.session import Session

__all__ = ["Decided", "DecidedRanges", "decided"]

_MOST_RANGES = 64


@dataclass(frozen=True, slots=True)
class Decided:
    """The remote stable offset of a partition (exclusive), and the aborted transactions that touch a range.

    `aborted` ascends by first offset and producer. For offsets from `stable_offset` on, the tier does not tell whether
    transactions were committed or aborted.
    """

    stable_offset: int
    aborted: tuple[AbortedTransaction, ...]


def decided(session: Session, timeline: Timeline, first_offset: int, stop_offset: int) -> Decided:
    """Read from the tier's state files the facts that read_committed needs about offsets [first_offset, stop_offset).

    Raises Unlocatable if a producer snapshot is missing, CorruptSegment for a damaged file or a lost index, and the
    errors of a fetcher.
    """
    opened = open_partition(session.storage, None, timeline, IsolationLevel.READ_COMMITTED, LogBounds())
    first, stop = max(first_offset, opened.start_offset), min(stop_offset, opened.stop_offset)
    settled, _, aborted = settle(session.storage, session.locator, opened, first, max(first, stop))
    found = (transaction for entries in aborted.by_producer.values() for transaction in entries)
    ordered = sorted(found, key=lambda transaction: (transaction.first_offset, transaction.producer_id))
    return Decided(settled.stable_stop, tuple(ordered))


class DecidedRanges:
    """Keeps the last answers of `decided` for one session. Thread-safe.

    Many readers of a topic ask for the same ranges, and each answer costs GETs. An answer is kept until the timeline of
    its partition changes.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._kept: Recent[tuple[TopicIdPartition, int, int], tuple[Timeline, Decided]] = Recent(_MOST_RANGES)

    def of(self, timeline: Timeline, first_offset: int, stop_offset: int) -> Decided:
        """As `decided`. Raises its errors."""
        key = timeline.partition, first_offset, stop_offset
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept[0] is timeline:
            return kept[1]
        found = decided(self._session, timeline, first_offset, stop_offset)
        with self._lock:
            self._kept[key] = timeline, found
        return found
