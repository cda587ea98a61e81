"""Byte positions of slices, from the offset indexes of their segments.

Rules of the file:

- An index that is missing, damaged or ambiguous is no error: the segment is read from its first byte, and is counted.
- An index that can be read in two ways is believed in the way that the bytes confirm, and that is counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, FramedBatch, check_crc, read_header
from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.observe import IndexSettled, SegmentScanned
from remote_fetch.plan.ranges import PlanStep, SegmentSlice, narrow
from remote_fetch.session.storage import Storage

__all__ = ["count_tie", "narrow_by", "narrow_edges", "narrow_slice", "read_offset_index"]


def narrow_edges(storage: Storage, steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps with byte positions for the slices that want only a part of their segment, from its offset index.

    An index that is missing, damaged, or readable in two ways of which the bytes confirm neither, is no error: the
    segment is then read from its first byte, and that is counted.
    """
    return tuple(
        narrow_slice(storage, step) if isinstance(step, SegmentSlice) and not step.is_whole else step for step in steps
    )


def narrow_slice(storage: Storage, piece: SegmentSlice) -> SegmentSlice:
    """One slice with the byte positions of its segment's offset index: see `narrow_edges`."""
    index = read_offset_index(storage, piece.segment)
    return piece if index is None else narrow_by(storage, piece, index)


def read_offset_index(storage: Storage, segment: RemoteLogSegmentMetadata) -> OffsetIndex | None:
    """The offset index of a segment; None where it is missing or damaged, which is counted."""
    partition = segment.topic_id_partition
    data = storage.reader.read_index(segment, IndexType.OFFSET)
    if data is None:
        storage.observe(SegmentScanned(partition, IndexType.OFFSET, "missing"))
        return None
    try:
        return OffsetIndex.parse(
            data, segment.start_offset, end_offset=segment.end_offset, size_bytes=segment.known_size_bytes
        )
    except CorruptSegment:
        storage.observe(SegmentScanned(partition, IndexType.OFFSET, "corrupt"))
        return None


def narrow_by(storage: Storage, piece: SegmentSlice, index: OffsetIndex) -> SegmentSlice:
    """One slice with the byte positions that an index gives; as it was, which is counted, where the bytes confirm none.

    (An index may be readable with either entry size.)
    """
    for candidate in index.candidates():
        narrowed = narrow(piece, candidate)
        if not index.ambiguous:
            return narrowed
        if _starts_with_batch(storage, narrowed):
            if narrowed.start_position > 0:
                count_tie(storage, piece.segment, candidate)
            return narrowed
    storage.observe(SegmentScanned(piece.segment.topic_id_partition, IndexType.OFFSET, "ambiguous"))
    return piece


def count_tie(storage: Storage, segment: RemoteLogSegmentMetadata, index: OffsetIndex) -> None:
    """Count that the bytes of a segment confirmed one reading of its ambiguous offset index."""
    reason = f"{index.entry_size_bytes}-byte"
    storage.observe(IndexSettled(segment.topic_id_partition, IndexType.OFFSET, reason))


def _starts_with_batch(storage: Storage, piece: SegmentSlice) -> bool:
    """Whether a batch of the segment stands where the slice starts: tells 8-byte index entries from 12-byte ones."""
    if piece.start_position == 0:
        return True
    try:
        header = _header_at(storage, piece.segment, piece.start_position)
    except (CorruptSegment, UnsupportedFormat):
        return False
    return header is not None and piece.segment.start_offset <= header.base_offset <= piece.start_entry_offset


def _header_at(storage: Storage, segment: RemoteLogSegmentMetadata, position: int) -> BatchHeader | None:
    """The header of the batch at `position`, None where the segment ends before it does.

    The whole batch is fetched, for only its checksum tells it from bytes that look like one. Raises CorruptSegment and
    UnsupportedFormat where none begins there.
    """
    reader, bound = storage.reader, storage.settings.max_batch_bytes
    data, wanted_bytes = b"", HEADER_BYTES
    while True:
        stop = min(position + wanted_bytes, position + len(data) + reader.range_bytes)
        more = reader.read(RangeRequest(segment, position + len(data), stop))
        data += more
        found = read_header(memoryview(data), 0, position=position, max_batch_bytes=bound)
        if not isinstance(found, int):
            check_crc(FramedBatch(found, position, memoryview(data)[: found.size_bytes]))
            return found
        if not len(more):
            return None
        wanted_bytes = max(found, HEADER_BYTES)
