"""The batches of a slice, one after the other, where something is looked up in them and nothing is delivered.

Rules of the file: no more than one range is fetched ahead of what is looked at; what is given was checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from remote_fetch.errors import CorruptSegment
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import BatchFramer, FramedBatch, check_crc
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.read.session import Session

__all__ = ["batches_of"]


def batches_of(session: Session, piece: SegmentSlice, likely_end: int) -> Iterator[FramedBatch]:
    """The batches of a slice in order, up to its last offset; drawn ahead one range at a time.

    The first range goes no further than the position `likely_end` (-1: not known), where enough was seen if the indexes
    are right.
    """
    framer = BatchFramer(piece.start_position, max_batch_bytes=session.config.number("fetch.remote.max.batch.bytes"))
    reader = session.reader
    while True:
        start = framer.position + framer.pending_bytes
        stop = start + reader.range_bytes
        if piece.segment.size_known:
            stop = min(stop, piece.segment.segment_size_in_bytes)
        if start < likely_end:
            stop = min(stop, likely_end)
        data = reader.read(RangeRequest(piece.segment, start, stop)) if stop > start else memoryview(b"")
        framer.feed(data)
        while (batch := framer.next_batch()) is not None:
            if batch.header.magic == 2 and batch.header.base_offset > piece.last_offset:
                return
            check_crc(batch)
            yield batch
        if len(data) < stop - start or stop == start:
            _check_end(framer, piece.segment)
            return


def _check_end(framer: BatchFramer, segment: RemoteLogSegmentMetadata) -> None:
    """The bytes have ended: raise CorruptSegment if they should not have ended here."""
    framer.finish()
    if segment.size_known and framer.position < segment.segment_size_in_bytes:
        raise CorruptSegment(
            f"the object ends at byte {framer.position}, before byte {segment.segment_size_in_bytes} "
            "that it should have",
            position=framer.position,
        )
