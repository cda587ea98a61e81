"""Gets the true sizes of segments from the store, if their metadata does not have them (KIP-1333).

Rules of the file:

- Each answer is remembered, because a segment never changes. This includes the answer that the store cannot tell.
- A failure raises no error. The size stays unknown, and the failure is counted.
- The number of questions at the same time and the time for all of them are bounded. After a failure no more are asked.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from remote_fetch.deadline import Deadline
from remote_fetch.errors import CorruptSegment, RemoteFetchError, SegmentNotFound, UnsupportedFormat
from remote_fetch.fetch.pool import Call
from remote_fetch.fetch.readahead import RangeReader
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata
from remote_fetch.observe import Observer, SizeAsked
from remote_fetch.recent import Recent

__all__ = ["SegmentSizes"]

_MOST_SEGMENTS = 65_536
"""The number of remembered answers."""
_MOST_MS = 30_000
"""How long one call of `of` may ask the store."""
_MAX_SIZE = 2**63 - 1
_OF_ONE_SEGMENT = (SegmentNotFound, CorruptSegment, UnsupportedFormat)
"""Errors that concern a single segment."""


class SegmentSizes:
    """Asks the fetcher of `reader` for sizes of segments. Thread-safe. `timeout_ms` limits each question."""

    def __init__(self, reader: RangeReader, observer: Observer, *, timeout_ms: int, most_ms: int = _MOST_MS) -> None:
        self._reader = reader
        self._observe = observer
        self._timeout_ms = timeout_ms
        self._most_ms = most_ms
        self._lock = threading.Lock()
        self._answers: Recent[RemoteLogSegmentId, int | None] = Recent(_MOST_SEGMENTS)

    def of(self, segments: Iterable[RemoteLogSegmentMetadata]) -> Mapping[RemoteLogSegmentId, int]:
        """The sizes in bytes of the segments whose size the store tells. Raises no error of the store."""
        wanted = {segment.segment_id: segment for segment in segments}
        with self._lock:
            unknown = [segment for segment_id, segment in wanted.items() if segment_id not in self._answers]
        answers = dict(self._asked(unknown))
        with self._lock:
            found = {segment_id: self._answers.get(segment_id) for segment_id in wanted} | answers
            self._answers.update(answers)
        return {segment_id: size for segment_id, size in found.items() if size is not None}

    def _asked(self, segments: Iterable[RemoteLogSegmentMetadata]) -> Iterator[tuple[RemoteLogSegmentId, int | None]]:
        """The store's answers, in order. Segments without an answer are counted."""
        waiting = deque(segments)
        deadline = Deadline.after(self._most_ms / 1000)
        pending: deque[tuple[RemoteLogSegmentMetadata, Call[int | None]]] = deque()
        failed = ""
        while pending or waiting:
            while waiting and not failed and len(pending) < 2 * self._reader.max_parallel:
                call = self._reader.start_size(waiting[0])
                if call is None:
                    return
                pending.append((waiting.popleft(), call))
            if not pending:
                break
            segment, call = pending.popleft()
            if failed:
                call.cancel()
            try:
                size = call.wait_or_cancel(min(self._timeout_ms, int(deadline.left_s * 1000)))
            except Exception as error:  # of any class, because a plan is useful without this size
                reason = error.kind if isinstance(error, RemoteFetchError) else "error"
                self._count(segment, failed or reason)
                if not isinstance(error, _OF_ONE_SEGMENT):
                    failed = failed or reason
                continue
            is_size = isinstance(size, int) and 0 < size <= _MAX_SIZE
            self._count(segment, "learned" if is_size else "unknown")
            yield segment.segment_id, size if is_size else None
        for segment in waiting:
            self._count(segment, failed)

    def _count(self, segment: RemoteLogSegmentMetadata, reason: str) -> None:
        self._observe(SizeAsked(segment.topic_id_partition, reason))
