"""The leader-epoch lineage of a partition, and whether segments and batches belong to it.

Rules of the file:

- Pure.
- A segment belongs to the log if it and the lineage name the same leader epoch for every offset that both know. This
  gives the same verdict as Kafka's check of remote segments against leader epochs (KIP-405).
- A lineage agrees with every epoch at an offset that it does not know. One rule holds there: leader epochs never fall,
  so an epoch past the end cannot be lower than the last one.

Why this matters: after a clean leader election overlapping uploads hold the same records. After an unclean one they may
differ, and only the lineage tells which branch is the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from remote_fetch.model import NO_EPOCH, LeaderEpoch, RemoteLogSegmentMetadata

__all__ = ["Lineage", "epoch_at"]

_START_OFFSET = attrgetter("start_offset")


def epoch_at(entries: Sequence[LeaderEpoch], offset: int) -> int | None:
    """The leader epoch at `offset` by `entries` (ascending), None below the first entry.

    If several epochs start at the same offset, only the last of them has records.
    """
    at = bisect_right(entries, offset, key=_START_OFFSET)
    return entries[at - 1].epoch if at else None


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which leader epoch wrote which offsets of one partition, as far as it is known.

    `entries` ascend by epoch and by start offset. Offsets below the first start offset are unknown. Offsets at and past
    `end_offset` are unknown too, but their epoch is not older than the last one. `end_offset` None: the last epoch has
    no end.
    """

    entries: tuple[LeaderEpoch, ...]
    end_offset: int | None = None

    @classmethod
    def unknown(cls) -> Lineage:
        """The lineage that knows no offset, and so accepts everything."""
        return cls(())

    def within(self, first_offset: int, last_offset: int) -> Lineage:
        """The entries that [first_offset, last_offset] needs. Later offsets may be unknown."""
        start = max(bisect_right(self.entries, first_offset, key=_START_OFFSET) - 1, 0)
        stop = bisect_right(self.entries, last_offset, key=_START_OFFSET)
        later = self.entries[stop].start_offset if stop < len(self.entries) else self.end_offset
        end = later if self.end_offset is None or later is None else min(later, self.end_offset)
        return Lineage(self.entries[start:stop], end) if stop > start else Lineage.unknown()

    def epoch_for(self, offset: int) -> int | None:
        """The leader epoch that wrote `offset`, None if it is unknown."""
        if self.end_offset is not None and offset >= self.end_offset:
            return None
        return epoch_at(self.entries, offset)

    def agrees(self, offset: int, leader_epoch: int) -> bool:
        """Whether a batch at base offset `offset` with this partitionLeaderEpoch may be part of the log.

        `NO_EPOCH` always agrees: the batch is older than record batch v2, or the epoch was never set. Before the first
        entry, every epoch agrees. From `end_offset` on, an epoch agrees if it is not lower than the last known one.
        """
        if leader_epoch == NO_EPOCH:
            return True
        if self.end_offset is not None and offset >= self.end_offset:
            return leader_epoch >= self._last_epoch
        return self.epoch_for(offset) in (None, leader_epoch)

    @property
    def _last_epoch(self) -> int:
        """The leader epoch of the last known offset, `NO_EPOCH` if none is known."""
        known = epoch_at(self.entries, self.end_offset - 1) if self.end_offset is not None else None
        return NO_EPOCH if known is None else known

    @property
    def has_no_branch(self) -> bool:
        """Whether no segment can be of a log that was cut off: there was one leader only, with epoch 0."""
        return len(self.entries) == 1 and self.entries[0].epoch == 0

    def accepts(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether the whole segment belongs to this lineage, as far as both are known."""
        return self.readable_end(segment) == segment.end_offset

    def readable_end(self, segment: RemoteLogSegmentMetadata) -> int:
        """The last offset (inclusive) up to which the segment belongs to this lineage.

        The answer is `end_offset` if the whole segment belongs, and `start_offset - 1` if none of it does. A segment
        without leader epochs belongs to every lineage.
        """
        epochs = segment.segment_leader_epochs
        if not epochs or not self.entries:
            return segment.end_offset
        low = max(segment.start_offset, epochs[0].start_offset, self.entries[0].start_offset)
        high = segment.end_offset + 1 if self.end_offset is None else min(segment.end_offset + 1, self.end_offset)
        of_segment = _epochs_by_start(epochs, low, high)
        of_lineage = _epochs_by_start(self.entries, low, high)
        differing = [start for start, _ in of_segment.items() ^ of_lineage.items()]
        if self.end_offset is not None and self.end_offset <= segment.end_offset:
            beyond = max(self.end_offset, segment.start_offset, epochs[0].start_offset)
            if (epoch_at(epochs, beyond) or 0) < self._last_epoch:
                differing.append(beyond)
        if not differing:
            return segment.end_offset
        first = min(differing)
        return segment.start_offset - 1 if first == low else first - 1


def _epochs_by_start(entries: Sequence[LeaderEpoch], low: int, high: int) -> dict[int, int]:
    """The leader epochs in [`low`, `high`), by the first offset that each has there.

    The first entry begins at or before `low`.
    """
    found: dict[int, int] = {}
    for at in range(bisect_right(entries, low, key=_START_OFFSET) - 1, len(entries)):
        start = max(entries[at].start_offset, low)
        if start >= high:
            break
        found[start] = entries[at].epoch
    return found
