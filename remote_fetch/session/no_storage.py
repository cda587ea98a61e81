"""The fetcher of a session without a storage: nothing is tiered, as far as this reader knows."""

from __future__ import annotations

from collections.abc import Mapping

from remote_fetch.errors import SegmentNotFound
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata

__all__ = ["NoStorage"]


class NoStorage:
    """Stands where a fetcher would, when none is configured: nothing is tiered as far as this reader knows."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `RemoteStorageFetcher.configure`."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> bytes:
        """As `RemoteStorageFetcher.fetch_log_segment`: there is nothing."""
        raise SegmentNotFound("no remote storage is configured")

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """As `RemoteStorageFetcher.fetch_index`: there is nothing."""
        return None

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
