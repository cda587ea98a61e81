"""A fetcher of a directory that answers the first two questions for an offset index only if they come at once."""

from __future__ import annotations

import itertools
import threading

from fetchers.local import LocalFetcher
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata

__all__ = ["MeetingFetcher"]


class MeetingFetcher(LocalFetcher):
    """Raises BrokenBarrierError if only one question comes within 20 seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._asked, self._meeting = itertools.count(), threading.Barrier(2, timeout=60)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """As `RemoteStorageFetcher.fetch_index`."""
        if index_type is IndexType.OFFSET and next(self._asked) < 2:
            self._meeting.wait()
        return super().fetch_index(metadata, index_type)
