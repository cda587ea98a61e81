"""A fetcher that kills its own process, by SIGKILL, the first time that bytes of a certain segment are wanted."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from fetchers.local import LocalFetcher
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentMetadata


class KillingFetcher:
    """The local fetcher; `remote.storage.options.kill.at` is the start offset of that segment, `...kill.mark` a file
    that is made before the process dies, so that it happens once.
    """

    def __init__(self) -> None:
        self._inner = LocalFetcher()
        self._at, self._mark = -1, Path()

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `RemoteStorageFetcher.configure`."""
        given = dict(configs)
        self._at = int(given.pop("remote.storage.options.kill.at"))
        self._mark = Path(given.pop("remote.storage.options.kill.mark"))
        self._inner.configure(given)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """As `RemoteStorageFetcher.fetch_log_segment`."""
        if metadata.start_offset == self._at and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._inner.fetch_log_segment(metadata, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """As `RemoteStorageFetcher.fetch_index`."""
        return self._inner.fetch_index(metadata, index_type)

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
        self._inner.close()
