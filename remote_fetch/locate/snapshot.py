"""Timelines as bytes. With saved timelines the next start need not read the metadata topic from its beginning.

Rules of the file:

- Pure.
- `load_timelines` returns values equal to those that `dump_timelines` was given.
- A snapshot is foreign bytes: it is checked, bounded before memory is taken, and refused with an error of this package.

Layout: a header (magic, version, CRC-32 of the rest, size of the body), then the body compressed with zlib. The body
keeps one column of int64 for each field of a timeline's segments. The bytes of a column are grouped by significance,
because neighbouring values differ in few bytes.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.segment_checks import check_leader_epochs, check_segment_offsets
from remote_fetch.formats.tagged_fields import encode_compact_string, read_compact_string
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

__all__ = ["DEFAULT_MAX_BODY_BYTES", "SnapshotOrigin", "dump_timelines", "load_timelines"]

MAX_TIMELINES = 200_000
"""The most partitions of one snapshot: those of a large cluster."""
DEFAULT_MAX_BODY_BYTES = 1 << 30
"""The largest body that is inflated, enough for some eight million segments."""

_MAGIC = b"RFTL"
_VERSION = 1
_HEADER = Struct(">4sHIQ")
_CRC_FROM = 10
_UUID_BYTES = 16
_NUMBER_BYTES = 8
_MASK_64 = 2**64 - 1
_SIGN_64 = 2**63


@dataclass(frozen=True, slots=True)
class SnapshotOrigin:
    """The metadata topic that a snapshot was built from, and how far the topic had been read.

    `next_offsets` are pairs of a metadata partition and its first unread offset. A reader may continue there only if
    the topic still has this id and this number of partitions. `taken_at_ms` is the end of the reading. On a compacted
    topic a snapshot older than `delete.retention.ms` may have missed deletions.
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
        _numbers(origin.partition_count, origin.taken_at_ms, len(origin.next_offsets), len(timelines)),
        _column(number for pair in origin.next_offsets for number in pair),
    ]
    for timeline in timelines:
        _dump_timeline(timeline, parts)
    body = b"".join(parts)
    covered = len(body).to_bytes(_HEADER.size - _CRC_FROM, "big") + zlib.compress(body)
    return _HEADER.pack(_MAGIC, _VERSION, zlib.crc32(covered), 0)[:_CRC_FROM] + covered


def _dump_timeline(timeline: Timeline, parts: list[bytes]) -> None:
    partition = timeline.partition
    parts += (
        encode_compact_string(partition.topic),
        partition.topic_id.raw,
        _numbers(
            partition.partition, timeline.next_metadata_offset, timeline.orphan_updates, timeline.malformed_records,
            timeline.partition_deleted, len(timeline.segments), len(timeline.unfinished),
        ),
    )  # fmt: skip
    _dump_segments(timeline.segments, partition, parts)
    _dump_segments(timeline.unfinished, partition, parts)
    parts.append(_column(_steps(timeline.finish_order)))


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
        _column(_steps([segment.start_offset for segment in segments])),
        _column(_steps([segment.end_offset for segment in segments])),
        _column(segment.segment_size_in_bytes for segment in segments),
        _column(_steps([segment.max_timestamp_ms for segment in segments])),
        _column(_steps([segment.event_timestamp_ms for segment in segments])),
        _column(segment.broker_id for segment in segments),
        _column(segment.state for segment in segments),
        _column(segment.txn_index_empty for segment in segments),
        _column(len(segment.segment_leader_epochs) for segment in segments),
        _column(-1 if data is None else len(data) for data in custom),
        _column(entry.epoch for entry in epochs),
        _column(_steps([entry.start_offset for entry in epochs])),
        b"".join(data or b"" for data in custom),
    )


def _numbers(*numbers: int) -> bytes:
    return pack(f">{len(numbers)}q", *numbers)


def _steps(numbers: Sequence[int]) -> Iterable[int]:
    """The first number, then the difference of each number to its predecessor, as signed 64-bit integers."""
    return (_signed(after - before) for before, after in pairwise((0, *numbers)))


def _signed(number: int) -> int:
    return ((number + _SIGN_64) & _MASK_64) - _SIGN_64


def _column(numbers: Iterable[int]) -> bytes:
    """The numbers as big-endian int64: the first byte of each, then the second byte of each, and so on."""
    values = array("q", numbers)
    rows = pack(f">{len(values)}q", *values)
    return b"".join(rows[at::_NUMBER_BYTES] for at in range(_NUMBER_BYTES))


def load_timelines(
    data: Buffer, *, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
) -> tuple[SnapshotOrigin, tuple[Timeline, ...]]:
    """The origin and the timelines of a snapshot.

    Raises UnsupportedFormat for other bytes than a snapshot, and for another version. Raises CorruptSegment for a
    damaged snapshot, for a body larger than `max_body_bytes`, and for more than MAX_TIMELINES partitions: to read a
    million empty timelines takes many seconds, and they fit into a small file.
    """
    body = _Body(_inflated(data, max_body_bytes))
    cluster_id, topic_id = body.text(), body.uuid()
    partition_count, taken_at_ms, offset_count, timeline_count = body.numbers(4)
    if timeline_count > MAX_TIMELINES:
        raise CorruptSegment(f"snapshot of timelines: {timeline_count} partitions, the bound is {MAX_TIMELINES}")
    pairs = body.column(2 * offset_count)
    origin = SnapshotOrigin(
        cluster_id, topic_id, partition_count, tuple(zip(pairs[::2], pairs[1::2], strict=True)), taken_at_ms
    )
    timelines = tuple(body.timeline() for _ in range(timeline_count))
    body.finish()
    return origin, timelines


def _inflated(data: Buffer, max_body_bytes: int) -> bytes:
    view = memoryview(data)
    if len(view) < _HEADER.size or view[: len(_MAGIC)] != _MAGIC:
        raise UnsupportedFormat("not a snapshot of timelines: it does not begin like one")
    _, version, crc, body_bytes = _HEADER.unpack_from(view)
    if version != _VERSION:
        raise UnsupportedFormat(f"snapshot of timelines of version {version}; version {_VERSION} is known")
    if zlib.crc32(view[_CRC_FROM:]) != crc:
        raise CorruptSegment("snapshot of timelines: checksum mismatch")
    if body_bytes > max_body_bytes:
        raise CorruptSegment(f"snapshot of timelines: body of {body_bytes} bytes, the bound is {max_body_bytes}")
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(view[_HEADER.size :], body_bytes + 1)
    except zlib.error as error:
        raise CorruptSegment(f"snapshot of timelines: {error}") from None
    if len(body) != body_bytes or not inflater.eof or inflater.unused_data:
        raise CorruptSegment(f"snapshot of timelines: body is not the {body_bytes} bytes that were announced")
    return body


class _Body:
    """Reads a snapshot's body from front to back. Raises CorruptSegment if the bytes do not fit."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size_bytes: int) -> bytes:
        if not 0 <= size_bytes <= len(self._data) - self._at:
            raise CorruptSegment(
                f"snapshot of timelines: {size_bytes} bytes wanted at byte {self._at} of {len(self._data)}"
            )
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]

    def text(self) -> str:
        text, self._at = read_compact_string(self._data, self._at)
        return text

    def uuid(self) -> Uuid:
        return Uuid(self.take(_UUID_BYTES))

    def numbers(self, count: int) -> tuple[int, ...]:
        return unpack(f">{count}q", self.take(count * _NUMBER_BYTES))

    def column(self, count: int) -> tuple[int, ...]:
        planes = self.take(count * _NUMBER_BYTES)
        rows = bytearray(len(planes))
        for at in range(_NUMBER_BYTES):
            rows[at::_NUMBER_BYTES] = planes[at * count : (at + 1) * count]
        return unpack(f">{count}q", rows)

    def sums(self, count: int) -> tuple[int, ...]:
        """A column of `_steps`, added up again."""
        return tuple(accumulate(self.column(count), lambda before, step: _signed(before + step)))

    def timeline(self) -> Timeline:
        topic, topic_id = self.text(), self.uuid()
        number, next_offset, orphans, malformed, deleted, segment_count, unfinished_count = self.numbers(7)
        try:
            partition = TopicIdPartition.parsed(topic_id, topic, number)
        except ValueError as error:
            raise CorruptSegment(f"snapshot of timelines: {error}") from None
        segments = self.segments(segment_count, partition)
        unfinished = self.segments(unfinished_count, partition)
        finish_order = self.sums(segment_count)
        _check_segments(segments, unfinished)
        return Timeline(partition, segments, finish_order, next_offset, orphans, malformed, bool(deleted), unfinished)

    def segments(self, count: int, partition: TopicIdPartition) -> tuple[RemoteLogSegmentMetadata, ...]:
        ids = self.take(count * _UUID_BYTES)
        starts, ends, sizes = self.sums(count), self.sums(count), self.column(count)
        max_timestamps, event_timestamps, brokers = self.sums(count), self.sums(count), self.column(count)
        states, flags = self.column(count), self.column(count)
        epochs, custom = self._variable_parts(count)
        return tuple(
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(partition, Uuid(ids[at * _UUID_BYTES : (at + 1) * _UUID_BYTES])),
                starts[at], ends[at], sizes[at], max_timestamps[at], event_timestamps[at], brokers[at], epochs[at],
                custom[at], _state(states[at]), bool(flags[at]),
            )
            for at in range(count)
        )  # fmt: skip

    def _variable_parts(self, count: int) -> tuple[list[tuple[LeaderEpoch, ...]], list[bytes | None]]:
        """The leader epochs and the custom metadata of `count` segments."""
        epoch_counts, custom_sizes = self.column(count), self.column(count)
        if min(epoch_counts, default=0) < 0 or min(custom_sizes, default=0) < -1:
            raise CorruptSegment(f"snapshot of timelines: negative sizes before byte {self._at}")
        total = sum(epoch_counts)
        entries = iter([LeaderEpoch(*pair) for pair in zip(self.column(total), self.sums(total), strict=True)])
        epochs = [tuple(next(entries) for _ in range(epoch_count)) for epoch_count in epoch_counts]
        return epochs, [None if size_bytes < 0 else self.take(size_bytes) for size_bytes in custom_sizes]

    def finish(self) -> None:
        if self._at != len(self._data):
            raise CorruptSegment(f"snapshot of timelines: {len(self._data) - self._at} bytes are left over")


def _check_segments(
    segments: Sequence[RemoteLogSegmentMetadata], unfinished: Sequence[RemoteLogSegmentMetadata]
) -> None:
    """Raise CorruptSegment if segments break the promises of `Timeline`, which its searches rely on."""
    for segment in (*segments, *unfinished):
        check_segment_offsets(segment.start_offset, segment.end_offset)
        check_leader_epochs(segment.segment_leader_epochs)
    if any(segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED for segment in segments):
        raise CorruptSegment("snapshot of timelines: a segment that may not be read is among those that may")
    places = [(segment.start_offset, segment.end_offset) for segment in segments]
    if any(after < before for before, after in pairwise(places)):
        raise CorruptSegment("snapshot of timelines: segments that do not ascend by their offsets")


def _state(number: int) -> RemoteLogSegmentState:
    try:
        return RemoteLogSegmentState(number)
    except ValueError:
        raise CorruptSegment(f"snapshot of timelines: a segment in state {number}") from None
