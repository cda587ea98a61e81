"""Finds the byte positions of slices in the offset indexes of their segments.

Rules of the file:

- A missing or damaged index is no error. The segment is read from its first byte, and that is counted.
- If an index can be read with both entry sizes (8 and 12 bytes), the bytes of the segment decide, and that is counted.
  If they confirm neither size, the index counts as damaged.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, FramedBatch, check_crc, read_header
from remote_fetch.formats.indexes import OffsetIndex
from remote_fetch.locate.locator import Locator
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.observe import IndexSettled, SegmentScanned
from remote_fetch.plan.ranges import PlanStep, SegmentSlice, narrow
from remote_fetch.session.storage import Storage

__all__ = ["narrow_by", "narrow_edges", "narrow_slice", "read_offset_index"]


def narrow_edges(storage: Storage, ends: Locator, steps: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps, with byte positions for each slice that wants only a part of its segment.

    `ends` tells which segments have an inferred end: their objects, and indexes, may go on behind it.

    If an index is missing or damaged, or its entry size stays unknown, the segment is read from its first byte. That is
    no error, and is counted.
    """
    return tuple(
        narrow_slice(storage, step, end_is_inferred=ends.end_is_inferred(step.segment))
        if isinstance(step, SegmentSlice) and not step.is_whole
        else step
        for step in steps
    )


def narrow_slice(storage: Storage, piece: SegmentSlice, *, end_is_inferred: bool = False) -> SegmentSlice:
    """As `narrow_edges`, for one slice."""
    index = read_offset_index(storage, piece.segment, end_is_inferred=end_is_inferred)
    return piece if index is None else narrow_by(storage, piece, index)


def read_offset_index(
    storage: Storage, segment: RemoteLogSegmentMetadata, *, end_is_inferred: bool = False
) -> OffsetIndex | None:
    """The offset index of a segment. None if it is missing or damaged, which is counted.

    No entry may lie behind the end of the segment, unless that is inferred.
    """
    partition = segment.topic_id_partition
    data = storage.reader.read_index(segment, IndexType.OFFSET)
    if data is None:
        storage.observe(SegmentScanned(partition, IndexType.OFFSET, "missing"))
        return None
    try:
        last = None if end_is_inferred else segment.end_offset
        return OffsetIndex.parse(data, segment.start_offset, end_offset=last, size_bytes=segment.known_size_bytes)
    except CorruptSegment:
        storage.observe(SegmentScanned(partition, IndexType.OFFSET, "corrupt"))
        return None


def narrow_by(storage: Storage, piece: SegmentSlice, index: OffsetIndex) -> SegmentSlice:
    """Return the slice with the byte positions from the index.

    If the index can be read with both entry sizes (8 and 12 bytes), the bytes of the segment decide. If they confirm
    neither, report SegmentScanned and return the slice unchanged.
    """
    for candidate in index.candidates():
        narrowed = narrow(piece, candidate)
        if not index.ambiguous:
            return narrowed
        if _starts_with_batch(storage, narrowed):
            if narrowed.start_position > 0:
                reason = f"{candidate.entry_size_bytes}-byte"
                storage.observe(IndexSettled(piece.partition, IndexType.OFFSET, reason))
            return narrowed
    storage.observe(SegmentScanned(piece.partition, IndexType.OFFSET, "ambiguous"))
    return piece


def _starts_with_batch(storage: Storage, piece: SegmentSlice) -> bool:
    """Whether a batch of the segment begins at the slice's start. It does not if the entry size is wrong."""
    if piece.start_position == 0:
        return True
    try:
        header = _header_at(storage, piece.segment, piece.start_position)
    except (CorruptSegment, UnsupportedFormat):
        return False
    return header is not None and piece.segment.start_offset <= header.base_offset <= piece.start_entry_offset


def _header_at(storage: Storage, segment: RemoteLogSegmentMetadata, position: int) -> BatchHeader | None:
    """The header of the batch at `position`. None if the segment ends inside that batch.

    The whole batch is fetched, because only the checksum tells a batch from bytes that look like one. Raises
    CorruptSegment or UnsupportedFormat if no batch begins there.
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
