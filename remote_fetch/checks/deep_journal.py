"""The journal of a deep audit: the segments that were read whole and are sound. A later run does not read them again.

Rules of the file:

- The journal is an SQLite database in a file of the user. A segment is on disk before the next one is read.
- Only sound segments are noted. A later run reads the others again, and so reports them again or sees that they are
  mended. A segment whose metadata has changed is read again too.
- A journal belongs to one place of storage. That of another place is refused.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from remote_fetch.checks.audit_segment import key_of
from remote_fetch.errors import ConfigError
from remote_fetch.model import RemoteLogSegmentMetadata

__all__ = ["DeepJournal"]

_APPLICATION_ID = 0x52464441
_VERSION = 1
_WAIT_S = 1.0
"""How long another audit with the same journal is waited for."""
_TABLES = """
CREATE TABLE place (text TEXT);
CREATE TABLE sound (segment BLOB PRIMARY KEY, metadata BLOB, open_producers TEXT) WITHOUT ROWID;
"""


class DeepJournal:
    """A journal that is open. For one thread. `place` tells the storage, such as its URL without secrets.

    Raises ConfigError for a file that cannot be opened, that is no journal, or that is one of another place.
    """

    def __init__(self, path: Path, place: str) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
        except sqlite3.Error as error:
            raise self._refused(str(error)) from None
        try:
            self._begin(place)
        except sqlite3.Error as error:
            self._db.close()
            raise self._refused(str(error)) from None
        except ConfigError:
            self._db.close()
            raise

    def open_producers_after(self, segment: RemoteLogSegmentMetadata) -> frozenset[int] | None:
        """The producers with an open transaction at the end of a segment that is sound; None: read the segment."""
        with closing(
            self._db.execute(
                "SELECT open_producers FROM sound WHERE segment = ? AND metadata = ?",
                (key_of(segment.segment_id), _digest(segment)),
            )
        ) as rows:
            found = rows.fetchone()
        return None if found is None else frozenset(map(int, json.loads(found[0])))

    def note(self, segment: RemoteLogSegmentMetadata, open_producers: Iterable[int]) -> None:
        """Note that a segment is sound. Raises ConfigError if the file cannot be written."""
        row = (key_of(segment.segment_id), _digest(segment), json.dumps(sorted(open_producers)))
        try:
            self._db.execute("INSERT OR REPLACE INTO sound VALUES (?, ?, ?)", row)
        except sqlite3.Error as error:
            raise self._refused(str(error)) from None

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._db.close()

    def _begin(self, place: str) -> None:
        database = self._db
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if (application, version, tables) == (0, 0, 0):
            database.executescript(
                f"BEGIN; PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_VERSION}; {_TABLES}"
            )
            database.execute("INSERT INTO place VALUES (?)", (place,))
            database.execute("COMMIT")
            return
        if application != _APPLICATION_ID:
            raise self._refused("it is no journal of an audit")
        if version != _VERSION:
            raise self._refused(f"it has version {version}; {_VERSION} is known")
        (known,) = database.execute("SELECT text FROM place").fetchone()
        if known != place:
            raise self._refused(f"it belongs to {known}, and the storage is {place}")

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"--journal {self._path}: {why}", key="--journal", hint="Name another file, or a new one")


def _digest(segment: RemoteLogSegmentMetadata) -> bytes:
    return hashlib.sha256(repr(segment).encode()).digest()
