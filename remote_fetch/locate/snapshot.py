"""Timelines as bytes. With saved timelines the next start need not read the metadata topic from its beginning.

Rules of the file:

- Pure.
- `load_timelines` returns values equal to those that `dump_timelines` was given.
- A snapshot is foreign bytes: it is checked, bounded before memory is taken, and refused with an error of this package.

Layout: a frame of `packed.py`. The body has one column for each field of a timeline's segments. Version 2 added the
leader epochs of uploaders (KIP-1266). Version 1 is still read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.segment_checks import check_leader_epochs, check_segment_offsets
from remote_fetch.formats.tagged_fields import encode_compact_string
from remote_fetch.locate.packed import Frame, PackedReader, column, numbers, steps
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    Buffer,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)

__all__ = ["DEFAULT_MAX_BODY_BYTES", "SnapshotOrigin", "dump_timelines", "load_timelines", "state_of"]

MAX_TIMELINES = 200_000
"""The most partitions of one snapshot: those of a large cluster."""
DEFAULT_MAX_BODY_BYTES = 1 << 30
"""The largest body that is inflated, enough for some eight million segments."""

_NAME = "snapshot of timelines"
_FRAME = Frame(b"RFTL", (1, 2), _NAME)
_WITH_UPLOAD_EPOCHS = 2
_STATES = tuple(RemoteLogSegmentState)
"""By number: to call the enum takes ten times as long."""


@dataclass(frozen=True, slots=True)
class SnapshotOrigin:
    """The metadata topic that a snapshot was built from, and how far the topic had been read.

    `next_offsets` are pairs of a metadata partition and its first unread offset. A reader may continue there only if
    the topic still has this id and this number of partitions. `taken_at_ms` is a time, by the reader's clock, at
    which the topic ended at `next_offsets` or before. On a compacted topic a snapshot older than `delete.retention.ms`
    may have missed deletions.
    """

    cluster_id: str
    metadata_topic_id: Uuid
    partition_count: int
    next_offsets: tuple[tuple[int, int], ...]
    taken_at_ms: int = -1


def dump_timelines(timelines: Sequence[Timeline], *, origin: SnapshotOrigin) -> bytes:
    """The timelines as bytes for `load_timelines`, some 25 bytes a segment without custom metadata.

    Raises ValueError for a segment that belongs to another partition than its timeline.
    """
    parts = [
        encode_compact_string(origin.cluster_id),
        origin.metadata_topic_id.raw,
        numbers(origin.partition_count, origin.taken_at_ms, len(origin.next_offsets), len(timelines)),
        column(number for pair in origin.next_offsets for number in pair),
    ]
    for timeline in timelines:
        _dump_timeline(timeline, parts)
    return _FRAME.wrap(b"".join(parts))


def _dump_timeline(timeline: Timeline, parts: list[bytes]) -> None:
    partition = timeline.partition
    parts += (
        encode_compact_string(partition.topic),
        partition.topic_id.raw,
        numbers(
            partition.partition, timeline.next_metadata_offset, timeline.orphan_updates, timeline.malformed_records,
            timeline.partition_deleted, len(timeline.segments), len(timeline.unfinished), len(timeline.upload_epochs),
        ),
    )  # fmt: skip
    _dump_segments(timeline.segments, partition, parts)
    _dump_segments(timeline.unfinished, partition, parts)
    parts += (column(steps(timeline.finish_order)), column(timeline.upload_epochs))


def _dump_segments(
    segments: Sequence[RemoteLogSegmentMetadata], partition: TopicIdPartition, parts: list[bytes]
) -> None:
    """Append the columns of the segments, in the order in which `_Body.segments` reads them."""
    for segment in segments:
        if segment.topic_id_partition != partition:
            raise ValueError(f"segment {segment.segment_id} in the timeline of {partition}")
    epochs = [entry for segment in segments for entry in segment.segment_leader_epochs]
    custom = [segment.custom_metadata for segment in segments]
    parts += (
        b"".join(segment.segment_id.id.raw for segment in segments),
        column(steps([segment.start_offset for segment in segments])),
        column(steps([segment.end_offset for segment in segments])),
        column(segment.segment_size_in_bytes for segment in segments),
        column(steps([segment.max_timestamp_ms for segment in segments])),
        column(steps([segment.event_timestamp_ms for segment in segments])),
        column(segment.broker_id for segment in segments),
        column(segment.state for segment in segments),
        column(segment.txn_index_empty for segment in segments),
        column(len(segment.segment_leader_epochs) for segment in segments),
        column(-1 if data is None else len(data) for data in custom),
        column(entry.epoch for entry in epochs),
        column(steps([entry.start_offset for entry in epochs])),
        b"".join(data or b"" for data in custom),
    )


def load_timelines(
    data: Buffer, *, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
) -> tuple[SnapshotOrigin, tuple[Timeline, ...]]:
    """The origin and the timelines of a snapshot.

    Raises UnsupportedFormat for other bytes than a snapshot, and for another version. Raises CorruptSegment for a
    damaged snapshot, for a body larger than `max_body_bytes`, and for more than MAX_TIMELINES partitions: to read a
    million empty timelines takes many seconds, and they fit into a small file.
    """
    version, inflated = _FRAME.unwrap(data, max_body_bytes)
    body = _Body(inflated, _NAME)
    cluster_id, topic_id = body.text(), body.uuid()
    partition_count, taken_at_ms, offset_count, timeline_count = body.numbers(4)
    if timeline_count > MAX_TIMELINES:
        raise CorruptSegment(f"{_NAME}: {timeline_count} partitions, the bound is {MAX_TIMELINES}")
    pairs = body.column(2 * offset_count)
    origin = SnapshotOrigin(
        cluster_id, topic_id, partition_count, tuple(zip(pairs[::2], pairs[1::2], strict=True)), taken_at_ms
    )
    timelines = tuple(body.timeline(version) for _ in range(timeline_count))
    body.finish()
    return origin, timelines


class _Body(PackedReader):
    """Reads a snapshot's body."""

    def timeline(self, version: int) -> Timeline:
        topic, topic_id = self.text(), self.uuid()
        number, next_offset, orphans, malformed, deleted, segment_count, unfinished_count = self.numbers(7)
        (epoch_count,) = self.numbers(1) if version >= _WITH_UPLOAD_EPOCHS else (0,)
        try:
            partition = TopicIdPartition.parsed(topic_id, topic, number)
        except ValueError as error:
            raise CorruptSegment(f"{_NAME}: {error}") from None
        segments = self.segments(segment_count, partition)
        unfinished = self.segments(unfinished_count, partition)
        finish_order = self.sums(segment_count)
        if epoch_count not in (0, segment_count):
            raise CorruptSegment(f"{_NAME}: {epoch_count} leader epochs of uploaders for {segment_count} segments")
        epochs = self.column(epoch_count)
        _check_segments(segments, unfinished)
        return Timeline(
            partition, segments, finish_order, next_offset, orphans, malformed, bool(deleted), unfinished, epochs
        )

    def segments(self, count: int, partition: TopicIdPartition) -> tuple[RemoteLogSegmentMetadata, ...]:
        ids = self.uuids(count)
        starts, ends, sizes = self.sums(count), self.sums(count), self.column(count)
        max_timestamps, event_timestamps, brokers = self.sums(count), self.sums(count), self.column(count)
        states, flags = self.column(count), self.column(count)
        epochs, custom = self._variable_parts(count)
        return tuple(
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(partition, Uuid(ids[at])),
                starts[at], ends[at], sizes[at], max_timestamps[at], event_timestamps[at], brokers[at], epochs[at],
                custom[at], state_of(states[at], _NAME), bool(flags[at]),
            )
            for at in range(count)
        )  # fmt: skip

    def _variable_parts(self, count: int) -> tuple[list[tuple[LeaderEpoch, ...]], list[bytes | None]]:
        """The leader epochs and the custom metadata of `count` segments."""
        epoch_counts, custom_sizes = self.column(count), self.column(count)
        if min(epoch_counts, default=0) < 0:
            raise CorruptSegment(f"{_NAME}: negative counts of leader epochs")
        total = sum(epoch_counts)
        entries = iter([LeaderEpoch(*pair) for pair in zip(self.column(total), self.sums(total), strict=True)])
        epochs = [tuple(next(entries) for _ in range(epoch_count)) for epoch_count in epoch_counts]
        return epochs, self.blobs(custom_sizes)


def _check_segments(
    segments: Sequence[RemoteLogSegmentMetadata], unfinished: Sequence[RemoteLogSegmentMetadata]
) -> None:
    """Raise CorruptSegment if segments break the promises of `Timeline`, which its searches rely on."""
    for segment in (*segments, *unfinished):
        check_segment_offsets(segment.start_offset, segment.end_offset)
        check_leader_epochs(segment.segment_leader_epochs)
    if any(segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED for segment in segments):
        raise CorruptSegment(f"{_NAME}: a segment that may not be read is among those that may")
    places = [(segment.start_offset, segment.end_offset) for segment in segments]
    if any(after < before for before, after in pairwise(places)):
        raise CorruptSegment(f"{_NAME}: segments that do not ascend by their offsets")


def state_of(number: int, name: str) -> RemoteLogSegmentState:
    """The state with this number, in a file of this name. Raises CorruptSegment."""
    if not 0 <= number < len(_STATES):
        raise CorruptSegment(f"{name}: a segment in state {number}")
    return _STATES[number]
