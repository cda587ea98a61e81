"""A directory and a bucket whose every GET takes longer, by as much as a store farther away would.

`latency_ms` is the time until the first byte, `bytes_per_second` the speed of one connection, 0 for any speed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fetchers._composed import ComposedFetcher
from fetchers._options import Timeouts
from fetchers.local import LocalFetcher
from fetchers.s3 import S3Fetcher
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata

__all__ = ["LATENCY_OPTION", "SPEED_OPTION", "SlowLocalFetcher", "SlowS3Fetcher"]

LATENCY_OPTION, SPEED_OPTION = "latency_ms", "bytes_per_second"
"""Their options, below `remote.storage.options.`"""


class _Slow(ComposedFetcher):
    """Asleep for `latency_ms` before each GET, of segments and of indexes, and as long as its bytes take."""

    def __init__(self) -> None:
        super().__init__()
        self._latency_s = 0.0
        self._bytes_per_s = 0.0

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """Without our own options, which no filesystem takes."""
        self._latency_s = float(given[LATENCY_OPTION]) / 1000
        self._bytes_per_s = float(given.get(SPEED_OPTION, 0))
        ours = (LATENCY_OPTION, SPEED_OPTION)
        return super().options({name: value for name, value in given.items() if name not in ours}, timeouts)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """As `RemoteStorageFetcher.fetch_log_segment`, later."""
        began_s = time.monotonic()
        found = super().fetch_log_segment(metadata, start_position, end_position)
        whole_s = self._latency_s + (memoryview(found).nbytes / self._bytes_per_s if self._bytes_per_s else 0.0)
        time.sleep(max(0.0, began_s + whole_s - time.monotonic()))
        return found

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """As `RemoteStorageFetcher.fetch_index`, later."""
        time.sleep(self._latency_s)
        return super().fetch_index(metadata, index_type)


class SlowLocalFetcher(_Slow, LocalFetcher):
    """The fetcher `local`, with a latency."""


class SlowS3Fetcher(_Slow, S3Fetcher):
    """The fetcher `s3`, with a latency."""
