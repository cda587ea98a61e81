"""The working place of a job: its plan, the files that attempts at its tasks write, and a record of each finished task.

Rules of the file:

- Attempts never meet: each writes below a directory of its own.
- A task counts once its record exists. The record is written after the task's files, and names one attempt.
- A small file is there as a whole or not at all.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from remote_fetch.errors import CorruptSegment
from remote_fetch.session.filesystems import is_object_store
from remote_fetch.session.parallel import all_at_once
from remote_fetch.tables.commit import CommitStrategy, choose_commit, size_bytes_of
from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.target_filesystem import of_target

__all__ = ["Staging"]

S = TypeVar("S")
T = TypeVar("T")

_PLAN = "plan.json"


class Staging:
    """The working place of one job in an fsspec filesystem. Pickles with it.

    `folder` has plan and records, `attempts` the directories of the attempts. `plan_key`: the records are those of one
    plan. Drivers that run a job at the same time may have planned it differently, with the same numbers of tasks.
    """

    def __init__(self, filesystem: Any, job_id: str, folder: str, attempts: str, plan_key: str = "") -> None:
        self._fs = of_target(filesystem)
        self.job_id = job_id
        self.staging = folder
        self.attempts = attempts
        self._done = posixpath.join(folder, f"done.{plan_key}" if plan_key else "done")
        self._plan_key = plan_key
        self._commit: CommitStrategy = choose_commit(self._fs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Staging, (self._fs, self.job_id, self.staging, self.attempts, self._plan_key)

    def of_plan(self, plan_key: str) -> Staging:
        """The same place, with the records of one plan."""
        return Staging(self._fs, self.job_id, self.staging, self.attempts, plan_key)

    def plan(self) -> str | None:
        """The text that `keep_plan` was given; None if it was not called."""
        text = self._get(posixpath.join(self.staging, _PLAN))
        # A byte that is no UTF-8 becomes an escape that JSON does not have: the text is refused as damaged.
        return None if text is None else text.decode("utf-8", "backslashreplace")

    def keep_plan(self, text: str) -> None:
        """Save the tasks of the job, so that a driver that resumes it has the same ones."""
        self._put(posixpath.join(self.staging, _PLAN), text)

    def record(self, task: int) -> TaskRecord | None:
        """The record of a task; None if the task is not finished."""
        name = self._record_path(task)
        text = self._get(name)
        return None if text is None else self._loaded(name, text)

    def records(self) -> dict[int, TaskRecord]:
        """The records of all finished tasks, by number."""
        found = self._of_each(lambda name: self._loaded(name, self._fs.cat_file(name)), self._record_names())
        return {record.task: record for record in found}

    def _of_each(self, ask: Callable[[S], T], items: Sequence[S]) -> tuple[T, ...]:
        """Ask for each item, of object stores for several at once: FTP, for one, has a single connection."""
        return all_at_once(ask, items) if is_object_store(self._fs) else tuple(map(ask, items))

    def finished(self) -> frozenset[int]:
        """The numbers of all finished tasks. Reads no record."""
        return frozenset(int(posixpath.basename(name).removesuffix(".json")) for name in self._record_names())

    def _loaded(self, name: str, text: bytes) -> TaskRecord:
        try:
            record = TaskRecord.load(text)
            if posixpath.basename(name) != posixpath.basename(self._record_path(record.task)):
                raise CorruptSegment(f"the record of task {record.task} in the place of another")
            return record
        except CorruptSegment as error:
            raise error.at(object_name=name, hint="To go on, remove it: its task is then run again") from None

    def _record_names(self) -> list[str]:
        self._fs.invalidate_cache()  # another driver may have written it
        names = self._fs.ls(self._done, detail=False) if self._fs.exists(self._done) else []
        return [name for name in names if name.endswith(".json")]

    def create(self, attempt: str, path: str) -> Any:
        """A new data file of an attempt, open for writing."""
        name = self.attempt_path(attempt, path)
        self._commit.prepare(name)
        return self._fs.open(name, "wb")

    def finish(self, record: TaskRecord) -> None:
        """Count a task as finished. If two attempts at it finish, the record of either may stay."""
        self._put(self._record_path(record.task), record.dump())

    def whole(self, records: Sequence[TaskRecord]) -> tuple[TaskRecord, ...]:
        """The records whose files are there, with their sizes."""
        found = self._of_each(self._is_whole, records)
        return tuple(record for record, is_whole in zip(records, found, strict=True) if is_whole)

    def _is_whole(self, record: TaskRecord) -> bool:
        names = [(self.attempt_path(record.attempt, file.path), file.size_bytes) for file in record.files]
        return all(size_bytes_of(self._fs, name) == size_bytes for name, size_bytes in names)

    def forget(self, record: TaskRecord) -> None:
        """Count a task as not finished."""
        with suppress(FileNotFoundError):
            self._commit.remove(self._record_path(record.task))

    def attempt_path(self, attempt: str, path: str) -> str:
        """The full path of an attempt's file, in the filesystem."""
        return posixpath.join(self.attempts, attempt, path)

    def clean_up(self) -> None:
        """Remove plan and records. The plan is the last: by it the next driver knows a job that was being removed."""
        for name in self._names_in(self.staging):
            if posixpath.basename(name.rstrip("/")) != _PLAN:
                self._remove(name)
        if self._fs.exists(self.staging):  # in an object store a folder ends with its last file
            self._remove(self.staging)

    def begin_again(self) -> None:
        """Remove plan and records of a plan that another one replaces."""
        self.clean_up()

    def attempt_names(self) -> set[str]:
        """The attempts that have a directory."""
        return {posixpath.basename(name.rstrip("/")) for name in self._names_in(self.attempts)}

    def drop_attempts(self, kept: Collection[str]) -> None:
        """Remove the directories of all attempts but those in `kept`."""
        for name in self._names_in(self.attempts):
            if posixpath.basename(name.rstrip("/")) not in kept:
                self._remove(name)
        if not kept:
            with suppress(OSError):  # an object store has no directory to remove
                self._fs.rmdir(self.attempts)

    def _names_in(self, folder: str) -> list[str]:
        try:
            return list(self._fs.ls(folder, detail=False)) if self._fs.exists(folder) else []
        except FileNotFoundError:  # another driver of the same job cleans up too
            return []

    def _remove(self, name: str) -> None:
        """Remove a file or a folder. Another driver of the job may do the same, or still write into the folder.

        Files that it writes stay until the next run finds them.
        """
        try:
            self._commit.remove(name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise

    def _record_path(self, task: int) -> str:
        return posixpath.join(self._done, f"{task:05d}.json")

    def _get(self, name: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(name))
        except FileNotFoundError:
            return None

    def _put(self, name: str, text: str) -> None:
        self._commit.put(name, text.encode("utf-8"))
