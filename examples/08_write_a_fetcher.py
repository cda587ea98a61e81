"""A fetcher of your own: segments in a table of an SQLite database, and the contract suite that examines it.

    python 08_write_a_fetcher.py

The suite comes with the package and needs pytest. It checks every promise that the reader relies on.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from remote_fetch.errors import ConfigError, SegmentNotFound, StorageUnavailable
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.testing.contract import FetcherContract
from remote_fetch.testing.segments import BuiltSegment


class SqliteFetcher:
    """Reads the table `objects(name, data)`. A connection for each call: calls come from several threads."""

    def __init__(self) -> None:
        self._file: str | None = None
        self._timeout_s = 5.0

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take what the user configured, once. Both timeouts go to the SDK."""
        url = configs.get("remote.storage.url", "")
        if not url.startswith("sqlite://"):
            raise ConfigError("give sqlite:// and the path of the database", key="remote.storage.url")
        self._file = url.removeprefix("sqlite://")
        self._timeout_s = int(configs.get("fetch.remote.read.timeout.ms", "5000")) / 1000

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> bytes:
        """The bytes [start_position, end_position), fewer only where the segment ends."""
        name = f"{metadata.segment_id.id}.log"
        data = self._read(name, start_position, end_position)
        if data is None:  # never "the end of the data": the reader asks the broker then
            raise SegmentNotFound("no such row", object_name=name)
        return data

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """One whole index, None where there is provably none."""
        return self._read(f"{metadata.segment_id.id}.{index_type}", 0, -1)

    def close(self) -> None:
        """Release everything; later calls raise."""
        self._file = None

    def _read(self, name: str, start: int, end: int) -> bytes | None:
        if self._file is None:
            raise ConfigError("the fetcher is closed, or was never configured")
        try:
            with closing(sqlite3.connect(f"file:{self._file}?mode=ro", timeout=self._timeout_s, uri=True)) as database:
                row = database.execute("select rowid from objects where name = ?", (name,)).fetchone()
                if row is None:
                    return None
                with database.blobopen("objects", "data", row[0], readonly=True) as blob:
                    stop = len(blob) if end < 0 else min(end, len(blob))
                    if start >= stop:  # at or past the end: nothing, and no error
                        return b""
                    blob.seek(start)
                    return blob.read(stop - start)
        except sqlite3.Error as error:  # only errors of remote_fetch may leave a fetcher
            raise StorageUnavailable("the database could not be read", object_name=name) from error


class TestSqliteFetcher(FetcherContract):
    """The suite, told how to make the fetcher, and how to store a segment by another way than the fetcher reads it."""

    file: Path

    @pytest.fixture(autouse=True)
    def database(self, tmp_path: Path) -> None:
        """An empty database for each test."""
        self.file = tmp_path / "tier.db"
        with closing(sqlite3.connect(self.file)) as database, database:
            database.execute("create table objects (name text unique, data blob)")

    def new_fetcher(self) -> SqliteFetcher:
        """A new fetcher, not configured."""
        return SqliteFetcher()

    def configs(self) -> Mapping[str, str]:
        """The configuration of the fetcher."""
        return {"remote.storage.url": f"sqlite://{self.file}"}

    def put_segment(self, segment: BuiltSegment) -> None:
        """One row for the log and for each index."""
        stem = segment.metadata.segment_id.id
        files = {f"{stem}.{index_type}": segment.index(index_type) for index_type in IndexType}
        rows = [(name, data) for name, data in {f"{stem}.log": segment.log, **files}.items() if data is not None]
        with closing(sqlite3.connect(self.file)) as database, database:
            database.executemany("insert into objects values (?, ?)", rows)


if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", __file__]))
