"""The readable segments of a partition, in the order of their offsets.

Rules of the file:

- Pure. A timeline is a value.
- A segment is readable in the state COPY_SEGMENT_FINISHED and in no other.
- `timeline_builder.py` makes timelines from the records of the metadata topic, `listing.py` from a listing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from typing import Any, TypeAlias

from remote_fetch.locate.lineage import Lineage, epoch_at
from remote_fetch.model import MAX_OFFSET, NO_EPOCH, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["AbortedLists", "FoundSegment", "Timeline", "sorted_segments"]

_BEFORE_SEGMENT = itemgetter(slice(4))
FoundSegment: TypeAlias = tuple[RemoteLogSegmentMetadata, int, int]
"""A segment, its finish order, and the leader epoch of its upload."""

AbortedLists: TypeAlias = Mapping[tuple[RemoteLogSegmentId, int], tuple[tuple[int, int], ...]]
"""A leader's list of aborted transactions, (producer id, first offset), by segment and by the offset it was asked for.

A list has the transactions with an offset from the asked one to the end of the segment (KIP-1254).
"""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The readable segments of one partition. They may overlap, and there may be holes between them.

    - `segments` are sorted by start offset, then end offset, then `finish_order`.
    - `finish_order` has a number for each segment. The segment with the larger number was finished later.
    - `next_metadata_offset` is one past the last metadata record about the partition.
    - `orphan_updates` counts finished segments whose base record is missing. Their offsets are unknown.
    - `malformed_records` counts the records of all partitions that could not be read.
    - `partition_deleted`: the partition is being deleted, and none of its segments is readable.
    - `unfinished` are copies that were started. They are not readable, but a later update may finish them.
    - `upload_epochs` has the leader epoch of the broker that uploaded each segment (KIP-1266), -1 if it is unknown. It
      is empty if all are unknown.
    - `is_leaders`: the leader of the partition named every segment. So all segments belong to the same log.
    - `listed_aborts` has the aborted transactions, if brokers listed them. None: brokers listed none, and under
      read_committed the transaction indexes in the tier are read.
    """

    partition: TopicIdPartition
    segments: tuple[RemoteLogSegmentMetadata, ...]
    finish_order: tuple[int, ...]
    next_metadata_offset: int = 0
    orphan_updates: int = 0
    malformed_records: int = 0
    partition_deleted: bool = False
    unfinished: tuple[RemoteLogSegmentMetadata, ...] = ()
    upload_epochs: tuple[int, ...] = ()
    is_leaders: bool = False
    listed_aborts: AbortedLists | None = None
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _reached: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # For the searches: the start offset of each segment, and the largest end offset up to each segment.
        object.__setattr__(self, "_starts", tuple(segment.start_offset for segment in self.segments))
        object.__setattr__(self, "_reached", tuple(accumulate((s.end_offset for s in self.segments), max)))

    @classmethod
    def of_finished(cls, partition: TopicIdPartition, finished: Iterable[FoundSegment]) -> Timeline:
        """The timeline of readable segments of a partition."""
        segments, orders, epochs = sorted_segments(list(finished))
        return cls(partition, segments, orders, upload_epochs=epochs)

    @property
    def start_offset(self) -> int | None:
        """The first offset of the first segment, None without segments."""
        return self._starts[0] if self.segments else None

    @property
    def end_offset(self) -> int | None:
        """One past the last offset that a segment covers, None without segments."""
        return self._reached[-1] + 1 if self.segments else None

    def covering(self, offset: int, lineage: Lineage) -> RemoteLogSegmentMetadata | None:
        """The segment to read `offset` from, None if no segment that `lineage` accepts covers it.

        If several cover it, these decide in turn: the highest leader epoch at `offset`, the largest end offset, the
        highest leader epoch of an uploader (KIP-1266: a later leader replaces the upload of an earlier one), the latest
        finish.
        """
        best: tuple[int, int, int, int] | None = None
        chosen: RemoteLogSegmentMetadata | None = None
        at = bisect_right(self._starts, offset) - 1
        while at >= 0 and self._reached[at] >= offset:
            segment = self.segments[at]
            if segment.end_offset >= offset and lineage.accepts(segment):
                epoch = epoch_at(segment.segment_leader_epochs, offset)
                rank = (
                    -1 if epoch is None else epoch,
                    segment.end_offset,
                    self._upload_epoch(at),
                    self.finish_order[at],
                )
                if best is None or rank > best:
                    best, chosen = rank, segment
            at -= 1
        return chosen

    def within(self, first_offset: int, last_offset: int) -> Timeline:
        """This timeline with only the segments that have an offset in [first_offset, last_offset]."""
        return self._with(list(self._places(first_offset, last_offset)), unfinished=())

    def without(self, segment_ids: Collection[RemoteLogSegmentId]) -> Timeline:
        """This timeline without these segments."""
        return self._with([at for at, segment in enumerate(self.segments) if segment.segment_id not in segment_ids])

    def found(self, first_offset: int = 0, last_offset: int = MAX_OFFSET) -> Iterator[FoundSegment]:
        """The segments that have an offset in [first_offset, last_offset], by start offset."""
        for at in self._places(first_offset, last_offset):
            yield self.segments[at], self.finish_order[at], self._upload_epoch(at)

    def _places(self, first_offset: int, last_offset: int) -> Iterator[int]:
        places = range(bisect_left(self._reached, first_offset), bisect_right(self._starts, last_offset))
        return (at for at in places if self.segments[at].end_offset >= first_offset)

    def _upload_epoch(self, at: int) -> int:
        return self.upload_epochs[at] if self.upload_epochs else NO_EPOCH

    def _with(self, kept: Sequence[int], **changes: Any) -> Timeline:
        """The timeline of the segments at these places, with changes of other fields."""
        return replace(
            self,
            segments=tuple(self.segments[at] for at in kept),
            finish_order=tuple(self.finish_order[at] for at in kept),
            upload_epochs=tuple(self.upload_epochs[at] for at in kept) if self.upload_epochs else (),
            **changes,
        )

    def next_start(self, offset: int, lineage: Lineage) -> int | None:
        """The smallest start offset above `offset` of a segment that `lineage` accepts: where a hole ends."""
        for at in range(bisect_right(self._starts, offset), len(self.segments)):
            if lineage.accepts(self.segments[at]):
                return self._starts[at]
        return None


def sorted_segments(
    found: list[FoundSegment],
) -> tuple[tuple[RemoteLogSegmentMetadata, ...], tuple[int, ...], tuple[int, ...]]:
    """Segments, finish orders and upload epochs, sorted. The segment id decides between segments that are equal."""
    rows = [
        (segment.start_offset, segment.end_offset, order, segment.segment_id.id.raw, epoch, segment)
        for segment, order, epoch in found
    ]
    rows.sort(key=_BEFORE_SEGMENT)
    epochs = tuple(row[4] for row in rows)
    return (
        tuple(row[-1] for row in rows),
        tuple(row[2] for row in rows),
        epochs if any(e != NO_EPOCH for e in epochs) else (),
    )
