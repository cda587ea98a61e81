"""The fetcher of a session for which no remote storage is configured. It has no segments."""

from __future__ import annotations

from collections.abc import Mapping

from remote_fetch.errors import SegmentNotFound
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata

__all__ = ["NoStorage"]


class NoStorage:
    """The fetcher if none is configured. This reader then treats every topic as not tiered."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `RemoteStorageFetcher.configure`."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> bytes:
        """As `RemoteStorageFetcher.fetch_log_segment`, but always raises SegmentNotFound."""
        raise SegmentNotFound("no remote storage is configured")

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """As `RemoteStorageFetcher.fetch_index`, but always returns None."""
        return None

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
