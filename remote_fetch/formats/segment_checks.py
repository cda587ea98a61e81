"""Fields of a segment's metadata that no segment can have, checked wherever metadata enters. Leader epochs in order.

Rules of the file:

- Pure.
- An error has Kafka's name of the field.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.errors import CorruptSegment
from remote_fetch.model import MAX_OFFSET, LeaderEpoch

__all__ = ["check_leader_epochs", "check_segment_offsets", "leader_epochs"]


def leader_epochs(entries: Iterable[tuple[int, int]]) -> tuple[LeaderEpoch, ...]:
    """Pairs of epoch and start offset as leader epochs, ascending. The last entry of an epoch counts, as in Kafka."""
    return tuple(LeaderEpoch(*entry) for entry in sorted(dict(entries).items()))


def check_leader_epochs(epochs: Iterable[LeaderEpoch]) -> None:
    """Raise CorruptSegment for a leader epoch below 0, which no leader has."""
    for entry in epochs:
        if entry.epoch < 0:
            raise CorruptSegment(
                f"metadata of a segment with leader epoch {entry.epoch} from offset {entry.start_offset} on "
                "(SegmentLeaderEpochs)"
            )


def check_segment_offsets(start_offset: int, end_offset: int) -> None:
    """Raise CorruptSegment unless a segment can have these offsets, both inclusive."""
    if not 0 <= start_offset <= end_offset <= MAX_OFFSET:
        raise CorruptSegment(
            f"metadata of a segment from offset {start_offset} to {end_offset} (StartOffset, EndOffset)"
        )
