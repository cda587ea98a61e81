"""Where a backfill writes: the files of its job are staged beside the target, and one commit puts them in place.

Rules of the file:

- A target belongs to one job.
- Tasks write to a staging directory that is named after the job, where readers of the target do not look.
- A task counts once its record exists. The record is written after the task's files, and names one attempt.
- The commit begins with a manifest in the staging directory. From then on it can only be finished.
- The commit ends with the manifest in the target (see `commit`); then the staging directory is removed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError
from remote_fetch.session.filesystems import is_object_store, open_filesystem
from remote_fetch.spark.commit import MANIFEST, Placement, choose_commit
from remote_fetch.spark.job_records import Committed, TaskRecord

__all__ = ["Target"]


class Target:
    """The target of one job. `options` are fsspec's, for the filesystem that the URL's scheme names.

    Pickles by its arguments. Raises MissingExtra if the filesystem's SDK is not installed, ConfigError for an unknown
    scheme and for a whole bucket.
    """

    def __init__(self, url: str, job_id: str, options: Mapping[str, Any] | None = None) -> None:
        self._arguments = (url, job_id, dict(options or {}))
        self.job_id = job_id
        self._fs, path = open_filesystem(url, self._arguments[2], key="to")
        self._commit = choose_commit(self._fs)
        self.path = path.rstrip("/")
        parent, name = posixpath.split(self.path)
        if not name or (not parent and is_object_store(self._fs)):
            raise ConfigError(f"to={url}: name a directory in it", key="to", hint=f"As {url.rstrip('/')}/orders")
        self.staging = posixpath.join(parent, f"_{name}.{job_id}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, self._arguments

    def committed(self) -> Committed | None:
        """The manifest in the target; None if there is none."""
        text = self._get(posixpath.join(self.path, MANIFEST))
        return None if text is None else Committed.load(text)

    def decided(self) -> Committed | None:
        """The manifest of a commit that was begun; None if none was."""
        text = self._get(posixpath.join(self.staging, MANIFEST))
        return None if text is None else Committed.load(text)

    def is_free(self) -> bool:
        """Whether the target is absent or empty."""
        return not (self._fs.exists(self.path) and self._fs.ls(self.path, detail=False))

    def plan(self) -> str | None:
        """The text that `keep_plan` was given; None if it was not called."""
        text = self._get(posixpath.join(self.staging, "plan.json"))
        return None if text is None else text.decode("utf-8")

    def record(self, task: int) -> TaskRecord | None:
        """The record of a task; None if the task is not finished."""
        text = self._get(self._record_path(task))
        return None if text is None else TaskRecord.load(text)

    def records(self) -> dict[int, TaskRecord]:
        """The records of all finished tasks, by number."""
        folder = posixpath.join(self.staging, "done")
        names = self._fs.ls(folder, detail=False) if self._fs.exists(folder) else []
        found = [TaskRecord.load(self._fs.cat_file(name)) for name in names if name.endswith(".json")]
        return {record.task: record for record in found}

    def keep_plan(self, text: str) -> None:
        """Save the tasks of the job, so that a driver that resumes it has the same ones."""
        self._put(posixpath.join(self.staging, "plan.json"), text)

    def create(self, attempt: str, path: str) -> Any:
        """A new data file of an attempt, open for writing."""
        name = self._attempt_path(attempt, path)
        self._commit.prepare(name)
        return self._fs.open(name, "wb")

    def finish(self, record: TaskRecord) -> None:
        """Count a task as finished. If two attempts at it finish, the record of either may stay."""
        self._put(self._record_path(record.task), record.dump())

    def commit(self, committed: Committed) -> None:
        """Put the files of the records in place, and then the manifest. If it fails anywhere, call it again."""
        self._put(posixpath.join(self.staging, MANIFEST), committed.dump())
        self.complete(committed)

    def complete(self, committed: Committed) -> None:
        """Finish a commit that was begun, wherever it stopped."""
        placements = [
            Placement(self._attempt_path(record.attempt, file.path), file.path, file.size_bytes)
            for record in committed.records
            for file in record.files
        ]
        manifest = committed.dump().encode("utf-8")
        self._commit.publish(placements, manifest, staging=self.staging, target=self.path)
        self.clean_up()

    def clean_up(self) -> None:
        """Remove the staging directory, and with it the files of attempts that do not count."""
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
        self._commit.put(name, text.encode("utf-8"))
