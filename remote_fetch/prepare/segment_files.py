"""The small files beside a segment, read and parsed.

Rules of the file:

- A file that does not parse is fetched a second time, because it may have been damaged on the way.
- After that it is an error with topic, partition, object and kind of file. A missing file is None. A file that did not
  parse was there: if the second answer is that it is missing or empty, the error of the first one is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from remote_fetch.errors import CorruptSegment, RemoteFetchError, Unlocatable, UnsupportedFormat
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.checkpoints import ProducerState, parse_producer_snapshot
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.observe import RangeReread
from remote_fetch.plan.visibility import closes_before, remote_stable_offset
from remote_fetch.session.storage import Storage

__all__ = ["ProducerSnapshots", "damaged_file", "parsed", "read_parsed"]

T = TypeVar("T")


def damaged_file(segment: RemoteLogSegmentMetadata, index_type: IndexType, text: str) -> CorruptSegment:
    """The error about one file of a segment whose content cannot be right."""
    return CorruptSegment(text, **_place_of(segment, index_type))


def _place_of(segment: RemoteLogSegmentMetadata, index_type: IndexType) -> dict[str, Any]:
    return {**segment.place, "object_name": f"{segment.object_stem} ({index_type} index)"}


def read_parsed(
    storage: Storage, segment: RemoteLogSegmentMetadata, index_type: IndexType, parse: Callable[[Buffer], T]
) -> T | None:
    """Fetch and parse one file of a segment. None if it is missing. Raises CorruptSegment, UnsupportedFormat."""
    return parsed(storage, segment, index_type, parse, storage.reader.read_index(segment, index_type))


def parsed(
    storage: Storage,
    segment: RemoteLogSegmentMetadata,
    index_type: IndexType,
    parse: Callable[[Buffer], T],
    data: memoryview | None,
) -> T | None:
    """As `read_parsed`, for a file that was already fetched."""
    try:
        if data is None:
            return None
        try:
            return parse(data)
        except (CorruptSegment, UnsupportedFormat) as error:
            storage.observe(RangeReread(segment.topic_id_partition, 0, error.kind))
            damaged = error
        again = storage.reader.read_index(segment, index_type)
        if not again:
            raise damaged
        return parse(again)
    except RemoteFetchError as error:
        raise error.at(**_place_of(segment, index_type)) from error.__cause__


class ProducerSnapshots:
    """Fetches each producer snapshot once. A snapshot has the transactions that are open at the end of its segment."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[RemoteLogSegmentId, tuple[ProducerState, ...]] = {}

    def load(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Fetch the snapshots of many segments, a few at a time. `of` raises the error for a missing one."""
        kind = IndexType.PRODUCER_SNAPSHOT
        for segment, data in self._storage.reader.read_indexes(segments, kind):
            found = parsed(self._storage, segment, kind, partial(_producers_after, segment), data)
            if found is not None:
                self._keep(segment, found)

    def of(self, segment: RemoteLogSegmentMetadata) -> tuple[ProducerState, ...]:
        """The producers with an open transaction after the segment.

        Raises Unlocatable if there is no snapshot, and SegmentNotFound if there is no segment either.
        """
        known = self._known.get(segment.segment_id)
        if known is None:
            parse = partial(_producers_after, segment)
            found = read_parsed(self._storage, segment, IndexType.PRODUCER_SNAPSHOT, parse)
            if found is None:
                raise _without_snapshot(self._storage, segment)
            known = self._keep(segment, found)
        return known

    def _keep(self, segment: RemoteLogSegmentMetadata, found: Iterable[ProducerState]) -> tuple[ProducerState, ...]:
        # The other producers, perhaps thousands in each snapshot, are not needed.
        opened = tuple(producer for producer in found if producer.current_txn_first_offset >= 0)
        self._known[segment.segment_id] = opened
        return opened

    def stable_before(self, segment: RemoteLogSegmentMetadata) -> int:
        """Where the earliest transaction begins that is open after the segment; if there is none, the next offset."""
        return remote_stable_offset(segment.end_offset + 1, self.of(segment))

    def closes_before(self, segment: RemoteLogSegmentMetadata, stop_offset: int) -> bool:
        """Whether every transaction that began before `stop_offset` has its marker in this or an earlier segment."""
        return closes_before(stop_offset, self.of(segment))


def _producers_after(segment: RemoteLogSegmentMetadata, data: Buffer) -> tuple[ProducerState, ...]:
    """As `parse_producer_snapshot`. Raises CorruptSegment also for the snapshot of a later segment.

    A listed segment has no leader epochs, and may go on behind its end. So any snapshot is taken for it.
    """
    producers = parse_producer_snapshot(data)
    latest = max((max(producer.last_offset, producer.current_txn_first_offset) for producer in producers), default=-1)
    if latest > segment.end_offset and segment.segment_leader_epochs:
        raise CorruptSegment(
            f"producer snapshot: a batch at offset {latest} lies behind the segment, which ends at {segment.end_offset}"
        )
    return producers


def _without_snapshot(storage: Storage, segment: RemoteLogSegmentMetadata) -> RemoteFetchError:
    """The error for a lost snapshot. It differs if the segment is lost too."""
    try:
        storage.reader.read(RangeRequest(segment, 0, 1))
    except RemoteFetchError as error:
        return error.at(**segment.place)
    return Unlocatable(
        "the segment has no producer snapshot, so the tier does not tell which transactions are decided",
        first=segment.start_offset,
        last=segment.end_offset,
        hint="Was it copied without its .snapshot file? A broker can answer instead: set bootstrap.servers (-b)",
        **segment.place,
    )
