"""The leader-epoch lineage of a partition, and whether segments and batches belong to it.

Rules of the file: pure; a lineage speaks only of the offsets it knows, and agrees with everything else, but that leader
epochs never fall: past its end no epoch can be lower than its last. After a clean leader election overlapping uploads
hold the same records; after an unclean one they may not, and only the lineage tells which branch is the log. Same
verdict as Kafka's check of remote segments against leader epochs (KIP-405), put as one rule: on every offset that both
know, the segment and the lineage name the same leader epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from remote_fetch.model import LeaderEpoch, RemoteLogSegmentMetadata

__all__ = ["Lineage", "epoch_at"]

_START_OFFSET = attrgetter("start_offset")


def epoch_at(entries: Sequence[LeaderEpoch], offset: int) -> int | None:
    """The leader epoch at `offset` by `entries` (ascending); None below the first.

    Of epochs that start at the same offset all but the last are without records.
    """
    at = bisect_right(entries, offset, key=_START_OFFSET)
    return entries[at - 1].epoch if at else None


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which leader epoch wrote which offsets of one partition, as far as it is known.

    `entries` ascend by epoch and by start offset. Nothing is known below the first start offset, nor from
    `end_offset` (exclusive) on, except that what comes there is not of an older epoch; None: the last epoch has no end.
    """

    entries: tuple[LeaderEpoch, ...]
    end_offset: int | None = None

    @classmethod
    def unknown(cls) -> Lineage:
        """The lineage that knows no offset, and so accepts everything."""
        return cls(())

    def within(self, first_offset: int, last_offset: int) -> Lineage:
        """As much of it as tells the epochs of [first_offset, last_offset]; of later offsets it knows less."""
        start = max(bisect_right(self.entries, first_offset, key=_START_OFFSET) - 1, 0)
        stop = bisect_right(self.entries, last_offset, key=_START_OFFSET)
        later = self.entries[stop].start_offset if stop < len(self.entries) else self.end_offset
        end = later if self.end_offset is None or later is None else min(later, self.end_offset)
        return Lineage(self.entries[start:stop], end) if stop > start else Lineage.unknown()

    def epoch_for(self, offset: int) -> int | None:
        """The leader epoch that wrote `offset`, None where it is not known."""
        if self.end_offset is not None and offset >= self.end_offset:
            return None
        return epoch_at(self.entries, offset)

    def agrees(self, offset: int, leader_epoch: int) -> bool:
        """Whether a batch at base offset `offset` with this partitionLeaderEpoch may be part of the log.

        Epoch -1 (older than record batch v2, or never set) is exempt; unknown offsets agree, past the end with the last
        epoch and later ones.
        """
        if leader_epoch == -1:
            return True
        if self.end_offset is not None and offset >= self.end_offset:
            return leader_epoch >= self._last_epoch
        return self.epoch_for(offset) in (None, leader_epoch)

    @property
    def _last_epoch(self) -> int:
        """The leader epoch of the last known offset, -1 where none is known."""
        known = epoch_at(self.entries, self.end_offset - 1) if self.end_offset is not None else None
        return -1 if known is None else known

    def accepts(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether the whole segment belongs to this lineage, as far as both are known."""
        return self.readable_end(segment) == segment.end_offset

    def readable_end(self, segment: RemoteLogSegmentMetadata) -> int:
        """The last offset (inclusive) up to which the segment belongs to this lineage.

        It is the segment's `end_offset` if all of it does, and lies before `start_offset` if nothing does. A segment
        without leader epochs belongs everywhere.
        """
        epochs = segment.segment_leader_epochs
        if not epochs or not self.entries:
            return segment.end_offset
        low = max(segment.start_offset, epochs[0].start_offset, self.entries[0].start_offset)
        high = segment.end_offset + 1 if self.end_offset is None else min(segment.end_offset + 1, self.end_offset)
        theirs = _epochs_by_start(epochs, low, high)
        ours = _epochs_by_start(self.entries, low, high)
        differing = [start for start, _ in theirs.items() ^ ours.items()]
        if self.end_offset is not None and self.end_offset <= segment.end_offset:
            beyond = max(self.end_offset, segment.start_offset, epochs[0].start_offset)
            if (epoch_at(epochs, beyond) or 0) < self._last_epoch:
                differing.append(beyond)
        if not differing:
            return segment.end_offset
        first = min(differing)
        return segment.start_offset - 1 if first == low else first - 1


def _epochs_by_start(entries: Sequence[LeaderEpoch], low: int, high: int) -> dict[int, int]:
    """The leader epochs that have offsets in [`low`, `high`), by where they start there."""
    found: dict[int, int] = {}
    for at in range(max(bisect_right(entries, low, key=_START_OFFSET) - 1, 0), len(entries)):
        start = max(entries[at].start_offset, low)
        if start >= high:
            break
        found[start] = entries[at].epoch
    return found
