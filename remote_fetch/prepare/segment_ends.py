"""Checks a segment that begins later or ends sooner than its metadata says: the store confirms it, or it is an error.

Rules of the file:

- Metadata, listings and indexes of a segment are believed only as far as its bytes agree.
- If compaction removed the last batches of a segment, it ends before its last offset. It seems to do so too if the size
  in the metadata is too small. Only in the second case does the store have bytes after that end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remote_fetch.errors import CorruptSegment, FallsBackError, SegmentNotFound
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import BatchFramer, v2_offset_at
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.legacy import as_v2
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.prepare.positions import read_offset_index
from remote_fetch.session.storage import Storage

__all__ = ["EndsTooSoon", "Gap", "SizeTooSmall", "check_end", "offset_at_start"]

_LAST_POSITION = 2**63 - 1


class SizeTooSmall(CorruptSegment):
    """The store has more of a segment than its metadata says."""


class EndsTooSoon(SegmentNotFound):
    """A segment ends before the next one begins, although its end was inferred.

    An object may be missing between them.
    """


class Gap(SegmentNotFound):
    """A segment lacks offsets up to `last` that it should have.

    `pieces` are slices of other segments that have them.
    """

    def __init__(self, message: str, pieces: Sequence[SegmentSlice], last: int) -> None:
        super().__init__(message)
        self.pieces, self.last = pieces, last


def check_end(storage: Storage, segment: RemoteLogSegmentMetadata, end: int) -> None:
    """Ask the store whether the object ends at byte `end`, where the segment's bytes ended before its last offset.

    Costs one GET of one byte. If the size is unknown, it also costs a GET of the offset index. Raises SizeTooSmall if
    the object is larger than the metadata says, CorruptSegment if it is too short, and the errors of a fetcher.
    """
    size_bytes = segment.known_size_bytes
    if size_bytes is not None and end < size_bytes:
        raise CorruptSegment(
            f"the object ends at byte {end}, before byte {size_bytes} that it should have (SegmentSizeInBytes, or the "
            "store's word)",
            position=end,
        )
    if len(storage.reader.read(RangeRequest(segment, end, end + 1))):
        if size_bytes is None:
            raise CorruptSegment(f"the store ended at byte {end}, and the object goes on", position=end)
        raise SizeTooSmall(
            f"the object goes on behind its {size_bytes} bytes (SegmentSizeInBytes)", position=size_bytes
        )
    index = read_offset_index(storage, segment) if size_bytes is None else None
    # An index of 12-byte entries can be read with 8 bytes too only if it knows a position above 8 GiB.
    known = 0 if index is None else index.start_position(_LAST_POSITION)
    if known >= max(end, 1):
        raise CorruptSegment(
            f"the object ends at byte {end}, but its offset index knows a batch at {known}", position=end
        )


def offset_at_start(
    data: memoryview, codecs: Codecs, more: Callable[[int], memoryview], *, max_batch_bytes: int
) -> int | None:
    """The first offset of the batch that begins in `data`, the first bytes of a segment.

    The header of a legacy message set may have only the last offset, so that all of the set is needed. `more` gets the
    segment's bytes from a position on, and no bytes if the segment ends there.

    Returns None if the bytes do not tell the offset, or break a rule: then the reader of the segment raises the error.
    Raises the errors of `more`.
    """
    base_offset = v2_offset_at(data, 0)
    if base_offset is not None:
        return base_offset
    framer = BatchFramer(0, max_batch_bytes=max_batch_bytes)
    while data:
        framer.feed(data)
        try:
            batch = framer.next_batch()
            if batch is not None:
                return as_v2(batch, codecs)[0].base_offset
        except FallsBackError:
            return None
        data = more(framer.pending_bytes)
    return None
