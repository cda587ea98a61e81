"""The journal of a deep audit: the segments that were read whole and are sound. A later run does not read them again.

Rules of the file:

- The journal is an SQLite database in a file of the user. A segment is on disk before the next one is read.
- Only sound segments are noted. A later run reads the others again, and so reports them again or sees that they are
  mended. A segment whose metadata has changed is read again too.
- A journal belongs to one place of storage. That of another place is refused: a copy of a tier has the same segments.
- What may choose the storage belongs to the place: a segment that is read once too often is no fault. So only options
  that are known as credentials do not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from remote_fetch.checks.audit_segment import key_of
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.hosts import shown_url
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.session.filesystems import folder_of

__all__ = ["DeepJournal", "place_of"]

_APPLICATION_ID = 0x52464441
_VERSION = 1
_WAIT_S = 1.0
"""How long another audit with the same journal is waited for."""
_SHOWN_OPTIONS = ("account_host", "account_name", "base_url", "endpoint_url", "host", "port")
"""Options that choose the server or the account, as a place shows them. They hold no secret but in a URL."""
_CREDENTIALS = frozenset(
    {
        "access_key", "account_key", "accountkey", "authorization", "aws_access_key_id", "aws_secret_access_key",
        "aws_session_token", "client_id", "client_secret", "credential", "key", "passphrase", "passwd", "password",
        "sas_token", "secret", "secret_key", "session_token", "sharedaccesssignature", "tenant_id", "token",
    }
)  # fmt: skip
"""Names of options, and of what is in them, that say who reads. They choose no storage, and change when renewed."""
_AZURE = "AZURE_STORAGE_"
"""The prefix of adlfs's options in the environment."""
_ENVIRONMENT = frozenset(
    {
        "AWS_CONFIG_FILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_PROFILE", "STORAGE_EMULATOR_HOST",
    }
)  # fmt: skip
_PASSWORD = re.compile(r"^((?:ftp|https?|s3a?|sftp|smb|ssh)://[^/?#:@]*):[^/?#@]*@", re.IGNORECASE)
"""The user and the password of a URL. Other schemes have something else there, such as a repository."""
_TABLES = """
CREATE TABLE place (text TEXT);
CREATE TABLE sound (segment BLOB PRIMARY KEY, metadata BLOB, open_producers TEXT) WITHOUT ROWID;
"""


def place_of(config: Config) -> str:
    """The storage of a configuration, in words that differ from those of another storage.

    It holds no secret, but hashes of what may be one. A key that is renewed does not change it, if its name is known.
    """
    settings, options, layout = config.settings, config.options, config.layout
    urls = [url.strip() for url in (settings.storage_url or "", *(settings.storage_roots or "").split(","))]
    parts = [_shown_place(url) for url in urls if url] or ["the storage of the brokers"]
    parts += [f"{name}={_shown_url(options[name])}" for name in _SHOWN_OPTIONS if name in options]
    parts += [] if settings.storage_layout is None else [f"layout={settings.storage_layout}"]
    names = sorted(name for name in layout if not name.startswith("encryption."))
    parts += [f"layout.{name}={_hash(layout[name])}" for name in names]
    parts += _hashes({f"options.{name}": (name, options[name]) for name in options if name not in _SHOWN_OPTIONS})
    parts += [] if settings.fetcher_class is None else [f"fetcher={_hash(settings.fetcher_class)}"]
    if settings.fetcher_class is not None or any(url and folder_of(url) is None for url in urls):
        parts += _hashes(_environment())
    text = ", ".join(parts)
    shown = text.encode("utf-8", "backslashreplace").decode()
    return text if text == shown else f"{shown}, {_hash(text)}"


def _environment() -> dict[str, tuple[str, str]]:
    """The variables that choose a storage, each with the name of the option that it is, and its value."""
    return {
        name: (name.removeprefix(_AZURE).lower(), value)
        for name, value in os.environ.items()
        if name.startswith(_AZURE) or name in _ENVIRONMENT
    }


def _hashes(options: Mapping[str, tuple[str, str]]) -> list[str]:
    """The hashes of options, which are (name, value) by the names that are shown. Credentials are left out."""
    return [
        f"{shown}={_hash(_without_credentials(name, value))}"
        for shown, (name, value) in sorted(options.items())
        if name.lower() not in _CREDENTIALS
    ]


def _without_credentials(option: str, text: str) -> str:
    """The value of an option without the credentials in it, as far as their names are known."""
    if option == "connection_string":  # Azure takes its keys in any case
        parts = [(key.lower(), value) for key, _, value in (part.partition("=") for part in text.split(";"))]
        return repr([(key, value) for key, value in parts if key not in _CREDENTIALS])
    try:
        return json.dumps(_pruned(json.loads(text)), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _pruned(value: Any) -> Any:
    """A value of JSON without the fields that are credentials."""
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _pruned(inner) for name, inner in value.items() if name.lower() not in _CREDENTIALS}


def _shown_place(url: str) -> str:
    """A URL without secrets. Of a directory it is the whole path, without links, which may lead elsewhere later."""
    folder = folder_of(url)
    return _shown_url(url) if folder is None else os.path.realpath(folder)


def _shown_url(url: str) -> str:
    """A URL without secrets, and the hash of what is not shown but for a password."""
    shown, bare = shown_url(url), _PASSWORD.sub(r"\1@", url)
    return shown if shown == url else f"{shown} ({_hash(bare)})"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


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
