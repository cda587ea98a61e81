"""Where a backfill writes: the files of its job staged beside the target, and the commit that puts them in place.

Rules of the file: a target belongs to one job. What tasks write is staged under the job's id, where readers of the
target do not look; a task counts once its record is there, which is written after its files and names one attempt. The
commit begins with a manifest in the staging area, from where on it can only be finished, and ends with the manifest in
the target. On a local disk all of it appears by one rename; where a store knows no renaming, files are copied one by
one by the store, and the manifest is the last of them; what was copied is removed when all of it is there.
"""

from __future__ import annotations

import json
import os
import posixpath
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, TypeVar
from uuid import uuid4

from remote_fetch.errors import ConfigError, CorruptSegment, MissingExtra, StorageTimeout, UnsupportedFormat

__all__ = ["MANIFEST", "Committed", "StagedFile", "Target", "TaskRecord"]

MANIFEST = "_manifest.json"
"""The name of the manifest in a target; readers of data files pass over names that begin with an underscore."""

T = TypeVar("T")

_VERSION = 1
_COPY_S, _COPY_PAUSE_S = 600.0, 0.5
"""How long one copy may take that a store makes by itself, and how often it is looked for."""
_FLAT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Stores without directories."""
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A data file: where it belongs, relative to the target, and what is in it."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """What one attempt at a task has written. `cost` is the `Report` of reading, as plain values."""

    task: int
    attempt: str
    files: tuple[StagedFile, ...]
    cost: Mapping[str, Any]

    def dump(self) -> str:
        """The record as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str | bytes) -> TaskRecord:
        """What `dump` gave. Raises CorruptSegment for anything else."""
        return _parsed(text, cls._of)

    @classmethod
    def _of(cls, saved: Any) -> TaskRecord:
        files = tuple(StagedFile(**one) for one in saved["files"])
        return cls(int(saved["task"]), str(saved["attempt"]), files, dict(saved["cost"]))


@dataclass(frozen=True, slots=True)
class Committed:
    """What a job has put into its target, as its manifest says: `records` are those of its tasks, in order."""

    job_id: str
    topic: str
    records: tuple[TaskRecord, ...]

    def dump(self) -> str:
        """The manifest as JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1)

    @classmethod
    def load(cls, text: str | bytes) -> Committed:
        """What `dump` gave. Raises UnsupportedFormat for another version, CorruptSegment for anything else."""
        return _parsed(text, cls._of)

    @classmethod
    def _of(cls, saved: Any) -> Committed:
        if saved["version"] != _VERSION:
            raise UnsupportedFormat(f"a manifest of version {saved['version']!r}; version {_VERSION} is known")
        records = tuple(TaskRecord._of(one) for one in saved["records"])
        return cls(str(saved["job_id"]), str(saved["topic"]), records)


def _parsed(text: str | bytes, parse: Callable[[Any], T]) -> T:
    try:
        return parse(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptSegment(f"not a record of a backfill: {type(error).__name__}: {error}") from None


class Target:
    """One job's way into one target. `options` are fsspec's, for the filesystem that the URL's scheme names.

    Pickles by what it was made from. Raises MissingExtra where the filesystem's SDK is not installed, ConfigError for
    a scheme that nobody knows and for a whole bucket.
    """

    def __init__(self, url: str, job_id: str, options: Mapping[str, Any] | None = None) -> None:
        self._made_from = (url, job_id, dict(options or {}))
        self.job_id = job_id
        self._fs, path = _filesystem(url, self._made_from[2])
        self._protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self.path = path.rstrip("/")
        parent, name = posixpath.split(self.path)
        if not name or (not parent and self._protocols & _FLAT):
            raise ConfigError(f"to={url}: name a directory in it", key="to", hint=f"As {url.rstrip('/')}/orders")
        self.staging = posixpath.join(parent, f"_{name}.{job_id}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, self._made_from

    @property
    def _is_local(self) -> bool:
        return bool(self._protocols & {"file", "local"})

    def committed(self) -> Committed | None:
        """The manifest in the target, None where there is none."""
        text = self._get(posixpath.join(self.path, MANIFEST))
        return None if text is None else Committed.load(text)

    def decided(self) -> Committed | None:
        """The manifest of a commit that was begun, None where none was."""
        text = self._get(posixpath.join(self.staging, MANIFEST))
        return None if text is None else Committed.load(text)

    def is_free(self) -> bool:
        """Whether nothing is in the target yet."""
        return not (self._fs.exists(self.path) and self._fs.ls(self.path, detail=False))

    def plan(self) -> str | None:
        """What `keep_plan` has kept."""
        text = self._get(posixpath.join(self.staging, "plan.json"))
        return None if text is None else text.decode("utf-8")

    def record(self, task: int) -> TaskRecord | None:
        """The record of a task that is finished."""
        text = self._get(self._record_path(task))
        return None if text is None else TaskRecord.load(text)

    def records(self) -> dict[int, TaskRecord]:
        """The records of all tasks that are finished."""
        folder = posixpath.join(self.staging, "done")
        names = self._fs.ls(folder, detail=False) if self._fs.exists(folder) else []
        found = [TaskRecord.load(self._fs.cat_file(name)) for name in names if name.endswith(".json")]
        return {one.task: one for one in found}

    def keep_plan(self, text: str) -> None:
        """Keep what the job's tasks are, so that whoever resumes it has the same."""
        self._put(posixpath.join(self.staging, "plan.json"), text)

    def create(self, attempt: str, path: str) -> Any:
        """A new data file of an attempt, open for writing."""
        name = self._attempt_path(attempt, path)
        self._make_parent(name)
        return self._fs.open(name, "wb")

    def finish(self, record: TaskRecord) -> None:
        """Count a task as finished. Where two attempts at it get here, either may stay."""
        self._put(self._record_path(record.task), record.dump())

    def commit(self, committed: Committed) -> None:
        """Put the files of the records in place, and then the manifest. Given up anywhere, it can be done again."""
        self._put(posixpath.join(self.staging, MANIFEST), committed.dump())
        self.complete(committed)

    def complete(self, committed: Committed) -> None:
        """The rest of a commit that was begun, wherever it was given up."""
        ready = posixpath.join(self.staging, "ready") if self._is_local else self.path
        for record in committed.records:
            for file in record.files:
                self._move(self._attempt_path(record.attempt, file.path), posixpath.join(ready, file.path), file)
        for record in committed.records if self._protocols & _FLAT else ():
            for file in record.files:
                self._wait_for(posixpath.join(ready, file.path), file)
        self._put(posixpath.join(ready, MANIFEST), committed.dump())
        if self._is_local:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            os.rename(ready, self.path)  # over an empty directory, if there is one
        self.clean_up()

    def clean_up(self) -> None:
        """Remove the staging area, and with it what attempts that did not count have left."""
        if self._fs.exists(self.staging):
            self._fs.rm(self.staging, recursive=True)

    def _record_path(self, task: int) -> str:
        return posixpath.join(self.staging, "done", f"{task:05d}.json")

    def _attempt_path(self, attempt: str, path: str) -> str:
        return posixpath.join(self.staging, "attempts", attempt, path)

    def _get(self, name: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(name))
        except FileNotFoundError:
            return None

    def _put(self, name: str, text: str) -> None:
        """Write a small file so that it is there as a whole or not at all."""
        self._make_parent(name)
        if self._protocols & _FLAT:
            self._fs.pipe_file(name, text.encode("utf-8"))
            return
        draft = f"{name}.{uuid4().hex}"
        self._fs.pipe_file(draft, text.encode("utf-8"))
        if self._is_local:
            os.replace(draft, name)
        else:
            self._fs.mv(draft, name)

    def _move(self, source: str, to: str, file: StagedFile) -> None:
        if self._size(to) == file.size_bytes:
            return
        self._make_parent(to)
        if self._protocols & _FLAT:
            self._fs.cp_file(source, to)
        else:
            self._fs.mv(source, to)

    def _wait_for(self, name: str, file: StagedFile) -> None:
        """Until a copy is there as a whole: Azure may only have begun it, and shows an empty object till then."""
        deadline_s = time.monotonic() + _COPY_S
        while self._size(name) != file.size_bytes:
            if time.monotonic() > deadline_s:
                raise StorageTimeout(
                    f"{file.path} was not copied to {name} within {_COPY_S:.0f} s",
                    hint=f"What was written is still in {self.staging}: run the same job again, and it goes on",
                )
            time.sleep(_COPY_PAUSE_S)

    def _size(self, name: str) -> int | None:
        try:
            return int(self._fs.info(name)["size"])
        except FileNotFoundError:
            return None

    def _make_parent(self, name: str) -> None:
        if not self._protocols & _FLAT:
            self._fs.makedirs(posixpath.dirname(name), exist_ok=True)


def _filesystem(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - only where something is written

    scheme = url.split("://", 1)[0] if "://" in url else "file"
    # What others write meanwhile has to be seen, so that nothing is kept of a listing.
    options = {"use_listings_cache": False, **options}
    try:
        if scheme in ("gs", "gcs"):
            # The class that fsspec knows asks by gRPC, before each operation, what kind of bucket it is: a minute each
            # where only the JSON API is served.
            plain = import_module("gcsfs.core").GCSFileSystem
            return plain(**options), plain._strip_protocol(url)
        return url_to_fs(url, **options)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        if extra is None:
            raise ConfigError(f"to={scheme}://...: fsspec needs another library for it: {error}", key="to") from None
        raise MissingExtra(
            f'writing to {scheme}:// needs an SDK; pip install "remote-fetch[{extra}]"', extra=extra
        ) from None
    except ValueError as error:
        raise ConfigError(f"to={scheme}://...: {error}", key="to") from None
