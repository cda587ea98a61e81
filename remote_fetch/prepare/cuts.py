"""Finds the offset at which a cut at a byte of a segment divides its records. Every reader finds the same offset.

Rules of the file:

- The bytes of the segment decide, not an index: a batch belongs to the part in whose bytes it begins.
- The offset index only tells where to look. So two readers agree, also if the index of one is missing or damaged.
- The result is a slice between offsets. It is read, read again and given to a broker like any other slice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.indexes import OffsetIndex, OffsetPosition
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.prepare.batch_walk import batches_of, first_sound
from remote_fetch.prepare.order import check_order
from remote_fetch.prepare.positions import narrow_by, read_offset_index
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.storage import Storage

__all__ = ["settle_cut"]


def settle_cut(storage: Storage, piece: SegmentSlice, *, end_is_inferred: bool = False) -> SegmentSlice | None:
    """The slice between offsets for a part that was cut at bytes. None if no batch begins in the part.

    If the end of the segment is inferred, its object may go on behind that end, also behind a gap. A cut there lies
    behind the last batch before the end.

    Costs one GET of the offset index and one small range for each cut. Raises the errors of a fetcher, and
    CorruptSegment or UnsupportedFormat if the segment is damaged before the cut.
    """
    segment = piece.segment
    try:
        index = read_offset_index(storage, segment, end_is_inferred=end_is_inferred)
        cuts = [cut for cut in (piece.start_position or -1, piece.end_position) if cut >= 0]
        found = all_at_once(partial(_last_before, storage, piece, index, end_is_inferred), cuts)
        before = dict(zip(cuts, found, strict=True))
        first = max(piece.first_offset, before.get(piece.start_position, -1) + 1)
        last = min(piece.last_offset, before.get(piece.end_position, piece.last_offset))
        if last < first:
            return None
        settled = SegmentSlice(segment, first, last)
        return settled if index is None else narrow_by(storage, settled, index)
    except RemoteFetchError as error:
        raise error.at(**segment.place) from error.__cause__


def _last_before(
    storage: Storage, piece: SegmentSlice, index: OffsetIndex | None, end_is_inferred: bool, cut: int
) -> int:
    """The last offset of the last batch that begins before byte `cut` of the piece's segment."""
    segment = piece.segment
    whole = SegmentSlice(segment, segment.start_offset, segment.end_offset)
    searches: list[tuple[SegmentSlice, Callable[[], int]]] = []
    for candidate in () if index is None else index.candidates():
        before, after = _around(candidate, cut, segment.end_offset)
        if before is None:
            continue
        near = replace(whole, start_position=before.position, start_entry_offset=before.offset)
        likely_end = -1 if after is None else after.position
        searches.append((near, partial(_walk, storage, near, cut, likely_end)))
    if not searches:
        searches.append((whole, partial(_walk, storage, whole, cut, -1)))
    # A gap at an inferred end is believed once the bytes were fetched again.
    searches.append((whole, partial(_walk, storage, whole, cut, -1, joins=not end_is_inferred)))
    return first_sound(storage, searches)


def _around(index: OffsetIndex, cut: int, end_offset: int) -> tuple[OffsetPosition | None, OffsetPosition | None]:
    """The last index entry before byte `cut` and up to `end_offset`, and the entry after it."""
    before = None
    for entry in index.entries():
        if entry.position >= cut or entry.offset > end_offset:
            return before, entry
        before = entry
    return before, None


def _walk(storage: Storage, near: SegmentSlice, cut: int, likely_end: int, *, joins: bool = True) -> int:
    """The last offset of the last batch that begins before byte `cut`. Reads batches from `near.start_position` on.

    A batch must begin there. `likely_end` is the byte at which the walk will probably stop, -1 if unknown. Raises
    MisleadingIndex if the batches contradict the index entry that gave `near.start_position`, and CorruptSegment for
    a batch that is not of the segment: no cut may lie before it. If not `joins`, a batch behind the segment ends the
    walk, also behind a gap.
    """
    last_offset = near.segment.start_offset - 1
    for batch in batches_of(storage, near, likely_end, joins=joins):
        header = batch.header
        check_order(batch, last_offset, (near.start_entry_offset,))
        last_offset = header.last_offset
        if batch.position + header.size_bytes >= cut:
            break
    return last_offset
