"""The journal of a deep audit: the segments that were read whole and are sound. A later run does not read them again.

Rules of the file:

- The journal is an SQLite database in a file of the user. A segment is on disk before the next one is read.
- Only sound segments are noted. A later run reads the others again, and so reports them again or sees that they are
  mended. A segment whose metadata has changed is read again too.
- A journal belongs to one place of storage. That of another place is refused: a copy of a tier has the same segments.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from remote_fetch.checks.audit_segment import key_of
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.hosts import shown_url
from remote_fetch.model import RemoteLogSegmentMetadata

__all__ = ["DeepJournal", "place_of"]

_APPLICATION_ID = 0x52464441
_VERSION = 1
_WAIT_S = 1.0
"""How long another audit with the same journal is waited for."""
_PLACE_OPTIONS = ("account_host", "account_name", "base_url", "endpoint_url", "host", "port")
"""The options that choose the server or the account. They hold no secret but in a URL."""
_PLACE_PARTS = re.compile(r"""(endpoint_url|AccountName|\w*Endpoint\w*)["'\s]*[=:]["'\s]*([^\s;,"'}]+)""")
"""The same in `client_kwargs` and `connection_string`."""
_TABLES = """
CREATE TABLE place (text TEXT);
CREATE TABLE sound (segment BLOB PRIMARY KEY, metadata BLOB, open_producers TEXT) WITHOUT ROWID;
"""


def place_of(config: Config) -> str:
    """The storage of a configuration, in words that differ from those of another storage.

    It holds no secret, but hashes of what may be one. A key that is renewed does not change it.
    """
    options, layout = config.options, config.settings.storage_layout
    parts = [f"{name}={shown_url(options[name])}" for name in _PLACE_OPTIONS if name in options]
    for option in ("client_kwargs", "connection_string"):
        parts += [f"{name}={_hash(shown_url(value))}" for name, value in _PLACE_PARTS.findall(options.get(option, ""))]
    parts += [] if layout is None else [f"layout={layout}"]
    names = sorted(name for name in config.layout if not name.startswith("encryption."))
    parts += [f"layout.{name}={_hash(config.layout[name])}" for name in names]
    roots = (config.settings.storage_roots or "").split(",")
    urls = [_shown_place(url.strip()) for url in (config.settings.storage_url or "", *roots) if url.strip()]
    return ", ".join([*(urls or ["the storage of the brokers"]), *parts])


def _shown_place(url: str) -> str:
    """A URL without secrets. Of a directory it is the whole path, without links, which may lead elsewhere later."""
    scheme, _, path = url.rpartition("://")
    if scheme.lower() in ("", "file"):
        return os.path.realpath(path)
    query = url.partition("?")[2]
    return f"{shown_url(url)}?{_hash(query)}" if query else shown_url(url)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class DeepJournal:
    """A journal that is open. For one thread. `place` is that of the storage, as `place_of` gives it.

    Raises ConfigError for a file that cannot be opened, that is no journal, or that is one of another place.
    """

    def __init__(self, path: Path, place: str) -> None:
        self._path = path
        if "\0" in str(path):
            raise self._refused("a name has no NUL")
        with self._guarded():
            self._db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
        try:
            with self._guarded():
                self._begin(place)
        except ConfigError:
            self._db.close()
            raise

    def open_producers_after(self, segment: RemoteLogSegmentMetadata) -> frozenset[int] | None:
        """The producers with an open transaction at the end of a segment that is sound; None: read the segment.

        Raises ConfigError if the file cannot be read, or says what no audit writes.
        """
        with self._guarded():
            row = key_of(segment.segment_id), _digest(segment)
            query = "SELECT open_producers FROM sound WHERE segment = ? AND metadata = ?"
            with closing(self._db.execute(query, row)) as rows:
                found = rows.fetchone()
        return None if found is None else self._producers(found[0])

    def note(self, segment: RemoteLogSegmentMetadata, open_producers: Iterable[int]) -> None:
        """Note that a segment is sound. Raises ConfigError if the file cannot be written."""
        row = (key_of(segment.segment_id), _digest(segment), json.dumps(sorted(open_producers)))
        with self._guarded():
            self._db.execute("INSERT OR REPLACE INTO sound VALUES (?, ?, ?)", row)

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
        known = database.execute("SELECT text FROM place").fetchone()
        if known is None:
            raise self._refused("it does not say which storage it belongs to")
        if known[0] != place:
            raise self._refused(f"it belongs to {known[0]}, and the storage is {place}")

    def _producers(self, text: object) -> frozenset[int]:
        try:
            found = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or any(type(each) is not int for each in found):
            raise self._refused("it has a segment whose open transactions are no list of numbers")
        return frozenset(found)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"--journal {self._path}: {why}", key="--journal", hint="Name another file, or a new one")


def _digest(segment: RemoteLogSegmentMetadata) -> bytes:
    return hashlib.sha256(repr(segment).encode()).digest()
