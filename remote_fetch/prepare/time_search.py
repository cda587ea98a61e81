"""Searches the tier for the first record at or after a time, in the time indexes and batches of segments.

Rules of the file:

- An index only tells where to look. If the batches contradict it, the segment is searched again without it.
- The bounds of a segment may be wrong. So the other segments that share offsets with it are searched too, up to the
  record that was found.
- Under a listing, a slice that has no such record is measured, because it may end sooner than the listing shows. It is
  not if its last offset was seen, in its batches or in its time index.
- A marker has the clock of its broker: a notice says so if the records after it are older. Its answer is that of a
  broker too, so it is reported and not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

import pyarrow as pa

from remote_fetch.decode.decoded_rows import arrow_of
from remote_fetch.decode.run_decoder import BatchReader
from remote_fetch.errors import CorruptSegment, FallsBackError, RemoteFetchError, Unlocatable
from remote_fetch.formats.batches import FramedBatch
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.indexes import TimeIndex
from remote_fetch.formats.legacy import as_v2
from remote_fetch.locate.lineage import epoch_at
from remote_fetch.locate.listing import GAP_HINT
from remote_fetch.locate.locator import Locator
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.observe import Notice, SegmentScanned
from remote_fetch.plan.ranges import SegmentSlice, leading_slices, plan_offsets
from remote_fetch.prepare.batch_walk import batches_of, first_sound
from remote_fetch.prepare.order import MisleadingIndex, check_order
from remote_fetch.prepare.positions import narrow_slice
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.storage import Storage

__all__ = ["TIME_COLUMNS", "TimeSearch", "first_row", "is_older"]

TIME_COLUMNS = ("offset", "timestampMs")
"""The columns of rows in which a time is looked for."""
_MOST_AT_ONCE = 64
"""How many listed segments are looked at in one group. A few GETs are under way at a time."""
_PASSED_MARKERS = 16
"""How many batches behind a marker are looked at for one of records. Transactions may end together."""


class TimeSearch:
    """Searches segments of one storage for records at or after `timestamp_ms`. Thread-safe.

    `passes_markers`: control records do not count.
    """

    def __init__(self, storage: Storage, locator: Locator, timestamp_ms: int, *, passes_markers: bool) -> None:
        self._storage, self._locator = storage, locator
        self._timestamp_ms = timestamp_ms
        self._passes_markers = passes_markers

    def first_in(self, opened: OpenPartition, pieces: Iterable[SegmentSlice]) -> int | None:
        """The first offset at or after the time in slices of a partition, None if there is none.

        Raises the errors of reading, and Unlocatable if a segment ends before offsets that no other has.
        """
        for piece in self._not_passed(pieces):
            found, is_reached = self._first_in_slice(piece)
            if not self._locator.end_is_inferred(piece.segment):
                found = self._first_beside(opened, piece, found)
            elif found is None and not is_reached:
                found = self._first_in_tail(opened, piece)
            if found is not None:
                return found
        return None

    def _not_passed(self, pieces: Iterable[SegmentSlice]) -> Iterator[SegmentSlice]:
        """The slices that may have such a record, or lack offsets. Under a listing others are left out, many at once.

        Each group is about as large as all before it, so that few are looked at in vain. The first slice is not.
        """
        source, size = iter(pieces), 1
        while group := list(islice(source, size)):
            looked_at = [piece for piece in group[size == 1 :] if self._locator.end_is_inferred(piece.segment)]
            passes = all_at_once(self._passes, looked_at)
            passed = {piece.first_offset for piece, is_passed in zip(looked_at, passes, strict=True) if is_passed}
            yield from (piece for piece in group if piece.first_offset not in passed)
            size = min(2 * size, _MOST_AT_ONCE)

    def _passes(self, piece: SegmentSlice) -> bool:
        """Whether a slice of a listed segment surely has its last offset, and no record at or after the time."""
        segment = piece.segment
        try:
            index = self._parsed(segment, self._storage.reader.read_index(segment, IndexType.TIMESTAMP))
            if not index or index.max_timestamp_ms >= self._timestamp_ms:
                return False
            last = piece.last_offset
            return index.last_offset == last or self._has_all(segment, last, last, end_is_inferred=True)
        except FallsBackError:  # the look at this slice alone will raise it, if it comes there
            return False

    def _first_beside(self, opened: OpenPartition, piece: SegmentSlice, found: int | None) -> int | None:
        """`found`, or an earlier record that another segment of the log has among the offsets of the slice.

        An end offset that is too high, or a start offset that is too low, hides the segments that have the offsets. A
        segment with the same bounds hides none. Of several branches the log is the one of the highest leader epoch.
        """
        segment, last = piece.segment, piece.last_offset if found is None else found - 1
        for other, _, _ in opened.timeline.found(piece.first_offset, last):
            first, stop = max(other.start_offset, piece.first_offset), min(other.end_offset, last)
            is_same = (other.start_offset, other.end_offset) == (segment.start_offset, segment.end_offset)
            if first > stop or is_same or not opened.lineage.accepts(other):
                continue
            try:
                earlier, _ = self._first_in_slice(SegmentSlice(other, first, stop))
            except FallsBackError:
                if _epoch(other, stop) <= _epoch(segment, stop) and self._has_all(segment, first, stop):
                    continue  # nothing is hidden, so that the copy is not needed
                raise
            if earlier is not None and _epoch(other, earlier) >= _epoch(segment, earlier):
                found, last = earlier, earlier - 1
        return found

    def _has_all(
        self, segment: RemoteLogSegmentMetadata, first: int, last: int, *, end_is_inferred: bool = False
    ) -> bool:
        """Whether the batches of a segment have the offsets `first` to `last` without a gap."""
        piece = narrow_slice(self._storage, SegmentSlice(segment, first, last), end_is_inferred=end_is_inferred)
        try:
            for batch in batches_of(self._storage, piece, piece.end_position, end_is_inferred=end_is_inferred):
                if batch.header.base_offset > first:
                    return False
                first = max(first, batch.header.next_offset)
        except (MisleadingIndex, FallsBackError):
            return False
        return first > last

    def _first_in_tail(self, opened: OpenPartition, piece: SegmentSlice) -> int | None:
        """The first record at or after the time in the last offsets of a slice, if its segment ends before them.

        Raises Unlocatable if no other segment has those offsets, because the wanted record may be in them.
        """
        partition, stop = piece.partition, piece.stop_offset
        measured = self._locator.measure(partition, [piece.segment]).segments
        behind = [segment.end_offset + 1 for segment in measured if segment.segment_id == piece.segment.segment_id]
        first = max([piece.first_offset, *behind])
        if first >= stop:
            return None
        known = self._locator.recheck(partition, first)
        opened = opened.with_timeline(known)
        held = list(leading_slices(plan_offsets(opened, first, stop)))
        found = self.first_in(opened, held)
        if found is not None:
            return found
        first = held[-1].stop_offset if held else first
        if first >= stop:
            return None
        raise Unlocatable(
            f"no object holds offsets {first} to {stop - 1}, where the time may be",
            first=first,
            last=stop - 1,
            hint=GAP_HINT,
            **partition.place,
        )

    def _first_in_slice(self, piece: SegmentSlice) -> tuple[int | None, bool]:
        """The first record at or after the time, None if there is none, and whether the last offset was seen."""
        segment = piece.segment
        if is_older(segment, self._timestamp_ms):
            return None, False
        narrowed, likely_end = piece, -1
        index = self._time_index(segment)
        if index is not None:
            if segment.max_timestamp_ms < 0 and index.max_timestamp_ms < self._timestamp_ms:
                return None, False
            first = max(piece.first_offset, index.start_offset(self._timestamp_ms))
            if first > piece.last_offset:
                return None, False
            reached = index.reached_offset(self._timestamp_ms)
            last = piece.last_offset if reached is None else min(max(first, reached), piece.last_offset)
            part = replace(piece, first_offset=first, last_offset=last)
            is_inferred = self._locator.end_is_inferred(segment)
            found = narrow_slice(self._storage, part, end_is_inferred=is_inferred)
            narrowed = replace(piece, start_position=found.start_position, start_entry_offset=found.start_entry_offset)
            likely_end = found.end_position  # only a hint: the rest is read too if the index is wrong
        try:
            tries = ((narrowed, likely_end), (piece, -1))
            searches = [(tried, partial(self._search, tried, end)) for tried, end in tries]
            return first_sound(self._storage, searches)
        except RemoteFetchError as error:
            raise error.at(**segment.place) from error.__cause__

    def _search(self, piece: SegmentSlice, likely_end: int) -> tuple[int | None, bool]:
        last_offset = -1
        found: int | None = None
        # After the answer, `batches` yields only batches of ranges that are there already. It fetches no further range.
        is_inferred = self._locator.end_is_inferred(piece.segment)
        batches = batches_of(
            self._storage, piece, likely_end, goes_on=lambda: found is None, end_is_inferred=is_inferred
        )
        for batch in batches:
            header = batch.header
            check_order(batch, last_offset, (piece.start_entry_offset,))
            last_offset = header.last_offset
            found = self._first_in_batch(batch, piece)
            if found is not None:
                if header.is_control:
                    self._say_older(piece.partition, found, batches)
                return found, False
        return None, last_offset >= piece.last_offset

    def _time_index(self, segment: RemoteLogSegmentMetadata) -> TimeIndex | None:
        """The time index. None if it is missing, damaged or empty: the segment is then searched from its first byte."""
        data = self._storage.reader.read_index(segment, IndexType.TIMESTAMP)
        try:
            index = self._parsed(segment, data)
        except CorruptSegment:
            self._storage.observe(SegmentScanned(segment.topic_id_partition, IndexType.TIMESTAMP, "corrupt"))
            return None
        if index is None:
            self._storage.observe(SegmentScanned(segment.topic_id_partition, IndexType.TIMESTAMP, "missing"))
        return index or None

    def _parsed(self, segment: RemoteLogSegmentMetadata, data: memoryview | None) -> TimeIndex | None:
        last = None if self._locator.end_is_inferred(segment) else segment.end_offset
        return None if data is None else TimeIndex.parse(data, segment.start_offset, end_offset=last)

    def _first_in_batch(self, batch: FramedBatch, piece: SegmentSlice) -> int | None:
        header = batch.header
        if header.last_offset < piece.first_offset or (
            header.magic == 2 and header.max_timestamp_ms < self._timestamp_ms
        ):
            return None
        if header.record_count == 0 or (header.is_control and self._passes_markers):
            return None
        # Several partitions are searched at once, and only one thread may use the session's codecs.
        codecs = Codecs(max_bytes=self._storage.settings.max_decompressed_bytes)
        header, records = as_v2(batch, codecs)
        partition = piece.partition
        reader = BatchReader(partition.topic, partition.partition, TIME_COLUMNS)
        decoded = reader.read(header, records, piece.first_offset, piece.stop_offset)
        return first_row(arrow_of(decoded), self._timestamp_ms)

    def _say_older(self, partition: TopicIdPartition, marker: int, after: Iterator[FramedBatch]) -> None:
        """Report if the batch of records after a marker, the answer of a search, is older than the wanted time."""
        try:
            headers = (batch.header for batch in islice(after, _PASSED_MARKERS))
            header = next((header for header in headers if not header.is_control), None)
        except RemoteFetchError:  # the answer does not need it: the read will raise this if it comes there
            return
        if header is not None and 0 <= header.max_timestamp_ms < self._timestamp_ms:
            text = (
                f"{partition.topic_partition}: the first record at or after the given time is the "
                f"transaction marker at offset {marker}, which has the broker's clock; records after it are older"
            )
            self._storage.observe(Notice(text))


def first_row(batches: Iterable[pa.RecordBatch], timestamp_ms: int) -> int | None:
    """The offset of the first row of TIME_COLUMNS at or after the time."""
    for rows in batches:
        for offset, row_ms in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if row_ms >= timestamp_ms:
                return int(offset)
    return None


def is_older(segment: RemoteLogSegmentMetadata, timestamp_ms: int) -> bool:
    """Whether the metadata of a segment tells that all its records are before the time."""
    return 0 <= segment.max_timestamp_ms < timestamp_ms


def _epoch(segment: RemoteLogSegmentMetadata, offset: int) -> int:
    """The leader epoch at `offset` by the metadata of a segment, -1 if it does not tell."""
    epoch = epoch_at(segment.segment_leader_epochs, offset)
    return -1 if epoch is None else epoch
