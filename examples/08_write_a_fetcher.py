"""A fetcher of your own: segments in a table of an SQLite database. `14_examine_a_fetcher.py` examines it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing

from remote_fetch.errors import ConfigError, SegmentNotFound, StorageUnavailable
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata


class SqliteFetcher:
    """Reads the table `objects(name, data)`. A connection for each call: calls come from several threads."""

    _url: str | None = None

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take what the user configured, once. Both timeouts go to the SDK."""
        url = configs.get("remote.storage.url", "")
        if not url.startswith("sqlite://"):
            raise ConfigError("give sqlite:// and the path of the database", key="remote.storage.url")
        self._url = f"file:{url.removeprefix('sqlite://')}?mode=ro"
        self._timeout_s = int(configs.get("fetch.remote.read.timeout.ms", "5000")) / 1000

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int = -1) -> bytes:
        """The bytes [start, end), fewer only where the segment ends."""
        data = self._read(f"{metadata.segment_id.id}.log", start, end)
        if data is None:  # never "the end of the data": the reader asks the broker then
            raise SegmentNotFound("no such row", object_name=f"{metadata.segment_id.id}.log")
        return data

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """One whole index, None where there is provably none."""
        return self._read(f"{metadata.segment_id.id}.{index_type}", 0, -1)

    def close(self) -> None:
        """Release everything; later calls raise."""
        self._url = None

    def _read(self, name: str, start: int, end: int) -> bytes | None:
        if self._url is None:
            raise ConfigError("the fetcher is closed, or was never configured")
        try:
            with closing(sqlite3.connect(self._url, timeout=self._timeout_s, uri=True)) as database:
                row = database.execute("select rowid from objects where name = ?", (name,)).fetchone()
                if row is None:
                    return None
                with database.blobopen("objects", "data", row[0], readonly=True) as blob:
                    blob.seek(min(start, len(blob)))  # at or past the end: nothing, and no error
                    return blob.read(max((len(blob) if end < 0 else min(end, len(blob))) - start, 0))
        except sqlite3.Error as error:  # only errors of remote_fetch may leave a fetcher
            raise StorageUnavailable("the database could not be read", object_name=name) from error


if __name__ == "__main__":
    print("SqliteFetcher fits the port:", isinstance(SqliteFetcher(), RemoteStorageFetcher))
