"""A directory as the target of a job: files are staged beside it, and one commit puts them in place.

Rules of the file:

- A target belongs to one job.
- Tasks write to a staging directory that is named after the job, where readers of the target do not look. If the target
  is a symbolic link, it lies beside the directory that the link leads to: a rename does not leave a disk.
- The commit begins with a manifest in the staging directory. From then on it can only be finished. Of two drivers of
  the job the first one decides, and either finishes its commit.
- Unless one rename puts the files in place, a file in the target says whose commit is under way there. Of two jobs that
  begin to commit at once, the first one to create it goes on. It is removed when the manifest is there.
- The commit ends with the manifest in the target (see `commit`); then the staging directory is removed.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError, CorruptSegment, StorageUnavailable, UnsupportedFormat
from remote_fetch.session.filesystems import is_object_store, open_filesystem
from remote_fetch.tables.commit import MANIFEST, MovingCommit, Placement, is_local, is_pattern
from remote_fetch.tables.job_records import Committed
from remote_fetch.tables.staging import Staging

__all__ = ["Target"]

_CLAIM = "_claim.json"
"""The name of the file in a target that says whose commit is under way; readers pass over it as over the manifest."""


class Target(Staging):
    """The target of one job. `options` are fsspec's, for the filesystem that the URL's scheme names.

    Pickles by its arguments. Raises MissingExtra if the filesystem's SDK is not installed, ConfigError for an unknown
    scheme, for a whole bucket, and for a name that the filesystem takes for a pattern.
    """

    def __init__(self, url: str, job_id: str, options: Mapping[str, Any] | None = None) -> None:
        self._arguments = (url, job_id, dict(options or {}))
        fs, path = open_filesystem(url, self._arguments[2], key="to")
        self._is_local = is_local(fs)
        self.path = os.path.realpath(path) if self._is_local else path.rstrip("/")
        parent, name = posixpath.split(self.path)
        if not name or (not parent and is_object_store(fs)):
            raise ConfigError(f"to={url}: name a directory in it", key="to", hint=f"As {url.rstrip('/')}/orders")
        staging = posixpath.join(parent, f"_{name}.{job_id}")
        super().__init__(fs, job_id, staging, posixpath.join(staging, "attempts"))
        if type(self._commit) is MovingCommit and is_pattern(self.path):
            raise ConfigError(
                f"to={url}: fsspec takes this name for a pattern, by which it finds no file of that name, or others",
                key="to",
                hint="Name a directory without '*', '?' and '['",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, self._arguments

    def committed(self) -> Committed | None:
        """The manifest in the target; None if there is none."""
        return self._manifest(self.path, "Its data files stay readable. To export again, choose another target")

    def decided(self) -> Committed | None:
        """The manifest of a commit that was begun; None if none was."""
        again = f"To begin the job again, remove {self.staging} and {self.path}"
        return self._manifest(self.staging, again)

    def _manifest(self, folder: str, hint: str) -> Committed | None:
        name = posixpath.join(folder, MANIFEST)
        text = self._get(name)
        try:
            return None if text is None else Committed.load(text)
        except (CorruptSegment, UnsupportedFormat) as error:
            raise error.at(object_name=name, hint=hint) from None

    def is_free(self) -> bool:
        """Whether the target is absent or empty. A store lists the object by which its console makes a folder."""
        if not self._fs.exists(self.path):
            return True
        inside = (name for name in self._fs.ls(self.path, detail=False) if name.rstrip("/") != self.path)
        return self._fs.isdir(self.path) and not any(inside)

    def is_mount_point(self) -> bool:
        """Whether a disk is mounted at the target: no directory can be put in its place."""
        return self._is_local and os.path.ismount(self.path)

    def begin_again(self) -> None:
        """As `Staging.begin_again`. Raises StorageUnavailable if another driver has begun a commit in that time."""
        if self.decided() is not None:
            raise StorageUnavailable(
                f"another driver of the job has begun to commit to {self.path}",
                hint="The same call again finishes that commit",
            )
        super().clean_up()  # a claim in the target is another job's

    def clean_up(self) -> None:
        """As `Staging.clean_up`, when the manifest is there: the claim has done its work."""
        if not self._is_local:
            self._remove(posixpath.join(self.path, _CLAIM))
        super().clean_up()

    def decide(self, committed: Committed) -> None:
        """Begin a commit, unless another driver of the job has begun one. `decided` tells which of them it is."""
        self._put_new(posixpath.join(self.staging, MANIFEST), committed.dump())

    def complete(self, committed: Committed) -> None:
        """Put the files of the records in place, and then the manifest. If it fails anywhere, call it again.

        Raises StorageUnavailable if another commit is under way in the target, or has ended there, and if a file is
        gone: another driver may have ended the commit, or have begun the job again just before it was decided.
        """
        if not self._is_local:
            self._claim(committed)
        placements = [
            Placement(self.attempt_path(record.attempt, file.path), file.path, file.size_bytes)
            for record in committed.records
            for file in record.files
        ]
        manifest = committed.dump().encode("utf-8")
        try:
            self._commit.publish(placements, manifest, staging=self.staging, target=self.path)
        except FileNotFoundError as error:
            raise StorageUnavailable(
                f"{self.staging} lacks a file of the commit that was begun",
                hint=f"Run the same job again. If that fails too, remove {self.staging} and {self.path} first",
            ) from error
        self.clean_up()

    def _claim(self, committed: Committed) -> None:
        """Keep all other commits out of the target. Raises StorageUnavailable if one of them was first."""
        name, text = posixpath.join(self.path, _CLAIM), json.dumps(_identity(committed))
        self._put_new(name, text)
        is_own = self._get(name) == text.encode("utf-8")
        done = self.committed()  # looked for behind the claim: a commit that has ended has removed its own
        if is_own if done is None else _identity(done) == _identity(committed):
            return
        if is_own:
            self._remove(name)
        raise StorageUnavailable(
            f"another commit has begun to put its files into {self.path}",
            hint="Choose another target. If that commit has failed, the same call again finishes it; to do without its "
            f"files, remove {self.path}",
        )

    def _put_new(self, name: str, text: str) -> None:
        self._commit.put_new(name, text.encode("utf-8"), staging=self.staging)


def _identity(committed: Committed) -> dict[str, Any]:
    """The job of a commit, and the attempts whose files it has. No two attempts have the same name."""
    return {"job_id": committed.job_id, "attempts": [record.attempt for record in committed.records]}
