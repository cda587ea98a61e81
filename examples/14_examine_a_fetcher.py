"""The contract suite examines the fetcher of `08_write_a_fetcher.py`, promise by promise. Needs pytest."""

from __future__ import annotations

import runpy
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import IndexType
from remote_fetch.testing.contract import FetcherContract
from remote_fetch.testing.segments import BuiltSegment

SqliteFetcher = runpy.run_path(str(Path(__file__).with_name("08_write_a_fetcher.py")))["SqliteFetcher"]


class TestSqliteFetcher(FetcherContract):
    """The suite, told how to make the fetcher, and how to store a segment by another way than the fetcher reads it."""

    file: Path

    @pytest.fixture(autouse=True)
    def database(self, tmp_path: Path) -> None:
        """An empty database for each test."""
        self.file = tmp_path / "tier.db"
        with closing(sqlite3.connect(self.file)) as database, database:
            database.execute("create table objects (name text unique, data blob)")

    def new_fetcher(self) -> RemoteStorageFetcher:
        """A new fetcher, not configured."""
        fetcher: RemoteStorageFetcher = SqliteFetcher()
        return fetcher

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
