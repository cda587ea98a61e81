"""Which batches an isolation level shows, decided on their headers alone.

Rules of the file:

- Pure. Control batches are never shown.
- Intervals from the tier's transaction indexes do not depend on order, so parts of a log can be read in any order.
- Two ways give the same answer below the remote stable offset: the intervals of the transaction indexes, and the
  broker's list of aborted transactions applied in log order (KIP-98).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from operator import attrgetter

from remote_fetch.formats.batches import BatchHeader
from remote_fetch.formats.checkpoints import ProducerState
from remote_fetch.formats.control import ControlType
from remote_fetch.model import AbortedTransaction

__all__ = ["AbortedIntervals", "SequentialAborts", "closes_before", "remote_stable_offset"]

_FIRST_OFFSET = attrgetter("first_offset")


@dataclass(frozen=True, slots=True)
class AbortedIntervals:
    """The aborted transactions of a partition, by producer: each an interval from first record to marker."""

    by_producer: Mapping[int, tuple[AbortedTransaction, ...]]

    @classmethod
    def of(cls, transactions: Iterable[AbortedTransaction]) -> AbortedIntervals:
        """The intervals of transaction index entries; an entry may occur several times."""
        found: dict[int, set[AbortedTransaction]] = {}
        for transaction in transactions:
            found.setdefault(transaction.producer_id, set()).add(transaction)
        return cls({producer: tuple(sorted(entries)) for producer, entries in found.items()})

    def shows(self, header: BatchHeader) -> bool:
        """Whether read_committed shows the batch: neither control nor inside an aborted transaction."""
        return not header.is_control and not (
            header.is_transactional and self._containing(header.producer_id, header.base_offset) is not None
        )

    def ends_at(self, producer_id: int, marker_offset: int) -> bool:
        """Whether an aborted transaction of the producer ends with the marker at this offset."""
        found = self._containing(producer_id, marker_offset)
        return found is not None and found.last_offset == marker_offset

    def _containing(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        entries = self.by_producer.get(producer_id)
        if not entries:
            return None
        at = bisect_right(entries, offset, key=_FIRST_OFFSET)
        if at == 0 or entries[at - 1].last_offset < offset:
            return None
        return entries[at - 1]

    def merged(self, other: AbortedIntervals) -> AbortedIntervals:
        """The intervals of both."""
        both = (*self.by_producer.values(), *other.by_producer.values())
        return AbortedIntervals.of(transaction for entries in both for transaction in entries)

    def clip(self, first_offset: int, last_offset: int) -> AbortedIntervals:
        """The intervals that decide about offsets [first_offset, last_offset], as all of them do.

        If an index lies, intervals of a producer may overlap. So the later ones of a producer are kept too, even if
        they end before that part.
        """
        kept = {}
        for producer, entries in self.by_producer.items():
            later = dropwhile(lambda entry: entry.last_offset < first_offset, entries)
            if deciding := tuple(entry for entry in later if entry.first_offset <= last_offset):
                kept[producer] = deciding
        return AbortedIntervals(kept)


class SequentialAborts:
    """The way of Kafka's consumers: a broker's list of (producer id, first offset), applied in log order.

    The list of a Fetch response names the beginnings of aborted transactions. The markers in the data are their ends
    (KIP-98). The broker must have seen the markers of these bytes. Batches come in order, without gaps, from that which
    holds the offset that the list was asked for. A batch that comes again, because it is read again, changes nothing.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._upcoming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()
        self._seen_offset = -1

    def shows(self, header: BatchHeader, control: ControlType | None = None) -> bool:
        """Whether read_committed shows the batch; `control` is its control record's type, None for other batches."""
        while self._upcoming and self._upcoming[-1][0] <= header.last_offset:
            self._open.add(self._upcoming.pop()[1])
        is_new = header.last_offset > self._seen_offset
        self._seen_offset = max(self._seen_offset, header.last_offset)
        if header.is_control:
            if is_new and control is ControlType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)


def remote_stable_offset(tier_stop: int, producers: Iterable[ProducerState]) -> int:
    """The first offset that the tier's transaction indexes do not decide.

    `tier_stop` is one past the last segment's end offset. `producers` is the producer snapshot of that segment. If a
    transaction is open there, its marker may lie past the end of the tier.
    """
    first_offsets = (producer.current_txn_first_offset for producer in producers)
    return min([tier_stop, *(offset for offset in first_offsets if offset >= 0)])


def closes_before(stop_offset: int, producers: Iterable[ProducerState]) -> bool:
    """Whether every transaction that began before `stop_offset` had its marker when this snapshot was taken."""
    return all(not 0 <= producer.current_txn_first_offset < stop_offset for producer in producers)
