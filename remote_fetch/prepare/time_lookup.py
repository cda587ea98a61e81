"""Finds the first offset at or after a time: in the tier, or by a broker.

Rules of the file:

- The answer equals that of a broker's ListOffsets: the first record, in offset order, that is not before the time.
  Control records count too. A look-up that passes markers takes records alone. If a broker's answer is a marker, it
  gives none.
- The broker is asked if the tier does not hold the record, or if the store does not give it.
- A broker looks only into the first segment whose largest timestamp is late enough (Kafka 3.9.2 and 4.3.1). It misses
  later records if the log start lies behind the late records of that segment. It also misses them if no record of the
  segment has a timestamp, because the time of the file then counts.
- So the tier is searched for offsets on the broker's disk as well, and a plan leaves out only what was searched, and
  what the broker surely lacks.
- If the broker has a late record on its disk and yet finds none, its records are read up to the first late one.
"""

from __future__ import annotations

from dataclasses import replace

from remote_fetch.errors import RemoteFetchError
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import Notice
from remote_fetch.plan.ranges import BrokerRange, Reason, leading_slices, plan_offsets
from remote_fetch.prepare.refusals import refuse_broker_ranges
from remote_fetch.prepare.time_search import TIME_COLUMNS, TimeSearch, first_row, is_older
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.session.session import Session

__all__ = ["TimeLookup"]

_ANY_TIME = -(2**63)
_EVERY = IsolationLevel.READ_UNCOMMITTED


class TimeLookup:
    """Looks up times in the partitions of one session. Thread-safe.

    `passes_markers`: control records do not count. For a broker they count, so it is asked for the record as well.
    """

    def __init__(self, session: Session, *, passes_markers: bool = False) -> None:
        self._session, self._fallback, self._brokers = session, session.fallback, session.brokers
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
        self._session.observe(Notice(text, is_warning=True))
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
        in_tier = opened if self._is_seen(opened, timestamp_ms) else replace(opened, local_start=None)
        steps = plan_offsets(in_tier, first, stop)
        if self._brokers is None:
            refuse_broker_ranges(opened.timeline, steps)
        pieces = list(leading_slices(steps))
        searched = first
        storage, locator = self._session.storage, self._session.locator
        search = TimeSearch(storage, locator, timestamp_ms, passes_markers=self._passes_markers)
        try:
            found = search.first_in(in_tier, pieces)
            if found is not None or len(pieces) == len(steps):
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
        passed = (segment for segment in opened.timeline.segments if searched <= segment.end_offset < stop)
        is_seen = self._is_seen(opened, timestamp_ms) and all(is_older(segment, timestamp_ms) for segment in passed)
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
        is_located = self._session.stepwise is None and self._session.configured_locator.unlocated is None
        return bool(opened.timeline.segments) or (is_located and opened.unread is None)

    def _local_start(self, opened: OpenPartition) -> int | None:
        """The first offset on the broker's disk. None if it is not known. With an empty tier it is the log start."""
        if opened.local_start is not None or opened.timeline.segments:
            return opened.local_start
        if self._sees_tier(opened):
            return opened.log.log_start_offset or 0
        if self._brokers is not None and self._brokers.cluster.is_tiered(opened.partition.topic) is False:
            return opened.log.log_start_offset or 0
        otherwise = "a filter on time reads records before that time too"
        asked = self._session.local_logs.ask([opened.partition], otherwise)
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
            return first_row(self._fallback.reader.read(step, opened.isolation, TIME_COLUMNS), timestamp_ms)


def _may_be_missed(opened: OpenPartition, timestamp_ms: int) -> bool:
    """Whether a broker's answer may miss a record at or after the time, because the log begins inside a segment.

    Retention lets the log begin with a segment. DeleteRecords moves its start into a segment.
    """
    start = opened.log.log_start_offset or 0
    held = opened.tiered(start)
    begins_inside = held is None or (held.start_offset < start and not is_older(held, timestamp_ms))
    return start > 0 and begins_inside
