"""Finds the first offset at or after a time, in the tier's time indexes and batches, or by a broker.

Rules of the file:

- The answer equals that of a broker's ListOffsets: the first record, in offset order, that is not before the time.
  Control records count too. A marker has the clock of its broker: a notice says so if the records after it are older.
  A look-up that passes markers takes records alone. If a broker's answer is a marker, it gives none.
- An index only tells where to look. If the batches contradict it, the segment is searched again without it.
- The bounds of a segment may be wrong. So the other segments that share offsets with it are searched too, up to the
  record that was found.
- Under a listing, a slice that has no such record is measured, because it may end sooner than the listing shows. It is
  not if its last offset was seen, in its batches or in its time index.
- The broker is asked if the tier does not hold the record, or if the store does not give it.
- A broker may miss records (Kafka 3.9.2 and 4.3.1 do). It looks only into the first segment whose largest timestamp is
  late enough. If the log start lies behind the late records of that segment, it finds none. Nor does it if no record of
  the segment has a timestamp, because the time of the file then counts. So the tier is searched as well for offsets
  that the broker has on its disk, and a plan leaves out only what was searched, or what the broker surely lacks. If the
  broker has a late record on its disk and yet finds none, its records are read up to the first late one.
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
from remote_fetch.model import IndexType, IsolationLevel, RemoteLogSegmentMetadata
from remote_fetch.observe import Notice, SegmentScanned
from remote_fetch.plan.ranges import BrokerRange, Reason, SegmentSlice, leading_slices, plan_offsets
from remote_fetch.prepare.batch_walk import batches_of, first_sound
from remote_fetch.prepare.marker_notice import say_older
from remote_fetch.prepare.order import MisleadingIndex, check_order
from remote_fetch.prepare.positions import narrow_slice
from remote_fetch.prepare.refusals import refuse_broker_ranges
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.session import Session

__all__ = ["TimeLookup"]

_ANY_TIME = -(2**63)
_COLUMNS = ("offset", "timestampMs")
_EVERY = IsolationLevel.READ_UNCOMMITTED
_MOST_AT_ONCE = 64
"""How many listed segments are looked at in one group. A few GETs are under way at a time."""


class TimeLookup:
    """Looks up times in the partitions of one session. Thread-safe.

    `passes_markers`: control records do not count. For a broker they count, so it is asked for the record as well.
    """

    def __init__(self, session: Session, *, passes_markers: bool = False) -> None:
        self._session, self._fallback = session, session.fallback
        self._storage, self._locator, self._brokers = session.storage, session.locator, session.brokers
        self._passes_markers = passes_markers

    def first_offset_at(
        self, opened: OpenPartition, timestamp_ms: int, offsets: tuple[int, int] | None = None
    ) -> int | None:
        """The first offset whose record is not before `timestamp_ms`, None if there is none.

        `offsets` [first, stop): the tier is searched there alone. None: the whole log is searched.

        With `passes_markers`, None as well if a broker has a marker there, or a record that the isolation level hides.

        Raises the errors of reading.
        """
        found, searched = self._look_up(opened, timestamp_ms, offsets)
        if found is not None or searched is None or offsets is not None or self._passes_markers:
            return found
        if searched >= opened.last_start or self._has_none(opened, timestamp_ms) is not False:
            return None
        text = (
            f"{opened.partition.topic_partition}: the broker finds no record at or after the time, yet has one on disk"
            f": records are read from offset {searched} on to find it. A bound by offset needs no such read"
        )
        self._storage.observe(Notice(text, is_warning=True))
        return self._read(opened, searched, opened.last_start - 1, timestamp_ms)

    def least_offset_at(self, opened: OpenPartition, timestamp_ms: int) -> int:
        """An offset before which no record is at or after the time, for a plan that leaves out the records before it.

        It is that of `first_offset_at` unless the broker may miss a record. Raises the errors of reading.
        """
        found, searched = self._look_up(opened, timestamp_ms, None)
        least = opened.last_start if found is None else found
        if searched is None or self._is_sure(opened, found, searched, timestamp_ms):
            return least
        return min(least, searched)

    def _look_up(
        self, opened: OpenPartition, timestamp_ms: int, offsets: tuple[int, int] | None
    ) -> tuple[int | None, int | None]:
        """The answer of `first_offset_at`. If a broker gave it, also the first offset that was not searched."""
        first, stop = offsets or (opened.first_offset, opened.last_start)
        stop = min(stop, opened.last_start)
        is_doubtful = self._brokers is not None and not self._is_seen(opened, timestamp_ms)
        in_tier = replace(opened, local_start=None) if is_doubtful else opened
        steps = plan_offsets(opened.partition, in_tier, first, stop)
        if self._brokers is None:
            refuse_broker_ranges(opened.timeline, steps)
        pieces = list(leading_slices(steps))
        searched = first
        try:
            found = self._first_in_tier(in_tier, pieces, timestamp_ms)
            if found is not None or len(pieces) == len(steps) or self._brokers is None:
                return found, None
            searched = steps[len(pieces)].first_offset
        except RemoteFetchError as error:
            self._fallback.after(error, opened.partition, pieces[0].first_offset, pieces[-1].last_offset)
        assert self._brokers is not None, "only a session with a broker falls back"
        # The broker knows the whole log. Its answer lies after the searched slices, which have no such record.
        found = self._brokers.guard.offset_for_time(opened.partition, timestamp_ms, opened.isolation)
        return None if self._passes_markers and not self._is_record(opened, found, stop) else found, searched

    def _is_sure(self, opened: OpenPartition, found: int | None, searched: int, timestamp_ms: int) -> bool:
        """Whether a broker's answer misses no record.

        An offset is that of the first segment that the broker looked into: in the part of the log that it lacks, and
        also on its disk, if no segment of that part was looked into before. By their largest timestamps the segments
        from `searched` on tell whether one was: a store that fails leaves them to the broker.
        """
        stop = min(end for end in (found, opened.local_start, opened.last_start) if end is not None)
        passed = (one for one in opened.timeline.segments if searched <= one.end_offset < stop)
        is_seen = self._is_seen(opened, timestamp_ms) and all(_is_older(one, timestamp_ms) for one in passed)
        local_start = 0 if is_seen else self._local_start(opened)
        is_local = local_start is not None and local_start <= (opened.log.log_start_offset or 0)
        if found is None:
            return is_local and self._has_none(opened, timestamp_ms) is True
        return is_local or (local_start is not None and found < local_start)

    def _has_none(self, opened: OpenPartition, timestamp_ms: int) -> bool | None:
        """Whether the broker is right that no record on its disk is at or after the time. None: it is not known.

        The answer can only be wrong if its disk has such a record. A record does not count if it lies behind the last
        offset. An open transaction may have it, or it was written later.
        """
        assert self._brokers is not None, "only a session with a broker has its answers"
        latest_ms = self._brokers.cluster.latest_local_time_ms(opened.partition)
        if latest_ms is None or latest_ms < timestamp_ms:
            return None if latest_ms is None else True
        later = self._brokers.guard.offset_for_time(opened.partition, timestamp_ms, _EVERY)
        return later is not None and later >= opened.last_start

    def _is_seen(self, opened: OpenPartition, timestamp_ms: int) -> bool:
        """Whether the broker's answer is only needed for offsets on its disk."""
        return self._sees_tier(opened) and not _may_be_missed(opened, timestamp_ms)

    def _sees_tier(self, opened: OpenPartition) -> bool:
        """Whether the segments of the tier, if there are any, were looked up."""
        is_located = self._session.stepwise is None and self._session.locating.unlocated is None
        return bool(opened.timeline.segments) or (is_located and opened.unread is None)

    def _local_start(self, opened: OpenPartition) -> int | None:
        """The first offset on the broker's disk. None if it is not known. With an empty tier it is the log start."""
        if opened.local_start is not None or opened.timeline.segments:
            return opened.local_start
        if self._sees_tier(opened):
            return opened.log.log_start_offset or 0
        if self._brokers is not None and self._brokers.cluster.is_tiered(opened.partition.topic) is False:
            return opened.log.log_start_offset or 0
        asked = self._session.local_logs([opened.partition], "a filter on time reads records before that time too")
        return asked[opened.partition].start_offset if opened.partition in asked else None

    def _is_record(self, opened: OpenPartition, offset: int | None, stop: int) -> bool:
        """Whether the broker gives a record at `offset`, before `stop`."""
        return offset is not None and offset < stop and self._read(opened, offset, offset, _ANY_TIME) is not None

    def _read(self, opened: OpenPartition, first: int, last: int, timestamp_ms: int) -> int | None:
        """The first of the broker's records `first` to `last` that is at or after the time."""
        if self._fallback.reader is None or self._brokers is None:
            return None
        step = BrokerRange(opened.partition, first, last, Reason.NOT_TIERED)
        with self._brokers.cluster.reading:  # several partitions are looked up at once, by several look-ups
            return _first_row(self._fallback.reader.read(step, opened.isolation, _COLUMNS), timestamp_ms)

    def _first_in_tier(self, opened: OpenPartition, pieces: Iterable[SegmentSlice], timestamp_ms: int) -> int | None:
        for piece in self._not_passed(pieces, timestamp_ms):
            found, is_reached = self._first_in_slice(piece, timestamp_ms)
            if not self._locator.end_is_inferred(piece.segment):
                found = self._first_beside(opened, piece, found, timestamp_ms)
            elif found is None and not is_reached:
                found = self._first_in_tail(opened, piece, timestamp_ms)
            if found is not None:
                return found
        return None

    def _not_passed(self, pieces: Iterable[SegmentSlice], timestamp_ms: int) -> Iterator[SegmentSlice]:
        """The slices that may have such a record, or lack offsets. Under a listing others are left out, many at once.

        Each group is about as large as all before it, so that few are looked at in vain. The first slice is not.
        """
        source, size = iter(pieces), 1
        while group := list(islice(source, size)):
            looked_at = [piece for piece in group[size == 1 :] if self._locator.end_is_inferred(piece.segment)]
            passes = all_at_once(partial(self._passes, timestamp_ms), looked_at)
            passed = {piece.first_offset for piece, is_passed in zip(looked_at, passes, strict=True) if is_passed}
            yield from (piece for piece in group if piece.first_offset not in passed)
            size = min(2 * size, _MOST_AT_ONCE)

    def _passes(self, timestamp_ms: int, piece: SegmentSlice) -> bool:
        """Whether a slice of a listed segment surely has its last offset, and no record at or after the time."""
        segment = piece.segment
        try:
            index = self._parsed(segment, self._storage.reader.read_index(segment, IndexType.TIMESTAMP))
            if not index or index.max_timestamp_ms >= timestamp_ms:
                return False
            last = piece.last_offset
            return index.last_offset == last or self._has_all(segment, last, last, end_is_inferred=True)
        except FallsBackError:  # the look at this slice alone will raise it, if it comes there
            return False

    def _first_beside(
        self, opened: OpenPartition, piece: SegmentSlice, found: int | None, timestamp_ms: int
    ) -> int | None:
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
                earlier, _ = self._first_in_slice(SegmentSlice(other, first, stop), timestamp_ms)
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

    def _first_in_tail(self, opened: OpenPartition, piece: SegmentSlice, timestamp_ms: int) -> int | None:
        """The first record at or after the time in the last offsets of a slice, if its segment ends before them.

        Raises Unlocatable if no other segment has those offsets, because the wanted record may be in them.
        """
        partition, stop = piece.partition, piece.stop_offset
        measured = self._locator.measure(partition, [piece.segment]).segments
        behind = [one.end_offset + 1 for one in measured if one.segment_id == piece.segment.segment_id]
        first = max([piece.first_offset, *behind])
        if first >= stop:
            return None
        known = self._locator.recheck(partition, first)
        steps = plan_offsets(partition, opened.with_timeline(known), first, stop)
        held = list(leading_slices(steps))
        found = self._first_in_tier(opened.with_timeline(known), held, timestamp_ms)
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

    def _first_in_slice(self, piece: SegmentSlice, timestamp_ms: int) -> tuple[int | None, bool]:
        """The first record at or after the time, None if there is none, and whether the last offset was seen."""
        segment = piece.segment
        if _is_older(segment, timestamp_ms):
            return None, False
        narrowed, likely_end = piece, -1
        index = self._time_index(segment)
        if index is not None:
            if segment.max_timestamp_ms < 0 and index.max_timestamp_ms < timestamp_ms:
                return None, False
            first = max(piece.first_offset, index.start_offset(timestamp_ms))
            if first > piece.last_offset:
                return None, False
            reached = index.reached_offset(timestamp_ms)
            last = piece.last_offset if reached is None else min(max(first, reached), piece.last_offset)
            part = replace(piece, first_offset=first, last_offset=last)
            is_inferred = self._locator.end_is_inferred(segment)
            found = narrow_slice(self._storage, part, end_is_inferred=is_inferred)
            narrowed = replace(piece, start_position=found.start_position, start_entry_offset=found.start_entry_offset)
            likely_end = found.end_position  # only a hint: the rest is read too if the index is wrong
        try:
            tries = ((narrowed, likely_end), (piece, -1))
            searches = [(one, partial(self._search, one, timestamp_ms, end)) for one, end in tries]
            return first_sound(self._storage, searches)
        except RemoteFetchError as error:
            raise error.at(**segment.place) from error.__cause__

    def _search(self, piece: SegmentSlice, timestamp_ms: int, likely_end: int) -> tuple[int | None, bool]:
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
            found = self._first_in_batch(batch, piece, timestamp_ms)
            if found is not None:
                if header.is_control:
                    say_older(self._storage.observe, piece.partition, found, batches, timestamp_ms)
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

    def _first_in_batch(self, batch: FramedBatch, piece: SegmentSlice, timestamp_ms: int) -> int | None:
        header = batch.header
        if header.last_offset < piece.first_offset or (header.magic == 2 and header.max_timestamp_ms < timestamp_ms):
            return None
        if header.record_count == 0 or (header.is_control and self._passes_markers):
            return None
        # Several partitions are searched at once, and only one thread may use the session's codecs.
        codecs = Codecs(max_bytes=self._storage.settings.max_decompressed_bytes)
        header, records = as_v2(batch, codecs)
        partition = piece.partition
        reader = BatchReader(partition.topic, partition.partition, _COLUMNS)
        decoded = reader.read(header, records, piece.first_offset, piece.stop_offset)
        return _first_row(arrow_of(decoded), timestamp_ms)


def _first_row(batches: Iterable[pa.RecordBatch], timestamp_ms: int) -> int | None:
    """The offset of the first row of `_COLUMNS` at or after the time."""
    for rows in batches:
        for offset, row_ms in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if row_ms >= timestamp_ms:
                return int(offset)
    return None


def _may_be_missed(opened: OpenPartition, timestamp_ms: int) -> bool:
    """Whether a broker's answer may miss a record at or after the time, because the log begins inside a segment.

    Retention lets the log begin with a segment. DeleteRecords moves its start into a segment.
    """
    start = opened.log.log_start_offset or 0
    held = opened.tiered(start)
    begins_inside = held is None or (held.start_offset < start and not _is_older(held, timestamp_ms))
    return start > 0 and begins_inside


def _is_older(segment: RemoteLogSegmentMetadata, timestamp_ms: int) -> bool:
    """Whether the metadata of a segment tells that all its records are before the time."""
    return 0 <= segment.max_timestamp_ms < timestamp_ms


def _epoch(segment: RemoteLogSegmentMetadata, offset: int) -> int:
    """The leader epoch at `offset` by the metadata of a segment, -1 if it does not tell."""
    epoch = epoch_at(segment.segment_leader_epochs, offset)
    return -1 if epoch is None else epoch
